"""Plan files that are not plans, through the command: exit code 3, each mistake with its place, and nothing is stored."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from rollout.plan.reading import beginning
from tests.integration.badinput.said import Shell
from tests.unit.plan.kit import GOOD, but, plus

LADDER = "ladder: {}"


def change(text: str) -> str:
    return but('  to: {image_name: "sim/vllm:2"}', text)


def unit(name: str, to: str) -> str:
    return but('  unit: backend_image\n  to: {image_name: "sim/vllm:2"}', f"  unit: {name}\n  to: {to}")


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)

TEXTS: dict[str, tuple[str, str]] = {
    # what kind of document
    "empty": ("", "expected a plan, found an empty file"),
    "blank": ("   \n\n", "found an empty file"),
    "comments": ("# nothing yet\n", "found an empty file"),
    "null": ("null\n", "found an empty file"),
    "list": ("- apiVersion: rollout/v1\n", "expected a mapping with the keys of a plan"),
    "word": ("rollout\n", "found a single value"),
    "number": ("42\n", "found a single value"),
    "json-list": ("[1, 2, 3]", "found a list"),
    "two-plans": (GOOD + "---\n" + GOOD, "expected one plan in a file, found a second document"),
    "html": ("<html><body>404</body></html>\n", "found a single value"),
    "another-kind": (but("RolloutPlan", "Deployment"), "kind: expected"),
    "newer-format": (but("rollout/v1", "rollout/v2"), "apiVersion: expected"),
    # YAML that is read in two ways, or not at all
    "anchor": (but("chat-spark-01", "&a chat-spark-01"), "found an anchor"),
    "alias": (plus("labels: *a"), "found an alias"),
    "alias-bomb": (BOMB, "found an anchor"),
    "merge": (but("{name: chat}", "{<<: {name: chat}}"), "found a merge"),
    "tag": (but("name: chat-new-image", "name: !!str chat-new-image"), "found a tag"),
    "python-tag": (plus("labels: !!python/object/apply:os.system ['true']"), "found a tag"),
    "duplicate": (plus("route: {name: other}"), "route: expected each key once"),
    "duplicate-inside": (but("{name: chat}", "{name: chat, name: chat2}"), "expected each key once"),
    "deep": (plus("labels: " + "[" * 60 + "]" * 60), "expected at most 32 levels"),
    "very-deep": (plus("labels: " + "[" * 60_000), "a deeper nesting"),
    "wide": (plus("labels: [" + "1," * 30_000 + "1]"), "expected at most 20000 values"),
    "tab": (but("  unit: backend_image", "\tunit: backend_image"), "spaces as indentation, found a tab"),
    "open-quote": (but('"sim/vllm:2"', '"sim/vllm:2'), "quote"),
    "open-bracket": (but("{name: chat}", "{name: chat"), "bracket"),
    "colon": (but("name: chat-new-image", "name: a: b"), "expected"),
    "indent": (but("  - deployment", " - deployment").replace("stable:\n", "stable:\n    x: y\n"), "expected"),
    "reserved": (but("{name: chat}", "{name: @chat}"), "put the value in quotes"),
    "key-is-list": (plus("? [a, b]\n: c"), "a key of plain text"),
    "key-is-number": (plus("5: five"), "expected a text as key"),
    "nul": (but("{name: chat}", '{name: "ch\0at"}'), "a binary file?"),
    "control": (but("{name: chat}", '{name: "ch\x1b[2Jat"}'), "found the character U+001B"),
    "direction": (but("{name: chat}", '{name: "ch\u202eat"}'), "found the character U+202E"),
    "norway": (but("name: chat}", "name: no}"), "some YAML readers take it for a boolean"),
    "on": (but("name: chat}", "name: on}"), "some YAML readers take it for a boolean"),
    "date": (but("name: chat}", "name: 2026-01-01}"), "YAML readers disagree"),
    "octal": (plus(LADDER.format("[010, 100]")), "YAML readers disagree"),
    "base-60": (plus("window: {duration: 12:30}"), "YAML readers disagree"),
    "underscore": (plus(LADDER.format("[1_0, 100]")), "YAML readers disagree"),
    "hex": (plus(LADDER.format("[0x10, 100]")), "YAML readers disagree"),
    # keys
    "typo": (but("route:", "rout:"), "did you mean `route`?"),
    "case": (but("metadata:", "Metadata:"), "did you mean `metadata`?"),
    "typo-inside": (but("management_key", "managementKey"), "did you mean `management_key`?"),
    "elsewhere": (plus("min_time: 5m"), "it belongs under `evidence`"),
    "unknown": (plus("kubernetes: {}"), "the unknown key `kubernetes`"),
    "missing": (but("route: {name: chat}\n", ""), "expected the key `route`"),
    "missing-inside": (but("  server: http://127.0.0.1:30080\n", ""), "the key `server`"),
    # values
    "list-for-mapping": (but("{name: chat}", "[chat]"), "route: expected"),
    "text-for-mapping": (but("{name: chat}", "chat"), "route: expected"),
    "mapping-for-text": (but("name: chat-new-image", "name: {a: b}"), "metadata.name: expected text"),
    "number-for-text": (but("name: chat-new-image", "name: 17"), 'write "17"'),
    "null-for-text": (but("name: chat-new-image", "name: null"), "found nothing"),
    "nothing-for-text": (but("name: chat-new-image", "name:"), "expected a value after `: `"),
    "no-stable": (but("  - deployment: chat-spark-01\n", "  []\n"), "at least one entry"),
    "same-stable": (but("  - deployment: chat-spark-01", "  - deployment: a\n  - deployment: a"), "expected each deployment once"),
    "bad-name": (but("chat-spark-01", '"chat spark"'), "stable[0].deployment: expected"),
    "path-name": (but("{name: chat}", '{name: "../chat"}'), "route.name: expected"),
    "boolean-ladder": (plus(LADDER.format("true")), "ladder: expected"),
    "text-rung": (plus(LADDER.format('["10", 100]')), "remove the quotes"),
    "percent-rung": (plus(LADDER.format("[10%, 100]")), "write the number alone"),
    "zero-rung": (plus(LADDER.format("[0, 100]")), "a number above 0"),
    "negative-rung": (plus(LADDER.format("[-5, 100]")), "a number above 0"),
    "rung-above-100": (plus(LADDER.format("[50, 101]")), "a number at most 100"),
    "falling-ladder": (plus(LADDER.format("[50, 25, 100]")), "a rung above 50"),
    "ladder-without-100": (plus(LADDER.format("[5, 50]")), "a ladder that ends at 100"),
    "lone-100": (plus(LADDER.format("[100]")), "at least one rung below 100"),
    "empty-ladder": (plus(LADDER.format("[]")), "ladder: expected"),
    "nan": (plus(LADDER.format("[.nan, 100]")), "YAML readers disagree"),
    "inf": (plus("evidence: {alpha: .inf}"), "YAML readers disagree"),
    "huge": (plus("evidence: {min_requests: 999999999999999999}"), "a number at most 1000000"),
    "longer-than-a-number": (plus(f"evidence: {{min_requests: {'9' * 400}}}"), "YAML readers disagree"),
    "fraction-for-count": (plus("evidence: {min_requests: 2.5}"), "evidence.min_requests: expected"),
    "duration-no-unit": (plus("window: {duration: 24}"), "window.duration: expected a duration"),
    "duration-wrong-unit": (plus("window: {duration: 3 moons}"), "window.duration: expected a duration"),
    "duration-negative": (plus("window: {duration: -1h}"), "window.duration: expected a duration"),
    "duration-endless": (plus("window: {duration: 99999999d}"), "window.duration: expected a duration"),
    "size-no-unit": (plus("guards: {memory_floor: 8}"), "guards.memory_floor: expected a size"),
    "size-wrong-unit": (plus("guards: {memory_floor: 8 bananas}"), "guards.memory_floor: expected a size"),
    "window-above-deadline": (plus("evidence: {window: 10m, min_time: 1m}"), "evidence"),
    "proceed-without-reason": (plus("drain: {on_timeout: proceed}"), "a `reason` beside"),
    # the change
    "two-units": (but("  unit: backend_image", "  unit: [backend_image, parameters]"), "change.unit: expected"),
    "unknown-unit": (but("backend_image", "engine_image"), "change.unit: expected"),
    "empty-change": (change("  to: {}"), "change.to"),
    "foreign-field": (change("  to: {replicas: 3}"), "change.to"),
    "floating-revision": (unit("model_revision", "{revision: main}"), "change.to"),
    # addresses and keys
    "no-scheme": (but("http://127.0.0.1:30080", "127.0.0.1:30080"), "gpustack.server: expected"),
    "ftp": (but("http://127.0.0.1:30080", "ftp://127.0.0.1"), "expected a URL such as"),
    "with-path": (but("http://127.0.0.1:30080", "http://127.0.0.1:30080/v2"), "without /v2"),
    "port": (but("http://127.0.0.1:30080", "http://127.0.0.1:99999"), "expected a URL such as"),
    "long-host": (but("http://127.0.0.1:30080", f"http://{'a' * 70}.example"), "expected a URL such as"),
    "empty-label": (but("http://127.0.0.1:30080", "http://gpustack..example"), "expected a URL such as"),
    "odd-host": (but("http://127.0.0.1:30080", "http://xn--"), "expected a URL such as"),
    "open-bracket-host": (but("http://127.0.0.1:30080", '"http://[::1"'), "expected a URL such as"),
    "password-in-url": (but("http://127.0.0.1:30080", "http://ana:canary7never@127.0.0.1"), "a URL without credentials"),
    "key-itself": (but("{env: ROLLOUT_MANAGEMENT_KEY}", "gpustack_0a1b2c3d4e5f6071_canary7never"), "a secret (not shown)"),
    "both-places": (but("{env: ROLLOUT_MANAGEMENT_KEY}", "{env: A, file: /b}"), "exactly one of `env` or `file`"),
    "neither-place": (but("{env: ROLLOUT_MANAGEMENT_KEY}", "{}"), "exactly one of `env` or `file`"),
    "secret-parameter": (
        change('  to: {backend_parameters: ["--api-key=canary7never"]}').replace("backend_image", "parameters"),
        "a secret (not shown)",
    ),
    "secret-env": (
        change("  to: {env: {HF_TOKEN: hf_canary7neverneverneverX}}").replace("backend_image", "parameters"),
        "a secret (not shown)",
    ),
    "secret-in-a-comment": (GOOD + "# was gpustack_0a1b2c3d4e5f6071_canary7never\n", "plan.yaml:15:7: expected no secret in a plan"),
    "login-in-a-comment": (but("name: chat}", "name: chat} # ssh://ana:canary7never@db.lan"), "also from a comment"),
    "secret-beside-itself": (but("chat-new-image", "hf_canary7neverneverneverX # hf_canary7neverneverneverX"), "1 finding"),
    "login-as-image": (change('  to: {image_name: "ana:canary7never@reg.lan/vllm:2"}'), "1 finding"),
    "login-without-scheme": (but("http://127.0.0.1:30080", "ana:canary7never@127.0.0.1"), "expected a URL such as"),
    "token-in-url": (but("http://127.0.0.1:30080", "http://127.0.0.1:30080?token=canary7never"), "without `?` and `#`"),
    "fragment-in-url": (but("http://127.0.0.1:30080", '"http://127.0.0.1:30080#canary7never"'), "without `?` and `#`"),
    "lines-in-an-image": (change('  to: {image_name: "sim/vllm:2\\nUSER root"}'), "expected one line of visible text"),
    "direction-in-an-image": (change('  to: {image_name: "sim/vllm:2\\u202e"}'), "an invisible character"),
    "escape-in-a-path": (unit("model_revision", '{local_path: "/models/\\e[2J"}'), "an invisible character"),
    "url-of-urls": (but("chat-new-image", "a" + "://" * 300_000), "metadata.name: expected"),
    "urls-in-a-comment": (GOOD + "rout: 1 # " + "://a:" * 150_000 + "\n", "did you mean `route`?"),
    "secret-as-key": (plus("hf_canary7neverneverneverX: 1"), "a secret (not shown)"),
}


@pytest.mark.parametrize("text", TEXTS, ids=str)
def test_what_is_wrong_is_named_with_its_place(shell: Shell, text: str) -> None:
    plan = Path("plan.yaml")
    written, words = TEXTS[text]
    plan.write_text(written, encoding="utf-8", newline="")
    began = time.process_time()
    said = shell.fails(3, "validate", "plan.yaml")
    assert time.process_time() - began < 2
    assert words in said, said
    assert "  - plan.yaml:" in said
    assert "canary7never" not in said
    assert len(said) < 20_000


BYTES: dict[str, tuple[bytes, str]] = {
    "elf": (b"\x7fELF\x02\x01\x01" + bytes(300), "found the character U+007F"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00", "expected UTF-8 text, found the byte 0x8B"),
    "utf-16": (GOOD.encode("utf-16"), "found UTF-16 text"),
    "utf-16-without-mark": (GOOD.encode("utf-16-le"), "a binary file?"),
    "utf-32": (GOOD.encode("utf-32"), "found UTF-16 text"),
    "latin-1": (but("chat-new-image", "chät").encode("latin-1"), "found the byte 0xE4"),
    "ten-megabytes": (GOOD.encode() + b"# remark\n" * 1_200_000, "at most 1 MiB, found a larger file"),
    "two-marks": (b"\xef\xbb\xbf\xef\xbb\xbf" + GOOD.encode(), "found the character U+FEFF"),
    "mark-and-mistake": (b"\xef\xbb\xbf" + but("rollout/v1", "v1").encode(), "plan.yaml:1:13: apiVersion"),
    "crlf-and-mistake": (but("name: chat}", "name: no}").replace("\n", "\r\n").encode(), "plan.yaml:8:"),
    "surrogate": (but("chat-new-image", "chat").encode() + b"x: \xed\xa0\x80\n", "found the byte 0xED"),
}


@pytest.mark.parametrize("name", BYTES, ids=str)
@pytest.mark.parametrize("verb", ["validate", "plan", "run"])
def test_a_file_that_is_not_text_is_refused_by_every_verb_before_anything_is_asked(shell: Shell, verb: str, name: str) -> None:
    written, words = BYTES[name]
    Path("plan.yaml").write_bytes(written)
    tracemalloc.start()
    said = shell.fails(3, verb, "plan.yaml")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words in said, said
    assert peak < 32 << 20


@pytest.mark.parametrize(
    ("line", "words"), [("absent.yaml", "none of that name"), (".", "found a folder"), ("pla\0n.yaml", "an impossible name")]
)
def test_what_is_no_file_is_refused(shell: Shell, line: str, words: str) -> None:
    assert words in shell.fails(3, "plan", line)


def test_a_pipe_that_nobody_writes_to_is_given_up(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(beginning.__kwdefaults__, "patience", 0.05)
    os.mkfifo("pipe")
    assert "a pipe that nobody writes to" in shell.fails(3, "validate", "pipe")


def test_a_pipe_that_is_written_to_is_a_file(shell: Shell) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text(GOOD + "# remark\n" * 50_000))
    writer.start()
    assert shell.run("validate", "pipe").code == 0
    writer.join(5)


def test_a_device_that_never_ends_is_too_large(shell: Shell) -> None:
    assert "found a larger file" in shell.fails(3, "validate", "/dev/zero")


@pytest.mark.parametrize("good", [GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD + "\n\n# end\n...\n"], ids=["crlf", "mark", "end"])
def test_how_editors_write_files_is_no_mistake(shell: Shell, good: str) -> None:
    Path("plan.yaml").write_text(good, encoding="utf-8", newline="")
    assert shell.run("validate", "plan.yaml").code == 0


def test_every_mistake_of_a_plan_is_told_at_once_and_a_script_reads_them(shell: Shell) -> None:
    text = but("rollout/v1", "v1").replace("{name: chat}", "{name: no}") + "rout: 1\nladder: [50, 25, 100]\n"
    Path("plan.yaml").write_text(text)
    said = shell.fails(3, "run", "plan.yaml")
    assert "4 findings" in said
    assert sum(line.startswith("  - plan.yaml:") for line in said.splitlines()) == 4
    shown = shell.run("validate", "plan.yaml", "--json")
    assert (shown.code, shown.out.count('"line"')) == (3, 4)


def test_a_refused_plan_leaves_no_rollout(shell: Shell) -> None:
    Path("plan.yaml").write_text(but("chat-spark-01", '"a b"'))
    shell.fails(3, "run", "plan.yaml")
    assert shell.run("list").out.strip() in ("", "no rollouts", "no rollout")
