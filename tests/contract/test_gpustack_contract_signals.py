"""GPUStack 2.3: where numbers come from: worker metrics, the instance's own page, the server's exporter, REST (contract 9)."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta

import httpx

from tests.contract.conftest import Pair
from tests.contract.site import Row, Site, unique

EDGES = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0 +Inf"  # vLLM's


def samples(page: str, name: str, **labels: str) -> list[tuple[str, float]]:
    """(line, value) of every sample with this name and these labels."""
    found = []
    for line in page.splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            found.append((line, float(line.rpartition(" ")[2])))
    return found


def value(page: str, name: str, **labels: str) -> float:
    rows = samples(page, name, **labels)
    assert len(rows) == 1, (name, labels, rows)
    return rows[0][1]


def own_page(site: Site, model: Row) -> str:
    """The metrics page of an instance's own port."""
    instance = site.instances(model["id"])[0]
    response = httpx.get(f"http://{instance['worker_ip']}:{instance['port']}/metrics", timeout=10, trust_env=False)
    assert response.status_code == 200
    return response.text


def test_the_worker_page_counts_requests_in_flight(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1})
    who = {"model_id": str(pair.a["id"]), "model_name": pair.a["name"], "worker_name": "spark-01"}

    def running() -> float:
        return value(gpustack.node_page("spark-01", "/metrics"), "gpustack:num_requests_running", **who)

    gpustack.until(lambda: samples(gpustack.node_page("spark-01", "/metrics"), "gpustack:num_requests_running", **who), "scraped")
    stream = threading.Thread(target=gpustack.read_stream, args=(route["name"],), kwargs={"tokens": 30, "delay": 0.1})
    stream.start()
    gpustack.until(lambda: running() == 1.0, "one running", seconds=2.5)
    stream.join()
    gpustack.until(lambda: running() == 0.0, "none running")


def test_the_worker_page_has_unified_names_and_counts(gpustack: Site) -> None:
    model = gpustack.deploy()
    route = gpustack.new_route({model["id"]: 1})
    who = {"model_id": str(model["id"])}
    asked = 5
    before = gpustack.engine(model)["served"]
    for _ in range(asked):
        gpustack.ask(route["name"], max_tokens=3)
    total = before + asked

    def page() -> str:
        return gpustack.node_page("spark-01", "/metrics")

    def counted() -> bool:
        rows = samples(page(), "gpustack:request_success_total", **who)
        return bool(sum(number for _, number in rows) == total)

    gpustack.until(counted, "requests counted")
    text = page()
    assert value(text, "gpustack:time_to_first_token_seconds_count", **who) == total
    assert value(text, "gpustack:e2e_request_latency_seconds_count", **who) == total
    assert value(text, "gpustack:generation_tokens_total", **who) >= asked * 3
    assert value(text, "gpustack:prompt_tokens_total", **who) > 0
    assert samples(text, "gpustack:kv_cache_usage_ratio", **who)
    assert samples(text, "gpustack:inter_token_latency_seconds_bucket", **who)
    assert samples(text, "gpustack:time_per_output_token_seconds_bucket", **who)
    edges = [line.partition('le="')[2].partition('"')[0] for line, _ in samples(text, "gpustack:time_to_first_token_seconds_bucket", **who)]
    assert " ".join(edges) == EDGES
    labels = samples(text, "gpustack:num_requests_waiting", **who)[0][0]
    for label in ("worker_id", "worker_name", "model_name", "model_instance_id", "model_instance_name", "runtime"):
        assert f'{label}="' in labels


def test_the_raw_page_keeps_the_engines_names(gpustack: Site, pair: Pair) -> None:
    who = {"model_instance_name": gpustack.instances(pair.a["id"])[0]["name"]}
    gpustack.until(lambda: samples(gpustack.node_page("spark-01", "/metrics/raw"), "vllm:num_requests_running", **who), "scraped")
    text = gpustack.node_page("spark-01", "/metrics/raw")
    assert samples(text, "vllm:time_to_first_token_seconds_bucket", **who)
    assert "gpustack:num_requests_running" not in text


def test_the_worker_page_shows_the_node(gpustack: Site) -> None:
    text = gpustack.node_page("staging", "/metrics")
    total = value(text, "gpustack:worker_node_memory_total_bytes", worker_name="staging")
    assert 0 < value(text, "gpustack:worker_node_memory_used_bytes", worker_name="staging") < total
    assert value(text, "gpustack:worker_node_gram_total_bytes", worker_name="staging", gpu_index="0") > 0
    assert value(text, "gpustack:worker_node_filesystem_total_bytes", worker_name="staging", mountpoint="/") > 0


def test_a_custom_backend_is_on_neither_page_and_has_its_own(gpustack: Site, pair: Pair) -> None:
    model = gpustack.deploy(backend="Custom")
    route = gpustack.new_route({model["id"]: 1})
    gpustack.ask(route["name"])
    gpustack.until(lambda: samples(gpustack.node_page("spark-01", "/metrics"), "gpustack:num_requests_running"), "others are scraped")
    for path in ("/metrics", "/metrics/raw"):
        assert model["name"] not in gpustack.node_page("spark-01", path)
    text = own_page(gpustack, model)
    assert value(text, "vllm:num_requests_running", model_name=model["name"]) == 0
    assert value(text, "vllm:request_success_total", finished_reason="length") >= 1
    assert "process_start_time_seconds " in text


