"""`/v2/model-route-targets` and the rules of target lists: all or no positive weights, replace not add, changed means unavailable.

Contract 0 (traps 1, 3, 4, 5, 7), 6.2. Every write here is all or nothing, as a transaction is.
"""

from __future__ import annotations

import secrets
from typing import Any

from rollout.testing.gpustack.calls import Call, find, integer, page, without_none
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, invalid
from rollout.testing.gpustack.routes_control import RouteControl
from rollout.testing.gpustack.world import Row

COMPARED = ("overridden_model_name", "weight", "model_id", "provider_id", "fallback_status_codes", "max_running_requests")
LIMIT = "max_running_requests"
MIX = "either every target of a route carries a positive weight or none may — a mix leaves LB unable to render the route"


class TargetRules:
    """Handlers of the targets resource, and what list writes on a route need of them."""

    def __init__(self, core: Core, control: RouteControl) -> None:
        self.core, self.world, self.control = core, core.world, control

    # --- reading one entry of a body

    def item(self, raw: Any) -> dict[str, Any]:
        """A target entry, checked; keeps only the fields that were sent. Raises ApiError 422."""
        if not isinstance(raw, dict):
            raise invalid("body.targets: Input should be a valid dictionary")
        known = [key for key in (*COMPARED, "id") if key != LIMIT or self.core.flavour.balances]
        item = {key: raw[key] for key in known if key in raw}
        if "weight" in item:
            item["weight"] = integer(item["weight"], "body.weight", least=0)
        if item.get("id") is not None:
            item["id"] = integer(item["id"], "body.id")
        else:
            item.pop("id", None)
        self._check_kind(item)
        limit = item.get("max_running_requests")
        if limit is not None:
            item["max_running_requests"] = integer(limit, "body.max_running_requests", least=0)
        for code in item.get("fallback_status_codes") or []:
            if code not in ("4xx", "5xx"):
                raise invalid(f"body: Value error, Invalid fallback status code: {code}")
        return item

    @staticmethod
    def _check_kind(item: dict[str, Any]) -> None:
        """A deployment or a provider, never both; each with the name that it may override."""
        for key in ("model_id", "provider_id"):
            if item.get(key) is not None:
                item[key] = integer(item[key], f"body.{key}")
        model, provider, name = item.get("model_id"), item.get("provider_id"), item.get("overridden_model_name")
        if (model is None) == (provider is None):
            which = "Either provider_id or model_id must" if model is None else "Only one of provider_id or model_id can"
            raise invalid(f"body: Value error, {which} be provided.")
        if provider is not None and not (name or "").strip():
            raise invalid("body: Value error, overridden_model_name must be provided when provider_id is set.")
        if model is not None and name is not None and ":" not in name:
            raise invalid(
                "body: Value error, overridden_model_name for a local-model target must be of the form '<base_model_name>:<lora_name>'."
            )

    def check_models(self, items: list[dict[str, Any]], owner: int) -> None:
        """At most one fallback (422); every model and provider exists (404), and belongs to the route's owner (422)."""
        if sum(bool(item.get("fallback_status_codes")) for item in items) > 1:
            raise invalid("Only one target can be set as fallback for status codes.")
        for item in items:
            kind, key, what = ("models", "model_id", "Model")
            if item.get("provider_id") is not None:
                kind, key, what = ("model-providers", "provider_id", "ModelProvider")
            row = self.world.get(kind, item[key])
            if row is None:
                raise ApiError(404, f"{what} with id '{item[key]}' not found.")
            if row["owner_principal_id"] != owner:
                raise invalid(
                    f"{what} {item[key]} belongs to principal {row['owner_principal_id']}; a route owned by principal {owner} may only "
                    "target resources in the same Org. Cross-Org sharing must be done by exposing this Org's own route (via access "
                    "policy), not by retargeting across Orgs."
                )
            name = item.get("overridden_model_name")
            if kind == "model-providers" and name is not None and name not in [model["name"] for model in row["models"]]:
                raise invalid(f"overridden_model_name '{name}' is not supported by provider '{row['name']}'. Supported models: ")

    def check_weights(self, rows: list[dict[str, Any]]) -> None:
        """Trap 1: zero beside positive is refused since 2.3; fallback targets do not count."""
        if not self.core.flavour.balances:
            return
        weights = [row.get("weight") or 0 for row in rows if not row.get("fallback_status_codes")]
        if any(weights) and not all(weights):
            raise invalid(MIX)

    # --- writing

    def create(self, route: Row, item: dict[str, Any], name: str | None = None) -> Row:
        """A new target: unavailable first, active a moment later."""
        route_name = name or route["name"]
        defaults = {
            "provider_id": None,
            "overridden_model_name": None,
            "weight": 0,
            "fallback_status_codes": None,
            "max_running_requests": None,
        }
        state = "active" if item.get("provider_id") is not None else "unavailable"
        fixed = {"name": f"{route_name}-{secrets.token_hex(5)}", "route_name": route_name, "route_id": route["id"], "state": state}
        values = {k: v for k, v in item.items() if k != "id"}
        row = self.world.add("model-route-targets", {"model_id": None, **fixed, **defaults, **values})
        self.control.target_created(row)
        return row

    def replace(self, route: Row, items: list[dict[str, Any]], new_name: str | None = None) -> list[Row]:
        """The new list of a route: ids kept are updated, entries without id created, ids not named deleted. Answers what was touched."""
        existing = {row["id"]: row for row in self.world.where("model-route-targets", route_id=route["id"])}
        unknown = [item["id"] for item in items if "id" in item and item["id"] not in existing]
        if unknown:
            raise ApiError(404, f"ModelRouteTargets with ids '{', '.join(map(str, unknown))}' not found.")
        self.check_models(items, route["owner_principal_id"])
        self.check_weights([{**existing.get(item.get("id", 0), {}), **item} for item in items])
        kept = {item["id"] for item in items if "id" in item}
        for target_id in existing.keys() - kept:
            self.world.remove("model-route-targets", target_id)
        touched = [self._update(existing[item["id"]], item, new_name) for item in items if "id" in item]
        touched += [self.create(route, item, new_name) for item in items if "id" not in item]
        return [row for row in touched if row is not None]

    def _update(self, target: Row, item: dict[str, Any], new_name: str | None) -> Row | None:
        changes = {key: value for key, value in item.items() if key != "id" and target.get(key) != value}
        if new_name is not None:
            changes["route_name"] = new_name
        if not changes:
            return None
        self.world.change("model-route-targets", target["id"], **changes)
        self.control.target_changed(target)
        return target

    # --- handlers

    def list_all(self, call: Call) -> dict[str, Any]:
        rows = self.world.where("model-route-targets")
        for key in ("route_id", "model_id"):
            if call.query.get(key):
                rows = [row for row in rows if row[key] == integer(call.query[key], key)]
        for key in ("route_name", "name"):
            if call.query.get(key):
                rows = [row for row in rows if row[key] == call.query[key]]
        answer = page(rows, call.query)
        answer["items"] = [without_none(row) for row in answer["items"]]
        return answer

    def _find(self, call: Call) -> Row:
        return find(self.world, "model-route-targets", call.id, f"ModelRouteTarget with id '{call.id}' not found.")

    def update(self, call: Call) -> Row:
        """Body defaults are applied: no `weight` means 0 (trap 7). The proxy goes on with its old split (trap 4)."""
        target = self._find(call)
        item = {"weight": 0, "overridden_model_name": None, "max_running_requests": None, **self.item(call.body)}
        item.pop("id", None)
        item["fallback_status_codes"] = target["fallback_status_codes"]
        route = self.world.tables["model-routes"][target["route_id"]]
        self.check_models([item], route["owner_principal_id"])
        siblings = [row for row in self.world.where("model-route-targets", route_id=target["route_id"]) if row["id"] != target["id"]]
        self.check_weights([*siblings, {**target, **item}])
        self._update(target, item, None)
        self.control.refresh_mode(target["route_id"])
        return {**without_none(target), "updated_at": target["updated_at"].removesuffix("Z")}  # this one answer has no zone

    def delete(self, call: Call) -> None:
        """Effective at once; siblings are not touched."""
        target = self._find(call)
        if not self.core.flavour.deletes_targets:
            raise ApiError(404, f"ModelRouteTarget with id '{call.id}' not found.")
        self.world.remove("model-route-targets", call.id)
        self.control.target_deleted(target)
        self.control.refresh_mode(target["route_id"])

    def set_fallback(self, call: Call) -> Row:
        """Has no effect on traffic without a gateway; clearing it makes the weight count again."""
        target = self._find(call)
        codes = call.get("fallback_status_codes")
        siblings = [row for row in self.world.where("model-route-targets", route_id=target["route_id"]) if row["id"] != target["id"]]
        self.check_weights([*siblings, {**target, "fallback_status_codes": codes}])
        if codes:
            for row in siblings:
                self.world.change("model-route-targets", row["id"], fallback_status_codes=None)
        self.world.change("model-route-targets", call.id, fallback_status_codes=codes)
        self.control.refresh_mode(target["route_id"])
        return without_none(target)
