"""The vocabulary of writes: every effect states a wanted end, and `satisfied` says from the world alone whether it holds.

That is what makes recovery an observation: an intent without an outcome is looked up in the world before anything is sent again.

World effects (carried out by a `Backend`)
  mark_route         {route, marker}                                route meta carries the marker
  unmark_route       {route, meta}                                  route meta equals what was found
  create_deployment  {name, base, change, sizing, digest}           a deployment of that name, derived from base, exists
  delete_deployment  {name}                                         none exists
  scale              {name, replicas}                               the deployment wants that many replicas
  delete_file        {id, worker, source, paths}                    no row of that id: the worker deletes the paths
  create_probe_route {name, deployment, extra?, principal?}         a private route with that one target exists
  delete_probe_route {name}                                         none exists
  join               {route, deployment, weight, extra?}            the route has a target for the deployment, with the weight
  set_weight         {route, deployment, weight}                    the target has the weight
  leave              {route, deployment}                            the route has no target for the deployment
  refresh            {route}                                        the server's route cache was dropped (not visible: never "satisfied")
  twin               {route, deployment, weight}                    its only target has the weight (joined anew, old one left)
  reweigh            {route, weights}                               these targets (by name) have these weights, written in one call

Measurements (carried out by a `Measurer`; results are facts, nothing is configured)
  probe              {model, n}                                     one-token requests, answered as they must be
  warm_up            {model, prompts, n, max_tokens}
  verify_share       {model, deployment, old, new, limit}           own requests with fresh ids; likelihood ratio 1000:1
  probe_pairs        {stable, canary, n, prompts, max_tokens, seq}  paired requests, one in flight a side
  replay_pairs       {stable, canary, n, max_tokens, seq}           paired prompts of a set (in `unkept`), answers compared with it
  probe_key          {model}                                        may the inference key use that route? asked before the claim
  stage_cell         {model, worker, prompt_tokens, concurrency, requests, output_tokens}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rollout.domain.world import World, named

Json = Any
MARKER_KEY = "rollout"


class Effect(BaseModel):
    """One wanted end."""

    model_config = ConfigDict(frozen=True)

    verb: str
    args: dict[str, Json]
    why: str
    """one sentence for the journal and the screen"""
    fact: str | None = None
    """key under which the receipt is kept in the state"""
    unkept: dict[str, Json] = Field(default_factory=dict, exclude=True, repr=False)
    """more arguments, of a measurement: handed over and kept nowhere, neither in the journal nor in the state"""

    @property
    def writes(self) -> bool:
        """Whether it changes anything on a server."""
        return self.verb in WRITES


def _marked(args: Mapping[str, Json], world: World) -> bool:
    return world.route is not None and world.route.meta.get(MARKER_KEY) == args["marker"]


def _unmarked(args: Mapping[str, Json], world: World) -> bool:
    return world.route is None or MARKER_KEY not in world.route.meta


def _exists(args: Mapping[str, Json], world: World) -> bool:
    return args["name"] in world.deployments


def _gone(args: Mapping[str, Json], world: World) -> bool:
    return args["name"] not in world.deployments


def _scaled(args: Mapping[str, Json], world: World) -> bool:
    view = world.deployments.get(args["name"])
    return view is not None and view.replicas == args["replicas"]


def _no_file(args: Mapping[str, Json], world: World) -> bool:
    return world.files is not None and all(row.id != args["id"] for row in world.files)


def _probe_route(args: Mapping[str, Json], world: World) -> bool:
    route = world.probe_routes.get(args["name"])
    return route is not None and route.target_of(args["deployment"]) is not None and route.access_policy == "allowed_principals"


def _no_probe_route(args: Mapping[str, Json], world: World) -> bool:
    return args["name"] not in world.probe_routes


def _has_weight(args: Mapping[str, Json], world: World) -> bool:
    if world.route is None:
        return False
    weights = [t.weight for t in world.route.targets if t.deployment == args["deployment"]]
    return weights == [args["weight"]]


def _reweighed(args: Mapping[str, Json], world: World) -> bool:
    found = {named(t): t.weight for t in world.route.targets} if world.route else {}
    return all(found.get(name) == weight for name, weight in args["weights"].items())


def _left(args: Mapping[str, Json], world: World) -> bool:
    return world.route is None or world.route.target_of(args["deployment"]) is None


WRITES: dict[str, Callable[[Mapping[str, Json], World], bool]] = {
    "mark_route": _marked,
    "unmark_route": _unmarked,
    "create_deployment": _exists,
    "delete_deployment": _gone,
    "scale": _scaled,
    "delete_file": _no_file,
    "create_probe_route": _probe_route,
    "delete_probe_route": _no_probe_route,
    "join": _has_weight,
    "set_weight": _has_weight,
    "twin": _has_weight,
    "leave": _left,
    "reweigh": _reweighed,
    "refresh": lambda _args, _world: False,
}

LINGERING = frozenset({"mark_route", "create_deployment", "create_probe_route", "join", "set_weight", "twin", "leave", "scale", "reweigh"})
"""writes that would undo an undo when they land after it: a server carries out what it accepted, also when nobody waits any more"""

MEASURES = frozenset({"probe", "warm_up", "verify_share", "probe_pairs", "replay_pairs", "probe_key", "stage_cell"})


def satisfied(effect: Effect, world: World) -> bool:
    """Whether the world already is as the effect wants it. A measurement never is: its result is what is wanted."""
    check = WRITES.get(effect.verb)
    return check is not None and check(effect.args, world)
