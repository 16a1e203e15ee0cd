"""Servers that answer outside their contract, through the command: the right code, what to do next, bounded time and memory."""

from __future__ import annotations

import itertools
import json
import socket
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.clients.http import Http, Limits
from rollout.clock import SystemClock
from tests.integration.badinput.said import KEYS, Shell
from tests.integration.badinput.wire import INSTANCE, MODEL, ROUTE, TARGET, WORKER, Answer, Wire, http, page, site
from tests.unit.plan.kit import GOOD

MIB = 1 << 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between attempts, and patience is short."""

    async def at_once(_clock: SystemClock, _seconds: float) -> None:
        return None

    monkeypatch.setattr(SystemClock, "sleep", at_once)
    monkeypatch.setattr("rollout.engine.run.FIRST", 1.0)
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "limits", Limits(connect=1.0, read=0.5, total=1.5, body=16 * MIB))


def planned(shell: Shell, answers: dict[str, Answer], code: int) -> str:
    """`rollout plan` against a server with these answers."""
    with Wire(answers) as wire:
        return asked(shell, wire.url, code)


def asked(shell: Shell, url: str, code: int) -> str:
    Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", url))
    began = time.monotonic()
    said = shell.fails(code, "plan", "plan.yaml")
    assert time.monotonic() - began < 10
    assert len(said) < 2000
    return said


def test_the_sound_site_is_sound(shell: Shell) -> None:
    with Wire(site()) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        said = shell.run("plan", "plan.yaml")
    assert (said.code, "ready: `rollout run` would start this" in said.out) == (0, True), said


WHOLE: dict[str, tuple[Answer, int, str]] = {
    "login-page": (http("<html><body>Sign in</body></html>", kind="text/html"), 20, "it is not JSON: <html>"),
    "proxy-error": (http("<html>Bad Gateway</html>", status="502 Bad Gateway", kind="text/html"), 20, "answered 502"),
    "cut-json": (http('{"version": "v2.'), 20, "it is not JSON"),
    "cut-body": (b'HTTP/1.1 200 OK\r\nContent-Length: 400\r\nConnection: close\r\n\r\n{"ver', 20, "broke off in its answer"),
    "empty": (http(""), 20, "`answer`"),
    "nothing-at-all": (b"", 20, "got no answer"),
    "not-http": (b"SSH-2.0-OpenSSH_9.6\r\nConnection: close\r\n\r\n", 20, "got no answer"),
    "old-http": (b"HTTP/0.9 200\r\nConnection: close\r\n\r\n", 20, "`answer`"),
    "endless-header": (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\nConnection: close\r\n\r\n", 20, "got no answer"),
    "garbage-chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\nConnection: close\r\n", 20, "broke off"),
    "compressed": (http(b"\x1f\x8bnot really", more="Content-Encoding: gzip\r\n"), 20, "cannot be used"),
    "list": (http("[]"), 20, "`answer`"),
    "number": (http("17"), 20, "`answer`"),
    "null": (http("null"), 20, "`answer`"),
    "wrong-type": (http('{"version": 2.3}'), 20, "`version`"),
    "missing-key": (http('{"git_commit": "63a03ba"}'), 20, "`version`: Field required"),
    "nan": (http('{"version": NaN}'), 20, "it is not JSON"),
    "deep": (http("[" * 100_000), 20, "it is not JSON"),
    "long-number": (http('{"version": ' + "9" * 9000 + "}"), 20, "it is not JSON"),
    "latin-1": (http(b'{"version": "v2.3.0\xff'), 20, "it is not JSON"),
    "steers-a-terminal": (http('{"message": "\\u001b[2J\\u001b[31mgone \\ud800"}', status="500 Oops"), 20, "gone"),
    "redirect": (http("", status="302 Found", more="Location: http://192.0.2.1/login\r\n"), 20, "redirects are not followed"),
    "redirect-to-tls": (http("", status="308 Permanent Redirect", more="Location: https://127.0.0.1/\r\n"), 20, "it redirects (308)"),
    "unauthorized": (http('{"code":401,"message":"Invalid authentication credentials"}', status="401 Unauthorized"), 3, "make a new one"),
    "forbidden": (
        http('{"code":403,"message":"API key does not have permission to access management features"}', status="403 Forbidden"),
        3,
        "scope `management`",
    ),
    "not-found": (http('{"detail":"Not Found"}', status="404 Not Found"), 3, "was refused (404)"),
    "gone": (http("", status="410 Gone"), 3, "it said nothing"),
    "teapot": (http("x" * 9000, status="418 Teapot", kind="text/plain"), 3, "…"),
    "too-many": (http('{"message":"slow down"}', status="429 Too Many", more="Retry-After: 1\r\n"), 20, "slow down"),
    "too-many-for-ever": (http("{}", status="429 Too Many", more="Retry-After: 99999999\r\n"), 20, "answered 429"),
    "too-many-nonsense": (http("{}", status="429 Too Many", more="Retry-After: soon\r\n"), 20, "answered 429"),
    "internal": (http('{"message":"boom"}', status="500 Internal Server Error"), 20, "boom"),
    "starting": (http("starting", status="503 Service Unavailable", kind="text/plain"), 20, "starting"),
    "echoes-the-key-at-the-cut": (
        http(json.dumps({"message": f"{'x' * 200} Authorization: Bearer {KEYS['ROLLOUT_MANAGEMENT_KEY']} {'y' * 90}"}), status="500 Oops"),
        20,
        "x Authorization: Bearer *** y",
    ),
    "html-with-the-key-at-the-cut": (
        http(f"<p>{'x' * 230} {KEYS['ROLLOUT_MANAGEMENT_KEY']}</p>", kind="text/html"),
        20,
        "it is not JSON: <p>xxx",
    ),
    "tells-a-login": (
        http('{"message":"cannot reach postgresql://gpustack:canary7never@db.lan:5432/x"}', status="500 Oops"),
        20,
        "cannot reach postgresql://***@db.lan:5432/x",
    ),
    "tells-a-variable": (http('{"message":"env: HF_TOKEN=hf_canary7never PORT=80"}', status="409 Conflict"), 3, "HF_TOKEN=*** PORT=80"),
    "tells-it-in-the-status": (b"HTTP/1.1 2x0 " + b"x" * 170 + KEYS["ROLLOUT_MANAGEMENT_KEY"].encode() + b"\r\n\r\n", 20, "got no answer"),
    "status-600": (http("{}", status="600 Odd"), 20, "answered 600"),
    "no-content": (b"HTTP/1.1 204 No Content\r\n\r\n", 20, "`answer`"),
    "informational": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50 + http("{}"), 20, "`version`: Field required"),
}


@pytest.mark.parametrize("name", WHOLE, ids=str)
def test_an_answer_that_is_none_is_told_with_what_to_do(shell: Shell, name: str) -> None:
    answer, code, words = WHOLE[name]
    said = planned(shell, site(version=answer), code)
    assert "canary7" not in said
    assert KEYS["ROLLOUT_MANAGEMENT_KEY"][:12] not in said
    assert any(word in said for word in words.split("|")), said


def rows(name: str, *items: Any, **page_: Any) -> dict[str, Answer]:
    pagination = {"page": 1, "perPage": 100, "total": len(items), "totalPage": 1, **page_}
    return site(**{name: http(json.dumps({"items": items, "pagination": pagination}))})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


ROWS: dict[str, tuple[dict[str, Answer], str]] = {
    "no-items": (site(models=http('{"pagination": {"total": 0, "totalPage": 1}}')), "`items`: Field required"),
    "no-pagination": (site(models=http('{"items": []}')), "`pagination`: Field required"),
    "items-are-text": (rows("models", "m-a", "m-b"), "`items.0`"),
    "items-are-null": (rows("workers", None), "`items.0`"),
    "items-are-a-mapping": (site(routes=http('{"items": {}, "pagination": {"total": 0, "totalPage": 1}}')), "`items`"),
    "text-weight": (rows("targets", {**TARGET, "weight": "100"}), "`items.0.weight`"),
    "fraction-weight": (rows("targets", {**TARGET, "weight": 0.5}), "`items.0.weight`"),
    "negative-weight": (rows("targets", {**TARGET, "weight": -1}), "`items.0.weight`"),
    "astronomic-weight": (rows("targets", {**TARGET, "weight": 10**400}), "`items.0.weight`"),
    "null-weight": (rows("targets", {**TARGET, "weight": None}), "`items.0.weight`"),
    "no-state": (rows("instances", {k: v for k, v in INSTANCE.items() if k != "state"}), "`items.0.state`"),
    "boolean-id": (rows("routes", {**ROUTE, "id": True}), "`items.0.id`"),
    "negative-replicas": (rows("models", {**MODEL, "replicas": -3}), "`items.0.replicas`"),
    "astronomic-replicas": (rows("models", {**MODEL, "replicas": 10**30}), "`items.0.replicas`"),
    "meta-is-a-list": (rows("routes", {**ROUTE, "meta": []}), "`items.0.meta`"),
    "memory-is-text": (rows("workers", {**WORKER, "status": {"memory": {"total": "128 GiB"}}}), "`items.0.status.memory.total`"),
    "env-is-a-list": (rows("models", {**MODEL, "env": ["A=b"]}), "`items.0.env`"),
    "env-is-text": (rows("models", {**MODEL, "env": "A=b"}), "`items.0.env`"),
    "parameters-are-text": (rows("models", {**MODEL, "backend_parameters": "--x"}), "`items.0.backend_parameters`"),
    "selector-is-a-list": (rows("models", {**MODEL, "worker_selector": ["spark-01"]}), "`items.0.worker_selector`"),
    "gpus-are-a-list": (rows("models", {**MODEL, "gpu_selector": [1]}), "`items.0.gpu_selector`"),
    "deep-meta": (rows("routes", {**ROUTE, "meta": nested(400)}), "nested deeper than 64 levels"),
    "deep-parameters": (rows("models", {**MODEL, "backend_parameters": [nested(70)]}), "nested deeper than 64 levels"),
    "heartbeat-is-nonsense": (rows("workers", {**WORKER, "heartbeat_time": "yesterday"}), "`items.0.heartbeat_time`"),
    "endless-pages": (rows("models", MODEL, totalPage=10**9), "`pagination.totalPage` is 1000000000"),
    "negative-pages": (rows("models", MODEL, total=-1, totalPage=-1), "`pagination.total`"),
    "pages-that-do-not-add-up": (rows("models", MODEL, total=7), "its pages did not add up"),
    "same-row-twice": (rows("models", MODEL, MODEL), "its pages did not add up"),
}


@pytest.mark.parametrize("name", ROWS, ids=str)
def test_a_row_outside_the_contract_is_named_by_its_key(shell: Shell, name: str) -> None:
    answers, words = ROWS[name]
    assert words in planned(shell, answers, 20)


ODD: dict[str, dict[str, Answer]] = {
    "deep-enough": rows("routes", {**ROUTE, "meta": nested(50)}),
    "env-holds-a-number": rows("models", {**MODEL, "env": {"A": 7}}),
    "parameters-hold-a-number": rows("models", {**MODEL, "backend_parameters": [7]}),
    "categories-are-null": rows("models", {**MODEL, "categories": None}),
    "unknown-keys": rows("models", {**MODEL, "from_a_newer_server": {"a": [1]}}),
    "memory-unknown": rows("workers", {**WORKER, "status": {"memory": {"total": 0, "used": 0}}}),
    "memory-negative": rows("workers", {**WORKER, "status": {"memory": {"total": 137438953472, "used": -5}}}),
    "memory-endless": site(workers=page(WORKER).replace(b"1073741824", b"  1e999999")),
    "no-status": rows("workers", {**WORKER, "status": None}),
    "target-of-nobody": site(
        targets=page(TARGET, {**TARGET, "id": 2, "model_id": 99}), routes=page({**ROUTE, "targets": 2, "ready_targets": 1})
    ),
    "odd-version": site(version=http('{"version": "main-\\u001b[2J\\ud800"}')),
    "odd-name": rows("models", MODEL, {**MODEL, "id": 2, "name": "\x1b]0;owned\x07"}),
    "marker-is-text": rows("routes", {**ROUTE, "meta": {"rollout": "me"}}),
    "marker-is-empty": rows("routes", {**ROUTE, "meta": {"rollout": {}}}),
    "marker-is-odd": rows("routes", {**ROUTE, "meta": {"rollout": {"id": ["\x1b[2J"], "store": 7, "expires": {"a": 1}}}}),
}


@pytest.mark.parametrize("name", ODD, ids=str)
def test_what_is_odd_but_possible_is_unknown_and_no_error(shell: Shell, name: str) -> None:
    with Wire(ODD[name]) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        for line in (["plan", "plan.yaml"], ["plan", "plan.yaml", "--json"]):
            said = shell.run(*line)
            assert said.code in (0, 3, 30), said


def drip(pause: float) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    for _ in range(100_000):
        time.sleep(pause)
        yield b" "


def flood(total: int) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b'{"a": "' + b"x" * (MIB - 7)
    for _ in range(total // MIB):
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


def test_one_byte_at_a_time_ends_at_the_deadline_of_the_whole_call(shell: Shell) -> None:
    assert "no complete answer within 1.5 s" in planned(shell, site(version=lambda: drip(0.2)), 20)


def test_a_server_that_hangs_is_given_up(shell: Shell) -> None:
    assert "got no answer" in planned(shell, site(version=lambda: (time.sleep(0.7) or b"" for _ in range(9))), 20)


def test_pages_that_each_come_in_time_but_never_end_are_given_up(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.backends.gpustack.LOOK", 1.0)
    endless = http(json.dumps({"items": [MODEL], "pagination": {"page": 1, "perPage": 100, "total": 400, "totalPage": 400}}))

    def slowly() -> Iterator[bytes]:
        time.sleep(0.1)
        yield endless

    assert "could not be read within 1 s" in planned(shell, site(models=slowly), 20)


@pytest.mark.parametrize("where", ["version", "models"])
def test_a_hundred_megabytes_are_not_read(shell: Shell, where: str) -> None:
    tracemalloc.start()
    said = planned(shell, site(**{where: lambda: flood(100 * MIB)}), 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "the body is larger than 16 MiB" in said
    assert peak < 64 * MIB


def test_a_redirect_is_not_followed_and_the_key_goes_to_nobody_else(shell: Shell) -> None:
    with Wire({"/": http("{}")}) as other:
        redirect = http("", status="307 Temporary Redirect", more=f"Location: {other.url}/version\r\n")
        with Wire(site(version=redirect, models=redirect)) as wire:
            said = asked(shell, wire.url, 20)
        assert "so that a key goes to nobody else" in said
        assert other.heads == []
        assert any(KEYS["ROLLOUT_MANAGEMENT_KEY"] in head for head in wire.heads)


def test_nobody_listens(shell: Shell) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        said = asked(shell, f"http://127.0.0.1:{free.getsockname()[1]}", 20)
    assert "got no answer" in said
    assert "Check that the server runs" in said


def test_a_name_that_nobody_knows(shell: Shell) -> None:
    assert "got no answer" in asked(shell, "http://gpustack.invalid:80", 20)


def test_a_proxy_of_the_environment_gets_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with Wire({"/": http("{}"), "http": http("{}")}) as proxy, Wire(site()) as wire:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        assert shell.run("plan", "plan.yaml").code == 0
        assert proxy.heads == []


@pytest.mark.parametrize("key", ["", "   ", "two words", "clé", "line\nbreak"], ids=["empty", "blank", "two", "accent", "lines"])
def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_asked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("ROLLOUT_MANAGEMENT_KEY", key)
    with Wire(site()) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        said = shell.fails(3, "plan", "plan.yaml")
        assert wire.heads == []
    assert not key.strip() or key not in said
    assert "gpustack.management_key" in said


def test_the_same_words_when_a_rollout_is_started(shell: Shell) -> None:
    """`run` does not wait a quarter of an hour for a key that will not become right, nor for an address that never answered."""
    for name, code in (("unauthorized", 3), ("login-page", 20), ("nothing-at-all", 20)):
        with Wire({"/": WHOLE[name][0]}) as wire:
            Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
            said = shell.fails(code, "run", "plan.yaml")
            assert "in it" not in said


def test_every_path_is_asked_with_the_key_and_the_key_is_in_no_url(shell: Shell) -> None:
    with Wire(site()) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        shell.run("plan", "plan.yaml")
    lines = list(itertools.chain.from_iterable(head.splitlines()[:1] for head in wire.heads))
    assert lines
    assert not any("canary7" in line for line in lines)
