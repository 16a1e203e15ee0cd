"""Whose requests may pass a private route: the user who owns the inference key. Reads only.

An inference key cannot ask who it is, so its owner is looked up with the management key among the masked keys.
"""

from __future__ import annotations

from typing import Any

from rollout.backends.gpustack_keys import looks_like
from rollout.clients.gpustack import GPUStack
from rollout.clients.secret import Secret
from rollout.errors import Refused

Json = Any


async def owner_of(client: GPUStack, principal: Json, inference_key: Secret | None) -> int:
    """A user's id: of `principal` (id or name) when given, else of the inference key's owner, else of the management key's.

    Raises Refused when a named user does not exist, or when the owner cannot be told from several users.
    """
    if isinstance(principal, int) and not isinstance(principal, bool):
        return principal
    if isinstance(principal, str):
        return await _by_name(client, principal)
    me = await client.me()
    if inference_key is None:
        return me.id
    owners = await _owners(client, inference_key)
    if not owners or me.username in owners:
        return me.id
    if len(owners) > 1:
        raise Refused(
            "The owner of the inference key cannot be told.",
            why=f"keys of {', '.join(sorted(owners))} look the same when masked",
            hint="Use an inference key of the user who owns the management key.",
        )
    return await _by_name(client, owners.pop())


async def _owners(client: GPUStack, key: Secret) -> set[str]:
    """Names of users with a key that looks like this one; none when keys may not be listed."""
    try:
        rows = await client.api_keys()
    except Refused:
        return set()
    return {row.user_name for row in rows if row.user_name and looks_like(row.masked_value, key)}


async def _by_name(client: GPUStack, name: str) -> int:
    found = next((user for user in await client.users() if user.username == name), None)
    if found is None:
        raise Refused(f"No user is named {name}.", hint="Name a user of the GPUStack server.")
    return found.id
