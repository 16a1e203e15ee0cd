"""A simulated inference engine: OpenAI-compatible JSON and SSE, latency that grows with load, vLLM's metrics page.

It is a handler object, not a server: `serve` answers in process, `handle` answers an aiohttp request, `app` is a listener's
application. It knows no GPUStack and no node; it must never wait in a way that a hard stop cannot end at once.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from rollout.clock import SystemClock
from rollout.testing.answers import embedding, is_wrong, prompt_text, prompt_tokens, words
from rollout.testing.engine_metrics import EngineStats, Family, render, vllm_families
from rollout.testing.knobs import Knobs
from rollout.testing.shapes import Body, choice, chunk_frame, error_body, event, whole
from rollout.testing.slots import EngineStopped, Slots

__all__ = ["EngineStartFailed", "EngineStopped", "Knobs", "Reply", "SimEngine"]


class EngineStartFailed(Exception):
    """The engine did not come up (knob `fail_start`)."""


@dataclass
class Reply:
    """An answer before it is put on a wire: a JSON body, or SSE bytes (one or more events a piece)."""

    status: int
    body: Any = None
    stream: AsyncGenerator[bytes, None] | None = None


@dataclass
class _Job:
    """One generation request with every decision taken."""

    head: Body  # id, object, created, model, system_fingerprint
    chat: bool
    prompt: int  # tokens
    text: list[str]  # output tokens
    finish: str | None  # None: the stream is truncated
    ttft: float | None  # overrides from the request
    delay: float | None
    arrived: float
    first_at: float = 0.0
    done: int = 0

    def usage(self) -> Body:
        return {"prompt_tokens": self.prompt, "completion_tokens": self.done, "total_tokens": self.prompt + self.done}


class SimEngine:
    """One engine process. Counters are public: inflight, total, errors, cut, aborted, served."""

    def __init__(self, name: str, model_name: str, knobs: Knobs, *, on_crash: Callable[[SimEngine], Awaitable[None]] | None = None) -> None:
        self.name, self.model_name, self.knobs, self.on_crash = name, model_name, knobs, on_crash
        self.total = self.errors = self.cut = self.aborted = self.served = 0
        self.kv_tokens = self.leaked = 0
        self.ready = True
        self.stopped = False
        self.stats = EngineStats()
        self.started_at = SystemClock().now().timestamp()
        self._slots = Slots(lambda: self.knobs.slots)
        self._rng = random.Random(name if knobs.seed is None else f"seed {knobs.seed}")
        self._background: set[asyncio.Future[Any]] = set()

    # --- life

    @property
    def running(self) -> int:
        return self._slots.running

    @property
    def waiting(self) -> int:
        return self._slots.waiting

    @property
    def inflight(self) -> int:
        """Requests inside, running or queued."""
        return self.running + self.waiting

    async def boot(self) -> None:
        """Load for `start_delay` seconds, then be ready; raises EngineStartFailed (knob) or EngineStopped."""
        self.ready = False
        await self._slots.pause(self.knobs.start_delay)
        if self.knobs.fail_start:
            raise EngineStartFailed(self.name)
        self.ready = True

    def stop(self, *, hard: bool = True) -> None:
        """End the process. Hard: every running request is cut now. Soft: no new ones, running ones finish."""
        self.stopped = True
        if hard:
            self._slots.kill()

    async def drained(self) -> None:
        """Return when no request is inside any more."""
        await self._slots.drained()

    def crash(self) -> None:
        """Die as a process does: everything inside is cut, and whoever supervises is told."""
        if self.stopped:
            return
        self.stop(hard=True)
        if self.on_crash is not None:
            task = asyncio.ensure_future(self.on_crash(self))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def memory_bytes(self) -> int:
        """Weights, KV cache of the requests in flight, and what has leaked."""
        return self.knobs.weights_bytes + self.kv_tokens * self.knobs.bytes_per_token + self.leaked

    # --- metrics

    def families(self, model_name: str | None = None) -> list[Family]:
        """The metrics page as families (labels model_name, engine)."""
        if self.knobs.bare_metrics:
            return [Family("process_start_time_seconds", "gauge", [("", {}, self.started_at)])]
        running, waiting = self._slots.peak if self.knobs.stuck_gauges else (self.running, self.waiting)
        labels = {"engine": "0", "model_name": model_name or self.model_name}
        usage = min(1.0, self.kv_tokens * self.knobs.bytes_per_token / max(1, self.knobs.kv_bytes))
        return vllm_families(
            self.stats,
            labels,
            running=running,
            waiting=waiting,
            kv_usage=usage,
            started_at=self.started_at,
            version=self.knobs.engine_version,
        )

    def metrics_text(self) -> str:
        """The page a scraper gets from this engine's own port."""
        return render(self.families())

    # --- requests

    async def serve(self, path: str, body: Body) -> Reply:
        """Answer one request in process. Raises EngineStopped when the process is gone or dies meanwhile."""
        if self.stopped:
            raise EngineStopped(self.name)
        if path.endswith("/models"):
            return Reply(200, {"object": "list", "data": [{"id": self.model_name, "object": "model", "owned_by": "vllm"}]})
        if not self.ready:
            return Reply(503, error_body("engine is loading", 503))
        self.total += 1
        if self.knobs.crash_after_requests is not None and self.total >= self.knobs.crash_after_requests:
            self.crash()
            raise EngineStopped(self.name)
        self.leaked += self.knobs.leak_bytes_per_request
        sim = body.get("sim") or {}
        status = int(sim.get("fail") or (500 if self._hit(self.knobs.fail_rate) else 0))
        if status:
            self.errors += 1
            self.stats.finished["error"] += 1
            return Reply(status, error_body("simulated failure", status))
        if path.endswith("/embeddings"):
            return await self._embed(body)
        if not path.endswith("/completions"):
            return Reply(404, error_body(f"no such path {path}", 404))
        job = self._job(body, sim, chat=path.endswith("/chat/completions"))
        if body.get("stream"):
            return Reply(200, stream=self._sse(job))
        async for _ in self._generate(job):
            pass
        return Reply(200, whole(job.head, "".join(job.text), job.finish, job.usage(), chat=job.chat))

    def _job(self, body: Body, sim: Body, *, chat: bool) -> _Job:
        text, limit = prompt_text(body), body.get("max_completion_tokens") or body.get("max_tokens")
        count = int(sim.get("tokens") or limit or self.knobs.tokens)
        count = min(count, int(limit)) if limit else count
        finish: str | None = "length" if limit and count == int(limit) else "stop"
        said = words(text, count, wrong=self.knobs.wrong_answers or is_wrong(text, self.knobs.wrong_rate))
        if self._hit(self.knobs.truncate_rate):
            finish, said = None, said[: max(1, count // 2)]
        elif self._hit(self.knobs.abort_rate):
            finish, said = "abort", said[: max(1, count // 2)]
        if self.knobs.empty_answers:
            said = [""]
        head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex[:16]}",
            "object": "chat.completion" if chat else "text_completion",
            "created": int(SystemClock().now().timestamp()),
            "model": body.get("model") or self.model_name,
            "system_fingerprint": self.name,
        }
        return _Job(head, chat, prompt_tokens(text), said, finish, sim.get("ttft"), sim.get("delay"), time.monotonic())

    async def _generate(self, job: _Job) -> AsyncGenerator[str, None]:
        """Queue, first token, further tokens; keeps every counter right however the request ends."""
        await self._enter()
        tokens_held = job.prompt + len(job.text)
        self.kv_tokens += tokens_held
        try:
            job_started = time.monotonic()
            self.stats.queue.observe(job_started - job.arrived)
            self.stats.prompt_tokens += job.prompt
            due = job_started + (self._first_token_time(job.prompt) if job.ttft is None else float(job.ttft))
            last = 0.0
            for token in job.text:
                await self._slots.pause(due - time.monotonic())
                now = time.monotonic()
                self._count_token(job, now, last)
                last = now
                due += self._token_time() if job.delay is None else float(job.delay)
                yield token
            self._finish(job)
        except (GeneratorExit, asyncio.CancelledError):
            self.aborted += 1
            self.stats.finished["abort"] += 1
            raise
        except EngineStopped:
            self.cut += 1
            raise
        finally:
            self.kv_tokens -= tokens_held
            self._slots.leave()

    async def _enter(self) -> None:
        try:
            await self._slots.enter()
        except EngineStopped:
            self.cut += 1
            raise
        except (GeneratorExit, asyncio.CancelledError):
            self.aborted += 1
            self.stats.finished["abort"] += 1
            raise

    def _count_token(self, job: _Job, now: float, last: float) -> None:
        if job.done == 0:
            job.first_at = now
            self.stats.ttft.observe(now - job.arrived)
        else:
            self.stats.itl.observe(now - last)
        job.done += 1
        self.stats.generation_tokens += 1

    def _finish(self, job: _Job) -> None:
        now = time.monotonic()
        self.served += 1
        self.stats.finished[job.finish or "stop"] += 1
        self.stats.e2e.observe(now - job.arrived)
        if job.done > 1:
            self.stats.tpot.observe((now - job.first_at) / (job.done - 1))

    async def _sse(self, job: _Job) -> AsyncGenerator[bytes, None]:
        """Chunks, the last one with finish_reason and usage, then [DONE]; nothing after the text when truncated."""
        head = dict(job.head, object="chat.completion.chunk" if job.chat else "text_completion")
        before, after = chunk_frame(head, chat=job.chat)
        first = event(dict(head, choices=[choice(job.chat, "", None, role=True)])) if job.chat else b""
        async with aclosing(self._generate(job)) as tokens:
            async for token in tokens:
                yield first + before + token.encode() + after
                first = b""
        if job.finish is not None:
            yield event(dict(head, choices=[choice(job.chat, None, job.finish)], usage=job.usage())) + b"data: [DONE]\n\n"

    async def _embed(self, body: Body) -> Reply:
        inputs = body.get("input") or ""
        texts = inputs if isinstance(inputs, list) else [inputs]
        count = sum(prompt_tokens(str(text)) for text in texts)
        head = {"model": body.get("model") or self.model_name, "id": f"embd-{uuid.uuid4().hex[:16]}"}
        job = _Job(head, False, count, [""], "stop", (body.get("sim") or {}).get("ttft"), None, time.monotonic())
        async for _ in self._generate(job):
            pass
        wrong = self.knobs.wrong_answers
        vectors = [{"object": "embedding", "index": i, "embedding": embedding(str(text), wrong=wrong)} for i, text in enumerate(texts)]
        return Reply(200, {"object": "list", **head, "data": vectors, "usage": {"prompt_tokens": count, "total_tokens": count}})

    # --- time

    def _load(self) -> float:
        return 1.0 + self.knobs.load_factor * max(0, self.running - 1)

    def _first_token_time(self, prompt: int) -> float:
        k = self.knobs
        noise = self._rng.lognormvariate(0.0, k.jitter) if k.jitter else 1.0
        tail = k.tail_factor if self._hit(k.tail_share) else 1.0
        return (k.ttft_base + k.prefill_per_token * prompt) * k.ttft_factor * self._load() * noise * tail

    def _token_time(self) -> float:
        return self.knobs.tpot * self.knobs.tpot_factor * self._load()

    def _hit(self, rate: float) -> bool:
        return rate > 0 and self._rng.random() < rate

    # --- HTTP

    def app(self) -> web.Application:
        """The application of the instance's own port."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/v1/{tail:.*}", self.handle)
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready and not self.stopped else 503)

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": self.knobs.engine_version})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.metrics_text(), content_type="text/plain")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer an aiohttp request. The runner needs `handler_cancellation=True`, or a client that leaves is not noticed."""
        try:
            body = await request.json() if request.can_read_body else {}
        except ValueError:
            return web.json_response(error_body("body is not JSON", 400), status=400)
        try:
            reply = await self.serve(request.path, body)
            if reply.stream is None:
                return web.json_response(reply.body, status=reply.status)
            return await write_stream(request, reply.stream, {"X-Backend": self.name})
        except EngineStopped:
            if request.transport is not None:
                request.transport.abort()  # a killed process resets its connections
            return web.Response(status=503)


async def write_stream(request: web.Request, stream: AsyncGenerator[bytes, None], headers: dict[str, str]) -> web.StreamResponse:
    """Put SSE bytes on the wire; closes the generator however it ends."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", **headers})
    async with aclosing(stream) as pieces:
        await response.prepare(request)
        async for piece in pieces:
            await response.write(piece)
        await response.write_eof()
    return response
