"""Least privilege and expiry of the two keys: what refuses a start, what a plan should know, and when a rollout holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollout.domain.world import Keys, KeyView, World
from rollout.plan.model import Plan

ALL = "*"
MANAGEMENT, INFERENCE = "management", "inference"


def refusals(plan: Plan, world: World) -> Iterator[str]:
    """What speaks against starting with these keys. What the server does not show is no objection."""
    if world.keys.same:
        yield (
            "`management_key` and `inference_key` are one key: requests to a model would be sent with full administration; "
            "make one of each scope (docs/how-to/hand-out-keys.md)"
        )
    for scope, key in _known(world.keys):
        if not {ALL, scope} & set(key.scopes):
            yield f"`{scope}_key` ({key.name}) has scope {_listed(key.scopes)}: it needs `{scope}`"
        if scope == INFERENCE and key.models:
            yield (
                f"`inference_key` ({key.name}) may only ask {_listed(key.models)}: the private routes of a rollout are not among them; "
                "use a key without `allowed_model_names`"
            )
    soon = ending(plan, world)
    if soon:
        yield soon


def ending(plan: Plan, world: World) -> str | None:
    """A key that ends within `guards.key_life`, in words that do not change from look to look."""
    for scope, key in _known(world.keys):
        if key.expires is not None and key.expires - world.now <= timedelta(seconds=plan.guards.key_life):
            return (
                f"`{scope}_key` ({key.name}) ends at {_when(key)}: nobody could go back after that; make a new one, put it where the "
                "plan's reference points, and start `rollout run` again (docs/how-to/hand-out-keys.md)"
            )
    return None


def notes(plan: Plan, world: World, seconds: float) -> list[str]:
    """What a reader of the dry run should know. `seconds`: how long the rollout and its window take at the very least."""
    told = ["the management key may do all that its owner may: GPUStack has no narrower scope (docs/how-to/hand-out-keys.md)"]
    for scope, key in _known(world.keys):
        if ALL in key.scopes:
            told.append(f"`{scope}_key` ({key.name}) has scope `*`: scope `{scope}` is enough")
        if key.expires is not None and key.expires - world.now <= timedelta(seconds=seconds):
            told.append(
                f"`{scope}_key` ({key.name}) ends at {_when(key)}, before the rollback window is over: it holds before that, until "
                "there is a new key"
            )
    if world.keys.management is not None and world.keys.inference is None and not world.keys.same:
        told.append("the server's list of keys shows none that looks like `inference_key`: is it of this server?")
    return told


def _known(keys: Keys) -> Iterator[tuple[str, KeyView]]:
    for scope, key in ((MANAGEMENT, keys.management), (INFERENCE, keys.inference)):
        if key is not None:
            yield scope, key


def _when(key: KeyView) -> str:
    return f"{key.expires:%Y-%m-%d %H:%M} UTC"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "none"
