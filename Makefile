# make setup   a virtual environment in .venv and the servers in $MILLRACE_HOME (default: the user's cache folder)
# make check   ruff, mypy --strict, import-linter, one root
# make test    setup, check, then every test; MYSQLD=PATH runs the MySQL half against a server of yours
# make demo    setup, then the main job: real servers, a workload, rows arriving, a comparison
# make bench   figures beside peers, as JSON lines          make chaos   long fault campaigns: what `make test` leaves out
# a stack whose test failed is kept in $MILLRACE_HOME/failed, the last three
# make soak    kills by seed: MINUTES=30, SEED=N replays one; its history is kept in $MILLRACE_HOME/soak

SHELL := /bin/bash
BIN := .venv/bin
STAMP := $(shell cat pyproject.toml constraints.txt deploy/setup | sha256sum | cut -c 1-16)
ifdef MYSQLD
export MILLRACE_MYSQLD := $(abspath $(MYSQLD))
endif

INTEGRATION_1 := $(wildcard tests/integration/test_[a-o]*.py)
INTEGRATION_2 := $(filter-out $(INTEGRATION_1),$(wildcard tests/integration/test_*.py))

.PHONY: setup check test test-stack test-unit test-integration-1 test-integration-2 test-fault demo bench chaos chaos-stack chaos-single soak clean

setup: .venv/stamp-$(STAMP)
	@$(BIN)/python -m deploy.fetch
	@$(BIN)/python -m deploy.warm

.venv/stamp-$(STAMP):
	@bash deploy/setup $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m millrace.roots

test: setup check
	@echo "whole stacks, and beside them everything else: what they say comes when each is done"
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-stack test-fault test-integration-1 test-integration-2 test-unit

# the longest first; what runs beside it gives way
test-stack:
	$(BIN)/python -m pytest tests/integration tests/fault -m stack --durations=15

test-unit:
	nice $(BIN)/python -m pytest tests/unit tests/property --durations=10

test-fault:
	nice $(BIN)/python -m pytest tests/fault -m "not stack" --durations=15

test-integration-1 test-integration-2: test-integration-%:
	nice $(BIN)/python -m pytest $(INTEGRATION_$*) -m "not stack" --durations=15

demo: setup
	@$(BIN)/millrace demo

bench: # standard output is for the figures alone
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench

chaos: setup
	@$(MAKE) --no-print-directory -j2 --output-sync=line chaos-stack chaos-single

chaos-stack:
	$(BIN)/python -m pytest tests/fault tests/integration -m "chaos and stack" --chaos --durations=25

chaos-single:
	nice $(BIN)/python -m pytest tests/property --chaos
	nice $(BIN)/python -m pytest tests/fault tests/integration -m "chaos and not stack" --chaos --durations=25

soak: setup
	$(BIN)/python -m pytest tests/fault/test_soak.py -s --chaos --soak-minutes=$(or $(MINUTES),30) $(if $(SEED),--soak-seed=$(SEED))

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
