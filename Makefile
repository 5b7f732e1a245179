# Two commands: `make audit` (the main job on the embedded default) and `make test`.
# Environments live in .venvs/ (git-ignored) and are made once; a change of a requirement file makes them again.
SHELL := /bin/bash
PYTHON ?= python3
VENVS := .venvs
TOOL := $(VENVS)/tool
DEV := $(VENVS)/dev
ENGINE := $(VENVS)/cpu-engine
PIP := -m pip --disable-pip-version-check --quiet
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help audit test test-all coverage lint setup setup-dev setup-engine clean
.DEFAULT_GOAL := help

help:
	@echo 'make audit     set up what is missing, then run the main job on the embedded default (CPU, no hub)'
	@echo 'make test      set up what is missing, then lint, type-check and test (under 15 minutes on 2 cores)'
	@echo 'make test-all  make test plus the slow runs (planted faults on real servers, fuzzing)'
	@echo 'make coverage  make test under coverage (twice as long)'
	@echo 'make clean     remove environments and caches'

# An interrupted install leaves no stamp and is simply run again.
$(TOOL)/.stamp: requirements/tool.txt pyproject.toml
	@echo '==> tool environment ($(TOOL)): installing pinned requirements'
	@test -x $(TOOL)/bin/python || $(PYTHON) -m venv $(TOOL)
	@$(TOOL)/bin/python $(PIP) install -r requirements/tool.txt
	@$(TOOL)/bin/python $(PIP) install --no-deps -e .
	@touch $@

$(DEV)/.stamp: requirements/dev.txt pyproject.toml
	@echo '==> development environment ($(DEV)): installing pinned requirements'
	@test -x $(DEV)/bin/python || $(PYTHON) -m venv $(DEV)
	@$(DEV)/bin/python $(PIP) install -r requirements/dev.txt
	@$(DEV)/bin/python $(PIP) install --no-deps -e .
	@touch $@

$(ENGINE)/.stamp: requirements/cpu-engine.txt requirements/cpu-engine-nodeps.txt
	@echo '==> engine environment ($(ENGINE)): vLLM for the CPU with torch, a few GB, some minutes'
	@test -x $(ENGINE)/bin/python || $(PYTHON) -m venv $(ENGINE)
	@$(ENGINE)/bin/python $(PIP) install -r requirements/cpu-engine.txt
	@$(ENGINE)/bin/python $(PIP) install --no-deps -r requirements/cpu-engine-nodeps.txt
	@touch $@

setup: $(TOOL)/.stamp $(ENGINE)/.stamp
setup-dev: $(DEV)/.stamp
setup-engine: $(ENGINE)/.stamp

audit: setup
	@echo '==> audit demo'
	@$(TOOL)/bin/audit demo --engine-python $(ENGINE)/bin/python

lint: setup-dev
	@echo '==> ruff and mypy'
	@$(DEV)/bin/ruff format --check .
	@$(DEV)/bin/ruff check .
	@$(DEV)/bin/mypy

test: setup-dev setup-engine lint
	@echo '==> tests'
	@AUDIT_ENGINE_PYTHON=$(CURDIR)/$(ENGINE)/bin/python $(DEV)/bin/python -m pytest -m 'not slow'

coverage: setup-dev setup-engine
	@echo '==> tests under coverage, the command line and child processes included'
	@AUDIT_ENGINE_PYTHON=$(CURDIR)/$(ENGINE)/bin/python $(DEV)/bin/coverage run -m pytest -m 'not slow'
	@$(DEV)/bin/coverage combine --quiet && $(DEV)/bin/coverage report

test-all: setup-dev setup-engine lint
	@echo '==> all tests'
	@AUDIT_ENGINE_PYTHON=$(CURDIR)/$(ENGINE)/bin/python $(DEV)/bin/python -m pytest

clean:
	rm -rf $(VENVS) .cache build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache tests/output