def test_the_instance_page_says_how_requests_ended(gpustack: Site) -> None:
    model = gpustack.deploy()
    route = gpustack.new_route({model["id"]: 1})
    gpustack.ask(route["name"], sim={"fail": 500})
    gpustack.read_stream(route["name"], tokens=2, delay=0.0)
    text = own_page(gpustack, model)
    assert value(text, "vllm:request_success_total", finished_reason="error") == 1
    assert value(text, "vllm:request_success_total", finished_reason="stop") >= 1
    assert value(text, "vllm:request_success_total", finished_reason="abort") == 0


def test_the_exporter_counts_instances(gpustack: Site, pair: Pair) -> None:
    url = gpustack.described["metrics_url"]
    who = {"model_id": str(pair.a["id"]), "model_name": pair.a["name"]}

    def page() -> str:
        return httpx.get(url + "/metrics", timeout=10, trust_env=False).text

    gpustack.until(lambda: [1 for _, n in samples(page(), "gpustack:model_running_instances", **who) if n == 1.0], "counted")
    assert value(page(), "gpustack:model_desired_instances", **who) == 1.0
    targets = httpx.get(url + "/metrics/targets", timeout=10, trust_env=False).json()
    assert sum(len(entry["targets"]) for entry in targets) >= 3
    assert set(targets[0]["labels"]) >= {"cluster_id", "cluster_name"}


def test_the_api_port_has_no_metrics(gpustack: Site) -> None:
    assert gpustack.anonymous.get("/metrics").status_code == 404


def test_gpus_are_listed_by_worker_and_index(gpustack: Site) -> None:
    rows = gpustack.get("/v2/gpu-devices")["items"]
    assert {row["id"] for row in rows} >= {"spark-01:cuda:0", "spark-02:cuda:0", "staging:cuda:0"}
    assert all(row["memory"]["total"] > 0 for row in rows)


def test_the_dashboard_counts_and_usage_is_daily(gpustack: Site, pair: Pair) -> None:
    counts = gpustack.get("/v2/dashboard")["resource_counts"]
    assert counts["worker_count"] >= 3
    assert counts["model_count"] >= 2
    period = {"start_date": "2026-01-01", "end_date": "2027-01-01"}
    answer = gpustack.api.post("/v2/usage/breakdown", json={**period, "granularity": "day", "group_by": ["route"]})
    assert answer.status_code == 200
    assert set(answer.json()) >= {"summary", "items", "pagination"}
    assert gpustack.get(f"/v2/usage/summary?start_date={period['start_date']}&end_date={period['end_date']}")["total_tokens"] >= 0
    assert isinstance(gpustack.get("/v2/dashboard/usage")["items"], list)


def test_daily_usage_counts_the_requests_of_one_deployment(gpustack: Site, pair: Pair) -> None:
    """By `model_ids`, from a day to a day; what a gateway carries past the server is not asked here."""
    model = gpustack.deploy()
    route = gpustack.new_route({model["id"]: 1})
    today = datetime.now(UTC).date()
    period = f"start_date={today - timedelta(days=1)}&end_date={today + timedelta(days=1)}"
    for _ in range(3):
        assert gpustack.ask(route["name"]).status_code == 200

    def rows(model_id: int) -> list[Row]:
        return list(gpustack.get(f"/v2/dashboard/usage?{period}&model_ids={model_id}")["items"])

    if not gpustack.gateway:
        gpustack.until(lambda: sum(row["request_count"] for row in rows(model["id"])) >= 3, "three requests in the usage", seconds=15)
    for row in rows(model["id"]):
        assert set(row) >= {"model_id", "model_name", "model_route_name", "date", "request_count"}
        assert row["model_id"] == model["id"]
        assert abs((date.fromisoformat(row["date"][:10]) - today).days) <= 1
    far = f"start_date={today - timedelta(days=40)}&end_date={today - timedelta(days=39)}"
    assert gpustack.get(f"/v2/dashboard/usage?{far}&model_ids={model['id']}")["items"] == []
    assert gpustack.get("/v2/models")["items"][0]["created_at"]


def test_knobs_of_a_deployment_change_what_it_does(gpustack: Site) -> None:
    model = gpustack.deploy(unique("slow"), env={"SIM_TTFT_FACTOR": "1"})
    route = gpustack.new_route({model["id"]: 1})
    gpustack.node("spark-01", model=model["name"], knobs={"fail_rate": 1.0})
    assert gpustack.ask(route["name"]).status_code == (500 if gpustack.gateway else 503)
    gpustack.node("spark-01", model=model["name"], knobs={"fail_rate": 0.0, "truncate_rate": 1.0})
    stream = gpustack.read_stream(route["name"], tokens=4, delay=0.0)
    assert (stream.status, stream.finish, stream.usage, stream.done) == (200, None, None, False)
