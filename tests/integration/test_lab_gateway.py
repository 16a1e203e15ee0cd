"""The lab's gateway by itself: the Kubernetes API as the server uses it, and a router that obeys objects written by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, web

from lab.kube import NAMESPACE, KubeApi
from lab.kube_objects import Key, selected
from lab.rendered import PATHS, Candidate, Rendered, pick
from lab.router import Router

Json = Any
INGRESS = "ai-route-route-1.internal"
ASK = {"model": "chat", "messages": []}


def objects(address: str, *, weights: tuple[int, int] | None = None, percents: str = "") -> dict[str, Json]:
    """A route `chat` over two instances of `m-a` and `m-b` at one address, as 2.3 (weights) or 2.2 (percents) renders it."""
    services = ["model-1-1.static", "model-2-2.static"]
    names = dict(zip(services, ("m-a", "m-b"), strict=True))
    lines = percents or "\n".join(f"50% {s}:80" for s in services)
    notes = {"higress.io/destination": lines, "higress.io/exact-match-header-x-higress-llm-model": "chat"}
    notes |= {"higress.io/rewrite-target": "/$1$3", "higress.io/proxy-next-upstream-tries": "2"}
    path = {"path": "/(v1)(-openai)?(/chat/completions)", "pathType": "ImplementationSpecific"}
    exact = [{"cluster": f"outbound|80||{s}", "targetId": s[6], "weight": w} for s, w in zip(services, weights or (), strict=False)]
    rules: list[Json] = [
        {"ingress": [INGRESS], "service": [s], "config": {"modelMapping": {"chat": name}}} for s, name in names.items() if not weights
    ]
    mappers = {"1": {"*": "m-a"}, "2": {"*": "m-b"}}
    rules += [{"ingress": [INGRESS], "config": {"candidates": exact, "modelMappers": mappers}}] if weights else []
    registries = [
        {"name": s.removesuffix(".static"), "type": "static", "domain": address, "port": 80} for s in [*services, "gpustack.static"]
    ]
    router = {"enableOnPathSuffix": ["/v1/chat/completions"]}
    made = {
        f"ingresses/{INGRESS}": {"metadata": {"annotations": notes}, "spec": {"rules": [{"http": {"paths": [path]}}]}},
        "ingresses/gpustack": {"metadata": {"annotations": {"higress.io/destination": "gpustack.static:80"}}, "spec": {"rules": []}},
        "mcpbridges/default": {"spec": {"registries": registries}},
        "wasmplugins/gpustack-model-mapper": {"spec": {"matchRules": rules}},
        "wasmplugins/gpustack-model-router": {"spec": {"defaultConfig": router}},
    }
    return made | ({f"envoyfilters/gpustack-lb-{INGRESS}": {"spec": {}}} if weights else {})


class Upstream:
    """Every instance and the server in one: says who was asked, streams, hangs, breaks off."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.cancelled = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.text() or "{}")
        self.asked.append({"path": request.path, "to": request.headers.get("X-GPUStack-Model-Instance"), **body})
        if not body.get("stream"):
            return web.json_response({"model": body.get("model"), "to": request.headers.get("X-GPUStack-Model-Instance")})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        if body.get("breaks"):
            assert request.transport is not None
            request.transport.abort()
            return response
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return response


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@asynccontextmanager
async def gateway(**how: Any) -> AsyncIterator[tuple[ClientSession, str, Upstream, KubeApi]]:
    """A client, the router's URL, what stands behind it, and the API that it watches."""
    upstream, kube, app, behind = Upstream(), KubeApi(), web.Application(), web.Application()
    behind.router.add_route("*", "/{path:.*}", upstream.handle)
    async with served(behind) as target, served(kube.app()) as api, ClientSession() as http:
        for name, body in objects(target.removeprefix("http://"), **how).items():
            await write(kube, name, body)
        router = Router(api)
        router.http = http
        app.router.add_route("*", "/{path:.*}", router.handle)
        following = [asyncio.create_task(router.follow(kind)) for kind in PATHS]
        async with served(app) as url:
            await asyncio.sleep(0.2)  # the watches have caught up
            yield http, url, upstream, kube
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def write(kube: KubeApi, name: str, body: Json) -> None:
    kind, _, called = name.partition("/")
    version = PATHS[kind].split("/namespaces")[0].removeprefix("/apis/")
    key = Key(version, kind, NAMESPACE, called)
    await (kube.objects.replace(key, body) if kube.objects.get(key) else kube.objects.create(key, body))


