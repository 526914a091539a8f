# The commands of the house. `make demo` and `make test` are all that a newcomer needs.
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
BUS ?= embedded
TORCH ?= auto
FAILURES ?= build/failures.jsonl

.PHONY: help setup wheel demo test test-thorough coverage unit lint types imports schemas claims golden golden-accept bench failures up clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready ## make .venv with the `sanjaya` command and everything that tests need (TORCH=none: without torch)

$(VENV)/.ready: requirements.lock pyproject.toml torch_agent/pyproject.toml
	$(PYTHON) infra/install.py --venv $(VENV) --torch $(TORCH)
	touch $@

wheel: ## build dist/: the whole product, and the agent alone for training images that have the rest already
	$(PYTHON) -m pip wheel --no-deps --wheel-dir dist . ./torch_agent

demo: setup ## a whole cell on this machine: 13 real training jobs, their story, and the audit (BUS=kafka for Kafka)
	$(BIN)/sanjaya demo --bus $(BUS)

# Tests start hundreds of processes: without stored bytecode each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

test: setup lint types imports ## everything once, real Kafka and PostgreSQL included
	$(BIN)/pytest -n auto

test-thorough: setup ## what `make test` leaves out: long random searches, kills at every step
	$(BIN)/python -m tests.thorough -n auto

# Not of whole cells: the long runs of the cores would take half as long again, and processes are not seen.
CELLS := tests/chaos tests/contracts tests/e2e tests/golden tests/properties \
	tests/integration/test_cli.py tests/integration/test_job_api.py tests/integration/test_moving_between_agents.py

coverage: setup ## how much of the code the single parts reach
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(CELLS:%=--ignore=%)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

unit: setup ## the cores alone: milliseconds each
	$(BIN)/pytest -q tests/unit tests/architecture

lint: setup ## style and banned calls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy; strict in contracts, kernel and cores
	$(BIN)/mypy

imports: setup ## which package may import which
	$(BIN)/lint-imports

schemas: setup ## write schemas/ from the event definitions
	$(BIN)/python -m schemas.generate

claims: setup ## write the pages of what is kept of the papers' claims
	$(BIN)/python -m libs.studies.reproduce.documents

golden: setup ## replay the recorded logs
	$(BIN)/pytest -q tests/golden

golden-accept: setup ## record them anew
	$(BIN)/python -m tests.golden.accept

bench: setup ## all benchmarks; results under tests/bench/results
	$(BIN)/python -m tests.bench.harness_overhead
	$(BIN)/python -m tests.bench.simulator
	$(BIN)/python -m tests.bench.gateway_submissions
	$(BIN)/python -m tests.bench.solve_times
	$(BIN)/python -m tests.bench.simulated_clusters
	$(BIN)/python -m tests.bench.gavel_jct
	$(BIN)/python -m tests.bench.live_against_simulated
	$(BIN)/python -m tests.bench.starts
	$(BIN)/python -m tests.bench.classifier
	$(BIN)/python -m tests.bench.guests
	$(BIN)/python -m tests.bench.antman pairs
	$(BIN)/python -m tests.bench.antman table2
	$(BIN)/python -m tests.bench.antman trading

failures: setup ## run the corpus of failing programs (about 5 minutes) and judge what is said of them
	mkdir -p $(dir $(FAILURES))
	$(BIN)/python -m tests.corpus run --out $(FAILURES); ran=$$?; \
	$(BIN)/python -m tests.corpus judge $(FAILURES) && exit $$ran

up: setup ## keep a cell running on this machine
	$(BIN)/sanjaya up

clean: ## remove what make has made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .coverage* .hypothesis
