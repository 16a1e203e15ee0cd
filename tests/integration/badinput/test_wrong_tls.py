"""TLS that proves nothing: nothing is sent, and what to do is said. The certificates in `tls/` were made for these tests."""

from __future__ import annotations

import asyncio
import gc
import ssl
from pathlib import Path

import pytest

from rollout.clients.sse import Call, Exchange, Failure, TimedClient
from rollout.clock import SystemClock
from tests.integration.badinput.said import KEYS, Shell
from tests.integration.badinput.wire import Wire, site
from tests.unit.plan.kit import GOOD

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""six calls run side by side; the library leaves the sockets of those that were cancelled in their handshake to the collector"""
FILES = Path(__file__).parent / "tls"


def context(name: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(FILES / f"{name}.pem", FILES / "server.key")
    return made


def asked(shell: Shell, url: str, code: int) -> str:
    Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", url))
    said = shell.fails(code, "plan", "plan.yaml")
    gc.collect()
    return said


@pytest.mark.parametrize(
    ("name", "trusted", "words"),
    [
        ("good", None, "self-signed certificate"),
        ("expired", "expired", "certificate has expired"),
        ("other-name", "other-name", "IP address mismatch"),
        ("good", "expired", "self-signed certificate"),
    ],
    ids=["self-signed", "expired", "another-name", "another-authority"],
)
def test_a_certificate_that_proves_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, trusted: str | None, words: str
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(FILES / f"{trusted}.pem"))
    with Wire(site(), context(name)) as wire:
        said = asked(shell, wire.url, 20)
        assert wire.heads == []
    assert "certificate is not trusted; nothing was sent" in said
    assert words in said
    assert "SSL_CERT_FILE" in said


def test_an_own_authority_is_named_in_the_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(FILES / "good.pem"))
    with Wire(site(), context("good")) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        assert shell.run("plan", "plan.yaml").code == 0
        assert any(KEYS["ROLLOUT_MANAGEMENT_KEY"] in head for head in wire.heads)


def test_tls_spoken_to_a_port_without_it(shell: Shell) -> None:
    with Wire(site()) as wire:
        said = asked(shell, wire.url.replace("http:", "https:"), 20)
    assert "write http://" in said


def test_a_port_with_tls_spoken_to_without_it(shell: Shell) -> None:
    with Wire(site(), context("good")) as wire:
        said = asked(shell, wire.url.replace("https:", "http:"), 20)
        assert wire.heads == []
    assert "got no answer" in said


@pytest.mark.parametrize("name", ["good", "expired", "other-name"])
def test_the_timed_client_believes_it_neither(name: str) -> None:
    async def ask(url: str) -> Exchange:
        async with TimedClient(SystemClock()) as client:
            return await client.exchange(Call("POST", f"{url}/v1/chat/completions", {"Authorization": "Bearer x"}), timeout=5)

    with Wire(site(), context(name)) as wire:
        answer = asyncio.run(ask(wire.url))
        assert wire.heads == []
    assert answer.failure is Failure.CONNECT
    assert "certificate" in answer.detail
