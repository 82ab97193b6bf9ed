# Thin on purpose: every line here can be typed by hand. CI runs exactly these targets.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-long test-examples test-contract check docs bench up
SHELL := /bin/bash
PYTHON ?= python3
STAMP := .venv/.installed
# Every process of ours runs so that a file beside a user's script can't stand in for a module of ours.
RUN := PYTHONSAFEPATH=1 .venv/bin

help:  ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

install: $(STAMP)  ## make .venv with everything the other targets need

$(STAMP): pyproject.toml constraints.txt scripts/install
	@PYTHON=$(PYTHON) scripts/install
	@touch $@

demo: $(STAMP)  ## start everything on this machine, train a small model, show what it learnt
	@$(RUN)/trainyard demo

test: $(STAMP)  ## all tests, on real Redis, SQLite and PostgreSQL; make test ARGS="-k leases"
	@scripts/install-system-packages
	@$(RUN)/python -m pytest $(ARGS)

test-long: $(STAMP)  ## the tests that take longest: whole systems, also killed ones, walks over all routes, exact resumes
	@scripts/install-system-packages
	@$(RUN)/python -m pytest -m long $(ARGS)

test-examples: $(STAMP)  ## every document of examples/jobs through the real system: some minutes more
	@scripts/install-system-packages
	@$(RUN)/python -m pytest -m examples tests/e2e/test_examples.py $(ARGS)

test-contract: $(STAMP)  ## every route by schemathesis, for longer; make test-contract SECONDS=600
	@CONTRACT_SECONDS=$(or $(SECONDS),300) CONTRACT_SEED=0 $(RUN)/python -m pytest -m "not examples" tests/contract $(ARGS)

check: $(STAMP)  ## format, lint, types, import direction
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

docs: $(STAMP)  ## write the generated parts of docs/ anew
	@.venv/bin/python -m scripts.generated_docs

bench: $(STAMP)  ## measure what docs/benchmarks promises; make bench ONLY=footprint
	@$(RUN)/python -m benchmarks $(ONLY)

up: $(STAMP)  ## everything on this machine, in the foreground
	@$(RUN)/trainyard up
