"""How a rollout is gone on with. One that was taken over from a marker holds no plan, so only its route and server lead to it. Pure."""

from __future__ import annotations

from rollout.domain.state import RolloutState


def by_route(state: RolloutState) -> bool:
    """Whether nothing in the store says how to reach its server: `rollback --route` began it, and only that goes on with it."""
    return not state.plan_digest and state.fact("gpustack") is None


def route_command(route: str, server: str) -> str:
    """The command that goes back from the marker on a route, ready to be copied."""
    return f"rollout rollback --route {route} --server {server} --reason '…'"


def goes_on(state: RolloutState) -> tuple[str, ...]:
    """The commands that tick it."""
    if by_route(state):
        return (route_command(state.route, state.server),)
    return f"rollout run {state.id}", f"rollout tick {state.id}"
