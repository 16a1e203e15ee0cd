"""Our own keys in the server's list of masked ones: what they may do, and until when. Reads only, and blocks nobody.

`GET /v2/api-keys` never shows a key; `masked_value` shows its first characters (`gpustack_cb45***`), which tell one from another in
nearly all lists. Where they do not, the key stays unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC

from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import ApiKey
from rollout.clients.secret import Secret
from rollout.domain.world import Keys, KeyView
from rollout.errors import ServerError

MASK = "***"
PATIENCE = 5.0
"""seconds for a list that nothing depends on: a rollback must not wait for it"""


async def keys_of(client: GPUStack, management: Secret | None, inference: Secret | None) -> Keys:
    """Both keys as the server lists them. Never raises: a list that cannot be read leaves them unknown."""
    same = management is not None and inference is not None and management.same_as(inference)
    try:
        async with asyncio.timeout(PATIENCE):
            rows = await client.api_keys()
    except (ServerError, TimeoutError):
        return Keys(same=same)
    return Keys(_view(rows, management), _view(rows, inference), same)


def looks_like(masked: str | None, key: Secret) -> bool:
    """`gpustack_cb45***`: the visible beginning must fit, and there must be more of it than the common prefix."""
    visible = (masked or "").removesuffix(MASK)
    return masked is not None and masked.endswith(MASK) and not visible.endswith("_") and key.begins_with(visible)


def _view(rows: Iterable[ApiKey], key: Secret | None) -> KeyView | None:
    found = [row for row in rows if key is not None and looks_like(row.masked_value, key)]
    if len(found) != 1:
        return None
    row, end = found[0], found[0].expires_at
    expires = end if end is None or end.tzinfo else end.replace(tzinfo=UTC)
    return KeyView(row.name or str(row.id), tuple(row.scope or ()), expires, tuple(row.allowed_model_names or ()))
