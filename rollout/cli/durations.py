"""Durations on the command line, written as in a plan: `30s`, `10m`, `1h30m`."""

from __future__ import annotations

from datetime import UTC, datetime

from rollout.errors import UsageError


def seconds(option: str, text: str) -> float:
    """Seconds; UsageError that names the option."""
    from rollout.plan.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"`{option} {text}` is no duration", why=str(error), hint=f"write it as in {option} 30m.") from None


def moment(option: str, text: str) -> datetime:
    """A moment in UTC; without a zone it is UTC. UsageError that names the option."""
    try:
        read = datetime.fromisoformat(text.strip())
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:  # OverflowError: the first or the last day that there is, in another zone
        hint = f"write it as in {option} 2026-12-04T18:00Z."
        raise UsageError(f"`{option} {text}` is no moment", why=str(error), hint=hint) from None
