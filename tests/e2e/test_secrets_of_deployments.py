"""A deployment that carries secrets in every shape is rolled out: no byte of the store and nothing that is printed holds one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.site import Site, unique
from tests.e2e.support import Case, case, opened

MARK = "canary7"
LIVE: dict[str, Any] = {
    "backend_parameters": ["--gpu-memory-utilization=0.07", "--api-key", f"{MARK}split", f"--auth-token={MARK}joined", "--max-num-seqs=8"],
    "run_command": f"vllm serve --api-key {MARK}line -H 'Authorization: Bearer {MARK}head' http://ana:{MARK}url@h/x --port 80",
    "env": {"SIGNING_KEY": f"{MARK}sign", "DB_PASS": f"{MARK}pass", "LICENCE": f"{MARK}unknown", "VLLM_LOGGING_LEVEL": "INFO"},
    "description": f'{{"password": "{MARK} json"}}',
}
CHANGE = 'change: {unit: backend_image, to: {image_name: "sim/vllm:2"}}'


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Case]:
    with opened("sandbox", tmp_path) as site, case(site, tmp_path) as made:
        _carry(made.site, made)
        yield made


def _carry(site: Site, made: Case) -> None:
    row = next(r for r in site.get("/v2/models?perPage=1000")["items"] if r["id"] == made.deployment["id"])
    site.admin.put(f"/v2/models/{row['id']}", json={**row, **LIVE}).raise_for_status()
    site.ready(row["id"])


def clean(text: str, where: str) -> None:
    assert MARK not in text, f"{where}: …{text[max(0, text.find(MARK) - 120) :][:200]}"


def look(made: Case, *lines: list[str]) -> None:
    """Everything that a person or a program may read."""
    for line in lines:
        done = made.command(*line)
        clean(done.stdout + done.stderr, " ".join(line))
    for file in [*made.home.glob("*.db*"), *made.home.glob("*.log"), *made.home.glob(".local/**/*.log")]:
        clean(file.read_bytes().decode("latin-1"), file.name)


def test_no_byte_of_the_store_and_no_output_holds_a_secret(here: Case) -> None:
    # new parameters under the old ones' key: a diff with both
    text = here.plan.read_text("utf-8").replace(CHANGE, "change: {unit: parameters, to: {backend_parameters: [--max-num-seqs=16]}}")
    here.plan.write_text(text, "utf-8")
    forecast = json.loads(here.command("plan", str(here.plan), "--json").stdout)
    assert forecast["refusals"] == []
    changes = {c["field"]: c for c in forecast["pairs"][0]["changes"]}
    assert changes["backend_parameters"]["stable"] == ["--api-key", "***", "--auth-token=***", "--max-num-seqs=8"]
    started = here.command("run", str(here.plan), "--until", "canary", "--patience", "0s")
    assert started.returncode == 0, started.stderr
    clean(started.stdout + started.stderr, "run")
    of = here.id
    look(
        here,
        *(["plan", str(here.plan), *more] for more in ([], ["--json"])),
        *([verb, of, *more] for verb in ("status", "journal") for more in ([], ["--json"])),
        ["list", "--json"],
    )
    clean(json.dumps(here.site.route(here.row["id"])), "the marker on the route")
    found = here.state()["facts"]["found"][here.stable]
    assert found["env"] == {"SIGNING_KEY": "***", "DB_PASS": "***", "LICENCE": "***", "VLLM_LOGGING_LEVEL": "INFO"}
    made = next(r for r in here.site.get("/v2/models?perPage=1000")["items"] if r["name"].startswith("old") and r["name"] != here.stable)
    assert (made["env"], made["run_command"]) == (LIVE["env"], LIVE["run_command"]), "the canary took over what nobody wrote down"
    assert here.command("rollback", of, "--reason", "seen enough").returncode == 0
    look(here, ["status", of, "--json"], ["journal", of, "--json"])
    assert here.shape()["made"] == []


def test_a_secret_in_a_plan_is_refused_with_what_to_do_instead(here: Case) -> None:
    to = json.dumps({k: v for k, v in LIVE.items() if k != "description"})
    text = here.plan.read_text("utf-8").replace(CHANGE, f"change: {{unit: parameters, to: {to}}}")
    for verb in ("validate", "plan", "run"):
        plan = here.home / f"{unique('bad')}.yaml"
        plan.write_text(text, "utf-8")
        done = here.command(verb, str(plan))
        assert done.returncode == 3, done
        assert done.stderr.count("a secret (not shown)") == 5
        assert "set it on stable's deployment" in done.stderr
        clean(done.stdout + done.stderr, verb)
    look(here)
