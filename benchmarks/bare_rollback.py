"""What a careful person scripts to take a canary out of a route by hand: look, delete its target, look again, ask 20 times.

`python -m benchmarks.bare_rollback SERVER ROUTE CANARY`; the keys are in LAB_MANAGEMENT_KEY and LAB_INFERENCE_KEY. It prints when it
had seen that the canary no longer answers (Unix seconds). No journal, no second try, nothing else is put back.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

ASKED = 20
WIDTH = 4


def main(server: str, route: str, canary: str) -> None:
    """Ends with 1 when stable does not serve or the canary still answers."""
    with (
        httpx.Client(base_url=server, headers=_bearer("LAB_MANAGEMENT_KEY"), timeout=30, trust_env=False) as api,
        httpx.Client(base_url=server, headers=_bearer("LAB_INFERENCE_KEY"), timeout=30, trust_env=False) as users,
    ):
        models = {row["id"]: row["name"] for row in _items(api, "/v2/models")}
        route_id = next(row["id"] for row in _items(api, "/v2/model-routes") if row["name"] == route)
        targets = _items(api, f"/v2/model-route-targets?route_id={route_id}")
        stable = [row for row in targets if models[row["model_id"]] != canary]
        if not stable or any(row["state"] != "active" for row in stable):
            sys.exit("stable does not serve")
        for row in targets:
            if models[row["model_id"]] == canary:
                api.delete(f"/v2/model-route-targets/{row['id']}").raise_for_status()
        while any(models[row["model_id"]] == canary for row in _items(api, f"/v2/model-route-targets?route_id={route_id}")):
            time.sleep(0.1)
        with ThreadPoolExecutor(WIDTH) as pool:
            served = list(pool.map(lambda _: _who(users, route), range(ASKED)))
        if canary in served:
            sys.exit("the canary still answers")
        print(time.time())


def _bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {os.environ[name]}"}


def _items(api: httpx.Client, path: str) -> list[dict[str, Any]]:
    return list(api.get(path, params={"perPage": 100}).raise_for_status().json()["items"])


def _who(users: httpx.Client, route: str) -> str:
    body = {"model": route, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 1}
    return str(users.post("/v1/chat/completions", json=body).raise_for_status().json()["model"])


if __name__ == "__main__":
    main(*sys.argv[1:])
