"""Who is calling, and what may they do: Basic users, API keys with scopes and model lists, as contract section 2."""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web

from rollout.clock import SystemClock
from rollout.testing.gpustack.errors import ApiError, invalid
from rollout.testing.gpustack.world import PLATFORM, Row, World

SCOPES = ("*", "management", "inference")


@dataclass(frozen=True)
class Caller:
    """A user and, when one was used, the key."""

    user: Row
    key: Row | None

    @property
    def is_admin(self) -> bool:
        return bool(self.user["is_admin"])

    def model_names(self) -> set[str] | None:
        """The names a key is limited to; None when it is not."""
        names = self.key["allowed_model_names"] if self.key else None
        return set(names) if names else None


class Auth:
    """Looks callers up in the world's users and api-keys tables."""

    def __init__(self, world: World, admin_password: str) -> None:
        self.world = world
        self._secrets: dict[str, int] = {}  # key value -> key id
        self._passwords: dict[str, str] = {}
        self.admin = self.add_user("admin", admin_password, is_admin=True)

    def add_user(self, username: str, password: str, *, is_admin: bool = False) -> Row:
        """A user principal; its id is what access policies name."""
        self._passwords[username] = password
        row = {"username": username, "full_name": "", "is_admin": is_admin, "is_active": True, "require_password_change": False}
        return self.world.add("users", row)

    def add_key(self, user: Row, body: dict[str, Any]) -> Row:
        """Create a key; the answer carries `value`, the stored row never does."""
        name, scope = body.get("name"), body.get("scope") or ["*"]
        if not isinstance(name, str) or not name:
            raise invalid("name: Field required")
        if any(item not in SCOPES for item in scope):
            raise invalid("scope: Input should be '*', 'management' or 'inference'")
        if self.world.one("api-keys", name=name, user_id=user["id"]):
            raise ApiError(409, f"API key with name '{name}' already exists.")
        access, secret = secrets.token_hex(8), secrets.token_hex(16)
        seconds = int(body.get("expires_in") or 0)
        expires = (SystemClock().now() + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z") if seconds > 0 else None
        row = {
            "name": name,
            "description": body.get("description"),
            "scope": list(scope),
            "allowed_model_names": body.get("allowed_model_names"),
            "expires_at": expires,
            "is_custom": False,
            "masked_value": f"gpustack_{access[:4]}***",
            "user_id": user["id"],
            "user_name": user["username"],
            "owner_principal_id": None,
        }
        stored = self.world.add("api-keys", row)
        value = f"gpustack_{access}_{secret}"
        self._secrets[value] = stored["id"]
        return {**stored, "value": value}

    def caller(self, request: web.Request) -> Caller:
        """Who sent this request. Raises ApiError 401."""
        header = request.headers.get("Authorization", "")
        if header.startswith("Basic "):
            return self._basic(header.removeprefix("Basic "))
        token = header.removeprefix("Bearer ") if header.startswith("Bearer ") else request.headers.get("X-API-Key", "")
        key = self.world.get("api-keys", self._secrets.get(token, 0))
        if key is None or (key["expires_at"] and datetime.fromisoformat(key["expires_at"]) <= SystemClock().now()):
            raise _unauthorized()
        user = self.world.get("users", key["user_id"])
        if user is None:
            raise _unauthorized()
        return Caller(user, key)

    def _basic(self, encoded: str) -> Caller:
        try:
            username, _, password = base64.b64decode(encoded).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise _unauthorized() from None
        user = self.world.one("users", username=username)
        if user is None or self._passwords.get(username) != password:
            raise _unauthorized()
        return Caller(user, None)

    def allow(self, caller: Caller, scope: str) -> None:
        """Raise ApiError 403 when the key's scope does not cover `management` or `inference`."""
        if caller.key is not None and not {"*", scope} & set(caller.key["scope"]):
            raise ApiError(403, f"API key does not have permission to access {scope} features")

    def visible_names(self, caller: Caller) -> set[str]:
        """Route names this caller may use: an admin sees all, others what the access policy gives them; then the key's list.

        A bare name is the platform's: routes of other organisations answer to `organisation/name`, which is not played here.
        """
        own = self.world.where("model-routes", owner_principal_id=PLATFORM)
        names = {route["name"] for route in own if caller.is_admin or self._may_use(caller.user, route)}
        limit = caller.model_names()
        return names if limit is None else names & limit

    def _may_use(self, user: Row, route: Row) -> bool:
        if route["access_policy"] in ("public", "authed"):
            return True
        return self.world.one("grants", route_id=route["id"], principal_id=user["id"]) is not None


def _unauthorized() -> ApiError:
    return ApiError(401, "Invalid authentication credentials")
