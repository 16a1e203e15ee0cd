"""The way back as a script: one line a call, keys by reference, and a stop where something is not so."""

from __future__ import annotations

import json

from rollout.domain.byhand import INFERENCE, ByHand, WayBack
from rollout.plan.model import GPUStack, SecretRef
from rollout.report.byhand import as_json, line, script
from tests.unit.report.samples import NOW

AT = GPUStack(
    server="http://m.lan:1/", inference="http://i.lan:2", management_key=SecretRef(env="MKEY"), inference_key=SecretRef(file="/run/a key")
)
WAY = WayBack(
    "3f2a",
    "chat",
    (
        ByHand("it's joined", "PUT", "/v2/model-routes/4", {"name": "chat", "meta": {"team": "d'or"}}),
        ByHand("it answers", "POST", "/v1/chat/completions", {"model": "chat"}, key=INFERENCE, until='"model": ?"a"'),
        ByHand("it is gone", "GET", "/v2/model-route-targets?route_id=4&model_id=2", until='"id":', never=True, within=9),
        ByHand("delete it", "DELETE", "/v2/models/2", pause=True),
    ),
)


def test_keys_are_exported_by_reference_and_given_to_curl_by_a_descriptor() -> None:
    text = script(WAY, AT, NOW)
    assert 'export ROLLOUT_MANAGEMENT_KEY="$MKEY"' in text
    assert "export ROLLOUT_INFERENCE_KEY=\"$(head -n 1 '/run/a key')\"" in text
    calls = [row for row in text.splitlines() if "curl" in row]
    assert all('-H @<(echo "Authorization: Bearer $ROLLOUT_' in row for row in calls)


def test_each_call_has_its_url_its_body_and_its_reason() -> None:
    text = script(WAY, AT, NOW)
    assert "echo '1. it'\"'\"'s joined'" in text
    assert "http://m.lan:1/v2/model-routes/4" in text
    assert "http://i.lan:2/v1/chat/completions" in text
    assert "'http://m.lan:1/v2/model-route-targets?route_id=4&model_id=2'" in text
    assert text.index("echo '3. it is gone'") < text.index('sleep "${DRAIN_SECONDS:-1800}"') < text.index("DELETE")
    assert text.count("exit 13") == 2
    assert "{ ! grep -E '\"id\":' >/dev/null; } && break" in text


def test_the_same_variable_is_asked_for_and_not_overwritten() -> None:
    at = AT.model_copy(update={"management_key": SecretRef(env="ROLLOUT_MANAGEMENT_KEY")})
    assert ': "${ROLLOUT_MANAGEMENT_KEY:?the management key}"' in script(WAY, at, NOW)


def test_nothing_to_undo_is_said() -> None:
    assert "nothing to undo" in script(WayBack("x", "chat", ()), AT, NOW)


def test_as_json_and_one_line_alone() -> None:
    told = as_json(WAY, AT, NOW)
    assert json.loads(json.dumps(told)) == told
    assert [c["until_absent"] for c in told["calls"]] == [False, False, True, False]
    assert [c["within"] for c in told["calls"]] == [None, 60, 9, None]
    assert line(WAY.calls[3], AT).endswith(
        '-X DELETE -H @<(echo "Authorization: Bearer $ROLLOUT_MANAGEMENT_KEY") http://m.lan:1/v2/models/2'
    )
