# make run    a demonstration, from a fresh checkout        make test   the tests                 make bench   how fast
# make test-rest   what make test leaves out (tests/README.md)   make test-all   both, and on Debian 12 and 13
# make prove  faults of every kind, some minutes of them (PROVE_ARGS='--size 1': hours); goes on where it stopped
# make docs   the site, in build/site                       make packages   a .deb and an .rpm, in dist
# Needs Python 3.11 or newer; everything else goes into .venv, anew whenever pyproject.toml changes.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
BIN := .venv/bin
PYTEST_WORKERS ?= 6
# What `make test-rest` takes: all of it, or a tenth, by a number (of commits, in CI).
REST ?= only
PYTEST_ARGS ?=
# `--branches`: fail where tests leave a branch of the promises untaken (tests/prove/rooms.py).
BRANCHES ?=
BENCH_ARGS ?=
PROVE_ARGS ?= --size 0.01

.PHONY: run test test-rest test-all check bench prove docs packages clean

run: .venv/installed
	$(BIN)/shipper demo

test: check
	$(BIN)/pytest --numprocesses=$(PYTEST_WORKERS) --rest=without $(BRANCHES) $(PYTEST_ARGS)

test-rest: .venv/tested
	$(BIN)/pytest --numprocesses=$(PYTEST_WORKERS) --rest=$(REST) $(PYTEST_ARGS)

test-all: BRANCHES = --branches
test-all: test test-rest
	$(BIN)/pytest --numprocesses=$(PYTEST_WORKERS) -m hypothesis --hypothesis-profile=full
	$(BIN)/python -m tests.fresh bookworm trixie

check: .venv/tested
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/tested
	$(BIN)/python -m tests.benchmarks.throughput $(BENCH_ARGS)

prove: .venv/tested
	$(BIN)/python -m tests.prove $(PROVE_ARGS)

docs: .venv/tested
	$(BIN)/python -m tests.docs.site

packages: .venv/tested
	$(BIN)/python packaging/linux/builder packages dist

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# An interpreter that was moved or removed leaves a .venv that cannot run: it is made anew.
.venv/pip: pyproject.toml
	@test -n "$(PYTHON)" || { echo "shipper needs Python 3.11 or newer, with venv (on Debian: apt install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

.venv/installed: .venv/pip
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/tested: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[kafka,otlp]' --group test
	@touch $@
