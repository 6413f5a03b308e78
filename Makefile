# `make` alone lists the targets. Everything is set up on first use, in .venv, from hashed lock files.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
.DEFAULT_GOAL := help
.PHONY: help setup demo up test soak check lint bench fmt lock proto clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "AgentFlow needs Python 3.11 or newer; say which: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY) ## create .venv from the lock; the other targets do it by themselves

demo: $(READY) ## run three support tickets through the whole embedded platform, then stop it
	@$(BIN)/af demo support

up: $(READY) ## start the embedded platform and keep it running (Ctrl-C stops it)
	@$(BIN)/af dev

test: $(READY) ## run every test, against real servers
	@$(BIN)/python -m pytest -n auto --dist worksteal -q

soak: $(READY) ## simulate days on which everything breaks, for SECONDS=600 or DAYS=n; SEED=n lives one again
	@$(BIN)/python -m tests.simulation.soak $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(DAYS),--days $(DAYS)) $(if $(FIRST),--first $(FIRST)) $(if $(WAYS),--ways $(WAYS))

check: $(READY) ## lint, formatting, types, import contracts, lock and generated code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python requirements/lock.py --check
	@$(BIN)/buf lint proto
	@$(BIN)/python proto/generate.py --check

bench: $(READY) ## measure and print tables; SUBJECTS="platform peers" chooses; saves bench/results/latest.json
	@$(BIN)/python -m bench $(SUBJECTS)

fmt: $(READY) ## format, and fix what can be fixed by machine
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(READY) ## resolve requirements/*.txt anew from pyproject.toml
	@$(BIN)/python requirements/lock.py

proto: $(READY) ## generate agentflow/v1 from proto/
	@$(BIN)/python proto/generate.py

clean: ## remove .venv, local state and caches
	@rm -rf $(VENV) .agentflow .mypy_cache .ruff_cache .import_linter_cache .hypothesis .pytest_cache bench/results
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
