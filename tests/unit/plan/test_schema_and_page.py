"""The JSON Schema and the reference page are made from the model and leave nothing out."""

from __future__ import annotations

import re

from rollout.plan.fields import OWN, Unit
from rollout.plan.render import page
from rollout.plan.schema import schema, schema_text
from rollout.plan.shape import homes, keys, kind, slot_at, walk
from rollout.plan.units import DURATION_PATTERN, format_duration


def test_every_key_of_a_plan_says_what_it_is_for() -> None:
    silent = [f"{part.__name__}.{key}" for _, part in walk() for key, info in keys(part).items() if not info.description]
    assert silent == []
    assert all(part.__doc__ for _, part in walk())


def test_the_schema_names_its_dialect_and_no_host() -> None:
    made = schema()
    assert made["$schema"].endswith("2020-12/schema")
    assert made["$id"] == "urn:rollout:plan:v1"
    assert "http" not in schema_text().replace(made["$schema"], "").replace("^https?://", "")


def test_the_schema_knows_every_key_and_no_other() -> None:
    made = schema()
    for _, part in walk():
        told = made if part.__name__ == "Plan" else made["$defs"][part.__name__]
        assert list(told["properties"]) == list(keys(part))
        assert told["additionalProperties"] is False
        assert all(p.get("description") for p in told["properties"].values())


def test_the_schema_gives_each_unit_its_fields() -> None:
    rules = schema()["$defs"]["ChangeUnit"]["allOf"]
    told = {r["if"]["properties"]["unit"]["const"]: list(r["then"]["properties"]["to"]["properties"]) for r in rules}
    assert told == {unit.value: list(OWN[unit]) for unit in Unit}


def test_defaults_in_the_schema_are_written_as_people_write_them() -> None:
    evidence = schema()["$defs"]["Evidence"]["properties"]
    assert (evidence["window"]["default"], evidence["min_time"]["default"]) == ("30s", "10m")
    assert schema()["$defs"]["Guards"]["properties"]["memory_floor"]["default"] == "8GiB"
    assert "default" not in schema()["properties"]["evidence"]


def test_durations_as_we_write_them_fit_the_pattern() -> None:
    for seconds in (0.5, 1, 90, 5400, 86400, 90061):
        assert re.search(DURATION_PATTERN, format_duration(seconds))
    assert not re.search(DURATION_PATTERN, "10min")


def test_the_page_has_every_key_and_its_meaning() -> None:
    text = page()
    for _, part in walk():
        for key, info in keys(part).items():
            assert f"| `{key}` |" in text
            assert (info.description or "") in text
    assert all(f"| `{unit}` |" in text for unit in Unit)


def test_the_model_is_walked_to_its_leaves() -> None:
    places = {"/".join(str(p) for p in path) for path, _ in walk()}
    assert {"", "stable/0/canary/sizing", "evidence/probes", "gpustack/inference_key"} <= places
    assert homes()["approve_before"] == (("gates",),)
    assert kind(slot_at(("stable",)) or slot_at(())) == "a list of mappings"  # type: ignore[arg-type]
    assert slot_at(("nothing", "there")) is None
    assert slot_at(("change", "to", "env", "A")) is None
