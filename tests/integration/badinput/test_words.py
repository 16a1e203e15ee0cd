"""What people say along with a command: reasons, names and ids that are not text, too long, or hold what nobody may keep."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.integration.badinput.said import KEYS, Shell
from tests.integration.badinput.test_stores import ID, held

__all__ = ["held"]
MANAGEMENT = KEYS["ROLLOUT_MANAGEMENT_KEY"]
NO_TEXT = "x\udcff\udcfe"
"""bytes that are no UTF-8, as Python hands them over"""


def stored(shell: Shell) -> str:
    """Every byte of the store, its log included."""
    return "".join(file.read_bytes().decode("latin-1") for file in shell.home.glob("rollout.db*"))


def said(shell: Shell) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(shell.store)) as raw:
        return [(str(actor), str(reason)) for actor, reason in raw.execute("SELECT actor, reason FROM commands ORDER BY id")]


REASONS: dict[str, tuple[str, str]] = {
    "a-key": (f"it shows {KEYS['ROLLOUT_MANAGEMENT_KEY']}", "it shows ***"),
    "a-login": ("see postgres://ana:canary7never@db.lan/x", "see postgres://***@db.lan/x"),
    "a-header": ("curl -H 'Authorization: Bearer canary7never' fails", "curl -H 'Authorization: ***' fails"),
    "a-variable": ("HF_TOKEN=canary7never is wrong", "HF_TOKEN=*** is wrong"),
    "lines": ("first\nsecond\r\n\tthird", "first second third"),
    "a-forged-line": ("ok\n13:00:00  canary   promoted", "ok 13:00:00 canary promoted"),
    "escapes": ("\x1b[2J\x1b]0;owned\x07red", "\ufffd[2J\ufffd]0;owned\ufffdred"),
    "direction": ("\u202egnorw si siht", "\ufffdgnorw si siht"),
    "no-text": (f"log says {NO_TEXT}", "log says x\ufffd\ufffd"),
    "a-book": ("y" * 120_000, "y" * 999 + "…"),
    "key-at-the-cut": ("z" * 980 + f" {KEYS['ROLLOUT_MANAGEMENT_KEY']}", "z" * 980 + " ***"),
    "plain": ("ticket OPS-4711: 3 % of answers are cut, see 4f58719c15ed", "ticket OPS-4711: 3 % of answers are cut, see 4f58719c15ed"),
}


@pytest.mark.parametrize("verb", ["pause", "abort"])
@pytest.mark.parametrize("name", REASONS, ids=str)
def test_a_reason_is_kept_as_one_line_without_a_secret_and_never_turned_away(held: Shell, verb: str, name: str) -> None:
    reason, line = REASONS[name]
    done = held.run(verb, ID, "--reason", reason, "--actor", f"ana {KEYS['ROLLOUT_INFERENCE_KEY']}\n")
    assert "the reason is kept as: " in done.err or line == " ".join(reason.split())
    assert said(held)[-1] == ("ana ***", line)
    shown = held.run("status", ID)
    assert max(len(row) for row in shown.out.splitlines()) <= 200
    for text in (done.out + done.err, shown.out, held.run("status", ID, "--json").out, stored(held)):
        assert "canary7" not in text


@pytest.mark.parametrize("actor", ["\n", "\u3000 ", "a" * 5000], ids=["line", "blank", "book"])
def test_who_acts_has_a_name_of_one_line(held: Shell, actor: str) -> None:
    assert held.run("pause", ID, "--reason", "look at it", "--actor", actor).code == 0
    assert said(held)[-1][0] == ("a" * 99 + "…" if "a" in actor else "unknown")


@pytest.mark.parametrize(
    "line",
    [
        ("status", NO_TEXT),
        ("journal", NO_TEXT),
        ("tick", NO_TEXT),
        ("wait", NO_TEXT),
        ("watch", NO_TEXT),
        ("run", NO_TEXT),
        ("retry", NO_TEXT, "--reason", "y"),
        ("pause", NO_TEXT, "--reason", "y"),
        ("abort", NO_TEXT, "--reason", "y"),
        ("rollback", NO_TEXT, "--reason", "y"),
        ("rollback", NO_TEXT, "--print"),
        ("rollback", "--route", NO_TEXT, "--server", "http://127.0.0.1:1", "--reason", "y"),
        ("rollback", "--route", NO_TEXT, "--server", "http://127.0.0.1:1", "--print"),
        ("stable-only", NO_TEXT, "--stable", NO_TEXT, "--server", "http://127.0.0.1:1", "--reason", "y"),
        ("takeover", NO_TEXT, "--server", "http://127.0.0.1:1", "--reason", "y"),
        ("init", NO_TEXT, "--server", "http://127.0.0.1:1", "--unit", "parameters"),
        ("list", "--store", f"{NO_TEXT}/r.db"),
    ],
    ids=lambda line: "-".join(word.strip("-") for word in line[:2] if word.isascii()),
)
def test_bytes_that_are_no_text_are_no_name_of_anything(held: Shell, line: tuple[str, ...]) -> None:
    done = held.run(*line)
    assert done.code in (2, 3, 20), done
    assert "  next: " in done.err


@pytest.mark.parametrize(
    "where", [f"env:{MANAGEMENT}", f"file:{MANAGEMENT}", "env:canary7-with-a-dash", "env:canary7 two words", MANAGEMENT]
)
@pytest.mark.parametrize("verb", [("rollback", "--route", "chat", "--reason", "y"), ("init", "chat", "--unit", "parameters")])
def test_a_key_in_the_place_of_its_reference_is_not_repeated(shell: Shell, verb: tuple[str, ...], where: str) -> None:
    said = shell.fails(2, *verb, "--server", "http://127.0.0.1:1", "--management-key", where)
    assert "`--management-key` is no reference to a key" in said
    assert "canary7" not in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("list", "--limit", "99999999999999999999"), "--limit"),
        (("extend-window", ID, "--until", "0001-01-01T00:00+23:59", "--reason", "y"), "is no moment"),
        (("extend-window", ID, "--until", "9999-12-31T23:59-23:59", "--reason", "y"), "is no moment"),
        (("extend-window", ID, "--until", "9999-12-31", "--reason", "y"), "is too far away"),
        (("extend-window", ID, "--until", "\u0662\u0660\u0662\u0666", "--reason", "y"), "is no moment"),
        (("extend-window", ID, "--by", "99999999999999999999999d", "--reason", "y"), "is no duration"),
        (("wait", ID, "--until", "promoted", "--timeout", "1e9h"), "is no duration"),
        (("wait", ID, "--until", "promoted", "--timeout", "-5s"), "is no duration"),
    ],
)
def test_numbers_and_moments_have_their_bounds(held: Shell, line: tuple[str, ...], words: str) -> None:
    assert words in held.fails(2, *line)
