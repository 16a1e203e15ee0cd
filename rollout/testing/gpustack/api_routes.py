"""`/v2/model-routes`: create, read, update, delete, access (contract 6.1, 6.2, 6.6, 14). Traps 1, 3, 5 and 9 live in `targets`."""

from __future__ import annotations

import re
from typing import Any

from rollout.testing.gpustack.calls import Call, find, integer, page, without_none
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, invalid
from rollout.testing.gpustack.routes_control import RouteControl
from rollout.testing.gpustack.targets import TargetRules
from rollout.testing.gpustack.world import PLATFORM, Row

NAME = re.compile(r"^[A-Za-z](?:[A-Za-z0-9_\-.:]*[A-Za-z0-9])?$")
BAD_NAME = (
    "body: Value error, name must start with a letter and contain only letters, numbers, hyphens, "
    "underscores, or dots, and not end with hyphen or underscore"
)
POLICIES = ("public", "authed", "allowed_principals")
POLICY_PLUGINS = ("least-load", "session-affinity", "decision-service")
PRINCIPALS = ("user", "org", "group", "system")
# the server's own keys inside `meta`; a client neither sees nor sets them
OWN_META = (
    "lb",
    "lb_mode",
    "fallback",
    "least-load",
    "session-affinity",
    "decision-service",
)  # the server's own keys inside `meta`; a client neither sees nor sets them


