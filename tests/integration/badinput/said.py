"""One command line in this process, and what every failure of one must look like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollout.cli.app import main

KEYS = {
    "ROLLOUT_MANAGEMENT_KEY": "gpustack_0a1b2c3d4e5f6071_canary7management7never7shown",
    "ROLLOUT_INFERENCE_KEY": "gpustack_9f8e7d6c5b4a3928_canary7inference7never7shown",
}
_ESCAPE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Said:
    """Exit code and both outlets of one command."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """Runs commands in a home of its own."""

    home: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def store(self) -> Path:
        return self.home / "rollout.db"

    def run(self, *line: str) -> Said:
        """Any outcome; what no outcome may show is checked here."""
        self.capsys.readouterr()
        code = main(list(line))
        shown = self.capsys.readouterr()
        both = shown.out + shown.err
        assert "Traceback" not in both
        assert "unexpected" not in both, both
        assert not (self.home / ".local").exists(), "nothing went to the log of unforeseen errors"
        assert _ESCAPE.search(both) is None, "no control character reaches the terminal"
        for key in KEYS.values():
            assert key[:20] not in both
        return Said(code, shown.out, shown.err)

    def fails(self, code: int, *line: str) -> str:
        """What stderr said; it ends with the three parts and nothing is on stdout."""
        said = self.run(*line)
        assert said.code == code, (said.code, said.err)
        assert said.out == ""
        lines = said.err[said.err.index("error: ") :].splitlines()
        starts = [
            text for text in ("error: ", "  why:  ", "  next: ") if any(one.startswith(text) and one != text.rstrip() for one in lines)
        ]
        assert starts == ["error: ", "  why:  ", "  next: "], said.err
        return said.err


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A shell with a home, a store path and both keys in the environment."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ROLLOUT_STORE", str(home / "rollout.db"))
    monkeypatch.setenv("ROLLOUT_ACTOR", "ana")
    for name in ("CI", "XDG_STATE_HOME", "ROLLOUT_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home)
    return Shell(home, capsys)
