"""Watch and judge one rung: windows of live counters, paired probes, the verdict, the exposure. Pure.

A window is used exactly once whatever crashes: its number, the judge's state and the base of the next one are written in one fact.
The journal keeps each window's numbers, so that the verdicts can be judged again from it; the state keeps the judge's own.
Own paired probes and replayed prompts end a window: they never count as users' requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from rollout.analysis import (
    ArmWindow,
    JudgeConfig,
    JudgeState,
    ProbePair,
    ShareAlarm,
    Verdict,
    Window,
    absorb,
    config_for,
    new_state,
    share_alarm,
    verdict,
    window_to_json,
)
from rollout.analysis.config import LATENCIES
from rollout.domain.context import Ctx, act
from rollout.domain.decision import Decision, HoldOn, Record, TakeBack
from rollout.domain.weights import Rung
from rollout.plan import checks
from rollout.plan.model import Plan
from rollout.rung import fitted, replay, windows

Json = Any
BEFORE_FULL = {"rich": 600.0, "thin": 3600.0, "sparse": 7200.0}
DEADLINE = {"rich": 7200.0, "thin": 7200.0, "sparse": 14400.0}
PAIRS = {"rich": 0, "thin": checks.PAIRS, "sparse": checks.PAIRS}
BLIND = 60.0
"""seconds that judging waits for stable's first good scrape; then probes alone decide"""
UNKNOWN_LONGEST = 60.0
"""seconds that requests are taken to run where stable has no history of them"""
BUSY, BUSY_WINDOWS = 5, 3
"""with this many canary requests in a window, users tell more than our probes: so many windows lie between two batches"""
QUIET = ArmWindow(requests=0, errors=0, status="NO_TRAFFIC")
"""users' part of a window of own requests"""
LIVE_REQUESTS = {"rich": 20, "thin": 20, "sparse": 10}


def judge(ctx: Ctx, rung: Rung, *, last: bool) -> Decision | None:
    """The next thing until this rung may be left; None when it may. FAIL and the breaker take the canary back."""
    fact = ctx.state.fact(ctx.key("judge"))
    if fact is None:
        return _blind(ctx, rung) or _begin(ctx)
    seen = ctx.state.fact(ctx.key("seen")) or {}
    if seen.get("rung") != rung.index:
        return _enter(ctx, rung, seen)
    config, state = JudgeConfig.from_json(fact["config"]), JudgeState.from_json(fact["state"])
    found = verdict(config, state)
    concluded = _conclude(ctx, found, share_alarm(config, state))
    if concluded is not None or (not last and _exposed(ctx, seen, last=False)):
        return concluded
    return (
        _pairs(ctx, rung, fact, seen)
        or _replay(ctx, rung, fact, seen)
        or _window(ctx, rung, fact, seen)
        or _leave(ctx, found, seen, last=last)
    )


def listen(ctx: Ctx, rung: Rung) -> Decision | None:
    """Windows and a FAIL while somebody holds the rung; nothing else."""
    fact, seen = ctx.state.fact(ctx.key("judge")), ctx.state.fact(ctx.key("seen"))
    if fact is None or seen is None or seen.get("rung") != rung.index:
        return None
    found = verdict(JudgeConfig.from_json(fact["config"]), JudgeState.from_json(fact["state"]))
    return TakeBack("verdict", found.sentence) if found.kind == "fail" else _window(ctx, rung, fact, seen)


def _begin(ctx: Ctx) -> Record:
    config, said = configured(ctx)
    fact = {"config": config.to_json(), "state": new_state(config).to_json(), "began": ctx.now.isoformat()}
    return Record({ctx.key("judge"): fact}, f"judging begins: margins and reference are fixed from here{said}")


def configured(ctx: Ctx) -> tuple[JudgeConfig, str]:
    """What the judge of this pair is told, from the plan and stable as it is seen now; and what there is to say about its noise."""
    plan, sample = ctx.the_plan, ctx.world.samples.get(ctx.pair.stable)
    below = [r for r in ctx.ladder(ctx.pair) if not r.full]
    references = {metric: windows.reference(sample, metric) for metric in LATENCIES}
    noise, said = fitted.fit(ctx, references)
    config = config_for(
        ctx.state.fact("mode"),
        rungs=len(below),
        reference_ttft=references["ttft"],
        reference_e2e=references["e2e"],
        reference_tpot=references["tpot"],
        noises=noise.noises,
        memory_noise=noise.memory_noise,
        quality="binary" if plan.evidence.quality is not None else None,
        margins=fitted.margins(ctx),
        max_request_seconds=windows.longest(references["e2e"]),
        alpha=plan.evidence.alpha,
        beta=plan.evidence.beta,
        memory_floor=plan.guards.memory_floor,
    )
    return config, said


def _blind(ctx: Ctx, rung: Rung) -> Decision | None:
    """One failed scrape must not decide what the whole rollout is compared with: wait a little for a good one."""
    sample = ctx.world.samples.get(ctx.pair.stable)
    proved = ctx.at(ctx.key("rung", rung.index, "proved"))
    if (sample is not None and sample.status != "METRIC_ERROR") or ctx.since(proved) > BLIND:
        return None
    return ctx.wait(f"stable's metrics can be read ({sample.why if sample else 'not scraped'})")


def _enter(ctx: Ctx, rung: Rung, seen: Mapping[str, Json]) -> Record:
    """A new rung: its own exposure, and a fresh base so that no window spans a weight change."""
    now = ctx.now.isoformat()
    kept = {"id": seen.get("id", 0), "pairs": seen.get("pairs", 0), **replay.begun(ctx, seen)}
    fresh = {"rung": rung.index, "began": now, "until": now, "requests": 0, **kept}
    return Record({ctx.key("seen"): fresh, ctx.key("base"): windows.base(ctx, rung)}, f"watching rung {rung.pair_share:.2%}")


def _conclude(ctx: Ctx, found: Verdict, share: ShareAlarm) -> Decision | None:
    if found.kind == "fail":
        return TakeBack("verdict", found.sentence)
    if share.alarm:
        seen = f"{share.canary} of {share.total} requests reached the canary, expected {share.expected:.2%}"
        afresh = tuple(ctx.key(name) for name in ("judge", "seen", "base"))
        return HoldOn("share_alarm", f"{seen}; suspects: {', '.join(share.suspects)}", clears=afresh)
    return None


def _pairs(ctx: Ctx, rung: Rung, fact: Mapping[str, Json], seen: Mapping[str, Json]) -> Decision | None:
    """Take up a finished batch of paired probes, or begin the next while the plan wants more."""
    done = ctx.state.fact(ctx.key("pairs"))
    if done is not None:
        return _absorb_pairs(ctx, rung, fact, seen, done)
    probes, used, wanted = ctx.the_plan.evidence.probes, int(seen.get("pairs", 0)), _wanted(ctx)
    if not _probes_wanted(ctx, seen) or not _turn(ctx, fact, seen, "probes"):
        return None
    count = min(probes.batch, wanted - used)
    args = {
        "stable": ctx.pair.stable_probe,
        "canary": ctx.pair.canary_probe,
        "n": count,
        "prompts": list(probes.prompts),
        "max_tokens": probes.max_tokens,
        "seq": used,
    }
    return act("probe_pairs", f"paired probes {used + 1} to {used + count} of {wanted}", ctx.key("pairs"), **args)


def _wanted(ctx: Ctx) -> int:
    """Paired probes for this target."""
    return pairs_wanted(ctx.the_plan, str(ctx.state.fact("mode")))


def pairs_wanted(plan: Plan, mode: str) -> int:
    """Paired probes a target. With rich traffic there are none, unless the plan asks for them."""
    said = plan.evidence.probes.pairs
    return PAIRS[mode] if said is None else said


def _asked_all(ctx: Ctx, seen: Mapping[str, Json]) -> bool:
    """With rich traffic live requests alone could pass, and never show what the asked-for probes are there to see."""
    return ctx.state.fact("mode") != "rich" or int(seen.get("pairs", 0)) >= _wanted(ctx)


def _probes_wanted(ctx: Ctx, seen: Mapping[str, Json]) -> bool:
    enough = int(seen.get("pairs", 0)) >= _wanted(ctx)
    return not enough and _late(ctx, str(ctx.state.fact("mode"))) is None


def _prompts_wanted(ctx: Ctx, seen: Mapping[str, Json]) -> bool:
    """Until the whole set was asked, or the deadline is nearer than another window."""
    return replay.wanted(ctx, seen) and _late(ctx, str(ctx.state.fact("mode")), ahead=ctx.the_plan.evidence.window) is None


def _turn(ctx: Ctx, fact: Mapping[str, Json], seen: Mapping[str, Json], own: str) -> bool:
    """Whether own requests of this kind may be sent now."""
    return seen.get("turn") == own and ctx.state.fact(ctx.key("base")) is not None and not _uneven(ctx, fact)


def _next_own(ctx: Ctx, seen: Mapping[str, Json]) -> str:
    """Which own requests come after the live windows: probes and prompts in turn, while both are wanted."""
    return "replay" if _prompts_wanted(ctx, seen) and (seen.get("own") != "replay" or not _probes_wanted(ctx, seen)) else "probes"


def _replay(ctx: Ctx, rung: Rung, fact: Mapping[str, Json], seen: Mapping[str, Json]) -> Decision | None:
    """Take up a finished batch of replayed prompts, or begin the next until each was asked once."""
    done = ctx.state.fact(ctx.key("replay"))
    if done is None:
        return replay.batch(ctx, seen) if _prompts_wanted(ctx, seen) and _turn(ctx, fact, seen, "replay") else None
    invalid = replay.unusable(done, seen)
    if invalid is not None:
        return _nothing(ctx, rung, seen, "replay", f"a batch of replayed prompts says nothing: {invalid}")
    quality = replay.pairs(done)
    window = Window(id=int(seen["id"]) + 1, rung=rung.index, seconds=0.0, stable=QUIET, canary=QUIET, quality=quality)
    return _absorbed(ctx, rung, fact, seen, "replay", window, {"replay": replay.told(ctx, seen, done)}, replay.sentence(done))


def _nothing(ctx: Ctx, rung: Rung, seen: Mapping[str, Json], own: str, text: str) -> Record:
    """A finished batch of own requests that is no evidence: it is asked again later."""
    after = {**seen, **_live_again(ctx, own), "invalid": int(seen.get("invalid", 0)) + 1}
    return Record({ctx.key(own): None, ctx.key("base"): windows.base(ctx, rung), ctx.key("seen"): after}, text)


def _absorbed(
    ctx: Ctx,
    rung: Rung,
    fact: Mapping[str, Json],
    seen: Mapping[str, Json],
    own: str,
    window: Window,
    known: Mapping[str, Json],
    text: str,
) -> Record:
    """A batch of own requests becomes a window of its own; `known` is what is remembered of it."""
    users = windows.users_since(ctx, ctx.state.fact(ctx.key("base")), len(window.pairs) + len(window.quality))
    counts = {"id": window.id, "requests": int(seen["requests"]) + users, **known}
    facts: dict[str, Json] = {
        ctx.key(own): None,
        ctx.key("base"): windows.base(ctx, rung),
        ctx.key("judge"): _used(fact, window),
        ctx.key("seen"): {**seen, **counts, **_live_again(ctx, own)},
    }
    return Record(facts, text, _noted(window, facts[ctx.key("judge")]))


def _live_again(ctx: Ctx, own: str) -> dict[str, Json]:
    return {"turn": "live", "live": 0, "until": ctx.now.isoformat(), "own": own}


def _absorb_pairs(ctx: Ctx, rung: Rung, fact: Mapping[str, Json], seen: Mapping[str, Json], done: Mapping[str, Json]) -> Record:
    told, late = f"{len(done['pairs'])} paired probes used as evidence", done.get("invalid")
    if late and ctx.state.fact("mode") != "rich":
        return _nothing(ctx, rung, seen, "pairs", f"a batch of paired probes says nothing: {late}")
    pairs = tuple(ProbePair(*row) for row in done["pairs"])
    if late:  # with rich traffic probes are there for answers that break off: that does not depend on when they were seen
        pairs = tuple(replace(pair, stable_ttft=None, canary_ttft=None) for pair in pairs)
        told += f", their times are not: {late}"
    window = Window(id=int(seen["id"]) + 1, rung=rung.index, seconds=0.0, stable=QUIET, canary=QUIET, pairs=pairs)
    known = {"pairs": int(seen.get("pairs", 0)) + len(pairs)}
    return _absorbed(ctx, rung, fact, seen, "pairs", window, known, told)


def _window(ctx: Ctx, rung: Rung, fact: Mapping[str, Json], seen: Mapping[str, Json]) -> Decision | None:
    """Close a live window when it is long enough."""
    base = ctx.state.fact(ctx.key("base"))
    if base is None or base["rung"] != rung.index:
        return _resumed(ctx, rung, seen)
    if ctx.since(datetime.fromisoformat(base["at"])) < ctx.the_plan.evidence.window:
        return None
    number = int(seen["id"]) + 1
    uneven = _uneven(ctx, fact)
    window = windows.window(ctx, rung, base, number, even=not uneven)
    live = int(seen.get("live", 0)) + 1
    turn = _next_own(ctx, seen) if live >= (BUSY_WINDOWS if window.canary.requests >= BUSY else 1) else "live"
    counts = {"requests": int(seen["requests"]) + window.canary.requests, "live": live, "turn": turn}
    after = {**seen, **counts, "id": number, "until": ctx.now.isoformat()}
    facts = {ctx.key("judge"): _used(fact, window), ctx.key("seen"): after, ctx.key("base"): windows.base(ctx, rung, base)}
    text = f"window {number}: canary {window.canary.requests} requests ({window.canary.errors} errors), stable {window.stable.requests}"
    text += "; not compared: requests of before the interruption still run" if uneven else ""
    return Record(facts, text, _noted(window, facts[ctx.key("judge")]))


def _resumed(ctx: Ctx, rung: Rung, seen: Mapping[str, Json]) -> Record:
    """Watching was interrupted: that time is no exposure, and what the sides carry from then is not compared."""
    now, until = ctx.now, datetime.fromisoformat(seen.get("until", seen["began"]))
    moved = {**seen, "began": (datetime.fromisoformat(seen["began"]) + (now - until)).isoformat(), "until": now.isoformat()}
    facts = {**ctx.interrupted(), ctx.key("base"): windows.base(ctx, rung), ctx.key("seen"): moved}
    return Record(facts, "watching was interrupted; a new window begins")


def _uneven(ctx: Ctx, fact: Mapping[str, Json]) -> bool:
    """One side still carries what it got while the other was away: a comparison would blame it for that load."""
    began = ctx.at(ctx.key("uneven"))
    return began is not None and ctx.since(began) < (JudgeConfig.from_json(fact["config"]).max_request_seconds or UNKNOWN_LONGEST)


def _used(fact: Mapping[str, Json], window: Window) -> dict[str, Json]:
    config = JudgeConfig.from_json(fact["config"])
    state = absorb(config, JudgeState.from_json(fact["state"]), window)
    found = verdict(config, state)
    return {**fact, "state": state.to_json(), "verdict": {"kind": found.kind, "sentence": found.sentence, "details": found.details}}


def _noted(window: Window, judged: Mapping[str, Json]) -> dict[str, Json]:
    """What the journal keeps of a window: its numbers, to be judged again, and what was said then."""
    return {"window": window_to_json(window), "verdict": {key: judged["verdict"][key] for key in ("kind", "sentence")}}


def _asked(ctx: Ctx, *, last: bool) -> tuple[float, int]:
    """How long and how many requests a rung sees at least: (seconds, canary requests)."""
    evidence, mode = ctx.the_plan.evidence, str(ctx.state.fact("mode"))
    seconds, full = evidence.min_time, evidence.min_time_before_full
    if last:
        seconds = max(seconds, BEFORE_FULL[mode] if full is None else full)
    return seconds, min(evidence.min_requests, LIVE_REQUESTS[mode])


def _exposed(ctx: Ctx, seen: Mapping[str, Json], *, last: bool) -> bool:
    """The rung was seen long enough, by enough users; or a person said `promote`."""
    seconds, requests = _asked(ctx, last=last)
    here = ctx.since(datetime.fromisoformat(seen["began"]))
    return ctx.promoted() or (here >= seconds and int(seen["requests"]) >= requests)


def _leave(ctx: Ctx, found: Verdict, seen: Mapping[str, Json], *, last: bool) -> Decision | None:
    """Whether the last rung below 100 % may be left: exposed, and a PASS or a person's word for the lack of one."""
    mode, hold = str(ctx.state.fact("mode")), ctx.state.hold
    held = hold is not None and hold.reason == "inconclusive"
    word = ctx.promoted() or ctx.state.fact("said.accept_inconclusive") is not None
    passed = last and found.kind == "pass" and _exposed(ctx, seen, last=True) and _asked_all(ctx, seen)
    odd = replay.misfit(seen) if passed and not word else None
    if word or (passed and not held and odd is None):
        return None
    if odd is not None:
        return odd
    late = _late(ctx, mode)
    if late:
        verbs = ("approve --accept-inconclusive", "promote", "rollback", "abort")
        detail = hold.detail if hold is not None and held else f"no verdict within {late:.0f} s: {found.sentence}"
        return HoldOn("inconclusive", detail, verbs=verbs)
    seconds, requests = _asked(ctx, last=last)
    here = ctx.since(datetime.fromisoformat(seen["began"]))
    left = f"{here:.0f} of {seconds:.0f} s, {seen['requests']} of {requests} requests"
    return ctx.wait(f"exposure {left}; {found.sentence}", _pause(ctx))


def _late(ctx: Ctx, mode: str, *, ahead: float = 0.0) -> float | None:
    """The deadline in seconds once it has passed since judging began, or will have in `ahead` seconds."""
    deadline = ctx.the_plan.evidence.deadline
    limit = DEADLINE[mode] if deadline is None else deadline
    fact = ctx.state.fact(ctx.key("judge"))
    return limit if ctx.since(datetime.fromisoformat(fact["began"])) + ahead > limit else None


def _pause(ctx: Ctx) -> float:
    """Until the running window may be closed."""
    base = ctx.state.fact(ctx.key("base"))
    left = ctx.the_plan.evidence.window - ctx.since(datetime.fromisoformat(base["at"])) if base else 1.0
    return max(0.2, min(left, 5.0))
