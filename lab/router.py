"""`python -m lab.router`: stands in for the gateway's data plane; forwards requests the way the rendered objects say.

Authorises with the server, picks an instance, rewrites the model's name, streams, stops upstream when the client goes, tries
twice on the same instance, and hands what no model route takes to the server. Not modelled: Envoy's own delays, limits and
ejection, scoring plugins, `maxRunningRequests`. For tests: `GET /_router/routes` shows who gets what, `GET /_router/stats`
counts requests by route, service and status (`DELETE` empties it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any
from uuid import uuid4

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from lab.kube import NAMESPACE
from lab.ports import HOST
from lab.rendered import FALLBACK_HEADER, MODEL_HEADER, PATHS, Candidate, Rendered, pick

Json = Any
Headers = dict[str, str]
HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length", "accept-encoding", "server", "date"}
)
STRIPPED = frozenset({"x-gpustack-auth-token", "x-gpustack-model-instance", "x-mse-consumer", FALLBACK_HEADER, "x-higress-target-cluster"})
ENVOY = {"server": "istio-envoy"}
TRUSTED_SECONDS = 10.0
"""how long a caller who was let in is not asked for again; the real gateway does so for minutes"""


class Router:
    """One gateway."""

    def __init__(self, kube: str) -> None:
        self.kube, self.rendered = kube, Rendered()
        self.stats: Counter[tuple[str, str, int]] = Counter()
        self._trusted: dict[tuple[str, str], float] = {}
        self.http: ClientSession

    async def follow(self, kind: str) -> None:
        """Keep one kind of objects up to date, for as long as the process lives."""
        while True:
            known = self.rendered.objects[kind]
            try:
                async with self.http.get(f"{self.kube}{PATHS[kind].format(ns=NAMESPACE)}?watch=true") as events:
                    known.clear()
                    async for line in events.content:
                        event = json.loads(line)
                        name = event["object"]["metadata"]["name"]
                        known.pop(name, None) if event["type"] == "DELETED" else known.update({name: event["object"]})
            except (ClientError, ValueError) as error:
                print(f"{kind}: {error!r}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.3)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request of a client."""
        raw = await request.read()
        headers = {k.lower(): v for k, v in request.headers.items() if k.lower() not in HOP | STRIPPED}
        headers.setdefault("x-request-id", str(uuid4()))
        body = _json(request, raw)
        model = self.rendered.model_of(request.path, body, headers.pop("x-gpustack-model", None))
        if model:
            headers[MODEL_HEADER] = model
        found = self.rendered.match(request.path, headers)
        if found is None or not model:
            return await self._anchor(request, raw, headers)
        refused = await self._authorised(headers, model)
        if refused is not None:
            self.stats[found[0], "auth", refused.status] += 1
            return refused
        for name in ("cookie", "x-api-key"):
            headers.pop(name, None)
        return await self._route(request, found, headers, raw, body)

    async def _route(self, request: web.Request, at: tuple[str, str], headers: Headers, raw: bytes, body: Json) -> web.StreamResponse:
        """The chosen instance's answer; after an error the fallback's, where there is one."""
        answer = await self._target(request, at, headers, raw, body, last=not self.rendered.falls_back(at[0]))
        if answer is not None:
            return answer
        headers[FALLBACK_HEADER] = at[0]
        second = self.rendered.match(request.path, headers)
        answer = await self._target(request, second, headers, raw, body, last=True) if second else None
        return answer or _error(503, "no fallback route")

    async def _target(
        self, request: web.Request, at: tuple[str, str], headers: Headers, raw: bytes, body: Json, *, last: bool
    ) -> web.StreamResponse | None:
        """None when it failed and somebody else is to be asked."""
        ingress, path = at
        chosen = pick(*self.rendered.shares(ingress), headers["x-request-id"])
        if chosen is None:
            self.stats[ingress, "none", 503] += 1
            return _error(503, "no healthy model instance available")
        tries = int(self.rendered.annotations(ingress).get("higress.io/proxy-next-upstream-tries", "1"))
        sent = json.dumps({**body, "model": chosen.model}).encode() if isinstance(body, dict) and "model" in body and chosen.model else raw
        for left in reversed(range(tries)):
            answer = await self._ask(request, ingress, chosen, path, headers, sent, again=left > 0, last=last)
            if answer is not None:
                return answer
        return _error(503, "upstream connect error") if last else None

    async def _ask(
        self, request: web.Request, ingress: str, chosen: Candidate, path: str, headers: Headers, raw: bytes, *, again: bool, last: bool
    ) -> web.StreamResponse | None:
        """One try on one instance; None when there may be another, or nobody answered."""
        address, token = self.rendered.address(chosen.service), self.rendered.credential(chosen.service)
        sent = {**headers, "x-gpustack-model-instance": chosen.service, "x-gpustack-route-name": ingress}
        sent |= {"authorization": f"Bearer {token}"} if token else {}
        query = f"?{request.query_string}" if request.query_string else ""
        if address is None:
            self.stats[ingress, chosen.service, 503] += 1
            return None
        try:
            async with self.http.request(request.method, f"http://{address}{path}{query}", data=raw, headers=sent) as upstream:
                if (upstream.status in (502, 503) and again) or (upstream.status >= 400 and not last):
                    await upstream.read()
                    return None
                self.stats[ingress, chosen.service, upstream.status] += 1
                extra = {FALLBACK_HEADER: headers[FALLBACK_HEADER]} if FALLBACK_HEADER in headers else {}
                return await _passed(request, upstream, extra)
        except ClientError:
            self.stats[ingress, chosen.service, 503] += 1
            return None

    async def _authorised(self, headers: Headers, model: str) -> web.Response | None:
        """None when the caller may use the route, else the server's refusal."""
        asked = self.rendered.authorization()
        who = (headers.get("authorization") or headers.get("x-api-key") or headers.get("cookie") or "", model)
        if asked is None or self._trusted.get(who, 0.0) > time.monotonic():
            return None
        url, added = asked
        shown = {k: v for k, v in headers.items() if k in ("authorization", "x-api-key", "cookie", MODEL_HEADER)}
        try:
            async with self.http.get(url, headers={**shown, **added}) as answer:
                body = await answer.read()
                if answer.status == 200:
                    self._trusted[who] = time.monotonic() + TRUSTED_SECONDS
                    return None
                return web.Response(status=answer.status, body=body, content_type="application/json", headers=ENVOY)
        except ClientError:
            return _error(403, "authorization is not available")

    async def _anchor(self, request: web.Request, raw: bytes, headers: Headers) -> web.StreamResponse:
        address = self.rendered.address(self.rendered.anchor() or "")
        if address is None:
            return _error(404, "no route")
        try:
            url = f"http://{address}{request.path_qs}"
            async with self.http.request(request.method, url, data=raw, headers=headers, allow_redirects=False) as upstream:
                self.stats["anchor", "server", upstream.status] += 1
                return await _passed(request, upstream, {})
        except ClientError:
            return _error(503, "upstream connect error")

    async def control(self, request: web.Request) -> web.Response:
        """What tests ask for."""
        if request.path.endswith("/routes"):
            all_shares = {name: self.rendered.shares(name) for name in self.rendered.model_ingresses()}
            return web.json_response({n: {"mode": mode, "candidates": [c.shown() for c in cs]} for n, (mode, cs) in all_shares.items()})
        if request.method == "DELETE":
            self.stats.clear()
        return web.json_response([{"route": r, "service": s, "status": c, "count": n} for (r, s, c), n in self.stats.items()])


