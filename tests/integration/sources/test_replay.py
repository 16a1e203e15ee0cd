"""Replayed prompts against simulated engines: what is wrong, failed or cut shows on its side, and no prompt or answer comes back."""

import asyncio
import json

import pytest
from wire_server import Front

from rollout.clients.sse import TimedClient
from rollout.clock import SystemClock
from rollout.errors import UsageError
from rollout.plan.model import Prompt
from rollout.sources import replay
from rollout.sources.chat import Chat
from rollout.testing.answers import prompt_set
from rollout.testing.engine import SimEngine
from rollout.testing.knobs import Knobs

TOKENS = 6
SET = [Prompt.model_validate(json.loads(line)) for line in prompt_set(100, TOKENS).splitlines()]


def asked(n, **changes):
    return [{"id": p.id, "messages": p.conversation, "expected": p.expected, **changes} for p in SET[:n]]


def engine(model, **knobs):
    return SimEngine(f"{model}-1", model, Knobs(**{"ttft_base": 0.0, "tpot": 0.0, **knobs}))


def replayed(n=4, seq=0, prompts=None, routes=("stable-probe", "canary-probe"), stable=None, **canary):
    """The result, and the front with what it was sent."""
    front = Front()
    made = {"stable-probe": engine("m-a", **(stable or {})), "canary-probe": engine("m-b", **canary)}
    for name in routes:
        front.route(name, (made[name], 1))
    args = {"stable": "stable-probe", "canary": "canary-probe", "max_tokens": TOKENS, "seq": seq, "prompts": prompts or asked(n)}

    async def go():
        async with front, TimedClient(SystemClock()) as client:
            return await replay.Replayer(Chat(client, front.url, None), SystemClock()).perform("replay_pairs", args)

    return asyncio.run(go()), front


def test_two_healthy_sides_answer_as_the_set_expects():
    result, front = replayed(12)
    assert result["pairs"] == [[1.0, 1.0, True, True]] * 12
    assert (result["lost"], result["errors"], result["invalid"]) == ([], [], None)
    assert all(body["temperature"] == 0 and body["max_tokens"] == TOKENS for body in front.bodies)


def test_wrong_answers_are_lost_and_told_by_id_and_a_short_hash_alone():
    result, _ = replayed(3, wrong_answers=True)
    assert result["pairs"] == [[1.0, 0.0, True, True]] * 3
    assert [(row["id"], row["stable"], row["canary"]) for row in result["lost"]] == [(f"q{n}", 1.0, 0.0) for n in (1, 2, 3)]
    assert all(len(digest) == replay.HASH for row in result["lost"] for digest in row["said"])
    told = json.dumps(result)
    assert not any(p.prompt in told or p.expected in told for p in SET[:3])


def test_a_share_of_wrong_answers_is_a_share_of_lost_prompts():
    result, _ = replayed(100, wrong_rate=0.25)
    lost = [stable > canary for stable, canary, *_ in result["pairs"]]
    assert 15 <= sum(lost) <= 35
    assert len(result["lost"]) == replay.TOLD
    again, _ = replayed(100, wrong_rate=0.25)
    assert [stable > canary for stable, canary, *_ in again["pairs"]] == lost


@pytest.mark.parametrize("fault", [{"fail_rate": 1.0}, {"truncate_rate": 1.0}, {"abort_rate": 1.0}])
def test_a_side_without_a_whole_answer_has_no_score_and_counts_as_its_error(fault):
    result, _ = replayed(3, **fault)
    assert result["pairs"] == [[1.0, None, True, False]] * 3
    assert len(result["lost"]) == len(result["errors"]) == 3
    assert result["invalid"] is None


def test_a_batch_that_nobody_answers_says_nothing_about_the_sides():
    result, _ = replayed(3, routes=())
    assert result["pairs"] == [[None, None, False, False]] * 3
    assert result["invalid"] == "neither side answered one of 3 prompts (http_error 404)"


def test_both_sides_get_the_same_prompt_and_who_is_first_alternates_over_batches():
    _, front = replayed(3, seq=1)
    sent = [(b["model"].split("-")[0], b["messages"][0]["content"]) for b in front.bodies]
    assert [prompt for _, prompt in sent] == [p.prompt for p in SET[:3] for _ in range(2)]
    assert [sent[i][0] for i in (0, 2, 4)] == ["canary", "stable", "canary"]


def test_blanks_at_both_ends_do_not_matter_and_anything_else_does():
    padded, other = asked(1, expected=f"\n  {SET[0].expected}\t"), asked(1, expected=SET[0].expected.upper())
    result, _ = replayed(prompts=[*padded, *other])
    assert [row[0] for row in result["pairs"]] == [1.0, 0.0]


def test_a_batch_ends_early_so_that_guards_are_looked_at_again(monkeypatch):
    monkeypatch.setattr(replay, "LASTS", 0.0)
    result, _ = replayed(4)
    assert len(result["pairs"]) == 1


def test_a_conversation_is_sent_as_it_stands():
    talk = Prompt.model_validate(
        {"id": "t", "messages": [{"role": "system", "content": "Short."}, {"role": "user", "content": "Hi"}], "expected": "x"}
    )
    _, front = replayed(prompts=[{"id": "t", "messages": talk.conversation, "expected": "x"}])
    assert front.bodies[0]["messages"] == [{"role": "system", "content": "Short."}, {"role": "user", "content": "Hi"}]


def test_another_verb_is_refused():
    with pytest.raises(UsageError):
        asyncio.run(replay.Replayer(None, SystemClock()).perform("probe", {}))
