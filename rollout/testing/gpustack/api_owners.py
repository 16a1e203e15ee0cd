"""`/v2/organizations` and `/v2/model-providers`: who may own a route, and targets that are somebody else's service.

Only what a route's shape needs of them: a name, an owner, a list of models. No provider is ever asked anything here.
"""

from __future__ import annotations

from typing import Any

from rollout.testing.gpustack.calls import Call, find, page
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, invalid
from rollout.testing.gpustack.routes_control import RouteControl
from rollout.testing.gpustack.world import PLATFORM, Row


class OwnersApi:
    """Handlers of organisations and providers."""

    def __init__(self, core: Core, control: RouteControl) -> None:
        self.world, self.control = core.world, control
        self.world.add("organizations", {"name": "default", "display_name": "Default", "is_personal": False, "is_platform": True})

    def list_organizations(self, call: Call) -> dict[str, Any]:
        return page(self.world.where("organizations"), call.query)

    def create_organization(self, call: Call) -> Row:
        name = str(call.field("name"))
        if self.world.one("organizations", name=name):
            raise ApiError(409, f"Organization '{name}' already exists.")
        return dict(
            self.world.add(
                "organizations", {"name": name, "display_name": call.get("display_name"), "is_personal": False, "is_platform": False}
            )
        )

    def delete_organization(self, call: Call) -> None:
        """409 while it owns a route or a deployment."""
        find(self.world, "organizations", call.id, "Organization not found")
        if any(self.world.where(kind, owner_principal_id=call.id) for kind in ("model-routes", "models")):
            raise ApiError(409, "Organization still owns resources.", "Conflict")
        self.world.remove("organizations", call.id)

    def list_providers(self, call: Call) -> dict[str, Any]:
        return page(self.world.where("model-providers"), call.query)

    def create_provider(self, call: Call) -> Row:
        """The tokens are taken and never shown."""
        name, config = str(call.field("name")), call.field("config")
        if not call.get("api_tokens"):
            raise invalid("body.api_tokens: Value error, api_tokens must be a non-empty list")
        if self.world.one("model-providers", name=name):
            raise ApiError(409, f"Model provider with name '{name}' already exists.")
        fields = {"config": config, "models": call.get("models") or [], "timeout": 120, "owner_principal_id": PLATFORM}
        return dict(self.world.add("model-providers", {"name": name, **fields}))

    def delete_provider(self, call: Call) -> None:
        """Its targets go with it."""
        find(self.world, "model-providers", call.id, "Model provider not found")
        for target in self.world.where("model-route-targets", provider_id=call.id):
            self.world.remove("model-route-targets", target["id"])
            self.control.target_deleted(target)
        self.world.remove("model-providers", call.id)
