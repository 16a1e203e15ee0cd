"""Durations on the command line, written as in a plan: `30s`, `10m`, `1h30m`."""

from __future__ import annotations

from rollout.errors import UsageError


def seconds(option: str, text: str) -> float:
    """Seconds; UsageError that names the option."""
    from rollout.plan.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"`{option} {text}` is no duration", why=str(error), hint=f"write it as in {option} 30m.") from None
