# `make demo` and `make test` need Python 3.11 or newer, pip, make and git, and set up everything else in .venv.
# Targets are relative on purpose: they work in a folder whose path contains spaces.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; exit; fi; \
	done; echo python3)
# Bytecode is made of what is imported, and not of all that is installed: that takes a third of the time.
PIP = .venv/bin/python -m pip install -q --no-compile --disable-pip-version-check
ARGS =
# Tests of one file stay with one worker, for what they share; ARGS="-n0" runs all of them in one process.
WORKERS = -n auto --dist loadfile --no-loadscope-reorder
CHECKS = types public-types docs-check ratchets layers lint format

.DEFAULT_GOAL := help
.PHONY: help demo test check $(CHECKS) fix docs bench recordings system e2e clean

help:  ## what there is to make
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-16s%s\n' "$$name" "$$text"; done

demo: .venv/.base  ## set up, then list, check, show, load and run skills that ship with Prowess
	@.venv/bin/python tools/demo.py

# Tests start hundreds of programs that import Prowess: compiled once, and not by each where nobody may write bytecode.
test: .venv/.dev  ## set up, then run all tests; ends with what was not run, by cause (ARGS="-k name" for some, ARGS=-v lists it)
	@.venv/bin/python -m compileall -q -x builtin_skills src
	@.venv/bin/python -m pytest $(WORKERS) $(ARGS)

check: .venv/.dev  ## everything that can be said without running the tests, several things at a time; none hides another
	@$(MAKE) --no-print-directory -k $(if $(filter -j%,$(MAKEFLAGS)),,-j4) \
		$(if $(filter output-sync,$(.FEATURES)),--output-sync=target) $(CHECKS)

lint: .venv/.dev
	.venv/bin/python -m ruff check .

format: .venv/.dev
	.venv/bin/python -m ruff format --check .

types: .venv/.dev
	.venv/bin/python -m pyright

public-types: .venv/.dev
	.venv/bin/python tools/check_types.py

layers: .venv/.dev
	.venv/bin/lint-imports --no-logo

docs-check: .venv/.dev
	.venv/bin/python tools/make_docs.py --check
	.venv/bin/python tools/make_schemas.py --check

ratchets: .venv/.dev
	.venv/bin/python tools/ratchets.py

fix: .venv/.dev  ## mend what ruff can mend
	.venv/bin/python -m ruff check --fix .
	.venv/bin/python -m ruff format .

docs: .venv/.dev  ## write what is made from the code anew: pages under docs/, JSON Schemas
	.venv/bin/python tools/make_docs.py
	.venv/bin/python tools/make_schemas.py

bench: .venv/.dev  ## print speed and memory as ratios
	.venv/bin/python benchmarks/run.py $(ARGS)

RECORDED = totals-by-region what-changed fibonacci start-a-skill count-words review-a-path wrong-line minutes
recordings: .venv/.dev  ## record the runs of examples/evals/recordings again, after a change of skills, tools or guidance
	@.venv/bin/prowess eval src/prowess/builtin_skills examples/skills --record examples/evals/recordings --yes skill_run \
		$(addprefix --case ,$(RECORDED))
	@sed -i 's/"platform":"[^"]*"/"platform":""/' examples/evals/recordings/*.jsonl

system:  ## install what needs root (CI calls it; make demo and make test do not need it)
	@PYTHON='$(PYTHON)' bash tools/system.sh

e2e: .venv/.dev  ## talk to a real model on every wire, and measure how it chooses skills; without one it says how to name one
	@.venv/bin/python tools/e2e.py

clean:  ## remove what make made
	rm -rf .venv .ruff_cache .import_linter_cache .hypothesis build dist benchmarks/out
	find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Prowess needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
		echo "Name a newer one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; } >&2
	@echo "Setting up .venv with $$($(PYTHON) --version) (once, about a minute) …"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.base: pyproject.toml | .venv/.made
	@$(PIP) -e .
	@touch $@

.venv/.dev: pyproject.toml | .venv/.made
	@$(PIP) -e '.[dev]'
	@touch .venv/.base $@
