"""Whatever holds a secret of a live deployment, nothing that is kept or shown of it does; what steers an engine stays readable."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from rollout.domain.receipts import spec_digest
from rollout.domain.world import DeploymentView
from rollout.plan.hidden import keepable, keepable_pair, keepable_text, secret_places, without

Json = Any
MARK = "S3cr"
SECRETS = st.text("abcXYZ019 /+=@:'\"\\{}&;,.", max_size=12).map(lambda tail: MARK + tail.strip() + MARK)
PLAIN_SECRETS = st.text("abcXYZ019", max_size=12).map(lambda tail: MARK + tail + MARK)
FLAGS = st.sampled_from(
    [
        "--api-key",
        "--hf-token",
        "--admin_password",
        "--client.secret",
        "--apiKey",
        "--auth",
        "--db-pass",
        "--aws-credentials",
        "--cookie",
        "-api-key",
        "--auth-tokens",
    ]
)
NAMES = st.sampled_from(
    ["HF_TOKEN", "SIGNING_KEY", "DB_PASS", "VLLM_API_KEY", "apiKey", "MY_SECRET", "AWS_CREDENTIALS", "OAUTH", "DBPASSWORD", "PGPASSWORD"]
)
HEADERS = st.sampled_from(["Authorization: Bearer {}", "X-Api-Key: {}", "Cookie: session={}", "Proxy-Authorization: Basic {}"])
LISTS: list[Callable[[str, str], list[str]]] = [
    lambda f, s: [f, s, "--port", "80"],
    lambda f, s: [f"{f}={s}"],
    lambda f, s: ["--port=80", f, s, s + "2"],
    lambda f, s: ["-H", "Accept: text/plain", f, s],
    lambda f, s: ["--config", json.dumps({f.strip("-"): s, "n": 1})],
    lambda f, s: ["--config=" + json.dumps({"outer": [{f.strip("-"): {"value": s}}]})],
    lambda f, s: [f"{f} {shlex.quote(s)}"],
]
LINES: list[Callable[[str, str], str]] = [
    lambda f, s: f"vllm serve /models/m {f} {shlex.quote(s)} --port 80",
    lambda f, s: f"vllm serve /models/m {f}={shlex.quote(s)} --port 80",
    lambda f, s: f"vllm serve {shlex.quote(f + '=' + s)}",
    lambda f, s: f"sh -c {shlex.quote(f'exec vllm serve {f} {shlex.quote(s)}')}",
    lambda f, s: f"sh -c {json.dumps(f'exec vllm serve {f} {json.dumps(s)}')}",
    lambda f, s: f"engine --config {shlex.quote(json.dumps({'a': {f.strip('-'): s}}))}",
    lambda f, s: json.dumps({"args": ["serve", f, s]}),
    lambda f, s: f"{f.strip('-')}: {json.dumps(s)}",
]
IN_ENV: list[Callable[[str, str], Json]] = [
    lambda n, s: {n: s, "CUDA_VISIBLE_DEVICES": "0"},
    lambda n, s: [{"name": n, "value": s}],
    lambda n, s: [f"{n}={s}"],
    lambda _n, s: {"SOMETHING": s},
    lambda n, s: {"CONFIG": json.dumps({n: s})},
    lambda n, s: {"VLLM_EXTRA": json.dumps({"deep": {n: [s]}})},
]


def kept(spec: dict[str, Json]) -> str:
    """Everything that is kept or shown of a spec, a changed one beside it included."""
    pairs = [keepable_pair(k, None, v) for k, v in spec.items()] + [keepable_pair(k, v, [v]) for k, v in spec.items()]
    return json.dumps([keepable(spec), *pairs, keepable_text(json.dumps(spec)), spec_digest(spec)])


@settings(deadline=None, max_examples=150)
@given(FLAGS, SECRETS, st.sampled_from(LISTS), st.sampled_from(LINES))
def test_no_flag_lets_its_value_through(flag: str, secret: str, listed: Callable[..., Json], line: Callable[..., str]) -> None:
    spec = {"backend_parameters": listed(flag, secret), "run_command": line(flag, secret)}
    assert MARK not in kept(spec), spec
    assert {path[0] for path in secret_places(spec)} == set(spec), "a plan with it is refused"


@settings(deadline=None, max_examples=100)
@given(NAMES, SECRETS, st.sampled_from(IN_ENV))
def test_no_variable_lets_its_value_through(name: str, secret: str, env: Callable[..., Json]) -> None:
    spec = {"env": env(name, secret), "roles": [{"env": env(name, secret)}]}
    assert MARK not in kept(spec), spec


@settings(deadline=None, max_examples=100)
@given(NAMES, HEADERS, PLAIN_SECRETS)
def test_neither_do_assignments_headers_and_urls(name: str, header: str, secret: str) -> None:
    said = header.format(secret)
    for line in (
        f"{name}={secret} vllm serve /m",
        f"docker run -e {name}={secret} -e OTHER={secret} image:1",
        f"curl -H '{said}' http://h/x",
        f"curl -u ana:{secret} http://h/x",
        f"curl 'http://h/x?a=1&{name}={secret}'",
        f"wget http://ana:{secret}/x@y@h/x",
        f"--db=postgres://ana:{secret}@h/x",
    ):
        assert MARK not in kept({"run_command": line, "backend_parameters": ["--header", said, line]}), line


@settings(deadline=None)
@given(FLAGS, PLAIN_SECRETS, PLAIN_SECRETS, st.sampled_from(LISTS), st.sampled_from(LINES))
def test_a_hidden_value_that_changed_is_said_to_have(
    flag: str, old: str, new: str, listed: Callable[..., Json], line: Callable[..., str]
) -> None:
    if old == new:
        new += "2"
    for shape in (listed, line):
        before, after = keepable_pair("run_command", shape(flag, old), shape(flag, new))
        assert "(changed)" in json.dumps(after)
        assert MARK not in json.dumps([before, after])
        assert "(changed)" not in json.dumps(keepable_pair("run_command", shape(flag, old), shape(flag, old)))


def test_the_shapes_that_once_got_through() -> None:
    spec = {
        "backend_parameters": ["--api-key", "S3cretA"],
        "run_command": "vllm serve --api-key S3cretB",
        "env": {"SIGNING_KEY": "S3cretC", "DB_PASS": "S3cretD"},
    }
    hidden = {"backend_parameters": ["--api-key", "***"], "run_command": "vllm serve --api-key ***"}
    assert keepable(spec) == {**hidden, "env": {"SIGNING_KEY": "***", "DB_PASS": "***"}}


def test_a_diff_shows_what_the_plan_says_and_marks_what_it_may_not_show() -> None:
    before = {"LICENCE": "one", "LEVEL": "1", "A": "x", "SIGNING_KEY": "k"}
    after = {"LICENCE": "two", "LEVEL": "2", "A": "x", "SIGNING_KEY": "k", "MODE": "fast"}
    assert keepable_pair("env", before, after, {"LEVEL": "2", "MODE": "fast"}) == (
        {"LICENCE": "***", "LEVEL": "1", "A": "***", "SIGNING_KEY": "***"},
        {"LICENCE": "*** (changed)", "LEVEL": "2", "A": "***", "SIGNING_KEY": "***", "MODE": "fast"},
    )
    assert keepable_pair("env", {"A_KEY": "x", "B_KEY": "x"}, {"A_KEY": "x", "B_KEY": "y"})[1] == {"A_KEY": "***", "B_KEY": "*** (changed)"}
    line = "vllm serve /m --api-key {} --port {}"
    assert keepable_pair("run_command", line.format("a", 1), line.format("b", 2)) == (
        line.format("***", 1),
        line.format("*** (changed)", 2),
    )
    swapped = keepable_pair("backend_parameters", ["--api-key", "a", "--api-key", "b"], ["--api-key", "b", "--api-key", "a"])
    assert swapped[1] == ["--api-key", "*** (changed)"] * 2


REVISION, DIGEST = "0a1b2c3d4e" * 4, "9f" * 32
READABLE: dict[str, Json] = {
    "image_name": f"registry.lan:5000/auth/key-service:1.2@sha256:{DIGEST}",
    "local_path": f"/models/models--Qwen--Qwen3-Coder-480B-A35B-Instruct-FP8/snapshots/{REVISION}",
    "huggingface_repo_id": "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
    "worker_selector": {"worker-name": "spark-01"},
    "replicas": 2,
    "backend_parameters": [
        *("--max-num-batched-tokens", "8192", "--tokenizer=/models/t", "--tokenizer-mode", "auto", f"--revision={REVISION}"),
        *("--code-revision", REVISION, "--enable-auto-tool-choice", "--ssl-keyfile", "/certs/tls.key", "--api-key", "$API_KEY"),
        *("--served-model-name=Llama-4-Maverick-17B-128E-Instruct-FP8", "--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}'),
    ],
    "run_command": f"vllm serve /models/Qwen3-Next-80B-A3B --port {{{{port}}}} --stop-token-ids 1 2 --image a/b:1@sha256:{DIGEST}",
    "env": {
        "VLLM_LOGGING_LEVEL": "INFO",
        "NCCL_SOCKET_IFNAME": "eth0",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HF_HOME": "/cache",
        "SIM_SLOTS": "16",
    },
    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
}


def test_what_steers_an_engine_stays_readable_and_may_be_planned() -> None:
    assert keepable(READABLE) == READABLE
    assert secret_places(READABLE) == set()


@pytest.mark.parametrize(
    "secret",
    [
        *("hf_AbCdEfGhIjKlMnOpQrSt", "sk-proj-abcdef0123456789", "gpustack_0123456789abcdef_00112233", "AKIAABCDEFGHIJKLMNOP"),
        *(
            "ghp_0123456789abcdefghij0123",
            "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
            "R7xKq92LmZp4TtVw8YbN3cDf",
            "0f8fad5bd9cb469fa16570867728950e",
        ),
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_by_itself_is_hidden_wherever_it_stands(secret: str) -> None:
    spec = {"description": f"made with {secret}", "backend_parameters": ["--x", secret, f"--y={secret}"], "env": {"VLLM_X": secret}}
    assert secret not in json.dumps(keepable(spec)).replace("\\n", "\n")


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, "a=" * 9000, "_" * 30000, "+" * 30000, "'" * 30001, '{"a":' * 900 + "1" + "}" * 900, "x" * 100_000, "--key " * 5000],
)
@pytest.mark.timeout(10)
def test_no_text_costs_much_or_breaks_it(text: str) -> None:
    keepable({"run_command": text, "backend_parameters": [text], "env": {"VLLM_X": text}})


def test_the_digest_notices_a_hidden_change_and_no_guess_can_be_tried_on_it() -> None:
    assert spec_digest({"env": {"DB_PASS": "a"}}) != spec_digest({"env": {"DB_PASS": "b"}})
    assert len({spec_digest({"env": {"DB_PASS": str(n)}}) for n in range(70_000, 70_300)}) > 250
    assert spec_digest(READABLE) == spec_digest(dict(reversed(READABLE.items())))


def test_a_server_that_repeats_what_it_refuses_is_not_repeated() -> None:
    spec = {"env": {"LICENCE": "Canary7 long"}, "run_command": "serve --api-key Canary8"}
    said = without('input "Canary7 long" of serve --api-key Canary8 was Canary8, also Canary7 lo…', spec)
    assert "Canary" not in said
    assert said.startswith('input "***" of serve')


def test_a_live_spec_cannot_be_written_down_by_mistake() -> None:
    view = DeploymentView(1, "chat", 1, 1, "running", {"env": {"DB_PASS": "Canary7"}}, ())
    assert "Canary7" not in repr(replace(view, replicas=2))
    assert view.spec == {"env": {"DB_PASS": "Canary7"}}
    with pytest.raises(TypeError):
        json.dumps({"found": view.spec})
    with pytest.raises(PydanticSerializationError):
        TypeAdapter(dict[str, Any]).dump_json({"found": view.spec})
