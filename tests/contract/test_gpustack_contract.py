"""GPUStack 2.2 and 2.3: credentials, paging, access policies, inference (contract 1, 2, 3, 6.5, 7)."""

from __future__ import annotations

import httpx
import pytest

from tests.contract.conftest import Pair
from tests.contract.site import Site, message, unique

HELLO = [{"role": "user", "content": "hello"}]


def bearer(site: Site, value: str, path: str) -> httpx.Response:
    return site.anonymous.get(path, headers={"Authorization": f"Bearer {value}"})


def new_key(site: Site, **fields: object) -> dict[str, object]:
    response = site.admin.post("/v2/api-keys", json={"name": unique("key"), **fields})
    assert response.status_code == 200, response.text
    row: dict[str, object] = response.json()
    site.forget("api-keys", int(str(row["id"])))
    return row


# --- who may do what


def test_version_and_health_need_no_credential(gpustack: Site) -> None:
    assert gpustack.anonymous.get("/version").json()["version"] == "v" + gpustack.described["version"]
    assert gpustack.anonymous.get("/healthz").json() == "ok"
    assert gpustack.anonymous.get("/readyz").json() == "ok"


def test_version_is_not_under_v2(gpustack: Site) -> None:
    assert gpustack.anonymous.get("/v2/version").status_code == 404


def test_no_credential_is_401_from_loopback_too(gpustack: Site) -> None:
    for path in ("/v2/models", "/v1/models"):
        response = gpustack.anonymous.get(path)
        assert response.status_code == 401
        assert response.json() == {"code": 401, "reason": "Unauthorized", "message": "Invalid authentication credentials"}


def test_an_unknown_key_is_401(gpustack: Site) -> None:
    assert bearer(gpustack, "gpustack_0123456789abcdef_00000000000000000000000000000000", "/v2/models").status_code == 401


def test_a_management_key_manages_and_does_not_infer(gpustack: Site) -> None:
    assert gpustack.api.get("/v2/models").status_code == 200
    response = gpustack.api.get("/v1/models")
    assert response.status_code == 403
    assert message(response) == "API key does not have permission to access inference features"


def test_an_inference_key_infers_and_does_not_manage(gpustack: Site) -> None:
    assert gpustack.inference.get("/v1/models").status_code == 200
    response = gpustack.inference.get("/v2/models")
    assert response.status_code == 403
    assert message(response) == "API key does not have permission to access management features"


def test_x_api_key_is_a_credential_too(gpustack: Site) -> None:
    response = gpustack.anonymous.get("/v2/models", headers={"X-API-Key": gpustack.described["management_key"]})
    assert response.status_code == 200


def test_basic_takes_the_password_and_not_a_key(gpustack: Site) -> None:
    assert gpustack.admin.get("/v2/models").status_code == 200
    assert gpustack.anonymous.get("/v2/models", auth=("admin", gpustack.described["management_key"])).status_code == 401


def test_a_key_is_shown_once(gpustack: Site) -> None:
    created = new_key(gpustack, scope=["management"], expires_in=3600)
    assert str(created["value"]).startswith("gpustack_")
    assert created["expires_at"]
    listed = next(row for row in gpustack.admin.get("/v2/api-keys").json()["items"] if row["id"] == created["id"])
    assert not listed.get("value")
    assert listed["scope"] == ["management"]


def test_a_deleted_key_stops_working(gpustack: Site) -> None:
    created = new_key(gpustack, scope=["management"])
    assert bearer(gpustack, str(created["value"]), "/v2/models").status_code == 200
    assert gpustack.admin.delete(f"/v2/api-keys/{created['id']}").status_code == 200
    assert bearer(gpustack, str(created["value"]), "/v2/models").status_code == 401


def test_an_expired_key_stops_working(gpustack: Site) -> None:
    created = new_key(gpustack, scope=["management"], expires_in=1)
    gpustack.until(lambda: bearer(gpustack, str(created["value"]), "/v2/models").status_code == 401, "key expired")


def test_key_names_are_unique_and_scopes_known(gpustack: Site) -> None:
    created = new_key(gpustack)
    again = gpustack.admin.post("/v2/api-keys", json={"name": created["name"]})
    assert again.status_code == 409
    assert again.json()["reason"] == "AlreadyExists"
    assert gpustack.admin.post("/v2/api-keys", json={"name": unique("key"), "scope": ["read"]}).status_code == 422


