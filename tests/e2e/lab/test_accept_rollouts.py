"""Acceptance: three rollouts one after another under 60 clients lose nothing; the script that people write instead does."""

from __future__ import annotations

import time

import pytest

from lab.scenario import Scenario, wrote
from rollout.errors import ExitCode
from rollout.testing.traffic import Load
from tests.conftest import about
from tests.e2e.lab.live import STREAMS, cut, figures, long_streams, lost, unmapped
from tests.e2e.lab.plays import live

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1200)]
MANY_STREAMS = Load(clients=30, stream_share=1.0, stream_seconds=STREAMS.stream_seconds, token_delay=1.0, think=0.2)
MANY_PLAIN = Load(clients=30, stream_share=0.0, think=2.0)
WORKERS = ("spark-01", "spark-02")


def test_three_rollouts_one_after_another_lose_no_request_and_cut_no_stream(scene: Scenario) -> None:
    stable = scene.deploy("a", WORKERS[0])
    scene.route({stable: 100})
    with live(scene, MANY_STREAMS, MANY_PLAIN) as users:
        users.more(50)
        for number in (1, 2, 3):
            (now,) = scene.targets()
            image = {"unit": "backend_image", "to": {"image_name": f"sim/vllm:{number + 1}"}}
            plan = scene.operator.plan([now], worker=WORKERS[number % 2], change=image)
            scene.operator.run("run", plan, "--until", "completed", code=ExitCode.DONE)
            assert scene.model(next(iter(scene.targets())))["image_name"] == f"sim/vllm:{number + 1}"
    print(f"3 rollouts: {figures(users.records)}\n{scene.operator.screen()}")
    assert lost(users.records) + cut(users.records) == [], figures(users.records)
    if not about(scene.described, before="2.3", gateway=True):
        assert unmapped(users.records, scene.name) == []
    assert len(users.records) >= 3000
    assert long_streams(users.records) >= 150
    assert len(scene.leftovers()) == 1


def test_a_naive_script_loses_requests_or_streams(scene: Scenario) -> None:
    """Both targets' weights in one write, and the old deployment deleted at once: the same traffic, three times."""
    harm = []
    for number in (1, 2, 3):
        old, new = scene.deploy(f"old{number}", WORKERS[0]), scene.deploy(f"new{number}", WORKERS[1], image="sim/vllm:2")
        scene.route({old: 100})
        with live(scene, MANY_STREAMS, MANY_PLAIN) as users:
            users.more(150)
            naive(scene, old, new)
            users.more(150)
        print(f"naive script {number}: {figures(users.records)}")
        harm.append(len(lost(users.records)) + len(cut(users.records)))
        scene.api.delete(f"/v2/model-routes/{scene.the_route()['id']}")
        scene.api.delete(f"/v2/models/{scene.model(new)['id']}")
    assert any(harm), "the naive script lost nothing: this traffic proves nothing about ours either"


def naive(scene: Scenario, old: str, new: str) -> None:
    """What a wiki page says: add the new one, move both weights, delete the old one."""
    route, new_id = scene.the_route(), scene.model(new)["id"]
    old_target = scene.targets()[old]
    path, head = f"/v2/model-routes/{route['id']}", {"name": scene.name}
    kept = {"id": old_target["id"], "model_id": old_target["model_id"], "weight": 100}
    wrote(scene.api.put(path, json={**head, "targets": [kept, {"model_id": new_id, "weight": 10}]}))
    time.sleep(5)
    added = {"id": scene.targets()[new]["id"], "model_id": new_id}
    for before, after in ((50, 50), (1, 99)):
        wrote(scene.api.put(path, json={**head, "targets": [{**kept, "weight": before}, {**added, "weight": after}]}))
        time.sleep(5)
    scene.api.delete(f"/v2/models/{old_target['model_id']}").raise_for_status()
