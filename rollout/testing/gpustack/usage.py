"""What the server counts of finished requests: per day, route, model and key, successes only (contract 9.3). Decides nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rollout.clock import SystemClock
from rollout.testing.gpustack.calls import Call, page
from rollout.testing.gpustack.world import Row, World, timestamp

Key = tuple[str, int, int, int]  # day, route id, model id, api key id


class Usage:
    """Daily counters, as coarse as the real ones."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: Counter[Key] = Counter()
        self.prompt: Counter[Key] = Counter()
        self.completion: Counter[Key] = Counter()

    def record(self, route: Row, model: Row, key: Row | None, usage: dict[str, Any]) -> None:
        """Count one request that finished with a usage object."""
        entry = (SystemClock().now().date().isoformat(), route["id"], model["id"], key["id"] if key else 0)
        self.requests[entry] += 1
        self.prompt[entry] += int(usage.get("prompt_tokens") or 0)
        self.completion[entry] += int(usage.get("completion_tokens") or 0)

    def breakdown(self, call: Call) -> dict[str, Any]:
        """`POST /v2/usage/breakdown`, grouped by route."""
        per_route: Counter[int] = Counter()
        tokens: Counter[int] = Counter()
        for entry, count in self.requests.items():
            per_route[entry[1]] += count
            tokens[entry[1]] += self.prompt[entry] + self.completion[entry]
        items: list[Row] = []
        for route_id, count in per_route.items():
            row = {"id": route_id, "updated_at": timestamp(), "route": {"label": self._name("model-routes", route_id)}}
            items.append({**row, "api_requests": count, "total_tokens": tokens[route_id]})
        summary = {**self._totals(), "models_called": len({entry[2] for entry in self.requests})}
        return {"summary": summary, "group_by": call.get("group_by", []), **page(items, {})}

    def summary(self, _call: Call) -> dict[str, Any]:
        return {key: value for key, value in self._totals().items() if key != "api_requests"}

    def per_day(self, call: Call) -> dict[str, Any]:
        """`GET /v2/dashboard/usage`: one item per model, route, key and day."""
        items = [
            {
                "date": day,
                "model_id": model_id,
                "model_name": self._name("models", model_id),
                "model_route_id": route_id,
                "model_route_name": self._name("model-routes", route_id),
                "api_key_name": self._name("api-keys", key_id),
                "operation": "chat_completion",
                "request_count": count,
                "prompt_token_count": self.prompt[(day, route_id, model_id, key_id)],
                "completion_token_count": self.completion[(day, route_id, model_id, key_id)],
            }
            for (day, route_id, model_id, key_id), count in self.requests.items()
            if call.query.get("start_date", "") <= day <= call.query.get("end_date", "9999")
            and (not call.query.get("model_ids") or str(model_id) in call.query["model_ids"].split(","))
        ]
        return {"items": items}

    def _totals(self) -> dict[str, int]:
        prompt, completion = sum(self.prompt.values()), sum(self.completion.values())
        return {
            "input_tokens": prompt,
            "output_tokens": completion,
            "input_cached_tokens": 0,
            "total_tokens": prompt + completion,
            "api_requests": sum(self.requests.values()),
        }

    def _name(self, kind: str, row_id: int) -> str | None:
        row = self.world.get(kind, row_id)
        return str(row["name"]) if row else None
