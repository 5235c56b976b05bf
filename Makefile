# One command each. Needs Python 3.11 or newer and make; everything else comes into .venv by itself.
#
#   make demo     watch it work              make test    everything: checks, SQLite and PostgreSQL lanes
#   make serve    web, worker, admin user    make fast    unit, contract and integration tests on SQLite
#   make check    lint, types, layers        make live    real worker processes, on SQLite and PostgreSQL
#   make bench    measure beside the peers   make matrix  the lanes on a Redis 7 instead of the Valkey
#   make chaos    kill at every effect       make clean   remove what these made
#   make format   apply the formatter

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,test,commands,telemetry,fast

# The first interpreter that is new enough; `make PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$each"; break; fi; done)

ARGS ?=
WORKERS ?= 2
LIVE_WORKERS ?= 2

PYTEST := $(BIN)/python -m pytest
existing = $(wildcard $(addprefix tests/,$(1)))
FAST_TESTS := $(call existing,unit contract integration)

.PHONY: help demo serve test check lint types layers django bench fast live chaos matrix sqlite postgres format pins clean venv
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#  *\(make .*\)/\1/p' Makefile

# ---------------------------------------------------------------- the environment

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "This needs Python 3.11 or newer, and none was found on PATH."; \
		echo "Install one (Debian 12, Ubuntu 24.04 and later: apt install python3 python3-venv), or say which: make PYTHON=/path/to/python"; \
		exit 1; fi
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "$(PYTHON) is $$("$(PYTHON)" --version 2>&1); this needs Python 3.11 or newer. Say which one: make PYTHON=/path/to/python"; \
		exit 1; fi
	@if [ ! -x $(BIN)/python ] && ! "$(PYTHON)" -c 'import venv, ensurepip' >/dev/null 2>&1; then \
		echo "$(PYTHON) cannot make a virtual environment: its venv module is not installed."; \
		echo "Install it, then run make again. On Debian and Ubuntu: apt install python3-venv"; \
		echo "(for a Python that is not the system's own, the package carries its version: python3.12-venv)"; \
		exit 1; fi
	@[ -x $(BIN)/python ] || { echo "Creating $(VENV) with $$("$(PYTHON)" --version)"; "$(PYTHON)" -m venv $(VENV); }
	@echo "Installing the pinned versions into $(VENV) (a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

# The pins as installed now. It leaves out the installers themselves and this project.
pins: $(STAMP)
	@{ sed -n '/^#/p' constraints.txt; \
		$(BIN)/python -m pip freeze --exclude-editable | grep -v -i -E '^(pip|setuptools|uv|wheel)=='; } > constraints.new
	@mv constraints.new constraints.txt

# ---------------------------------------------------------------- to look at

demo: $(STAMP)
	$(BIN)/python manage.py demo $(ARGS)

serve: $(STAMP)
	$(BIN)/python manage.py serve $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m bench $(ARGS)

# ---------------------------------------------------------------- checks

check: lint types layers django

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

django: $(STAMP)
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run

format: $(STAMP)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# ---------------------------------------------------------------- tests

# Live tests start processes and measure time: files run beside each other, the tests in one file do not.
FAST_RUN = $(PYTEST) -n $(WORKERS) $(ARGS) -m "not live"
LIVE_RUN = $(PYTEST) -n $(LIVE_WORKERS) --dist loadfile $(ARGS) -m live

test: check sqlite postgres

fast: $(STAMP)
	RC_TEST_DB=sqlite $(PYTEST) -n $(WORKERS) $(ARGS) -m "not slow and not live" $(FAST_TESTS)

sqlite: $(STAMP)
	RC_TEST_DB=sqlite $(FAST_RUN) tests
	RC_TEST_DB=sqlite $(LIVE_RUN) tests

# The pure layers and the primitives know no database: they ran once, above.
postgres: $(STAMP)
	RC_TEST_DB=postgres $(LIVE_RUN) tests
	RC_TEST_DB=postgres $(FAST_RUN) $(call existing,integration demo)

live: $(STAMP)
	RC_TEST_DB=sqlite $(LIVE_RUN) tests
	RC_TEST_DB=postgres $(LIVE_RUN) tests

# A worker killed at every row, command, message and body; the better part of an hour on two cores. ARGS="--every 10" plays
# fewer of the points, ARGS="--variant fails --only 17" one of them again.
chaos: $(STAMP)
	RC_TEST_DB=sqlite $(BIN)/python -m tests.live.chaos $(ARGS)
	RC_TEST_DB=postgres $(BIN)/python -m tests.live.chaos $(ARGS)

# The lanes that talk to Redis, on private servers of a Redis 7 (REDIS_SERVER=/path/to/redis-server chooses one), or against
# a server of yours: `make matrix REDIS_URL=redis://...`. Use one with nothing in it.
matrix: $(STAMP)
	@if [ -n "$(REDIS_URL)" ]; then export REDIS_URL="$(REDIS_URL)"; echo "On $$REDIS_URL"; \
	else REDIS_SERVER="$$($(BIN)/python -m tests.support.redis_server $(REDIS_SERVER))" || exit 1; export REDIS_SERVER; \
		"$$REDIS_SERVER" --version; fi; \
	export RC_TEST_DB=sqlite; \
	$(FAST_RUN) $(call existing,contract integration) && $(LIVE_RUN) tests

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .demo *.sqlite3 *.sqlite3-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
