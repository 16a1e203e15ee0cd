"""What the engines of a deployment say about themselves, read from metrics pages: one page a worker, however many deployments.

vLLM, SGLang and MindIE are read from their worker (`http://<worker ip>:<metrics port>/metrics/raw`, else `/metrics`: the raw page
has the engines' own names and their start time, the unified one only `gpustack:*`); the worker refreshes both every 3 s. All other
backends are skipped there, so those instances' own `http://<worker ip>:<instance port>/metrics` is read. One scrape proves nothing:
a gauge may be stale and a page may hang while the engine serves. This room says what it read and why not; it concludes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollout.clients.sse import MIB, Call, Exchange, TimedClient
from rollout.clock import Clock
from rollout.domain.world import DeploymentView, EngineSample, InstanceSample
from rollout.sources.aliases import WANTED, sample_of
from rollout.sources.prometheus_text import PageError, Series, parse
from rollout.sources.refs import DeploymentRef, InstanceRef, refs_of

Json = Any

TIMEOUT = 2.0
"""seconds for one page"""
CAP = 16 * MIB
"""bytes of one page; a worker with 64 engines has about 5 MiB"""
SCRAPED = frozenset({"vllm", "sglang", "mindie"})
"""backends whose pages the worker collects; the others answer for themselves"""
WORKER_PAGES = ("/metrics/raw", "/metrics")
NO_SUCH_PAGE = frozenset({404, 405, 410, 501})
_UNKNOWN = InstanceSample(None, None, None, None, None, None, None)


@dataclass(frozen=True)
class Page:
    """A page as far as it could be read. `absent`: the server says that it has none; `why`: it could not be read.

    `reached`: there was a whole answer, whatever it said.
    """

    series: tuple[Series, ...] = ()
    absent: bool = False
    why: str = ""
    reached: bool = True

    def of(self, instance: InstanceRef) -> InstanceSample | None:
        """The sample of one instance on a worker's page."""
        return sample_of(s for s in self.series if _belongs(s.labels, instance))


@dataclass
class _Read:
    """One deployment's findings while its instances are gone through."""

    found: dict[str, InstanceSample] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class EngineMetrics:
    """Reads engine samples. Satisfies the backends' `SampleSource`."""

    def __init__(self, client: TimedClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._page_of: dict[str, str] = {}  # worker -> the page that worked last

    async def read(
        self, deployments: Mapping[str, DeploymentView], workers_raw: Sequence[Mapping[str, Json]]
    ) -> Mapping[str, EngineSample]:
        """One `EngineSample` a deployment; never raises for an engine or a worker. The arguments are those of `refs.refs_of`.

        OK: at least one engine was read and no page failed (an instance that its worker does not show yet has all values None).
        NO_METRIC: pages were read, and no engine exposes a known name. METRIC_ERROR: a page could not be read; `why` says which.
        """
        return await self.sample(refs_of(deployments, workers_raw))

    async def sample(self, refs: Mapping[str, DeploymentRef]) -> dict[str, EngineSample]:
        """The same from addresses."""
        workers = sorted({url for ref in refs.values() if _scraped(ref) for i in ref.instances if (url := _worker(i))})
        own = sorted({url for ref in refs.values() if not _scraped(ref) for i in ref.instances if (url := _own(i))})
        pages = await asyncio.gather(*map(self._worker_page, workers), *(self._page(f"{url}/metrics") for url in own))
        of_workers, of_engines = dict(zip(workers, pages, strict=False)), dict(zip(own, pages[len(workers) :], strict=True))
        return {name: self._one(ref, of_workers if _scraped(ref) else of_engines) for name, ref in refs.items()}

    def _one(self, ref: DeploymentRef, pages: Mapping[str, Page]) -> EngineSample:
        read = _Read()
        for instance in ref.instances:
            url = _worker(instance) if _scraped(ref) else _own(instance)
            page = pages[url] if url else Page(why="its address is not known")
            sample = page.of(instance) if _scraped(ref) else sample_of(page.series)
            if page.why:
                read.failed.append(f"{instance.name}: {page.why}")
            elif sample is None:
                read.silent.append(instance.name)
            else:
                read.found[instance.name] = sample
        now = self._clock.now()
        if read.failed:
            return EngineSample(now, "METRIC_ERROR", read.found, "; ".join(read.failed))
        if not read.found:
            why = f"no known metric of {', '.join(read.silent)}" if read.silent else "no instance is running"
            return EngineSample(now, "NO_METRIC", {}, why)
        # A silent instance beside one that speaks stays in, unknown: leaving it out would hide its requests in flight.
        silent = dict.fromkeys(read.silent, _UNKNOWN)
        return EngineSample(now, "OK", {**read.found, **silent}, f"nothing known of {', '.join(silent)}" if silent else "")

    async def _worker_page(self, worker: str) -> Page:
        """The page that worked last, else the other one; a worker that does not answer is not asked twice."""
        page = Page()
        for path in sorted(WORKER_PAGES, key=lambda path: path != self._page_of.get(worker)):
            page = await self._page(worker + path)
            if not page.absent and not page.why:
                self._page_of[worker] = path
                return page
            if not page.reached:
                return page
        # A worker always has a metrics page: without one nothing is known of its engines, which is not "they expose none".
        return page if page.why else Page(why=f"{worker}/metrics does not exist")

    async def _page(self, url: str) -> Page:
        answer = await self._client.exchange(Call("GET", url, {"Accept": "text/plain"}), timeout=TIMEOUT, cap=CAP)
        return _page_of(url, answer)


def _page_of(url: str, answer: Exchange) -> Page:
    if answer.failure is not None:
        return Page(why=f"{url}: {answer.failure.value}, {answer.detail}", reached=False)
    if answer.status in NO_SUCH_PAGE:
        return Page(absent=True)
    kind = (answer.headers.get("content-type") or "text/plain").split(";")[0].strip().lower()
    if answer.status != 200 or not (kind == "text/plain" or kind.startswith("application/openmetrics")):
        return Page(why=f"{url}: answered {answer.status} {kind}, expected a metrics page")
    try:
        return Page(tuple(parse(answer.body.decode("utf-8"), WANTED)))
    except UnicodeDecodeError:
        return Page(why=f"{url}: the page is not text")
    except PageError as error:
        return Page(why=f"{url}: {error}")


def _scraped(ref: DeploymentRef) -> bool:
    return (ref.backend or "").lower() in SCRAPED


def _worker(instance: InstanceRef) -> str | None:
    return _base(instance.worker_ip, instance.metrics_port)


def _own(instance: InstanceRef) -> str | None:
    return _base(instance.worker_ip, instance.port)


def _base(host: str | None, port: int | None) -> str | None:
    if not host or not port:
        return None
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _belongs(labels: Mapping[str, str], instance: InstanceRef) -> bool:
    """By id where the page has it, else by name: names are used again, ids are not."""
    if "model_instance_id" in labels:
        return labels["model_instance_id"] == str(instance.id)
    return labels.get("model_instance_name") == instance.name