async def _passed(request: web.Request, upstream: Any, extra: Headers) -> web.StreamResponse:
    """The answer as it comes; one that breaks off breaks off for the client too."""
    headers = {k: v for k, v in upstream.headers.items() if k.lower() not in HOP}
    response = web.StreamResponse(status=upstream.status, headers={**headers, **extra, **ENVOY})
    await response.prepare(request)
    try:
        async for piece in upstream.content.iter_any():
            await response.write(piece)
    except ClientError:
        if request.transport is not None:
            request.transport.close()
        return response
    await response.write_eof()
    return response


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=ENVOY)


def _json(request: web.Request, raw: bytes) -> Json:
    if not raw or "json" not in request.content_type:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return None


async def serve(kube: str, port: int) -> None:
    """Until the process is ended."""
    router = Router(kube)
    limits = TCPConnector(limit=0, keepalive_timeout=3.0)  # the server closes what idles for 5 s
    async with ClientSession(timeout=ClientTimeout(total=1800), connector=limits, auto_decompress=False, trust_env=False) as http:
        router.http = http
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/_router/{what}", router.control)
        app.router.add_route("*", "/{path:.*}", router.handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, HOST, port, backlog=1024).start()
        await asyncio.gather(*(router.follow(kind) for kind in PATHS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.router")
    parser.add_argument("--kube", required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(serve(given.kube, given.port))
