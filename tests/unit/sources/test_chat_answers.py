"""Streams as bytes: when the first token came, who served, and what counts as success."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.clients.sse import Exchange, Failure
from rollout.sources.answers import events, read

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def event(payload) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def delta(at: float, finish=None, model="m-b", usage=None, **part):
    body = {"model": model, "choices": [{"index": 0, "delta": part, "finish_reason": finish}]}
    return at, event({**body, "usage": usage} if usage else body)


ROLE = delta(10.1, role="assistant", content="")
FIRST = delta(10.5, content="Hel")
LAST = delta(10.8, content="lo")
STOP = delta(10.9, finish="stop", usage=USAGE)
DONE = (10.9, b"data: [DONE]\n\n")


def exchange(*pieces, status=200, failure=None, detail="", **more):
    return Exchange(10.0, sent=10.01, ended=11.0, status=status, pieces=list(pieces), failure=failure, detail=detail, **more)


def test_ttft_counts_from_the_scheduled_send_to_the_first_content_and_not_to_the_role():
    answer = read(exchange(ROLE, FIRST, LAST, STOP, DONE))
    assert (answer.outcome, answer.model, answer.tokens) == ("ok", "m-b", 4)
    assert answer.ttft == pytest.approx(0.5)
    assert answer.tpot == pytest.approx(0.3 / 3)
    assert answer.delay == pytest.approx(0.01)
    assert answer.e2e == pytest.approx(1.0)


@pytest.mark.parametrize(
    "part",
    [
        {"content": "x"},
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ],
)
def test_content_reasoning_and_tool_arguments_are_a_first_token(part):
    assert read(exchange(delta(10.25, **part), STOP)).ttft == pytest.approx(0.25)


@pytest.mark.parametrize(
    "part", [{"content": ""}, {"content": None}, {"role": "assistant"}, {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}]
)
def test_empty_parts_are_not(part):
    assert read(exchange(delta(10.25, **part), FIRST, STOP)).ttft == pytest.approx(0.5)


def test_a_missing_done_is_no_failure_when_reason_and_usage_are_there():
    assert read(exchange(FIRST, STOP, failure=Failure.CUT, detail="connection lost")).ok


def test_usage_may_come_alone_without_choices():
    usage = (10.9, event({"model": "m-b", "choices": [], "usage": USAGE}))
    assert read(exchange(FIRST, delta(10.8, finish="length"), usage, DONE)).ok


@pytest.mark.parametrize(
    ("pieces", "more", "outcome"),
    [
        ([FIRST, delta(10.9, finish="abort", usage=USAGE), DONE], {}, "aborted"),
        ([FIRST, delta(10.9, finish="novel", usage=USAGE), DONE], {}, "aborted"),
        ([FIRST, LAST], {"failure": Failure.CUT, "detail": "connection lost"}, "truncated"),
        ([FIRST, LAST, DONE], {}, "truncated"),
        ([FIRST, delta(10.9, finish="stop"), DONE], {}, "truncated"),
        ([FIRST, (10.9, event({"error": {"message": "Service unavailable", "code": 503}}))], {}, "stream_error"),
        ([FIRST], {"failure": Failure.TIMEOUT, "detail": "no complete answer within 2 s"}, "timeout"),
        ([], {"failure": Failure.CONNECT, "detail": "Connection refused", "status": None}, "connect_error"),
        ([], {"failure": Failure.CUT, "detail": "closed", "status": None}, "truncated"),
        ([(10.1, b'{"error":{"message":"No running instances","code":503}}')], {"status": 503}, "http_error"),
        ([(10.1, b"<html>")], {}, "truncated"),
        ([], {}, "truncated"),
    ],
    ids=["abort", "unknown", "cut", "no-reason", "no-usage", "in-stream", "timeout", "refused", "no-answer", "503", "html", "empty"],
)
def test_everything_else_is_not_ok(pieces, more, outcome):
    answer = read(exchange(*pieces, **more))
    assert answer.outcome == outcome
    assert not answer.ok
    assert answer.text.startswith(outcome)


def test_who_served_is_known_from_an_answer_that_broke_off():
    assert read(exchange(FIRST, failure=Failure.CUT)).model == "m-b"


def test_the_server_message_is_kept_short():
    body = json.dumps({"error": {"message": "No running instances available " + "x" * 5000}}).encode()
    detail = read(exchange((10.1, body), status=503)).detail
    assert detail.startswith("503 No running instances available")
    assert len(detail) < 300


def test_a_server_that_does_not_stream_is_read_as_one_event():
    body = {"model": "m-a", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": USAGE}
    answer = read(exchange((10.7, json.dumps(body).encode()), headers={"content-type": "application/json"}))
    assert (answer.ok, answer.model, answer.ttft) == (True, "m-a", pytest.approx(0.7))


def test_tokens_that_came_all_at_once_have_no_time_per_token():
    both = (10.5, delta(10.5, content="Hel")[1] + delta(10.5, content="lo")[1])
    assert read(exchange(both, STOP)).tpot is None


STREAM = b': keep-alive\n\ndata: {"a":1}\n\nevent: x\r\ndata: two\r\ndata: lines\r\n\r\ndata:[DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_however_the_bytes_are_cut(cuts):
    edges = sorted({0, *cuts, len(STREAM)})
    pieces = [(float(i), STREAM[a:b]) for i, (a, b) in enumerate(pairwise(edges))]
    assert [data for _, data in events(pieces)] == [b'{"a":1}', b"two\nlines", b"[DONE]"]


def test_an_event_has_the_time_at_which_its_end_arrived():
    assert list(events([(1.0, b"data: x"), (2.0, b"\n"), (3.0, b"\n"), (4.0, b"data: y")])) == [(3.0, b"x"), (4.0, b"y")]


@given(
    st.lists(
        st.tuples(
            st.floats(10, 20),
            st.binary(max_size=60)
            | st.builds(
                lambda v: event(v),
                st.recursive(
                    st.none() | st.booleans() | st.text(max_size=5) | st.integers(),
                    lambda c: (
                        st.lists(c, max_size=3)
                        | st.dictionaries(
                            st.sampled_from(
                                [
                                    "choices",
                                    "delta",
                                    "usage",
                                    "model",
                                    "error",
                                    "content",
                                    "completion_tokens",
                                    "finish_reason",
                                    "tool_calls",
                                    "function",
                                ]
                            ),
                            c,
                            max_size=4,
                        )
                    ),
                    max_leaves=8,
                ),
            ),
        ),
        max_size=5,
    )
)
def test_no_server_can_make_the_reader_fail(pieces):
    assert read(exchange(*pieces)).outcome


def test_the_text_of_the_first_choice_is_collected_without_its_reasoning():
    second = (10.6, event({"model": "m-b", "choices": [{"index": 1, "delta": {"content": "other"}}]}))
    answer = read(exchange(ROLE, delta(10.3, reasoning_content="hm"), FIRST, second, LAST, STOP, DONE))
    assert answer.content == "Hello"
    assert "Hello" not in repr(answer)
    whole = {"model": "m-b", "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}], "usage": USAGE}
    assert read(exchange((10.9, json.dumps(whole).encode()), headers={"content-type": "application/json"})).content == "Hi"
