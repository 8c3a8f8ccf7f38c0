# Every target sets up what it needs: a machine with git, make and Python 3.11 is enough.
.DEFAULT_GOAL := help
.PHONY: help setup demo test edges sandbox check docs-test interop bench clean

PYTHON ?= python3
# uv from the machine where it is there, else one of our own.
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
RUN := $(UV) run --frozen

help:  ## Say what there is to make.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/bin/uv:
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv

# Compiled once here: where Python may not write bytecode, every process would do it again.
setup: $(filter .tools/bin/uv,$(UV))  ## Install everything into .venv, as the lock says.
	@$(UV) sync --frozen --quiet --compile-bytecode

demo: setup  ## Score model-written solutions; serve an environment and play it; credit moves.
	@$(RUN) python -m examples.gsm8k.demo
	@echo
	@$(RUN) python -m examples.coding_env.demo
	@echo
	@$(RUN) python -m examples.connect4.advantages

test: setup  ## Run the fast tests: all but those of the sandbox and of the edges.
	$(RUN) pytest -n 2 --dist worksteal --ignore tests/sandbox -m "not edge"

edges: setup  ## Run the tests of the command line, and of real servers, trackers, processes.
	$(RUN) pytest -n 2 --dist worksteal --ignore tests/sandbox -m edge

sandbox: setup  ## Attack the sandbox, as this user and, where this is root, as an ordinary one.
	$(RUN) pytest -n 2 --dist worksteal tests/sandbox

check: setup  ## Lint, check the format and the types.
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

docs-test: setup  ## Run every code block of README.md and docs/.
	$(RUN) pytest tests/docs --docs -q

interop: setup  ## Try openenv's clients, servers and rubrics with ours.
	@$(RUN) python -m interop

bench: setup  ## Measure, side by side with what the bars name (a few minutes).
	$(RUN) python -m benchmarks

clean:  ## Remove what the other targets made.
	rm -rf .venv .tools .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
