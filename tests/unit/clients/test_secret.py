"""A key must not leave by print, format, log, pickle, copy or serialiser."""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import traceback

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import to_json
from rich.console import Console
from rich.traceback import Traceback

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


@pytest.mark.parametrize("show", [ascii, "%s".__mod__, "%r".__mod__, lambda s: f"{s!a:.99}", lambda s: str({"k": s})])
def test_nor_in_any_older_way(show: object) -> None:
    assert callable(show)
    assert KEY not in show(Secret(KEY))


def test_pydantic_dumps_it_in_no_mode() -> None:
    class Holder(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        key: Secret

    holder = Holder(key=Secret(KEY))
    assert KEY not in str(holder.model_dump())
    for dump in (lambda: TypeAdapter(Holder).dump_json(holder), lambda: to_json(holder), lambda: json.dumps(holder.model_dump())):
        with pytest.raises((TypeError, ValueError)) as caught:
            dump()
        assert KEY not in str(caught.value)


def deep(secret: Secret) -> None:
    holder = {"key": secret, "list": [secret]}
    raise ValueError(f"{holder}")


def test_a_traceback_that_shows_variables_shows_it_nowhere() -> None:
    """rich's tracebacks print every local variable of every frame."""
    secret = Secret(KEY)
    with pytest.raises(ValueError, match=r"\*\*\*") as caught:
        deep(secret)
    error = caught.value
    out = io.StringIO()
    shown = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True, locals_max_string=None)
    Console(file=out, width=200).print(shown)
    assert "locals" in out.getvalue()
    assert KEY not in out.getvalue()
    assert KEY not in "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def test_a_key_that_cannot_be_used_is_in_no_frame_of_its_error() -> None:
    with pytest.raises(UsageError) as caught:
        Secret(" ".join([KEY, "b"]))
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    assert KEY not in str(frames[-1].locals)


def test_two_keys_are_told_apart_without_showing_them() -> None:
    assert Secret(KEY).same_as(Secret(KEY))
    assert not Secret(KEY).same_as(Secret(KEY + "0"))


def test_only_a_real_beginning_fits() -> None:
    secret = Secret(KEY)
    assert secret.begins_with("gpustack_cb45")
    assert not secret.begins_with("gpustack_cb46")
    assert not secret.begins_with("")