def test_allowed_model_names_hide_every_other_route(gpustack: Site, pair: Pair) -> None:
    mine, other = gpustack.new_route({pair.a["id"]: 1}), gpustack.new_route({pair.b["id"]: 1})
    key = new_key(gpustack, scope=["inference"], allowed_model_names=[mine["name"]])
    headers = {"Authorization": f"Bearer {key['value']}"}
    body = {"messages": HELLO, "max_tokens": 1}
    assert gpustack.anonymous.post("/v1/chat/completions", headers=headers, json={**body, "model": mine["name"]}).status_code == 200
    refused = gpustack.anonymous.post("/v1/chat/completions", headers=headers, json={**body, "model": other["name"]})
    assert refused.status_code == 404
    assert message(refused) == "Model not found"
    listed = {row["id"] for row in gpustack.anonymous.get("/v1/models", headers=headers).json()["data"]}
    assert listed == {mine["name"]} if gpustack.balances else listed >= {mine["name"], other["name"]}


# --- access policies: how a private probe route stays private


def test_a_new_route_is_open_to_every_key(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    assert gpustack.route(route["id"])["access_policy"] == "authed"
    assert gpustack.ask(route["name"], client=gpustack.user).status_code == 200


@pytest.mark.only(gateway=False)
def test_allowed_principals_hides_a_route_from_users_and_not_from_admins(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    written = gpustack.api.post(f"/v2/model-routes/{route['id']}/access", json={"access_policy": "allowed_principals", "principals": []})
    assert written.json() == {"items": [], "access_policy": "allowed_principals", "principals": []}
    refused = gpustack.ask(route["name"], client=gpustack.user)
    assert refused.status_code == 404
    assert message(refused) == "Model not found"
    assert route["name"] not in [row["id"] for row in gpustack.user.get("/v1/models").json()["data"]]
    assert gpustack.ask(route["name"]).status_code == 200


def test_a_granted_user_may_use_a_private_route(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    user = next(row for row in gpustack.get("/v2/users")["items"] if not row["is_admin"])
    grant = {"access_policy": "allowed_principals", "principals": [{"principal_type": "user", "principal_id": user["id"]}]}
    written = gpustack.api.post(f"/v2/model-routes/{route['id']}/access", json=grant)
    assert [row["principal_id"] for row in written.json()["principals"]] == [user["id"]]
    assert gpustack.ask(route["name"], client=gpustack.user).status_code == 200
    assert gpustack.get(f"/v2/model-routes/{route['id']}/access")["access_policy"] == "allowed_principals"


def test_an_unknown_policy_is_422(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1}, wait=False)
    assert gpustack.api.post(f"/v2/model-routes/{route['id']}/access", json={"access_policy": "secret"}).status_code == 422


def test_a_deployment_is_not_callable_by_its_own_name(gpustack: Site, pair: Pair) -> None:
    for client in (gpustack.inference, gpustack.user):
        response = gpustack.ask(pair.a["name"], client=client)
        assert response.status_code == 404
        assert message(response) == "Model not found"


# --- paging and errors


def test_lists_are_paged(gpustack: Site, pair: Pair) -> None:
    first = gpustack.get("/v2/models?page=1&perPage=1")
    assert len(first["items"]) == 1
    assert first["pagination"]["page"] == 1
    assert first["pagination"]["perPage"] == 1
    assert first["pagination"]["total"] >= 2
    assert first["pagination"]["totalPage"] == first["pagination"]["total"]
    second = gpustack.get("/v2/models?page=2&perPage=1")
    assert second["items"][0]["id"] != first["items"][0]["id"]


def test_a_page_holds_a_hundred_by_default(gpustack: Site) -> None:
    assert gpustack.get("/v2/models")["pagination"]["perPage"] == 100


def test_routes_and_targets_can_be_filtered(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1, pair.b["id"]: 1}, wait=False)
    assert [row["id"] for row in gpustack.get(f"/v2/model-routes?name={route['name']}")["items"]] == [route["id"]]
    by_route = gpustack.get(f"/v2/model-route-targets?route_id={route['id']}")["items"]
    by_name = gpustack.get(f"/v2/model-route-targets?route_name={route['name']}")["items"]
    assert {row["id"] for row in by_route} == {row["id"] for row in by_name}
    assert len(by_route) == 2
    by_model = gpustack.get(f"/v2/model-route-targets?model_id={pair.a['id']}")["items"]
    assert {row["model_id"] for row in by_model} == {pair.a["id"]}


def test_what_does_not_exist_is_404_with_a_sentence(gpustack: Site) -> None:
    for path in ("models", "model-instances", "model-routes", "workers", "model-files"):
        response = gpustack.api.get(f"/v2/{path}/99999999")
        assert response.status_code == 404
        assert message(response)


def test_there_is_no_patch(gpustack: Site, pair: Pair) -> None:
    assert gpustack.api.patch(f"/v2/models/{pair.a['id']}", json={}).status_code == 405


# --- inference


def test_the_answer_names_the_deployment_that_served(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    body = gpustack.ask(route["name"]).json()
    assert body["model"] == pair.a["name"]
    assert body["system_fingerprint"] == gpustack.instances(pair.a["id"])[0]["name"]
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 1


def test_a_stream_ends_with_finish_reason_usage_and_done(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    stream = gpustack.read_stream(route["name"], tokens=3, delay=0.01)
    assert stream.status == 200
    assert stream.model == pair.a["name"]
    assert stream.finish == "stop"
    assert stream.done
    assert stream.usage is not None
    assert stream.usage["completion_tokens"] == 3


@pytest.mark.only(gateway=False)
def test_the_server_adds_times_to_a_streams_usage(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    usage = gpustack.read_stream(route["name"], tokens=4, delay=0.05).usage
    assert usage is not None
    assert usage["time_to_first_token_ms"] > 0
    assert 20 < usage["time_per_output_token_ms"] < 500
    assert usage["tokens_per_second"] > 0


def test_the_same_prompt_gets_the_same_words(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    texts = {gpustack.ask(route["name"], max_tokens=8).json()["choices"][0]["message"]["content"] for _ in range(3)}
    assert len(texts) == 1


def test_completions_and_embeddings_are_proxied(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    text = gpustack.inference.post("/v1/completions", json={"model": route["name"], "prompt": "hello", "max_tokens": 1})
    assert text.json()["choices"][0]["text"]
    vector = gpustack.inference.post("/v1/embeddings", json={"model": route["name"], "input": "hello"})
    assert len(vector.json()["data"][0]["embedding"]) > 1


@pytest.mark.only(gateway=False)
def test_an_upstream_error_becomes_503_when_not_streaming(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    for status in (500, 429):
        response = gpustack.ask(route["name"], sim={"fail": status})
        assert response.status_code == 503
        assert f"status={status}" in message(response)


def test_an_upstream_error_keeps_its_status_when_streaming(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    assert gpustack.ask(route["name"], stream=True, sim={"fail": 429}).status_code == 429


def test_bad_requests_are_400(gpustack: Site) -> None:
    assert message(gpustack.inference.post("/v1/chat/completions", json={"messages": []})) == "Missing 'model' field"
    assert gpustack.inference.post("/v1/chat/completions", content=b"{").status_code == 400


def test_a_client_that_leaves_a_stream_ends_it_upstream(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    before = gpustack.engine(pair.a)["aborted"]
    body = {
        "model": route["name"],
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "sim": {"tokens": 100, "delay": 0.1},
    }
    with gpustack.inference.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()  # kept: a collected iterator closes the stream
        next(lines)
        assert gpustack.engine(pair.a)["inflight"] >= 1
    gpustack.until(lambda: gpustack.engine(pair.a)["inflight"] == 0, "engine empty", seconds=5)
    assert gpustack.engine(pair.a)["aborted"] == before + 1


@pytest.mark.only(gateway=False)
def test_a_client_that_leaves_a_plain_request_does_not_end_it_upstream(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    before = gpustack.engine(pair.a)
    body = {"model": route["name"], "messages": HELLO, "sim": {"tokens": 5, "delay": 0.2}}
    with pytest.raises(httpx.ReadTimeout):
        gpustack.inference.post("/v1/chat/completions", json=body, timeout=0.4)
    gpustack.until(lambda: gpustack.engine(pair.a)["served"] == before["served"] + 1, "served to the end")
    assert gpustack.engine(pair.a)["aborted"] == before["aborted"]


def test_only_routes_with_an_active_target_are_listed(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    assert route["name"] in [row["id"] for row in gpustack.inference.get("/v1/models").json()["data"]]
    gpustack.api.put(f"/v2/model-routes/{route['id']}", json={"name": route["name"], "targets": []})
    gpustack.until(
        lambda: route["name"] not in [row["id"] for row in gpustack.inference.get("/v1/models").json()["data"]], "route no longer listed"
    )


@pytest.mark.only(gateway=True)
def test_the_gateway_refuses_with_403_what_the_server_hides(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    gpustack.api.post(f"/v2/model-routes/{route['id']}/access", json={"access_policy": "allowed_principals", "principals": []})
    assert gpustack.ask(route["name"], client=gpustack.user).status_code == 403
    assert gpustack.ask(route["name"]).status_code == 200


@pytest.mark.only(gateway=True)
def test_the_gateway_passes_an_upstream_error_on(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    for status in (500, 429):
        assert gpustack.ask(route["name"], sim={"fail": status}).status_code == status


@pytest.mark.only(gateway=True)
def test_a_client_that_leaves_the_gateway_ends_a_plain_request_too(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    before = gpustack.engine(pair.a)["aborted"]
    body = {"model": route["name"], "messages": HELLO, "sim": {"tokens": 50, "delay": 0.2}}
    with pytest.raises(httpx.ReadTimeout):
        gpustack.inference.post("/v1/chat/completions", json=body, timeout=0.6)
    gpustack.until(lambda: gpustack.engine(pair.a)["inflight"] == 0, "engine empty", seconds=5)
    assert gpustack.engine(pair.a)["aborted"] == before + 1
