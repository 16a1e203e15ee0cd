"""Times, durations and shares as a tired person reads them. Pure: the moment `now` is given."""

from __future__ import annotations

from datetime import datetime, tzinfo


def ago(seconds: float) -> str:
    """A length of time in at most two units: `45 s`, `6 min`, `1 h 53 min`, `2 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" if whole >= 600 or whole % 60 == 0 else f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two(whole // 86400, "d", whole % 86400 // 3600, "h")


def _two(big: int, unit: str, small: int, smaller: str) -> str:
    return f"{big} {unit} {small} {smaller}" if small else f"{big} {unit}"


def clock(moment: datetime, zone: tzinfo | None = None) -> str:
    """`HH:MM:SS` in the reader's zone."""
    return moment.astimezone(zone).strftime("%H:%M:%S")


def day(moment: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """`HH:MM`, with the date when it is not today."""
    local, today = moment.astimezone(zone), now.astimezone(zone)
    return local.strftime("%H:%M" if local.date() == today.date() else "%a %d %b %H:%M")


def since(moment: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """`02:14 (6 min ago)`."""
    return f"{day(moment, now, zone)} ({ago((now - moment).total_seconds())} ago)"


def until(moment: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """`04:14 (in 1 h 53 min)`, or how long it is overdue."""
    left = (moment - now).total_seconds()
    return f"{day(moment, now, zone)} ({'in ' + ago(left) if left >= 0 else ago(-left) + ' overdue'})"


def percent(share: float) -> str:
    """`10 %`, `33.3 %`, `0.50 %`: never rounded to 0 or 100 when it is not."""
    value = share * 100
    if value == round(value):
        return f"{value:.0f} %"
    text = f"{value:.1f}" if 1 <= value <= 99 else f"{value:.2f}"
    return f"{text} %"
