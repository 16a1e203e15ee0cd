"""A secret in a plan is refused, and no message, error or traceback repeats it."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.errors import PlanError
from rollout.plan.hidden import is_secret, redact
from rollout.plan.load import parse_plan
from tests.unit.plan.kit import GOOD, but, only, plus, refusal, refused

KEY = "gpustack_0123456789abcdef_00112233445566778899aabbccddeeff"
OTHERS = [
    "sk-proj-abcdef0123456789abcdef",
    "hf_AbCdEfGhIjKlMnOpQrStUvWx",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "AKIAABCDEFGHIJKLMNOP",
]
ENV = "{env: ROLLOUT_MANAGEMENT_KEY}"


def said(text: str) -> str:
    """Everything that an error about `text` could show anybody."""
    error = refusal(text)
    shown = [error.message, error.why, error.hint, repr(error), *(repr(f) + str(f) for f in error.findings)]
    return "\n".join([*shown, *traceback.format_exception(error)])


@pytest.mark.parametrize("secret", [KEY, *OTHERS, "hunter2", "s3cr3t pass", "'12345678'", "12345678", "a:b"])
def test_a_secret_where_a_reference_is_expected_is_not_repeated(secret: str) -> None:
    text = but(ENV, secret)
    assert only(text).key == "gpustack.management_key"
    assert "`{env: NAME}` or `{file: PATH}`" in only(text).expected
    assert secret.strip("'") not in said(text)


@pytest.mark.parametrize("secret", [KEY, "hunter2!", "s3cr3t-pass"])
def test_a_secret_inside_the_reference_is_not_repeated(secret: str) -> None:
    for wrong in (
        f"{{env: {secret}}}",
        f"{{{secret}: x}}",
        f"{{value: {secret}}}",
        f"[{secret}]",
        f"{{env: [{secret}]}}",
        f"{{env: {{{secret}: 1}}}}",
    ):
        assert secret not in said(but(ENV, wrong))


@pytest.mark.parametrize("secret", [KEY, *OTHERS])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{name: chat-new-image}", "{name: x, labels: {note: SECRET}}"),
        ("{name: chat-new-image}", "{name: x, labels: {SECRET: note}}"),
        ("{name: chat}", "{name: SECRET}"),
        ("{name: chat}", "{nam: SECRET}"),
        ("route: {name: chat}", "SECRET: {name: chat}"),
        ('{image_name: "sim/vllm:2"}', "{SECRET: 1}"),
        ("server: http://127.0.0.1:30080", "server: SECRET"),
        ("server: http://127.0.0.1:30080", "server: http://SECRET@127.0.0.1"),
        ("backend_image", "SECRET"),
        ("chat-spark-01", "SECRET: broken: yaml"),
        ("chat-spark-01", "!SECRET x"),
        ("chat-spark-01", '"SECRET'),
    ],
)
def test_a_known_kind_of_key_is_refused_and_hidden_everywhere(secret: str, old: str, new: str) -> None:
    assert secret not in said(but(old, new.replace("SECRET", secret)))


@pytest.mark.parametrize(
    ("to", "key"),
    [
        ("{env: {HF_TOKEN: hunter22}}", "change.to.env.HF_TOKEN"),
        ("{env: {OPENAI_API_KEY: hunter22}}", "change.to.env.OPENAI_API_KEY"),
        ("{env: {DB_PASSWORD: hunter22}}", "change.to.env.DB_PASSWORD"),
        ('{backend_parameters: ["--api-key=hunter22"]}', "change.to.backend_parameters[0]"),
        ('{backend_parameters: ["--api-key", hunter22]}', "change.to.backend_parameters[1]"),
        ('{run_command: "vllm serve /models/m --api-key hunter22 --port 80"}', "change.to.run_command"),
        ("{run_command: \"curl -H 'Authorization: Bearer hunter22' http://h/\"}", "change.to.run_command"),
        ("{env: {SIGNING_KEY: hunter22}}", "change.to.env.SIGNING_KEY"),
        ("{env: {DB_PASS: hunter22}}", "change.to.env.DB_PASS"),
        ("{env: {DB: 'postgres://ana:hunter22@db/x'}}", "change.to.env.DB"),
        ("{env: {EXTRA: 'R7xKq92LmZp4TtVw8YbN3cDf-hunter22'}}", "change.to.env.EXTRA"),
        ('{env: {CONFIG: \'{"auth": {"user": "hunter22"}}\'}}', "change.to.env.CONFIG"),
        ("{speculative_config: {api_key: hunter22}}", "change.to.speculative_config.api_key"),
    ],
)
def test_secrets_of_the_engine_stay_on_the_deployment(to: str, key: str) -> None:
    text = but("backend_image", "parameters").replace('{image_name: "sim/vllm:2"}', to)
    assert (only(text).key, only(text).found) == (key, "a secret (not shown)")
    assert "the canary takes it over" in only(text).hint
    assert "hunter22" not in said(text)


@pytest.mark.parametrize(
    "to", ["{env: {TOKENIZERS_PARALLELISM: 'true'}}", '{backend_parameters: ["--max-num-batched-tokens=8192", "--tokenizer=x"]}']
)
def test_words_that_only_sound_like_secrets_are_accepted(to: str) -> None:
    parse_plan(but("backend_image", "parameters").replace('{image_name: "sim/vllm:2"}', to))


@pytest.mark.parametrize("server", ["http://admin:pw@host", "https://token@host:1/x"])
def test_credentials_in_a_url_are_refused(server: str) -> None:
    found = only(but("server: http://127.0.0.1:30080", f"server: {server}"))
    assert (found.expected, found.found) == ("a URL without credentials", "a user or password in it")
    assert "pw" not in said(but("server: http://127.0.0.1:30080", f"server: {server}")).replace("password", "")


def test_both_sources_or_none_are_refused() -> None:
    assert only(but(ENV, "{env: A, file: b}")).found == "both"
    assert only(but(ENV, "{}")).found == "neither"


def test_every_inline_secret_is_found_at_once() -> None:
    text = but(ENV, KEY).replace("{env: ROLLOUT_INFERENCE_KEY}", KEY.replace("0", "1"))
    assert [f.key for f in refused(text)] == ["gpustack.management_key", "gpustack.inference_key"]


def test_redacting_keeps_the_rest() -> None:
    assert redact(f"a {KEY} b http://u:p@h/x") == "a *** b http://***@h/x"
    assert not is_secret(("metadata", "name"), "gpustack_team")


LINES = GOOD.splitlines()


@settings(deadline=None)
@given(
    st.integers(0, len(LINES) - 1),
    st.integers(0, 60),
    st.sampled_from(["", " ", ": ", "'", '"', "[", "{", "- ", "\n", "!", "&", "*", "? "]),
    st.booleans(),
)
def test_wherever_a_key_is_pasted_it_is_never_repeated(line: int, column: int, lead: str, cut: bool) -> None:
    old = LINES[line]
    new = old[:column] + lead + KEY + ("" if cut else old[column:])
    try:
        parse_plan("\n".join([*LINES[:line], new, *LINES[line + 1 :]]), "plan.yaml")
    except PlanError as error:
        shown = [error.message, error.why, error.hint, *map(str, error.findings), *traceback.format_exception(error)]
        assert "00112233445566778899aabbccddeeff" not in "\n".join(shown)
    else:
        raise AssertionError("a plan with a key in it was accepted")


def test_a_plan_with_more_lines_is_still_good() -> None:
    parse_plan(plus("ladder: auto"))