def test_a_request_goes_to_an_instance_under_its_deployments_name_and_the_rest_to_the_server() -> None:
    async def work() -> None:
        async with gateway(weights=(0, 5)) as (http, url, upstream, _):
            async with http.post(f"{url}/v1/chat/completions", json=ASK) as answer:
                assert (answer.status, answer.headers["server"]) == (200, "istio-envoy")
                assert await answer.json() == {"model": "m-b", "to": "model-2-2.static"}
            async with http.get(f"{url}/version") as answer:
                assert (await answer.json())["to"] is None
            assert [row["path"] for row in upstream.asked] == ["/v1/chat/completions", "/version"]

    asyncio.run(work())


def test_a_changed_object_changes_the_next_request() -> None:
    async def work() -> None:
        async with gateway(percents="100% model-1-1.static:80") as (http, url, _, kube):
            async with http.post(f"{url}/v1/chat/completions", json=ASK) as answer:
                assert (await answer.json())["model"] == "m-a"
            key = Key("networking.k8s.io/v1", "ingresses", NAMESPACE, INGRESS)
            body = json.loads(json.dumps(kube.objects.get(key)))
            body["metadata"]["annotations"]["higress.io/destination"] = "100% model-2-2.static:80"
            await kube.objects.replace(key, body)
            await asyncio.sleep(0.1)
            async with http.post(f"{url}/v1/chat/completions", json=ASK) as answer:
                assert (await answer.json())["model"] == "m-b"

    asyncio.run(work())


def test_a_stream_comes_as_it_is_made_and_ends_upstream_when_the_client_goes() -> None:
    async def work() -> None:
        async with gateway(weights=(1, 1)) as (http, url, upstream, _):
            async with http.post(f"{url}/v1/chat/completions", json={**ASK, "stream": True}) as answer:
                assert await asyncio.wait_for(answer.content.readany(), 2) == b"data: 1\n\n"
            await asyncio.wait_for(upstream.cancelled.wait(), 2)

    asyncio.run(work())


def test_a_stream_that_breaks_off_breaks_off_for_the_client() -> None:
    async def work() -> None:
        async with (
            gateway(weights=(1, 1)) as (http, url, _, _),
            http.post(f"{url}/v1/chat/completions", json={**ASK, "stream": True, "breaks": True}) as answer,
        ):
            with pytest.raises(ClientPayloadError):
                await asyncio.wait_for(answer.read(), 2)

    asyncio.run(work())


def test_writes_are_refused_as_often_as_was_asked_and_listed() -> None:
    async def work() -> None:
        async with served(KubeApi().app()) as api, ClientSession() as http:
            at = f"{api}{PATHS['ingresses'].format(ns=NAMESPACE)}"
            async with http.post(at, json={"metadata": {"name": "one"}}) as made:
                assert made.status == 201
                first = await made.json()
            async with http.post(f"{api}/_fault", json={"method": "PUT", "match": "ingresses", "status": 500, "times": 1}):
                pass
            statuses = []
            for _ in range(3):  # refused once; taken; made from an old version
                async with http.put(f"{at}/one", json=first) as answer:
                    statuses.append(answer.status)
            assert statuses == [500, 200, 409]
            async with http.get(f"{api}/_audit") as answer:
                seen = [(row["method"], row["status"]) for row in await answer.json()]
            assert [row for row in seen if row[0] == "PUT"] == [("PUT", 500), ("PUT", 200), ("PUT", 409)]

    asyncio.run(work())


def test_labels_select() -> None:
    thing = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    assert selected(thing, "")
    assert selected(thing, "a=1,b")
    assert not selected(thing, "a=2")
    assert not selected(thing, "c")


def test_the_hash_of_the_request_id_picks_by_exact_weights() -> None:
    both = [Candidate("model-1-1.static", 90, "m-a"), Candidate("model-2-2.static", 10, "m-b")]
    picked = [found.model for n in range(4000) if (found := pick("lb", both, f"id-{n}"))]
    assert abs(picked.count("m-b") - 400) < 100
    assert {pick("lb", both, "same") for _ in range(20)} == {pick("lb", both, "same")}
    assert pick("percent", [], "x") is None


def test_a_generic_path_and_a_header_name_the_route_too() -> None:
    rendered = Rendered()
    rendered.objects["wasmplugins"]["gpustack-model-router"] = {"spec": {"defaultConfig": {"aliasNameMapping": {"7": "chat"}}}}
    assert rendered.model_of("/model/proxy/7/score", None, None) == "chat"
    assert rendered.model_of("/model/proxy/8/score", None, None) is None
    assert rendered.model_of("/anything", None, "other") == "other"
