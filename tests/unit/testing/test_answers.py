"""What a simulated engine says is decided by the prompt alone."""

import json

from rollout.testing.answers import embedding, is_wrong, prompt_set, prompt_text, prompt_tokens, words


def test_the_same_prompt_gets_the_same_words_and_another_one_others() -> None:
    assert words("a", 20) == words("a", 20)
    assert words("a", 20) != words("b", 20)


def test_a_short_answer_is_the_beginning_of_a_long_one() -> None:
    assert words("a", 30)[:10] == words("a", 10)


def test_wrong_answers_differ_for_every_prompt() -> None:
    assert all(words(str(n), 12) != words(str(n), 12, wrong=True) for n in range(50))
    assert embedding("a") != embedding("a", wrong=True)


def test_only_the_prompt_decides() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "model": "m", "stream": True}
    assert prompt_text(body) == prompt_text({"messages": [{"content": "hi", "role": "user"}]})
    assert prompt_text({}) == ""


def test_a_prompt_has_at_least_one_token() -> None:
    assert prompt_tokens("") == 1
    assert prompt_tokens("x" * 400) == 100


def test_a_prompt_set_expects_what_a_healthy_engine_says() -> None:
    """And no two prompts, so that a wrong answer is never another one's right answer."""
    rows = [json.loads(line) for line in prompt_set(30, 8).splitlines()]
    said = ["".join(words(prompt_text({"messages": [{"role": "user", "content": row["prompt"]}]}), 8)).strip() for row in rows]
    assert [row["expected"] for row in rows] == said
    assert len({row["id"] for row in rows}) == len(set(said)) == 30


def test_a_share_of_prompts_is_wrong_and_always_the_same_ones() -> None:
    lost = {n for n in range(1000) if is_wrong(str(n), 0.2)}
    assert 150 <= len(lost) <= 250
    assert lost <= {n for n in range(1000) if is_wrong(str(n), 0.4)}
    assert not any(is_wrong(str(n), 0.0) for n in range(100))
    assert all(is_wrong(str(n), 1.0) for n in range(100))
