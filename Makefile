# make setup    a virtual environment in .venv and the servers in $MILLRACE_HOME (default: the user's cache folder)
# make check    ruff, mypy --strict, import-linter, plain English, all parts
# make test     setup, then the proof: a line per file, failures at once and again at the end
#               LANES=N runs N lanes instead of 4
#               MYSQLD=PATH runs the MySQL half against a server of yours
# make quick    the tests without servers, for each commit: unit, property, contracts
# make chaos    what takes longer: fault campaigns, all outages, MySQL everywhere, all examples of property tests
# make clients  clients of other projects read published topics, with a table; ONLY=rust runs these alone,
#               WITHOUT="cargo go" accepts that this machine does not have these programs
# make mutants  guards taken away one by one: the test of each must go red
# make soak     kills by seed: MINUTES=30, SEED=N replays one; its history is kept in $MILLRACE_HOME/soak
# make site     the documentation as a site, in build/site; llms.txt lists its pages
# make bundle   wheels, jars and hashes that install on a host without network, in build/
# make demo     prepares what it uses, then the main job: real servers, a workload, rows arriving, a comparison
# make bench    figures beside peers, as JSON lines
# make bench-capture  the same for capture alone; ONLY, SCALE and ROUNDS as below
# make bench-load  the same for the copy of a table; FLAVOUR=mariadb measures MariaDB
# make bench-apply  the same for apply: ONLY="apply.hot apply.text" prints these lines alone, SCALE=0.1 is a quick look
# make bench-publish  the same for publish tasks; ONLY, SCALE and ROUNDS as above
# make bench-start  from Enter to the first row, the size of the wheels, the demo; FLAVOUR, ONLY and ROUNDS as above
# make bench-compare  the same for comparisons of 10M rows; FLAVOUR, ONLY, SCALE and ROUNDS as above
# a stack whose test failed is kept in $MILLRACE_HOME/failed, the last three

SHELL := /bin/bash
BIN := .venv/bin
STAMP := $(shell cat pyproject.toml constraints.txt deploy/local/setup | sha256sum | cut -c 1-16)
# each process of a stack or a test would compile all modules again
unexport PYTHONDONTWRITEBYTECODE
ifdef MYSQLD
export MILLRACE_MYSQLD := $(abspath $(MYSQLD))
endif

QUICK := tests/unit tests/property tests/contracts
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q -f deploy/site/mkdocs.yml
TESTS := $(QUICK) tests/integration tests/fault tests/stack

.PHONY: setup check quick test chaos clients mutants soak site bundle demo bench bench-capture bench-apply bench-load bench-compare bench-publish bench-start clean

setup:
	@bash deploy/local/setup $(STAMP) dev

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.kit.english
	$(BIN)/python -m millrace.process.installation
	$(SITE)

test: setup
	@$(BIN)/python -m tests.kit.run $(addprefix --lanes ,$(LANES)) $(TESTS)

quick: setup
	@$(BIN)/python -m tests.kit.run $(QUICK)

chaos: setup
	@$(BIN)/python -m tests.kit.run tests -- --chaos -m chaos

clients: setup
	MILLRACE_CLIENTS_WITHOUT="$(or $(WITHOUT),$(MILLRACE_CLIENTS_WITHOUT))" $(BIN)/python -m pytest tests/chaos/test_clients.py --chaos -q $(if $(ONLY),-k "$(ONLY)")

mutants: setup
	$(BIN)/python -m pytest -p tests.mutants.plugin
	$(BIN)/python -m pytest tests/mutants

soak: setup
	$(BIN)/python -m pytest tests/chaos/test_soak.py -s --chaos --soak-minutes=$(or $(MINUTES),30) $(if $(SEED),--soak-seed=$(SEED))

site: setup
	$(SITE)
	@echo build/site/index.html

bundle: setup
	@$(BIN)/python -m millrace.deploy.package.bundle

demo: # needs less than setup
	@bash deploy/local/setup $(STAMP) local
	@$(BIN)/millrace demo

bench: # standard output is for the figures alone
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench

bench-apply:
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench --apply $(addprefix --only ,$(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-compare:
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench --compare $(addprefix --flavour ,$(FLAVOUR)) $(addprefix --only ,$(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-capture:
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench --capture $(addprefix --only ,$(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-load:
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench --load $(addprefix --flavour ,$(FLAVOUR)) $(addprefix --only ,$(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-publish:
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench --publish $(addprefix --only ,$(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-start:
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/millrace bench --start $(addprefix --flavour ,$(FLAVOUR)) $(addprefix --only ,$(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS))

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
