"""ROLLOUT_* environment and defaults: where the store and the log are, who is acting, and whether this is CI.

Reads the environment it is given and nothing else; standard library only, because every command pays for this import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STORE = "ROLLOUT_STORE"
ACTOR = "ROLLOUT_ACTOR"
DEBUG = "ROLLOUT_DEBUG"

_CI_ACTORS = (
    ("GITHUB_ACTOR", "github"),
    ("GITLAB_USER_LOGIN", "gitlab"),
    ("BUILDKITE_BUILD_CREATOR", "buildkite"),
    ("CIRCLE_USERNAME", "circleci"),
    ("BUILD_USER_ID", "jenkins"),
)
"""variable with the person behind a CI job, and the word put before it"""


@dataclass(frozen=True)
class Settings:
    """What the environment says. `store` is a path or a database URL; `store_named` is false when it is only the default."""

    store: str
    store_named: bool
    actor: str
    debug: bool
    ci: bool
    log: Path

    @classmethod
    def read(cls, *, store: str | None = None, actor: str | None = None, env: Mapping[str, str] | None = None) -> Settings:
        """Options first, then the environment, then the defaults. Touches no file."""
        env = os.environ if env is None else env
        state = _state_dir(env)
        named = store or env.get(STORE) or ""
        return cls(
            store=place(named or str(state / "rollout.db")),
            store_named=bool(named),
            actor=actor or env.get(ACTOR) or _person(env),
            debug=_true(env.get(DEBUG)),
            ci=_true(env.get("CI")),
            log=state / "rollout.log",
        )


def place(text: str) -> str:
    """A URL as it is; a path made absolute."""
    return text if ":" in text.partition("/")[0] else str(Path(text).expanduser().absolute())


def _state_dir(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_STATE_HOME")
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return (Path(base) if base else home / ".local" / "state") / "rollout"


def _person(env: Mapping[str, str]) -> str:
    for variable, prefix in _CI_ACTORS:
        if env.get(variable):
            return f"{prefix}:{env[variable]}"
    return env.get("USER") or env.get("LOGNAME") or _login()


def _login() -> str:
    """The process owner's name; containers and cron often set no USER."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError, AttributeError):
        return "unknown"


def _true(value: str | None) -> bool:
    return (value or "").strip().lower() not in {"", "0", "false", "no", "off"}
