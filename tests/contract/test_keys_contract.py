"""What a server tells of API keys to a management key: scopes, ends and limits, never the key; the same on the sandbox and the real one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rollout.backends.gpustack_keys import keys_of
from rollout.clients.errors import HttpKeyRefused
from rollout.clients.gpustack import GPUStack
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.clock import SystemClock
from rollout.domain.world import Keys
from tests.contract.bench import Bench
from tests.contract.site import Site, unique
from tests.contract.test_gpustack_contract import new_key


def seen(site: Site, inference: str) -> Keys:
    """Both keys as the management key sees them."""

    async def look() -> Keys:
        management = Secret(site.described["management_key"])
        async with GPUStack(Http(site.described["server_url"], management, retry=Retry(SystemClock()))) as client:
            return await keys_of(client, management, Secret(inference))

    return asyncio.run(look())


def test_both_keys_of_a_plan_are_found_with_their_scopes(gpustack: Site) -> None:
    keys = Bench(gpustack).observe("no-route").keys
    assert keys.management is not None
    assert keys.inference is not None
    assert (keys.management.scopes, keys.inference.scopes, keys.same) == (("management",), ("inference",), False)


def test_a_masked_key_shows_its_beginning_and_nothing_of_its_secret_part(gpustack: Site) -> None:
    created = new_key(gpustack, scope=["inference"])
    value, masked = str(created["value"]), str(created["masked_value"])
    visible = masked.removesuffix("***")
    assert masked.endswith("***")
    assert value.startswith(visible)
    assert len("gpustack_") < len(visible) < len(value.rpartition("_")[0])


def test_the_end_and_the_limits_of_a_key_are_shown(gpustack: Site) -> None:
    before = datetime.now(UTC)
    created = new_key(gpustack, scope=["inference"], expires_in=7200, allowed_model_names=["only-this"])
    found = seen(gpustack, str(created["value"])).inference
    assert found is not None
    assert (found.name, found.models) == (created["name"], ("only-this",))
    assert found.expires is not None
    assert timedelta(seconds=7190) < found.expires - before < timedelta(seconds=7230)


def test_a_management_key_of_an_administrator_sees_the_keys_of_other_users(gpustack: Site) -> None:
    found = seen(gpustack, str(gpustack.described["user_key"])).inference
    assert found is not None
    assert found.scopes == ("inference",)
    own = {row["id"] for row in gpustack.api.get("/v2/api-keys?perPage=1000").json()["items"]}
    every = {row["id"] for row in gpustack.api.get("/v2/api-keys?perPage=1000&user_id=*").json()["items"]}
    assert own < every


@pytest.mark.parametrize(("scope", "status"), [("inference", 403), (None, 401)])
def test_a_refused_key_is_told_as_one_with_its_remedy(gpustack: Site, scope: str | None, status: int) -> None:
    key = str(new_key(gpustack, scope=[scope])["value"]) if scope else f"gpustack_{unique('a').encode().hex()[:16]}_{'0' * 32}"

    async def ask() -> None:
        async with GPUStack(Http(gpustack.described["server_url"], Secret(key), retry=Retry(SystemClock()))) as client:
            await client.models()

    with pytest.raises(HttpKeyRefused) as caught:
        asyncio.run(ask())
    assert caught.value.call.status == status
    assert "`gpustack.management_key`" in caught.value.hint
    assert "scope `management`" in caught.value.hint
