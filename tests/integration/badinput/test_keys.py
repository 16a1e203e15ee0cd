"""Keys that should not be used, or not for much longer, through the command."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.badinput.said import KEYS, Said, Shell
from tests.integration.badinput.wire import Wire, http, page, site
from tests.unit.plan.kit import GOOD


def key(ident: int, masked: str, scope: str, **more: Any) -> dict[str, Any]:
    return {"id": ident, "name": f"{scope}-key", "masked_value": masked, "scope": [scope], "expires_at": None, **more}


MANAGEMENT, INFERENCE = key(1, "gpustack_0a1b***", "management"), key(2, "gpustack_9f8e***", "inference")


def within(**span: float) -> str:
    return (datetime.now(UTC) + timedelta(**span)).isoformat().replace("+00:00", "Z")


def planned(shell: Shell, *rows: dict[str, Any]) -> Said:
    with Wire(site(keys=page(*rows))) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        return shell.run("plan", "plan.yaml")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{**MANAGEMENT, "scope": ["inference"]}, INFERENCE], "(management-key) has scope `inference`: it needs `management`"),
        ([MANAGEMENT, {**INFERENCE, "scope": ["management"]}], "(inference-key) has scope `management`: it needs `inference`"),
        ([MANAGEMENT, {**INFERENCE, "scope": []}], "has scope none"),
        ([MANAGEMENT, {**INFERENCE, "allowed_model_names": ["chat"]}], "may only ask `chat`"),
        ([{**MANAGEMENT, "expires_at": within(minutes=20)}, INFERENCE], "`management_key` (management-key) ends at"),
        ([MANAGEMENT, {**INFERENCE, "expires_at": within(hours=-2)}], "`inference_key` (inference-key) ends at"),
    ],
    ids=["management-scope", "inference-scope", "no-scope", "limited", "ends-soon", "ended"],
)
def test_a_key_that_will_not_do_refuses_the_plan_with_the_remedy(shell: Shell, rows: list[dict[str, Any]], words: str) -> None:
    said = planned(shell, *rows)
    assert said.code == 3
    assert words in " ".join(said.out.split())


def test_one_key_for_both_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_INFERENCE_KEY", KEYS["ROLLOUT_MANAGEMENT_KEY"])
    said = planned(shell, key(1, "gpustack_0a1b***", "*"))
    assert said.code == 3
    assert "`management_key` and `inference_key` are one key" in " ".join(said.out.split())


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([MANAGEMENT, INFERENCE], "the management key may do all that its owner may"),
        ([{**MANAGEMENT, "scope": ["*"]}, INFERENCE], "has scope `*`: scope `management` is enough"),
        ([{**MANAGEMENT, "expires_at": within(hours=5)}, INFERENCE], "before the rollback window is over"),
        ([MANAGEMENT], "shows none that looks like `inference_key`"),
        ([MANAGEMENT, INFERENCE, {**INFERENCE, "id": 3}], "shows none that looks like `inference_key`"),
    ],
    ids=["full-administration", "all-scopes", "ends-in-the-window", "unknown", "two-alike"],
)
def test_what_one_should_know_of_the_keys_stands_in_the_dry_run(shell: Shell, rows: list[dict[str, Any]], words: str) -> None:
    said = planned(shell, *rows)
    assert said.code == 0, said.out
    assert words in " ".join(said.out.split())


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("/dev/zero", "longer than 16384 bytes"),
        ("/dev/null", "is empty"),
        ("~nobody-of-that-name/key", "impossible name"),
        ("pipe", "nothing was written to it"),
        (".", "Is a directory"),
        ("binary", "is not text"),
        ("absent", "No such file"),
        ("book", "longer than 16384 bytes"),
    ],
)
def test_a_file_that_holds_no_key_is_told_and_not_waited_for(shell: Shell, monkeypatch: pytest.MonkeyPatch, file: str, words: str) -> None:
    monkeypatch.setattr("rollout.cli.secrets.PATIENCE", 0.05)
    os.mkfifo("pipe")
    Path("binary").write_bytes(b"\xff\xfe\n")
    Path("book").write_text("k" * (1 << 20))
    Path("plan.yaml").write_text(GOOD.replace("{env: ROLLOUT_MANAGEMENT_KEY}", f'{{file: "{file}"}}'))
    said = shell.fails(3, "plan", "plan.yaml")
    assert words in said
    assert "`gpustack.management_key` cannot be read" in said


def test_a_key_may_come_from_a_pipe(shell: Shell) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text(KEYS["ROLLOUT_MANAGEMENT_KEY"] + "\r\nmore\n"))
    with Wire(site()) as wire:
        Path("plan.yaml").write_text(
            GOOD.replace("http://127.0.0.1:30080", wire.url).replace("{env: ROLLOUT_MANAGEMENT_KEY}", "{file: pipe}")
        )
        writer.start()
        assert shell.run("plan", "plan.yaml").code == 0
        assert any(KEYS["ROLLOUT_MANAGEMENT_KEY"] in head for head in wire.heads)
    writer.join(5)


def test_a_list_of_keys_that_cannot_be_read_stops_nothing(shell: Shell) -> None:
    with Wire(site(keys=http('{"message":"no"}', status="403 Forbidden"))) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        assert shell.run("plan", "plan.yaml").code == 0
