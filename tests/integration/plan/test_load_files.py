"""Plans from files and from standard input: what cannot be read is one finding, and a huge file costs nothing."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from pathlib import Path

import pytest

from rollout.errors import PlanError
from rollout.plan.load import load_plan
from tests.unit.plan.kit import GOOD


def finding(path: str | Path) -> str:
    """The one finding about a file, as a line."""
    with pytest.raises(PlanError) as caught:
        load_plan(path)
    assert caught.value.exit_code == 3
    assert len(caught.value.findings) == 1
    return str(caught.value.findings[0])


def test_a_good_file_is_loaded_with_its_text_path_and_digest(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(GOOD)
    loaded = load_plan(file)
    assert (loaded.text, loaded.path, len(loaded.digest)) == (GOOD, str(file), 64)
    assert "apiVersion" not in repr(loaded)


def test_a_byte_order_mark_is_accepted_and_does_not_move_columns(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_plan(file).text == GOOD
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("rollout/v1", "v1").encode())
    assert finding(file).startswith(f"{file}:1:13: apiVersion:")


def test_standard_input_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    loaded = load_plan("-")
    assert (loaded.path, loaded.plan.route.name) == ("<stdin>", "chat")


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "chat-plan.yaml").write_text(GOOD)
    assert f"did you mean {tmp_path / 'chat-plan.yaml'}?" in finding(tmp_path / "chat_plan.yml")
    assert "none of that name" in finding(tmp_path / "no" / "such.yaml")


def test_a_folder_and_an_impossible_name_are_no_plans(tmp_path: Path) -> None:
    assert "found a folder" in finding(tmp_path)
    assert "an impossible name" in finding("a\0b")
    (tmp_path / "file").write_text("x")
    assert "Not a directory" in finding(tmp_path / "file" / "plan.yaml")


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    assert "Permission denied" in finding(tmp_path / "plan.yaml")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (GOOD.encode("utf-16"), "found UTF-16 text (save the file as UTF-8)"),
        (GOOD.replace("chat-new-image", "zażółć").encode("iso-8859-2"), ":3:20: expected UTF-8 text, found the byte 0xBF"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "found the character U+007F"),
        (b"a: b\nc: \0", ":2:4: expected visible text, found the character U+0000 (a binary file?)"),
        (b"", "found an empty file"),
    ],
)
def test_what_is_not_text_is_told_so(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_bytes(data)
    with pytest.raises(PlanError) as caught:
        load_plan(file)
    assert words in str(caught.value.findings[0])


def test_a_plan_of_10_mb_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_bytes(GOOD.encode() + b"# remark\n" * 1_200_000)
    started = time.process_time()
    told = finding(file)
    assert time.process_time() - started < 0.5
    assert "expected a plan of at most 1 MiB, found a larger file" in told


def test_an_endless_file_is_refused_at_once() -> None:
    started = time.process_time()
    assert "a larger file" in finding("/dev/zero")
    assert time.process_time() - started < 0.5
