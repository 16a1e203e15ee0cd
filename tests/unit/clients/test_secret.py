"""A key must not leave by print, format, log, pickle, copy or serialiser."""

from __future__ import annotations

import copy
import json
import logging
import pickle

import pytest
from pydantic import BaseModel, ConfigDict

from rollout.clients.secret import Secret
from rollout.errors import UsageError

KEY = "gpustack_cb45aaaa_0123456789abcdef"


@pytest.mark.parametrize("shown", [repr, str, "{}".format, "{!r}".format, "{:>40}".format, lambda s: f"{s}", lambda s: [s].__repr__()])
def test_no_way_of_showing_it_shows_it(shown: object) -> None:
    assert callable(shown)
    assert KEY not in shown(Secret(KEY))


def test_it_has_no_attributes_to_dump() -> None:
    secret = Secret(KEY)
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        vars(secret)


@pytest.mark.parametrize("escape", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps])
def test_it_cannot_be_serialised_or_copied(escape: object) -> None:
    assert callable(escape)
    with pytest.raises(TypeError) as caught:
        escape(Secret(KEY))
    assert KEY not in str(caught.value)


def test_a_model_that_holds_it_cannot_be_dumped_to_json() -> None:
    class Holder(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        key: Secret

    holder = Holder(key=Secret(KEY))
    assert KEY not in repr(holder)
    with pytest.raises(Exception, match="serialize") as caught:
        holder.model_dump_json()
    assert KEY not in str(caught.value)


def test_a_log_line_does_not_show_it(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("rollout.test").warning("key %s %r", Secret(KEY), Secret(KEY))
    assert KEY not in caplog.text


def test_it_takes_itself_out_of_texts() -> None:
    assert Secret(KEY).scrub(f"a {KEY} b {KEY}") == "a *** b ***"


@pytest.mark.parametrize("text", ["", " ", "two words", "line\nbreak", "tab\t", "nul\x00", "schlüssel", "\u200b"])
def test_what_no_header_can_carry_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Secret(text)
    assert not text.strip() or text not in f"{caught.value} {caught.value.why} {caught.value.hint}"


def test_only_a_real_beginning_fits() -> None:
    secret = Secret(KEY)
    assert secret.begins_with("gpustack_cb45")
    assert not secret.begins_with("gpustack_cb46")
    assert not secret.begins_with("")
