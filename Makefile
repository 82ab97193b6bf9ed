# Thin on purpose: every line here can be typed by hand. CI runs exactly these targets.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-long test-times test-examples test-web test-nightly test-all test-contract test-gpu test-vm matrix faults soak check docs bench up
SHELL := /bin/bash
PYTHON ?= python3
STAMP := .venv/.installed
# Every process of ours runs so that a file beside a user's script can't stand in for a module of ours. Tests start
# thousands of processes, each of which would compile our modules anew if the environment forbade to keep them compiled.
RUN := PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE= .venv/bin
# Each process has its part of the tests, in the order of their files; one that is done takes from the others.
PARALLEL = -n $(WORKERS) --dist $(DIST)
DIST = worksteal
WORKERS ?= 3
# How long every test took: `make test-times` sums the files up.
RECORD = --junitxml=build/tests/$@.xml

help:  ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

install: $(STAMP)  ## make .venv with everything the other targets need

$(STAMP): pyproject.toml constraints.txt scripts/install
	@PYTHON=$(PYTHON) scripts/install
	@touch $@

demo: $(STAMP)  ## start everything on this machine, train a small model, show what it learnt
	@$(RUN)/trainyard demo $(ARGS)

test: $(STAMP)  ## tests on real Redis, SQLite and PostgreSQL, in three processes; make test WORKERS=0 ARGS="-k leases"
	@scripts/install-system-packages
	@$(RUN)/python -m pytest $(PARALLEL) $(RECORD) $(ARGS)

test-long: WORKERS = 2
# The tests of a file share trainings: they stay in one process. Those of several files share a system (tests/whole_systems.py).
test-long: DIST = loadfile -p tests.whole_systems
test-long: $(STAMP)  ## the tests that take longest: whole systems, also killed ones, walks over all routes, exact resumes
	@scripts/install-system-packages
	@$(RUN)/python -m pytest -m "long and not nightly" $(PARALLEL) $(RECORD) $(ARGS)

test-examples: $(STAMP)  ## documents of examples/ through the real system, of divided frameworks SFT alone: some minutes
	@scripts/install-system-packages
	@$(RUN)/python -m pytest -m "examples and not matrix and not nightly" tests/e2e/test_examples.py tests/e2e/test_sweep_example.py $(RECORD) $(ARGS)

test-web: $(STAMP)  ## Chromium before the dashboard: every page and action, keyboard, contrast, hostile names; eight minutes
	@scripts/install-system-packages
	@scripts/install-system-packages chromium || echo 'No Chromium: the tests of the dashboard will be skipped.'
	@$(RUN)/python -m pytest -m web tests/web $(RECORD) $(ARGS)

test-nightly: DIST = loadfile -p tests.whole_systems
test-nightly: WORKERS = 2
test-nightly: $(STAMP)  ## the variants that CI skips (tests/nightly.toml): half an hour
	@scripts/install-system-packages
	@$(RUN)/python -m pytest -m "nightly and not gpu and not matrix" $(PARALLEL) $(RECORD) $(ARGS)

test-all:  ## all of these, and every test of a database on PostgreSQL and on SQLite
	@$(MAKE) --no-print-directory test ARGS="--all-databases $(ARGS)"
	@$(MAKE) --no-print-directory test-long ARGS="--all-databases $(ARGS)"
	@$(MAKE) --no-print-directory test-examples
	@$(MAKE) --no-print-directory test-web
	@$(MAKE) --no-print-directory test-nightly

test-times: $(STAMP)  ## the slowest files and tests of the latest runs, from build/tests
	@.venv/bin/python -m scripts.durations build/tests/*.xml

matrix: $(STAMP)  ## what every trainer owes, of every pair: conformance, exact resumes, every example; ends with a table
	@scripts/install-system-packages
	@$(RUN)/python -m pytest -p tests.matrix -m "not gpu" tests/conformance tests/trainers tests/e2e/test_examples.py $(ARGS)

test-contract: $(STAMP)  ## every route by schemathesis, for longer; make test-contract SECONDS=600
	@CONTRACT_SECONDS=$(or $(SECONDS),300) CONTRACT_SEED=0 $(RUN)/python -m pytest -m "not examples" tests/contract $(ARGS)

test-gpu: $(STAMP)  ## what only a machine with an NVIDIA GPU can show; nothing else may use the GPU meanwhile
	@$(RUN)/python -m pytest -m gpu tests/gpu $(ARGS)

test-vm: $(STAMP)  ## an attack on the kernel from a job's sandbox, and limits by control groups, in a virtual machine without KVM: a minute or two
	@scripts/test-vm

faults: $(STAMP)  ## faults at random moments, by a seed that is printed; make faults FAULTS_SEED=7 FAULTS_DRAWS=200
	@scripts/install-system-packages
	@FAULTS_SEED=$(FAULTS_SEED) FAULTS_DRAWS=$(FAULTS_DRAWS) $(RUN)/python -m pytest -m faults tests/faults $(ARGS)

soak: $(STAMP)  ## kill something every 30 to 60 s over a stream of jobs; make soak MINUTES=20 [ARGS="--training sft"]
	@scripts/install-system-packages
	@$(RUN)/python -m benchmarks.soak --minutes $(or $(MINUTES),20) $(ARGS)

check: $(STAMP)  ## format, lint, types, import direction, sizes, words, generated docs
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(RUN)/python -m pytest -q tests/test_architecture.py tests/unit/project/test_generated_docs.py tests/unit/project/test_words.py

docs: $(STAMP)  ## write the generated parts of docs/ anew
	@.venv/bin/python -m scripts.generated_docs

bench: $(STAMP)  ## measure what docs/benchmarks promises; make bench ONLY=planning,dispatch
	@$(RUN)/python -m benchmarks $(ONLY)

up: $(STAMP)  ## everything on this machine, in the foreground
	@$(RUN)/trainyard up $(ARGS)
