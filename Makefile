# Every target installs what it needs: a machine with git, make and Python 3.11 or newer is enough.
.DEFAULT_GOAL := help
.PHONY: help setup demo quick fmt check page test edges sandbox faults docs-test api interop worlds live trainers cluster arena arena-lm coverage bench clean

PYTHON ?= python3
# uv if it is installed, otherwise a copy in .tools.
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
RUN := $(UV) run --frozen
PYTEST := $(RUN) pytest -n 2 --dist worksteal
# pytest rewrites every test file: kept as bytecode, that is done once and not in each process.
export PYTHONDONTWRITEBYTECODE :=
# The tests that start sandboxes: `make sandbox` runs them.
SANDBOX := tests/sandbox tests/rubrics/sandboxed
FAST := $(SANDBOX:%=--ignore %)
# What `make test`, `make quick` and `make coverage` leave to other targets.
IN_PROCESS := -m "not edge and not browser"
# Fast tests of the packages that most changes touch.
QUICK := tests/rubrics tests/credit tests/types tests/test_package.py

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/bin/uv:
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv

# Compiled once here: where Python may not write bytecode, every process would compile again.
setup: $(filter .tools/bin/uv,$(UV))  ## Install everything into .venv, from the lock file.
	@$(UV) sync --frozen --quiet --compile-bytecode

demo: setup  ## Score model-written solutions, play a served environment, assign credit to moves.
	@$(RUN) python -m examples.gsm8k.demo
	@echo
	@$(RUN) python -m examples.coding_env.demo
	@echo
	@$(RUN) python -m examples.connect4.advantages
	@echo
	@echo "Look at the scores: .venv/bin/guerdon view runs/gsm8k/scored.jsonl --rollouts runs/gsm8k/rollouts.jsonl"

quick: setup  ## Run the tests to run while coding (under 30 s).
	$(PYTEST) -q $(FAST) $(IN_PROCESS) $(QUICK)

fmt: setup  ## Format the code and fix what ruff can fix.
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

check: setup  ## Check formatting, lint and types.
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

# The page is JavaScript without a build step; its types are in comments. npm has the tools to check
# it: the types, and what WCAG says.
NPM := typescript@5.9.3 axe-core@4.14.1
TSC := .npm/node_modules/.bin/tsc --noEmit --allowJs --checkJs --strict --target es2023 \
	--module es2022 --moduleResolution bundler --lib es2024,dom,dom.iterable
page: setup  ## Check the types of the pages, and test them in Chromium.
	@$(RUN) python -m scripts.chromium
	@if command -v npm > /dev/null; then npm install --silent --no-save --prefix .npm $(NPM) && \
		$(TSC) src/guerdon/viewer/page/*.js; \
	else echo "make page: the types aren't checked, since npm isn't installed"; fi
	$(PYTEST) -q -m browser tests/viewer

test: setup  ## Run the fast tests: all but `make edges`, `make page` and `make sandbox`.
	$(PYTEST) $(FAST) $(IN_PROCESS)

edges: setup  ## Run the tests of the command line and of real servers, trackers and processes.
	$(PYTEST) $(FAST) -m edge

sandbox: setup  ## Attack the sandbox, as this user and, if this is root, as an ordinary one.
	$(PYTEST) $(SANDBOX)

# 1 takes minutes; CI runs a twentieth of it.
SIZE ?= 1
faults: setup  ## Inject faults into every pool, server, command and logger, with six counts (SIZE=0.05).
	@$(RUN) python -m faults --size $(SIZE) $(if $(SEED),--seed $(SEED))

docs-test: setup  ## Run every code block of README.md and docs/, and every docstring example.
	$(RUN) pytest tests/docs --docs -q

api: setup  ## Write docs/api.md from the docstrings.
	$(RUN) python scripts/api_reference.py

interop: setup  ## Test against openenv's clients, servers and rubrics.
	@$(RUN) python -m interop

# Packages that are GPL, or depend on one that is, are installed for these games only.
WORLDS := UV_PROJECT_ENVIRONMENT=.venv-worlds $(UV)
worlds: $(filter .tools/bin/uv,$(UV))  ## Play the worlds in examples/, and test those of Atari and textarena.
	@$(WORLDS) sync --frozen --quiet --compile-bytecode --extra atari --extra textarena
	@$(WORLDS) run --no-sync python -m examples.worlds
	$(WORLDS) run --no-sync pytest -n 2 --dist worksteal -q tests/examples/test_atari.py \
		tests/examples/test_textarena.py
	$(WORLDS) run --no-sync pytest -q tests/docs/test_code_blocks.py --docs \
		-k "code_blocks_run and (world-atari or world-textarena)"

live: setup  ## Test agents, users and judges with a tiny real model on the CPU.
	@$(RUN) python -m trainers --only tiny-model

trainers: setup  ## Test guerdon.integrations with the real trainers (ONLY=trl).
	@$(RUN) python -m trainers $(if $(ONLY),--only $(ONLY))

arena-lm: setup  ## Confirm the arena's order of methods with a small language model (20 minutes).
	@$(RUN) python -m trainers --only arena-lm
	@.trainers/arena-lm/bin/python -m trainers.arena_lm_table

# Not by `uv run`, whose environment Ray would copy to every process.
CLUSTER := .venv-cluster/bin/python -m
cluster: $(filter .tools/bin/uv,$(UV))  ## Test scoring and pools with Ray, on a cluster of two nodes here.
	@if UV_PROJECT_ENVIRONMENT=.venv-cluster $(UV) sync --frozen --quiet --extra ray; then \
		$(CLUSTER) pytest -q -o filterwarnings=ignore -o faulthandler_timeout=300 \
			cluster tests/docs/test_code_blocks.py --docs -k cluster && \
		$(CLUSTER) faults --only ray --size 0.02; \
	else echo "make cluster: skipped, since Ray can't be installed here"; fi

# The table of a quarter of the seeds; `guerdon arena` alone takes all of them.
arena: setup  ## Compare the credit assignments in all worlds of the arena (a few minutes).
	@mkdir -p .bench && rm -f .bench/arena.jsonl
	@$(RUN) guerdon arena --seeds 8 --out .bench/arena.jsonl

coverage: setup  ## Run the fast tests and report the lines that they miss.
	$(PYTEST) $(FAST) $(IN_PROCESS) --cov=guerdon --cov-report=term:skip-covered

bench: setup  ## Measure speed beside the stated bars (a few minutes).
	$(RUN) python -m benchmarks

clean:  ## Remove what the other targets created.
	rm -rf .venv .venv-newest .venv-worlds .venv-cluster .trainers .tools .npm .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist
