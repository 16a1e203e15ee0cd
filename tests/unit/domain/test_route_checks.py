"""Each shape of a route: refused with these very words, or taken with these notes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rollout.domain.carrying import rung_shares
from rollout.domain.preflight import findings
from rollout.domain.receipts import take
from rollout.domain.route_checks import notes, refusals
from rollout.domain.shapes import Balance, balance_of, conversion, weighted
from rollout.domain.world import DeploymentView, InstanceView, RouteView, TargetView, WorkerView, World
from rollout.plan.model import Plan
from tests.unit.report import samples

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def plan(*, stable: str = "a", **more: Any) -> Plan:
    """The sample plan for one target of `chat`; keys of `Route` go there, others replace parts of the plan."""
    keys = {"env": "MKEY"}
    server = {"server": "http://gpustack.lan", "management_key": keys, "inference_key": keys}
    route = {"name": "chat", **{key: more.pop(key) for key in ("convert_to_weighted", "accept_loss") if key in more}}
    return samples.plan(gpustack=server, route=route, stable=[{"deployment": stable}], **more)


def target(name: str | None, weight: int, number: int = 0, **extra: Any) -> TargetView:
    number = number or (sum(map(ord, name)) if name else 7)
    return TargetView(number, number if name else None, name, weight, "active", extra)


def provider(weight: int = 50) -> TargetView:
    return target(None, weight, provider_id=3, overridden_model_name="gpt-x")


def world(
    *targets: TargetView,
    mode: str | None = "weighted",
    replicas: int = 1,
    gateway: bool | None = False,
    version: str = "v2.3.0",
    **route: Any,
) -> World:
    view = RouteView(1, "chat", targets, mode, route.pop("meta", {}), "authed", **route)
    running = {
        t.deployment: DeploymentView(n, t.deployment, replicas, replicas, "running", {}, _running(n, t.deployment, replicas))
        for n, t in enumerate(targets, 1)
        if t.deployment
    }
    staging = WorkerView(3, "staging", "ready", 1.0, 128 << 30, 100 << 30, True)
    return World(NOW, version, view, running, workers={"staging": staging}, gateway=gateway)


def _running(number: int, name: str, replicas: int) -> tuple[InstanceView, ...]:
    return tuple(InstanceView(10 * number + i, f"{name}-{i}", "running", "staging") for i in range(replicas))


MASKS = (
    "answers the errors of the others (4xx too, whatever its codes say), so a canary's errors would look like success: take it out for "
    'the rollout (`POST /v2/model-route-targets/ID/set-fallback` with {"fallback_status_codes": null}, or remove the target)'
)
NO_SHARE = "so no share can be set: `route.convert_to_weighted: true` gives every target one for the rollout, and takes it back on rollback"
LORA = {"overridden_model_name": "a:poet"}
REFUSED: list[tuple[str, Plan, World, list[str]]] = [
    ("no weights", plan(), world(target("a", 0), mode=None), [f"route `chat` has no weights (a uniform split), {NO_SHARE}"]),
    (
        "no weights behind the gateway of 2.2",
        plan(convert_to_weighted=True),
        world(target("a", 0), mode=None, gateway=True, version="v2.2.3"),
        [
            "no target of route `chat` has a weight: behind the gateway of GPUStack 2.2 such a route serves nobody, and a rollback would "
            "bring that back; give stable a weight first"
        ],
    ),
    (
        "a note of somebody else",
        plan(),
        world(target("a", 100), meta={"rollout": "blue"}),
        [
            "`meta.rollout` of route `chat` holds something that is no marker: a rollout keeps its marker there and does not "
            "write over it; move it to another key"
        ],
    ),
    ("scored", plan(), world(target("a", 0), mode="scoring"), [f"route `chat` has no weights (it balances by score), {NO_SHARE}"]),
    (
        "policies",
        plan(),
        world(target("a", 0), mode="scoring", gateway=True, policies=("least-load", "session-affinity")),
        [f"route `chat` has no weights (it balances by least-load and session-affinity), {NO_SHARE}"],
    ),
    (
        "convert, gateway off",
        plan(convert_to_weighted=True),
        world(target("a", 0), mode="scoring"),
        [
            "`route.convert_to_weighted` changes every target of `chat` in one write; with the gateway off requests may get a 503 for up "
            "to three seconds, on the way there and on a rollback: `route.accept_loss: true` accepts that, or give the route weights in "
            "a quiet hour"
        ],
    ),
    (
        "mixed",
        plan(),
        world(target("a", 100), target("b", 0), mode="invalid"),
        ["route `chat` has weights on some targets only: give `b` one, or remove the target"],
    ),
    (
        "another way",
        plan(),
        world(target("a", 100), mode="by-moon"),
        ["route `chat` balances by `by-moon`, which this release does not know: make it a weighted route first"],
    ),
    (
        "weight 0 on 2.2",
        plan(),
        world(target("a", 0), target("b", 100), mode=None),
        ["stable target `a` has weight 0 beside others: it serves nobody; name a target that does"],
    ),
    ("twice", plan(), world(target("a", 100), target("b", 1, 8), target("b", 2, 9)), ["route `chat` has two targets for `b`: remove one"]),
    (
        "fallback behind the gateway",
        plan(),
        world(target("a", 100), target("b", 0, fallback_status_codes=["5xx"]), gateway=True),
        [f"target `b` (fallback for 5xx) {MASKS}"],
    ),
    (
        "stable is the fallback",
        plan(),
        world(target("a", 0, fallback_status_codes=["4xx", "5xx"]), target("b", 100)),
        ["stable target `a` (fallback for 4xx, 5xx) takes no share: name a target that does"],
    ),
    (
        "an adapter of another deployment",
        plan(),
        world(target("a", 100, overridden_model_name="b:poet")),
        ["target of `a` asks for `b:poet`, which is no adapter of `a`: nothing serves it; correct the target"],
    ),
    (
        "the adapter goes with the change",
        plan(change={"unit": "parameters", "to": {"lora_list": [{"lora_name": "other"}]}}),
        world(target("a", 100, **LORA)),
        ["target of `a` asks for adapter `poet`, which `change.to.lora_list` takes away: keep it in the list"],
    ),
    (
        "a provider as stable",
        plan(stable="gpt-x"),
        world(target("a", 100), provider()),
        [
            "stable `gpt-x` is a model of a provider: there is no deployment to derive a canary from; name a deployment",
            "stable deployment `gpt-x` does not exist: correct `stable`",
        ],
    ),
    (
        "an organisation's",
        plan(),
        world(target("a", 100), organisation="research"),
        [
            "route `chat` belongs to organisation `research`: a canary that we create belongs to the platform, and GPUStack takes no "
            "target of another owner; clients also call it `research/chat`. Way round: a route of the platform that the organisation may "
            "use (`POST /v2/model-routes/ID/access`)"
        ],
    ),
    (
        "of one name",
        plan(),
        world(target("a", 100), namesakes=1),
        ["2 routes are called `chat`, in different organisations: which one is meant cannot be said; rename one"],
    ),
]


@pytest.mark.parametrize(("said", "seen", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_be_rolled_out_is_refused_with_the_reason_and_the_way_round(said: Plan, seen: World, words: list[str]) -> None:
    assert findings(said, seen) == words


TAKEN: list[tuple[str, Plan, World, list[str]]] = [
    ("weighted", plan(), world(target("a", 100)), []),
    ("beside a foreign one", plan(), world(target("a", 100), target("b", 50)), []),
    ("untouched since a deployment made it", plan(), world(target("a", 100), mode=None), []),
    (
        "zero beside it on 2.2",
        plan(),
        world(target("a", 100), target("b", 0), mode=None),
        [],
    ),
    (
        "converted, gateway off",
        plan(convert_to_weighted=True, accept_loss=True),
        world(target("a", 0), mode="scoring", policies=("least-load", "session-affinity")),
        [
            "route chat has no weights (it balances by least-load and session-affinity): before the first rung one write gives a 100",
            "a rollback takes them back in one write; a promoted route keeps weights, its policies stay stored and rest",
            "session affinity is set, but works in the gateway alone: with the gateway off nothing is lost",
            "with the gateway off this write and its undo may lose requests: accepted",
        ],
    ),
    (
        "converted behind the gateway, by replicas",
        plan(convert_to_weighted=True),
        world(target("a", 0), provider(0), mode="scoring", replicas=3, gateway=True, policies=("session-affinity",)),
        [
            "route chat has no weights (it balances by session-affinity): before the first rung one write gives a 300, target 7 100",
            "a rollback takes them back in one write; a promoted route keeps weights, its policies stay stored and rest",
            "session affinity is lost while weights decide: a conversation may change sides and lose its cache",
            "through the gateway this write loses nothing",
            "target 7 leads to a provider's model (gpt-x): it keeps weight 0, and gets its share of our own probes",
        ],
    ),
    (
        "behind the gateway of 2.2",
        plan(),
        world(target("a", 100), mode=None, gateway=True, version="v2.2.3"),
        [
            "the gateway of GPUStack 2.2 is told of a changed target in two writes: in between its instances may be asked under the "
            "route's name, and an engine that does not know that name answers 404 (about one request in a rollout of our lab); 2.3 is clean"
        ],
    ),
    (
        "nothing to convert",
        plan(convert_to_weighted=True),
        world(target("a", 100)),
        ["route chat has weights already: `convert_to_weighted` changes nothing"],
    ),
    (
        "a fallback that does nothing",
        plan(),
        world(target("a", 100), target("b", 0, fallback_status_codes=["5xx"])),
        ["target `b` (fallback for 5xx) stays as it is: it answers errors in the gateway alone, and that is off"],
    ),
    (
        "a provider that gets nothing",
        plan(),
        world(target("a", 100), provider()),
        ["target 7 leads to a provider's model (gpt-x): it gets no request while the gateway is off"],
    ),
    (
        "an adapter",
        plan(),
        world(target("a", 100, **LORA)),
        ["a serves its adapter poet here: canary and probes ask for the same one"],
    ),
    (
        "a limit",
        plan(),
        world(target("a", 100, max_running_requests=7)),
        ["a may run 7 requests an instance here: the canary gets the same limit"],
    ),
    (
        "made by a deployment",
        plan(),
        world(target("a", 100), created_model_id=1),
        ["a deployment brought this route along and writes over its meta: the claim stands on a route beside it"],
    ),
]


@pytest.mark.parametrize(("said", "seen", "words"), [case[1:] for case in TAKEN], ids=[case[0] for case in TAKEN])
def test_what_is_taken_as_it_is_says_so(said: Plan, seen: World, words: list[str]) -> None:
    assert findings(said, seen) == []
    assert notes(said, seen) == words


def test_forty_targets_are_no_reason() -> None:
    many = world(target("a", 100), *(target(f"other-{n}", 10, 100 + n) for n in range(39)))
    assert list(refusals(plan(), many)) == []


def test_two_providers_are_two_targets() -> None:
    both = world(target("a", 100), provider(), replace(provider(), id=8))
    assert list(refusals(plan(), both)) == []


def test_a_missing_route_has_no_shape() -> None:
    gone = replace(world(), route=None)
    assert list(refusals(plan(), gone)) == ["route `chat` does not exist on the server: create it, or correct `route.name`"]
    assert (notes(plan(), gone), conversion(plan(convert_to_weighted=True), gone)) == ([], {})


@pytest.mark.parametrize(
    ("weights", "mode", "kind"),
    [
        ([100, 1], "weighted", Balance.WEIGHTED),
        ([100], None, Balance.WEIGHTED),
        ([0, 0], None, Balance.UNIFORM),
        ([0], "scoring", Balance.SCORED),
        ([100, 0], "invalid", Balance.MIXED),
        ([100, 0], None, Balance.WEIGHTED),
        ([1], "else", Balance.OTHER),
        ([], None, Balance.UNIFORM),
    ],
)
def test_the_balance_is_told_by_the_weights(weights: list[int], mode: str | None, kind: Balance) -> None:
    route = world(*(target(f"t{n}", weight) for n, weight in enumerate(weights)), mode=mode).route
    assert route is not None
    assert balance_of(route) is kind


def test_a_fallback_has_no_say_in_the_balance_and_gets_no_weight() -> None:
    seen = world(target("a", 0), target("b", 7, fallback_status_codes=["5xx"]), mode=None)
    assert seen.route is not None
    assert balance_of(seen.route) is Balance.UNIFORM
    assert conversion(plan(convert_to_weighted=True), seen) == {"a": 100}


def test_a_gateway_that_cannot_be_seen_matters_where_weights_are_to_come() -> None:
    (found,) = findings(plan(convert_to_weighted=True, accept_loss=True), world(target("a", 0), mode="scoring", gateway=None))
    assert "say `gpustack.gateway: enabled` or `disabled`" in found
    assert findings(plan(), world(target("a", 100), gateway=None)) == []
    assert any("gpustack.gateway" in one for one in findings(plan(), world(target("a", 100), provider(), gateway=None)))


def test_the_ladder_is_checked_on_the_weights_that_the_conversion_will_give() -> None:
    said = plan(convert_to_weighted=True, ladder=[2, 100])
    seen = world(target("a", 0), target("b", 0), mode=None, replicas=4, gateway=True, version="v2.2.3")
    (found,) = (one for one in findings(said, seen) if "rung" in one)
    assert "rung 2 % beside `a` is carried by the gateway of GPUStack 2.2" in found
    assert weighted(said, replace(seen, route=None)).route is None


def test_a_provider_has_no_part_in_the_shares_while_the_gateway_is_off() -> None:
    for gateway, share in ((False, 0.5), (True, 0.4)):
        assert rung_shares(plan(), world(target("a", 100), provider(50), gateway=gateway), 0, 100, 100) == {share}


def test_a_finer_ladder_converts_to_finer_weights() -> None:
    fine = plan(convert_to_weighted=True, ladder=[0.1, 50, 100])
    assert conversion(fine, world(target("a", 0), mode=None)) == {"a": 500}


@pytest.mark.parametrize(("gateway", "weight"), [(True, 50), (False, 70)])
def test_only_targets_that_take_a_share_weigh_beside_a_pair(gateway: bool, weight: int) -> None:
    """The gateway leaves fallbacks out of the split, the server's own proxy knows no providers."""
    route = world(target("a", 100), provider(50), target("f", 70, fallback_status_codes=["5xx"])).route
    assert route is not None
    receipts = take("7f3a9c2d1b00", route, ("a",), {}, 10, 1800, gateway=gateway)
    assert receipts.siblings_weight(receipts.pairs[0]) == weight
    assert receipts.uncounted is gateway


def test_the_canary_is_asked_for_the_same_adapter() -> None:
    route = world(target("a", 100, **LORA)).route
    assert route is not None
    receipts = take("7f3a9c2d1b00", route, ("a",), {}, 10, 1800)
    pair = receipts.pairs[0]
    assert receipts.asked_of(pair, pair.canary) == {"overridden_model_name": f"{pair.canary}:poet"}
    assert receipts.targets[0].extra == LORA


def test_of_an_emptied_route_only_that_is_said_which_is_wrong() -> None:
    """No remark on weights that nobody could have."""
    assert list(refusals(plan(), world())) == []
    assert [f for f in findings(plan(), world()) if "weights" in f] == []
