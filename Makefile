# Everything a developer runs. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
# Test files that run at once: more than there are cores, since they wait for most of their time.
AT_ONCE ?= 5
# Where a shell says that Python is to keep no bytecode, every process that the tests start would compile all of it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test minimum check bench soak pins clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1\t/' | expand -t 16

setup: $(VENV)/ready  ## install Laneway and its tools into .venv

$(VENV)/ready: pyproject.toml requirements/dev.txt scripts/setup
	@PYTHON=$(PYTHON) scripts/setup $(VENV)
	@touch $@

demo: setup  ## watch a small shop at work for a minute, here and in a browser; ARGS="--seconds 300" for longer
	$(BIN)/laneway demo $(ARGS)

test: setup  ## run the tests (about six minutes); ARGS="-k lanes" narrows them
	@scripts/servers
	@$(BIN)/python scripts/minimum $(VENV)/minimum || true  # a test says what is missing
	@$(BIN)/python scripts/django6 $(VENV)/django6 > /dev/null || true  # the same
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder $(ARGS)

minimum: setup  ## run most tests with the oldest versions that pyproject.toml allows; ARGS="tests/test_cron.py" narrows them
	@scripts/servers
	$(BIN)/python scripts/minimum $(VENV)/minimum -n 2 --dist loadfile --no-loadscope-reorder $(or $(ARGS), \
		$(filter-out tests/test_browser% tests/test_deploy% tests/test_typing.py tests/test_minimum.py, $(wildcard tests/test_*.py)))

check: setup  ## ruff, mypy --strict and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --level warning

bench: setup  ## measure stores and workers against raw loops; ARGS="push noop" picks parts
	$(BIN)/python bench/run.py $(ARGS)

soak: setup  ## long runs of the random tests
	@scripts/servers
	LANEWAY_SOAK=1 $(BIN)/python -m pytest -m "soak or model" --timeout 3600 $(ARGS)

pins: setup  ## pin the development set anew (needs uv)
	uv pip compile --quiet --upgrade --no-emit-index-url --no-header --no-annotate --python-version 3.11 requirements/dev.in -o requirements/dev.txt

clean:  ## remove what the other commands made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
