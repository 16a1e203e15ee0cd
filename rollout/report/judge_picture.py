"""The evidence of one attempt as a picture: SVG without scripts or fonts, for light and dark. Pure: what was said in, text out."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

from rollout.analysis import JudgeConfig
from rollout.analysis.recording import Attempt
from rollout.analysis.replay import Judged
from rollout.analysis.samples import added

WIDE, LEFT, RIGHT = 760, 84, 20
TOP, HIGH = 84, 200
BELOW = 364
_LOW, _MOST = -1.0, 4.0
"""log10 of the evidence that is drawn; more says nothing more to anybody"""
STYLE = """
text{font:13px system-ui,sans-serif;fill:#222} .small{font-size:11px;fill:#666} .head{font-size:15px;font-weight:600}
.axis{stroke:#999} .rung{stroke:#bbb;stroke-dasharray:2 3} .need{stroke-dasharray:6 4;stroke-width:1}
.bad{stroke:#c0392b;fill:none;stroke-width:2} .good{stroke:#1e7d46;fill:none;stroke-width:2}
.badfill{fill:#c0392b} .goodfill{fill:#1e7d46} .stable{fill:#8aa4c0} .canary{fill:#e0a030} .back{fill:#fff}
@media (prefers-color-scheme: dark){text{fill:#ddd} .small{fill:#aaa} .back{fill:#16191d} .axis{stroke:#777} .rung{stroke:#555}
.bad{stroke:#ff7b6b} .good{stroke:#62c98c} .badfill{fill:#ff7b6b} .goodfill{fill:#62c98c} .stable{fill:#6d8bab} .canary{fill:#d6982c}}
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
    about = attempt.about
    title = f"{about.get('canary') or 'canary'} against {about.get('stable') or 'stable'}"
    sentence = said[-1].verdict.sentence if said else "nothing was judged"
    lines = textwrap.wrap(sentence, 112)[:3]
    return [_text(LEFT, 22, title, "head"), *(_text(LEFT, 40 + 14 * i, line, "small") for i, line in enumerate(lines))]


def _evidence(config: JudgeConfig, said: Sequence[Judged]) -> list[str]:
    most = max((s.requests for s in said), default=1) or 1

    def x(index: int) -> float:
        by_requests = most > len(said)
        part = said[index].requests / most if by_requests else (index + 1) / len(said)
        return LEFT + part * (WIDE - LEFT - RIGHT)

    parts = [f'<line class="axis" x1="{LEFT}" y1="{_y(0)}" x2="{WIDE - RIGHT}" y2="{_y(0)}"/>']
    for value in range(int(_LOW), int(_MOST) + 1):
        label = "1 to 1" if value == 0 else f"{10**value:,} to 1" if value > 0 else f"1 to {10**-value}"
        parts.append(_text(LEFT - 6, _y(value) + 4, label, "small", "end"))
    for need, kind, word in ((config.alpha, "bad", "roll back"), (config.beta, "good", "promote")):
        at = _y(math.log10(1 / need))
        parts.append(f'<line class="{kind} need" x1="{LEFT}" y1="{at}" x2="{WIDE - RIGHT}" y2="{at}"/>')
        parts.append(_text(WIDE - RIGHT, at - 4, f"{word} at {1 / need:.0f} to 1", "small", "end"))
    for i in range(1, len(said)):
        rung = said[i].look.window.rung
        if rung != said[i - 1].look.window.rung:
            parts.append(f'<line class="rung" x1="{x(i):.1f}" y1="{TOP}" x2="{x(i):.1f}" y2="{TOP + HIGH}"/>')
            parts.append(_text(x(i) + 3, TOP + 10, f"rung {rung + 1}", "small"))
    for kind, values in (("bad", [s.against for s in said]), ("good", [s.supporting for s in said])):
        points = " ".join(f"{x(i):.1f},{_y(value):.1f}" for i, value in enumerate(values))
        parts.append(f'<polyline class="{kind}" points="{LEFT},{_y(0)} {points}"/>')
    legend = TOP + HIGH + 40
    parts += [
        _text(LEFT, legend - 20, "0", "small"),
        _text(WIDE - RIGHT, legend - 20, f"{most:,} canary requests, {len(said)} windows", "small", "end"),
        f'<rect class="badfill" x="{LEFT}" y="{legend - 9}" width="12" height="4"/>',
        _text(LEFT + 18, legend, "evidence that the canary is worse than tolerated", ""),
        f'<rect class="goodfill" x="{LEFT + 340}" y="{legend - 9}" width="12" height="4"/>',
        _text(LEFT + 358, legend, "evidence that it is harmless (weakest claim)", ""),
    ]
    return parts


def _histograms(attempt: Attempt) -> list[str]:
    """Requests by time to first token, both sides beside each other, as shares of their own total."""
    stable, canary = added(look.window.stable.ttft for look in attempt.looks), added(look.window.canary.ttft for look in attempt.looks)
    if not (stable and canary and stable.total and canary.total):
        return [_text(LEFT, BELOW, "no times to first token were seen on both sides", "small")]
    edges = [e for e in stable.edges if e in canary.edges]
    shares = [[count / side.total for count in side.rebin(edges).counts] for side in (stable, canary)]
    used = [i for i in range(len(edges) + 1) if shares[0][i] > 0.002 or shares[1][i] > 0.002]
    shown = range(used[0], used[-1] + 1)
    tallest = max(max(shares[0][i], shares[1][i]) for i in shown)
    step, floor, high = (WIDE - LEFT - RIGHT) / len(shown), BELOW + 165, 130
    parts = [_text(LEFT, BELOW, "time to first token: share of each side's requests", "")]
    for place, i in enumerate(shown):
        left = LEFT + place * step
        for side, kind in enumerate(("stable", "canary")):
            tall = shares[side][i] / tallest * high
            at = left + 4 + side * (step / 2 - 4)
            parts.append(f'<rect class="{kind}" x="{at:.1f}" y="{floor - tall:.1f}" width="{step / 2 - 5:.1f}" height="{tall:.1f}"/>')
        label = f"≤ {edges[i]:g} s" if i < len(edges) else f"> {edges[-1]:g} s"
        parts.append(_text(left + step / 2, floor + 15, label, "small", "middle"))
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDE - RIGHT}" y2="{floor}"/>')
    for place, (kind, side_) in enumerate((("stable", stable), ("canary", canary))):
        at = LEFT + place * 240
        parts.append(f'<rect class="{kind}" x="{at}" y="{floor + 26}" width="12" height="10"/>')
        parts.append(_text(at + 18, floor + 36, f"{kind}: {side_.total:,} requests", ""))
    return parts


def _y(log10: float) -> float:
    kept = min(max(log10, _LOW), _MOST)
    return round(TOP + HIGH * (_MOST - kept) / (_MOST - _LOW), 1)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
