"""First steps on a fresh server, over HTTP only: the keys and the user that tests need, and waiting for the workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

from lab.errors import LabError
from lab.gpustack import ADMIN_PASSWORD

ADMIN = ("admin", ADMIN_PASSWORD)
USER = ("lab-user", "Lab_user-1")
READY_SECONDS = 60


@dataclass(frozen=True)
class Keys:
    """Values of API keys. `management` and `inference` are the administrator's, `user` is an inference key of somebody who is not."""

    management: str
    inference: str
    user: str


def make_keys(server_url: str) -> Keys:
    """Create the keys and the plain user. Works once per database; LabError when the server refuses."""
    with httpx.Client(base_url=server_url, timeout=30, trust_env=False) as http:
        management = _key(http, ADMIN, "management", ["management"])
        user = {"username": USER[0], "password": USER[1], "is_admin": False, "require_password_change": False}
        _json(http.post("/v2/users", json=user, headers={"Authorization": f"Bearer {management}"}))
        return Keys(management, _key(http, ADMIN, "inference", ["inference"]), _key(http, USER, "user-inference", ["inference"]))


def wait_workers(server_url: str, management_key: str, names: set[str], seconds: float = READY_SECONDS) -> None:
    """Until the server calls every worker of `names` ready."""
    deadline = time.monotonic() + seconds
    headers = {"Authorization": f"Bearer {management_key}"}
    with httpx.Client(base_url=server_url, timeout=30, trust_env=False, headers=headers) as http:
        while True:
            rows = _json(http.get("/v2/workers"))["items"]
            if names <= {row["name"] for row in rows if row["state"] == "ready"}:
                return
            if time.monotonic() > deadline:
                seen = {row["name"]: row["state"] for row in rows}
                raise LabError(
                    "the workers did not become ready", f"after {seconds:.0f} s the server shows {seen}", "read the workers' logs"
                )
            time.sleep(0.1)


def _key(http: httpx.Client, who: tuple[str, str], name: str, scope: list[str]) -> str:
    return str(_json(http.post("/v2/api-keys", json={"name": name, "scope": scope}, auth=who))["value"])


def _json(response: httpx.Response) -> Any:
    if response.status_code >= 400:
        where = f"{response.request.method} {response.request.url.path} -> {response.status_code}"
        raise LabError("the server refused a first step", f"{where} {response.text[:300]}", "read gpustack.log")
    return response.json()
