"""The evidence of one attempt as a picture: SVG without scripts or fonts, for light and dark. Pure: what was said in, text out."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

from rollout.analysis import JudgeConfig
from rollout.analysis.recording import Attempt
from rollout.analysis.replay import Judged
from rollout.analysis.samples import Histogram, added, common_edges
from rollout.analysis.words import percent

WIDE, LEFT, RIGHT = 820, 84, 116
"""px; the right margin holds the words of the two lines that must be crossed, where no curve runs"""
TOP, HIGH = 106, 200
BELOW = 386
_LOW, _MOST = -1.0, 4.0
"""log10 of the evidence that is drawn; more says nothing more to anybody"""
_WORDS = {"pass": ("PASS", "goodtext"), "fail": ("FAIL", "badtext"), "continue": ("UNDECIDED", "head")}
STYLE = """
text{font:13px system-ui,sans-serif;fill:#222} .small{font-size:11px;fill:#555} .head{font-size:15px;font-weight:600}
.badtext{font-size:15px;font-weight:700;fill:#c0392b} .goodtext{font-size:15px;font-weight:700;fill:#1e7d46}
.axis{stroke:#999} .rung{stroke:#aaa;stroke-dasharray:2 3} .need{stroke-dasharray:6 4;stroke-width:1}
.bad{stroke:#c0392b;fill:none;stroke-width:2} .good{stroke:#1e7d46;fill:none;stroke-width:2}
.badfill{fill:#c0392b} .goodfill{fill:#1e7d46} .stable{fill:#8aa4c0} .canary{fill:#e0a030} .back{fill:#fff}
@media (prefers-color-scheme: dark){text{fill:#ddd} .small{fill:#aaa} .back{fill:#16191d} .axis{stroke:#777} .rung{stroke:#666}
.badtext{fill:#ff7b6b} .goodtext{fill:#62c98c} .bad{stroke:#ff7b6b} .good{stroke:#62c98c} .badfill{fill:#ff7b6b} .goodfill{fill:#62c98c}
.stable{fill:#6d8bab} .canary{fill:#d6982c}}
"""


def picture(attempt: Attempt, config: JudgeConfig, said: Sequence[Judged]) -> str:
    """Evidence against and for over the canary's requests with the two lines that must be crossed, and the TTFT of both sides below."""
    parts = [*_head(attempt, said), *_evidence(config, said), *_histograms(attempt)]
    body = "\n".join(parts)
    tall = BELOW + 210
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {tall}" role="img" aria-label="evidence of the judge">'
        f'<style>{STYLE}</style><rect class="back" width="{WIDE}" height="{tall}"/>\n{body}\n</svg>\n'
    )


def _head(attempt: Attempt, said: Sequence[Judged]) -> list[str]:
    title = textwrap.shorten(attempt.title, 80, placeholder=" …")
    if not said:
        return [_text(LEFT, 24, title, "head"), _text(LEFT, 46, "nothing was judged", "small")]
    last = said[-1].verdict
    word, style = _WORDS.get(last.kind, (last.kind.upper(), "head"))
    lines = textwrap.wrap(last.sentence.partition(": ")[2] or last.sentence, 116)
    if len(lines) > 3:
        lines = [*lines[:2], f"{lines[2]} …"]
    return [
        _text(LEFT, 24, title, "head"),
        _text(WIDE - RIGHT, 24, word, style, "end"),
        *(_text(LEFT, 44 + 15 * i, line, "small") for i, line in enumerate(lines)),
    ]


def _evidence(config: JudgeConfig, said: Sequence[Judged]) -> list[str]:
    most = max((s.requests for s in said), default=0)
    by_requests = most > len(said)
    parts = [f'<line class="axis" x1="{LEFT}" y1="{_y(0)}" x2="{WIDE - RIGHT}" y2="{_y(0)}"/>']
    for value in range(int(_LOW), int(_MOST) + 1):
        label = "1 to 1" if value == 0 else f"{10**value:,} to 1" if value > 0 else f"1 to {10**-value}"
        parts.append(_text(LEFT - 8, _y(value) + 4, label, "small", "end"))
    for need, kind, word in ((config.alpha, "bad", "roll back"), (config.beta, "good", "promote")):
        at = _y(math.log10(1 / need))
        parts.append(f'<line class="{kind} need" x1="{LEFT}" y1="{at}" x2="{WIDE - RIGHT}" y2="{at}"/>')
        parts.append(_text(WIDE - RIGHT + 6, at + 4, f"{word}, {1 / need:.0f} to 1", "small"))
    along = [LEFT + (s.requests / most if by_requests else (i + 1) / len(said)) * (WIDE - LEFT - RIGHT) for i, s in enumerate(said)]
    for kind, values in (("bad", [s.against for s in said]), ("good", [s.supporting for s in said])):
        points = " ".join(f"{x:.1f},{_y(value):.1f}" for x, value in zip(along, values, strict=True))
        parts.append(f'<polyline class="{kind}" points="{LEFT},{_y(0)} {points}"/>')
    parts += _rungs(said, along)
    under, legend = TOP + HIGH + 16, TOP + HIGH + 42
    seen = f"{len(said)} window{'s' if len(said) != 1 else ''}"
    unit = f"{most:,} canary requests, {seen}" if by_requests else f"{seen}, {most:,} canary requests"
    parts += [
        _text(LEFT, under, "0", "small"),
        _text(WIDE - RIGHT, under, unit, "small", "end"),
        f'<rect class="badfill" x="{LEFT}" y="{legend - 6}" width="14" height="4"/>',
        _text(LEFT + 20, legend, "evidence that the canary is worse than tolerated", "small"),
        f'<rect class="goodfill" x="{LEFT + 310}" y="{legend - 6}" width="14" height="4"/>',
        _text(LEFT + 330, legend, "evidence that it is harmless (the weakest of its claims)", "small"),
    ]
    return parts


def _rungs(said: Sequence[Judged], at: Sequence[float]) -> list[str]:
    """Where each rung begins, with the share that was asked for. Names that would lie on each other are left out, the lines are not."""
    parts, free = [], 0.0
    for i, one in enumerate(said):
        window = one.look.window
        if i and window.rung == said[i - 1].look.window.rung:
            continue
        x = at[i - 1] if i else LEFT
        if i:
            parts.append(f'<line class="rung" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + HIGH}"/>')
        label = percent(window.expected_share) if window.expected_share else f"rung {window.rung + 1}"
        if x >= free:
            parts.append(_text(x + 3, TOP - 4, label, "small"))
            free = x + 7 * len(label) + 6
    return parts


def _histograms(attempt: Attempt) -> list[str]:
    """Requests by time to first token on the last rung that has any, both sides beside each other, as shares of their own total.

    One rung and no sum of several: what is fast at 5 % and slow at 50 % is load, and a sum would show it as a difference of the sides.
    """
    for rung in sorted({look.window.rung for look in attempt.looks}, reverse=True):
        seen = [look.window for look in attempt.looks if look.window.rung == rung]
        stable, canary = added(w.stable.ttft for w in seen), added(w.canary.ttft for w in seen)
        if stable and canary and stable.total and canary.total:
            return _bars(stable, canary, seen[-1].expected_share, rung)
    return [_text(LEFT, BELOW, "no times to first token were seen on both sides of one rung", "small")]


def _bars(stable: Histogram, canary: Histogram, share: float | None, rung: int) -> list[str]:
    edges = common_edges(stable, canary)
    shares = [[count / side.total for count in side.rebin(edges).counts] for side in (stable, canary)]
    used = [i for i in range(len(edges) + 1) if shares[0][i] > 0.002 or shares[1][i] > 0.002]
    shown = range(used[0], used[-1] + 1)
    tallest = max(max(shares[0][i], shares[1][i]) for i in shown)
    step, floor, high = (WIDE - LEFT - RIGHT) / len(shown), BELOW + 165, 118
    when = f"while the canary had {percent(share)}" if share else f"on rung {rung + 1}"
    parts = [_text(LEFT, BELOW, f"time to first token {when}: share of each side's requests", "")]
    for place, i in enumerate(shown):
        left = LEFT + place * step
        for side, kind in enumerate(("stable", "canary")):
            tall = shares[side][i] / tallest * high
            at, wide = left + 4 + side * (step / 2 - 4), step / 2 - 5
            parts.append(f'<rect class="{kind}" x="{at:.1f}" y="{floor - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>')
            if wide > 26:
                parts.append(_text(at + wide / 2, floor - tall - 4, _percent(shares[side][i]), "small", "middle"))
        label = f"≤ {edges[i]:g} s" if i < len(edges) else f"> {edges[-1]:g} s"
        parts.append(_text(left + step / 2, floor + 15, label, "small", "middle"))
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDE - RIGHT}" y2="{floor}"/>')
    for place, (kind, side_) in enumerate((("stable", stable), ("canary", canary))):
        at = LEFT + place * 240
        parts.append(f'<rect class="{kind}" x="{at}" y="{floor + 27}" width="12" height="10"/>')
        parts.append(_text(at + 18, floor + 36, f"{kind}: {side_.total:,} requests", "small"))
    return parts


def _percent(part: float) -> str:
    return "" if part == 0 else "<1 %" if part < 0.01 else f"{100 * part:.0f} %"


def _y(log10: float) -> float:
    kept = min(max(log10, _LOW), _MOST)
    return round(TOP + HIGH * (_MOST - kept) / (_MOST - _LOW), 1)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words)  # XML has no control characters
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(plain)}</text>'
