"""What the server does to routes and targets behind the API's back: readiness, counts, caches, orphaned routes.

Contract traps 4, 5, 8 and sections 6.4, 14. Called by the API handlers and by the instance controller; answers no request.
"""

from __future__ import annotations

from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.world import Row


class RouteControl:
    """Keeps target states, route counts and the proxy cache as stale as the real server does, and no staler."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.world = core.world

    def model_changed(self, model_id: int) -> None:
        """A model's servability may have changed: its targets follow a little later."""
        self.core.later(self.core.timing.of("target_follow"), self._follow_model, model_id)
        self.meta_follows(model_id)

    def meta_follows(self, model_id: int) -> None:
        """Any event of a deployment writes its `meta` and `categories` over those of the route it created."""
        self.core.later(self.core.timing.of("target_follow"), self._meta_follows, model_id)

    def _meta_follows(self, model_id: int) -> None:
        model = self.world.get("models", model_id)
        if model is not None:
            for route in self.world.where("model-routes", created_model_id=model_id):
                self.world.change("model-routes", route["id"], meta=dict(model["meta"] or {}), categories=model["categories"])

    def _follow_model(self, model_id: int) -> None:
        for target in self.world.where("model-route-targets", model_id=model_id):
            self.sync_target(target["id"])

    def target_created(self, target: Row) -> None:
        """A new target is unavailable until it has been looked at; its creation drops the cache."""
        self.core.cache.drop(target["route_name"])
        self._reactivate(target["id"])

    def target_changed(self, target: Row) -> None:
        """A changed target is unavailable for a moment. The cache is NOT dropped and the route's counts do not move (trap 4)."""
        self.world.change("model-route-targets", target["id"], state="unavailable")
        self._reactivate(target["id"])

    def _reactivate(self, target_id: int) -> None:
        self.core.later(self.core.timing.reactivation(self.core.rng), self.sync_target, target_id)

    def sync_target(self, target_id: int) -> None:
        """Active when its model runs; the route's counts follow, and only a changed count drops the cache."""
        target = self.world.get("model-route-targets", target_id)
        if target is None:
            return
        model = self.world.get("models", target["model_id"])
        runs = target["provider_id"] is not None or (model is not None and model["state"] == "running")
        state = "active" if runs else "unavailable"
        self.world.change("model-route-targets", target_id, state=state)
        self.sync_route(target["route_id"])

    def target_deleted(self, target: Row) -> None:
        """Effective at once; a route that a model created and that has lost its last target goes too."""
        self.core.cache.drop(target["route_name"])
        route = self.world.get("model-routes", target["route_id"])
        if route is None:
            return
        left = len(self.world.where("model-route-targets", route_id=route["id"]))
        if left == 0 and route["created_model_id"] is not None:
            self.remove_route(route)
            return
        if route["created_model_id"] is not None and self.world.get("models", target["model_id"]) is not None:
            self.world.change("model-routes", route["id"], created_model_id=None)
        self.sync_route(route["id"])

    def sync_route(self, route_id: int) -> None:
        """Recount targets; a changed count drops the cache."""
        route = self.world.get("model-routes", route_id)
        if route is None:
            return
        targets = self.world.where("model-route-targets", route_id=route_id)
        if not targets and route["created_model_id"] is not None:
            self.remove_route(route)
            return
        ready = sum(target["state"] == "active" for target in targets)
        if (route["targets"], route["ready_targets"]) != (len(targets), ready):
            self.world.change("model-routes", route_id, targets=len(targets), ready_targets=ready)
            self.core.cache.drop(route["name"])

    def remove_route(self, route: Row) -> None:
        """Delete a route with its targets and grants."""
        for target in self.world.where("model-route-targets", route_id=route["id"]):
            self.world.remove("model-route-targets", target["id"])
        for grant in self.world.where("grants", route_id=route["id"]):
            self.world.remove("grants", grant["id"])
        self.world.remove("model-routes", route["id"])
        self.core.cache.drop(route["name"])

    def model_deleted(self, model_id: int) -> None:
        """The targets of a deleted model vanish from all routes; the proxy notices a little later."""
        routes = {}
        for target in self.world.where("model-route-targets", model_id=model_id):
            self.world.remove("model-route-targets", target["id"])
            routes[target["route_id"]] = target["route_name"]
        self.core.later(self.core.timing.of("cascade"), self._after_cascade, routes)

    def _after_cascade(self, routes: dict[int, str]) -> None:
        for route_id, name in routes.items():
            self.core.cache.drop(name)
            self.sync_route(route_id)

    def refresh_mode(self, route_id: int) -> None:
        """Record what the targets' weights add up to: weighted, scoring, invalid, or nothing.

        Only writes through the routes and targets API do this; the route that a deployment brings along has no mode until then.
        """
        route = self.world.get("model-routes", route_id)
        if route is None:
            return
        targets = [t for t in self.world.where("model-route-targets", route_id=route_id) if not t["fallback_status_codes"]]
        weighted = sum(target["weight"] > 0 for target in targets)
        mode = None
        policies = any(section.get("enabled", True) for section in route["_plugins"].values())
        if self.core.flavour.balances and targets and (weighted or policies):
            mode = "scoring" if weighted == 0 else "weighted" if weighted == len(targets) else "invalid"
        route["_mode"] = mode
