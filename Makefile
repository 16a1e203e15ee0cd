# The two commands of the README are `make demo` and `make test`. Everything else is a part of them, or runs by hand.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_QUIET := --quiet --disable-pip-version-check --no-input
BAD ?= ttft
SABOTAGE ?=
OTHER_LABS := tests/contract tests/e2e/lab
LAB ?=

.PHONY: help demo test lint unit sandbox lab-tests accept lab docs format lock clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): requirements.lock pyproject.toml
	@echo "== install: virtual environment in $(VENV) from requirements.lock"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_QUIET) --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install $(PIP_QUIET) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## a healthy rollout and a bad canary on the embedded sandbox, under live traffic (BAD=none, SABOTAGE=kill-stable)
	@$(BIN)/rollout demo --bad $(BAD) $(if $(SABOTAGE),--sabotage $(SABOTAGE))

lint: $(STAMP) ## ruff, mypy --strict, import contracts, sizes
	@echo "== lint"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python -m lab.sizes

format: $(STAMP) ## let ruff write
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

test: lint ## everything that CI runs: lint, unit, sandbox, the real GPUStack 2.3 and a selection on 2.2.3 and behind a gateway
	@echo "== unit"
	@$(BIN)/pytest -q -n 2 -m "not slow" tests/unit
	@echo "== integration and sandbox"
	@$(BIN)/pytest -q -n 3 --dist worksteal -m "not slow" tests/integration tests/contract tests/e2e
	@echo "== the real GPUStack"
	@$(BIN)/python -m lab.run -- $(BIN)/pytest -q -m "lab and not slow" tests
	@$(BIN)/python -m lab.run --gpustack 2.2.3 -- $(BIN)/pytest -q -m "lab and modes and not slow" $(OTHER_LABS)
	@$(BIN)/python -m lab.run --gateway on -- $(BIN)/pytest -q -m "lab and modes and not slow" $(OTHER_LABS)

accept: $(STAMP) ## the acceptance runs in full on the real GPUStack, every version and mode (by hand; long)
	@$(BIN)/python -m lab.run -- $(BIN)/pytest -q -rP -m "lab and slow" tests
	@$(BIN)/python -m lab.run -- $(BIN)/pytest -q -m "lab and not slow" tests
	@$(BIN)/python -m lab.run --gpustack 2.2.3 -- $(BIN)/pytest -q -rP -m "lab" $(OTHER_LABS)
	@$(BIN)/python -m lab.run --gpustack 2.2.3 --gateway on -- $(BIN)/pytest -q -rP -m "lab" $(OTHER_LABS)
	@$(BIN)/python -m lab.run --gateway on -- $(BIN)/pytest -q -rP -m "lab" $(OTHER_LABS)
	@$(BIN)/pytest -q -n 3 --dist worksteal -m "slow and not lab" tests

lab: $(STAMP) ## the real GPUStack with simulated workers on loopback, until Ctrl-C (LAB="--gpustack 2.2.3 --gateway on")
	@$(BIN)/python -m lab.up --json .lab.json $(LAB)

docs: $(STAMP) ## write the generated references
	@$(BIN)/python -m rollout.plan.schema && $(BIN)/python -m rollout.plan.render && $(BIN)/python -m rollout.cli.docs

lock: ## resolve requirements.lock anew (needs uv)
	@uv pip compile pyproject.toml --all-extras --python-version 3.11 --generate-hashes --no-header --no-annotate -o requirements.lock --quiet

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
