"""Each engine's names, old and new, lead to the same sample; what an engine does not tell stays unknown."""

from dataclasses import astuple

import pytest

from rollout.sources.aliases import WANTED, sample_of
from rollout.sources.prometheus_text import INF, parse
from rollout.testing.engine_metrics import EngineStats, render, vllm_families


def sample(page: str):
    return sample_of(parse(page, WANTED))


def hist(name: str, *, inf: int, half: int, labels: str = "") -> str:
    more = f"{labels}," if labels else ""
    edges = [f'{name}_bucket{{{more}le="{le}"}} {n}' for le, n in (("0.5", half), ("+Inf", inf))]
    return "\n".join([*edges, f"{name}_count{{{labels}}} {inf}", ""])


def vllm(prefix: str = "vllm:", suffix: str = "_total") -> str:
    return "".join(
        [
            f'{prefix}num_requests_running{{engine="0"}} 2\n{prefix}num_requests_waiting{{engine="0"}} 1\n',
            *(
                f'{prefix}request_success{suffix}{{engine="0",finished_reason="{r}"}} {n}\n'
                for r, n in [("stop", 7), ("length", 2), ("abort", 3), ("error", 1)]
            ),
            f'{prefix}generation_tokens{suffix}{{engine="0"}} 900\n',
            hist(f"{prefix}time_to_first_token_seconds", inf=13, half=9, labels='engine="0"'),
            hist(f"{prefix}e2e_request_latency_seconds", inf=12, half=4, labels='engine="0"'),
        ]
    )


EXPECTED = (2, 1, 13, 1, 900, {0.5: 9, INF: 13}, {0.5: 4, INF: 12}, None, None)


@pytest.mark.parametrize("page", [vllm(), vllm(suffix=""), vllm("gpustack:")], ids=["vllm", "without-total", "unified"])
def test_every_spelling_gives_the_same_sample_and_abort_is_no_error(page):
    assert astuple(sample(page)) == EXPECTED


def test_a_page_with_both_spellings_is_not_counted_twice():
    assert astuple(sample(vllm() + vllm("gpustack:"))) == EXPECTED


def test_two_engine_ranks_are_summed():
    both = sample(vllm() + vllm().replace('engine="0"', 'engine="1"'))
    assert (both.running, both.requests, both.errors, both.ttft) == (4, 26, 2, {0.5: 18, INF: 26})


def test_an_engine_without_an_error_reason_does_not_say_zero_errors():
    page = "".join(f'vllm:request_success_total{{finished_reason="{r}"}} {n}\n' for r, n in (("stop", 5), ("abort", 1)))
    assert (sample(page).requests, sample(page).errors) == (6, None)


def test_sglang_counts_requests_without_reasons():
    page = (
        'sglang:num_running_reqs{tp_rank="0"} 3\nsglang:num_queue_reqs{tp_rank="0"} 2\nsglang:num_requests_total{model_name="m"} 40\n'
        'sglang:generation_tokens_total{model_name="m"} 800\n' + hist("sglang:time_to_first_token_seconds", inf=41, half=30)
    )
    got = sample(page)
    assert (got.running, got.waiting, got.requests, got.errors, got.tokens) == (3, 2, 40, None, 800)
    assert got.ttft == {0.5: 30, INF: 41}


def test_sglang_under_unified_names_counts_requests_by_the_latency_histogram():
    page = "gpustack:num_requests_running 0\ngpustack:num_requests_waiting 0\n" + hist(
        "gpustack:e2e_request_latency_seconds", inf=17, half=2
    )
    assert (sample(page).requests, sample(page).errors) == (17, None)


def test_mindie_counts_failures_beside_successes():
    counts = {"num_requests_running": 1, "num_requests_waiting": 0, "request_success_total": 20, "request_failed_total": 2}
    page = "".join(f'{name}{{model_name="m"}} {n}\n' for name, n in counts.items())
    assert (sample(page).requests, sample(page).errors) == (22, 2)


def test_nan_gauge_is_unknown_and_so_is_in_flight():
    assert sample("vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n").running is None


def test_a_page_without_an_engine_is_no_sample():
    assert sample("process_start_time_seconds 1700000000\npython_info 1\n") is None
    assert sample("") is None


def test_of_two_processes_the_youngest_start_counts():
    page = vllm() + 'process_start_time_seconds{p="a"} 100\nprocess_start_time_seconds{p="b"} 200\n'
    assert sample(page).started == 200


@pytest.mark.parametrize("version", ["0.8.5", "0.21.0"])
def test_the_simulated_engine_is_understood_in_old_and_new_versions(version):
    stats = EngineStats(generation_tokens=50)
    stats.finished["stop"] = 4
    stats.ttft.observe(0.05, 4)
    families = vllm_families(stats, {"engine": "0"}, running=1, waiting=0, kv_usage=0.1, started_at=5.0, version=version)
    got = sample(render(families))
    assert (got.running, got.waiting, got.requests, got.errors, got.tokens, got.started) == (1, 0, 4, 0, 50, 5)
    assert got.ttft[INF] == 4


def test_time_per_output_token_is_read_where_a_request_counts_once_and_never_from_counts_of_tokens():
    per_request = hist("vllm:request_time_per_output_token_seconds", inf=9, half=7, labels='engine="0"')
    per_token = hist("gpustack:time_per_output_token_seconds", inf=900, half=700, labels='engine="0"')
    assert sample(vllm() + per_request).tpot == {0.5: 7, INF: 9}
    assert sample(vllm() + per_token).tpot is None
