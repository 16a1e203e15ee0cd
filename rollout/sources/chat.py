"""One streaming chat request through the inference URL, as a user would send it: model = route name, fresh request id.

The id is random and new each time, because a constant one pins a client to one side. The key goes into the header and is
taken out of every text that comes back. No retry, no judgement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from uuid import uuid4

from rollout.clients.secret import Secret
from rollout.clients.sse import Call, TimedClient
from rollout.sources.answers import Answer, read

Prompt = str | Sequence[Mapping[str, str]]


class Chat:
    """Sends chat requests to one inference URL."""

    def __init__(self, client: TimedClient, inference_url: str, key: Secret | None) -> None:
        self._client = client
        self._url = inference_url.rstrip("/") + "/v1/chat/completions"
        self._key = key

    async def connect(self, count: int) -> None:
        """Opens `count` connections ahead, so that no request pays for one."""
        await self._client.open(self._url, count)

    async def ask(self, model: str, prompt: Prompt, max_tokens: int, *, timeout: float, scheduled: float | None = None) -> Answer:
        """One answer, read to its end or for `timeout` seconds. `scheduled`: the instant that its times count from (monotonic); now.

        `prompt`: the user's words, or a conversation of messages with `role` and `content`.
        Never raises for what the server does: the answer's `outcome` says it.
        """
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "X-Request-Id": uuid4().hex}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.reveal()}"
        call = Call("POST", self._url, headers, json.dumps(body).encode())
        exchange = await self._client.exchange(call, timeout=timeout, scheduled=scheduled)
        return read(exchange, self._key.scrub if self._key else None)
