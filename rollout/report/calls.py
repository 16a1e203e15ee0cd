"""Every call that changes something on a server, in the order a healthy rollout makes them. Pure: receipts and ladder in, lines out.

It is a forecast of what the steps decide; a test holds it against the journal of a real run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from rollout.domain.receipts import Pair, Receipts
from rollout.domain.weights import Rung
from rollout.plan.model import Plan
from rollout.report.words import percent


class Call(BaseModel):
    """One effect: the step and target (from 1; None = the whole route) it belongs to, its verb, and what it is for."""

    model_config = ConfigDict(frozen=True)

    step: str
    target: int | None
    verb: str
    text: str


Ladders = Mapping[str, Sequence[Rung]]
"""canary deployment -> its rungs"""


def calls(plan: Plan, receipts: Receipts, ladders: Ladders, begin: int = 0) -> list[Call]:
    """The writes of a rollout in which nothing goes wrong, from the marker to the marker's removal.

    `begin`: index of the rung at which an adopted canary goes on; the rungs under it are not written.
    """
    ladders = {n: [r for r in rungs if n != receipts.pairs[0].canary or r.index >= begin] for n, rungs in ladders.items()}
    replaced = [call for n, pair in enumerate(receipts.pairs, 1) for call in _replace(receipts, pair, n, ladders[pair.canary])]
    return [*_before(plan, receipts), *_converted(receipts, replaced), *_cleanup(plan, receipts)]


def _converted(receipts: Receipts, replaced: Sequence[Call]) -> Iterator[Call]:
    """The one write that gives a route its weights stands before the first rung, once."""
    first = next((n for n, call in enumerate(replaced) if call.step == "canary"), 0) if receipts.converted else len(replaced)
    yield from replaced[:first]
    if receipts.converted:
        told = ", ".join(f"{name} {weight}" for name, weight in receipts.converted.items())
        yield _call("canary", None, "reweigh", f"give route {receipts.route} weights, all in one write: {told}")
    yield from replaced[first:]


def _before(plan: Plan, receipts: Receipts) -> Iterator[Call]:
    yield _call("declare", None, "mark_route", f"claim route {receipts.route}: write the marker into its meta")
    if plan.stage.skip is not None or receipts.pairs[0].adopted is not None:
        return
    yield _call("stage", None, "create_deployment", f"create {receipts.staging} on {plan.stage.worker}")
    yield _call("stage", None, "create_probe_route", f"private route {receipts.staging_probe} to it; load test through it")
    yield _call("stage", None, "delete_probe_route", f"remove {receipts.staging_probe}")
    yield _call("stage", None, "delete_deployment", f"delete {receipts.staging}")


def _replace(receipts: Receipts, pair: Pair, number: int, ladder: Sequence[Rung]) -> Iterator[Call]:
    if pair.adopted is None:
        yield _call("attach", number, "create_deployment", f"create {pair.canary}, dark: no route of users names it")
    yield _call("attach", number, "create_probe_route", f"private route {pair.canary_probe} to {pair.canary}")
    yield _call("attach", number, "create_probe_route", f"private route {pair.stable_probe} to {pair.stable}, for paired probes")
    for rung in ladder:
        yield from _rung(receipts, pair, number, rung)


def _rung(receipts: Receipts, pair: Pair, number: int, rung: Rung) -> Iterator[Call]:
    step = "canary" if rung.index == 0 else "shift"
    if rung.full:
        yield _call(step, number, "leave", f"remove the target of {pair.stable}: {pair.canary} carries its share; then drain {pair.stable}")
        return
    if rung.index == 0 and pair.scaled != pair.weight:
        text = f"{pair.stable} gets weight {pair.scaled} in place of {pair.weight} by a twin target: too coarse for the ladder"
        yield _call(step, number, "twin", text)
    drop = _call(
        step, number, "refresh", f"drop the cached targets of {receipts.route}; then verify the share by own requests, watch, judge"
    )
    if pair.adopted is not None and rung.weight == pair.adopted.weight:
        yield drop  # the weight is found as wanted
        return
    verb, word = ("join", "joins with") if rung.index == 0 and pair.adopted is None else ("set_weight", "gets")
    share = f"{percent(rung.pair_share)} of the pair, {percent(rung.route_share)} of the route"
    yield _call(step, number, verb, f"{pair.canary} {word} weight {rung.weight} beside {pair.scaled}: {share}")
    yield drop


def _cleanup(plan: Plan, receipts: Receipts) -> Iterator[Call]:
    for number, pair in enumerate(receipts.pairs, 1):
        if plan.window.keep == "parked":
            yield _call("cleanup", number, "scale", f"in the window: park {pair.stable}, replicas 0, once it is empty")
    for number, pair in enumerate(receipts.pairs, 1):
        yield _call("cleanup", number, "delete_probe_route", f"after the window: remove {pair.stable_probe}")
        yield _call("cleanup", number, "delete_deployment", f"delete {pair.stable}, unless another route sends to it")
        yield _call("cleanup", number, "delete_probe_route", f"remove {pair.canary_probe}")
    if plan.cleanup.files == "delete":
        for number, pair in enumerate(receipts.pairs, 1):
            text = f"delete the model files of {pair.stable} from its workers, unless anything else uses them"
            yield _call("cleanup", number, "delete_file", text)
    yield _call("cleanup", None, "unmark_route", f"give route {receipts.route} back: remove the marker")


def _call(step: str, target: int | None, verb: str, text: str) -> Call:
    return Call(step=step, target=target, verb=verb, text=text)