class RouteApi:
    """Handlers of the routes resource."""

    def __init__(self, core: Core, control: RouteControl, targets: TargetRules) -> None:
        self.core, self.world, self.control, self.targets = core, core.world, control, targets

    def view(self, row: Row, *, detail: bool = True) -> Row:
        """A route as answered: null fields left out, `lb_mode` as it was last derived, plugins in the detail alone."""
        mode = row["_mode"]
        plugins = ({"lb": {"mode": mode}} if mode else {}) | row["_plugins"] if self.core.flavour.balances else {}
        extra = ({"lb_mode": mode} if mode else {}) | ({"plugins": plugins} if plugins and detail else {})
        return {**without_none(row), **extra}

    def list_all(self, call: Call) -> dict[str, Any]:
        rows = self.world.where("model-routes")
        if call.query.get("name"):
            rows = [row for row in rows if row["name"] == call.query["name"]]
        if call.query.get("search"):
            rows = [row for row in rows if call.query["search"] in row["name"]]
        answer = page(rows, call.query)
        answer["items"] = [self.view(row, detail=False) for row in answer["items"]]
        return answer

    def read(self, call: Call) -> Row:
        return self.view(find(self.world, "model-routes", call.id, f"ModelAccess with id '{call.id}' not found."))

    def create(self, call: Call) -> Row:
        name, owner = self._name(call), call.organization or PLATFORM
        if self.world.one("model-routes", name=name, owner_principal_id=owner):
            raise ApiError(409, f"Model route with name '{name}' already exists.")
        items = [self.targets.item(raw) for raw in call.get("targets") or []]
        for item in items:
            item.pop("id", None)
        self.targets.check_models(items, owner)
        self.targets.check_weights(items)
        access = {} if owner == PLATFORM else {"access_policy": "allowed_principals"}
        route = self.new_route(name, {**self._fields(call), "owner_principal_id": owner, **access})
        self._policies(route, call)
        for item in items:
            self.targets.create(route, item)
        self.world.change("model-routes", route["id"], targets=len(items))
        self.control.refresh_mode(route["id"])
        return self.view(route)

    def new_route(self, name: str, fields: dict[str, Any]) -> Row:
        """A row with the server's defaults."""
        defaults: Row = {
            "description": None,
            "categories": [],
            "meta": {},
            "generic_proxy": False,
            "created_model_id": None,
            "targets": 0,
            "ready_targets": 0,
            "access_policy": "authed",
            "owner_principal_id": PLATFORM,
            "_plugins": {},
            "_mode": None,
        }
        return self.world.add("model-routes", {"name": name, **defaults, **fields})

    def update(self, call: Call) -> Row:
        """Without `targets` only the other fields change and the cache is dropped; with them the list is REPLACED."""
        route = find(self.world, "model-routes", call.id, f"ModelRoute with id '{call.id}' not found.")
        name = self._name(call)
        taken = self.world.one("model-routes", name=name, owner_principal_id=route["owner_principal_id"])
        if taken is not None and taken["id"] != call.id:
            raise ApiError(409, f"Model route with name '{name}' already exists.")
        targets = call.get("targets")
        items = None if targets is None else [self.targets.item(raw) for raw in targets]
        if items is None and name != route["name"]:
            raise ApiError(500, f"Failed to update ModelRoute '{call.id}': 'NoneType' object is not iterable")
        if items is not None:
            try:
                self.targets.replace(route, items, new_name=name if name != route["name"] else None)
            except ApiError as error:
                if error.status == 422:
                    raise
                raise ApiError(500, f"Failed to update ModelRoute '{call.id}': {error.message}") from None
        self.core.cache.drop(route["name"])
        self.world.change("model-routes", call.id, name=name, **self._fields(call))
        self._policies(route, call)
        self.control.sync_route(call.id)
        self.control.refresh_mode(call.id)
        return self.view(self.world.get("model-routes", call.id) or route)

    def delete(self, call: Call) -> None:
        self.control.remove_route(find(self.world, "model-routes", call.id, f"ModelRoute with id '{call.id}' not found."))

    def add_targets(self, call: Call) -> list[Row]:
        """REPLACES the list, whatever its name says (trap 3)."""
        route = find(self.world, "model-routes", call.id, f"ModelRoute with id '{call.id}' not found.")
        if not isinstance(call.body, list):
            raise invalid("body: Input should be a valid list")
        touched = self.targets.replace(route, [self.targets.item(raw) for raw in call.body])
        self.core.cache.drop(route["name"])
        self.control.sync_route(call.id)
        self.control.refresh_mode(call.id)
        return [without_none(row) for row in touched]

    # --- access

    def access(self, call: Call) -> dict[str, Any]:
        route = find(self.world, "model-routes", call.id, "Model not found")
        grants = [self.world.tables["users"][grant["principal_id"]] for grant in self.world.where("grants", route_id=call.id)]
        return {
            "items": [
                {"id": user["id"], "username": user["username"], "full_name": user["full_name"], "avatar_url": None} for user in grants
            ],
            "principals": [
                {
                    "principal_type": "user",
                    "principal_id": user["id"],
                    "principal_name": user["username"],
                    "principal_display_name": user["full_name"],
                }
                for user in grants
            ],
            "access_policy": route["access_policy"],
        }

    def set_access(self, call: Call) -> dict[str, Any]:
        """`principals` replaces all grants, `users` (old) likewise; neither sent leaves them."""
        find(self.world, "model-routes", call.id, "Model not found")
        policy = call.get("access_policy")
        if policy is not None and policy not in POLICIES:
            raise invalid("body.access_policy: Input should be 'public', 'authed' or 'allowed_principals'")
        wanted = self._principals(call)
        if policy is not None:
            self.world.change("model-routes", call.id, access_policy=policy)
        if wanted is not None:
            for grant in self.world.where("grants", route_id=call.id):
                self.world.remove("grants", grant["id"])
            for principal in wanted:
                self.world.add("grants", {"route_id": call.id, "principal_id": principal})
        return self.access(call)

    def _principals(self, call: Call) -> list[int] | None:
        if call.get("principals") is not None:
            if any(ref.get("principal_type") not in PRINCIPALS for ref in call.get("principals")):
                raise invalid("body.principals.principal_type: Input should be 'user', 'org', 'group' or 'system'")
            ids = [integer(ref.get("principal_id"), "principal_id") for ref in call.get("principals")]
            missing = [item for item in ids if self.world.get("users", item) is None]
            if missing:
                raise invalid(f"Principal {missing[0]} not found")
            return ids
        if call.get("users") is not None:
            ids = [integer(ref.get("id"), "id") for ref in call.get("users")]
            missing = [item for item in ids if self.world.get("users", item) is None]
            if missing:
                raise ApiError(404, f"User ID {missing[0]} not found")
            return ids
        return None

    # --- parts of a body

    def _policies(self, route: Row, call: Call) -> None:
        """Sections that were sent replace a policy, null removes it; `lb` is the server's own."""
        for plugin, section in (call.get("plugins") or {}).items():
            if section is None:
                route["_plugins"].pop(plugin, None)
            elif plugin in POLICY_PLUGINS:
                route["_plugins"][plugin] = {"enabled": True, **section}

    def _name(self, call: Call) -> str:
        name = call.field("name")
        if not isinstance(name, str) or not NAME.match(name):
            raise invalid(
                "body: Value error, name must start with a letter and contain only letters, numbers, hyphens, underscores, or dots"
            )
        return name

    def _fields(self, call: Call) -> dict[str, Any]:
        """The other fields that were sent; `meta` replaces the client's keys as a whole."""
        known = ("description", "categories", "meta", "generic_proxy")
        fields = {key: call.body[key] for key in known if key in call.body}
        if "meta" in fields and self.core.flavour.balances:
            fields["meta"] = {key: value for key, value in (fields["meta"] or {}).items() if key not in OWN_META}
        return fields
