# `make run` starts STREAM; `make help` lists the rest.
PORT ?= 8000
# Shells set HOST to this machine's name, so only `make run HOST=...` counts.
ifneq ($(origin HOST),command line)
HOST := 127.0.0.1
endif
PY := .venv/bin/python
RUN_LOCKS := requirements.txt requirements-embedded.txt
TEST_LOCKS := requirements-test.txt requirements-embedded.txt
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: help install install-test endpoint-venv run test check check-js lock clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 16

install: .venv/.installed ## install into .venv, from locked requirements with hashes

.venv/.installed: $(RUN_LOCKS) tools/install.sh
	@PYTHON='$(PYTHON)' tools/install.sh $(RUN_LOCKS)
	@touch $@

install-test: .venv/.installed-test ## install what tests and checks need as well

.venv/.installed-test: $(TEST_LOCKS) tools/install.sh
	@PYTHON='$(PYTHON)' tools/install.sh $(TEST_LOCKS)
	@touch .venv/.installed $@

endpoint-venv: .venv-endpoint/.installed ## install the Globus Compute endpoint for tests into .venv-endpoint

.venv-endpoint/.installed: requirements-endpoint.txt tools/install.sh $(wildcard hpc_worker/*.py) hpc_worker/pyproject.toml
	@PYTHON='$(PYTHON)' INSTALL_INTO=.venv-endpoint tools/install.sh requirements-endpoint.txt
	@tools/install_worker.sh .venv-endpoint/bin/python
	@touch $@

run: install ## start everything on http://127.0.0.1:8000 (PORT=, HOST=); Ctrl-C stops it
	@exec $(PY) manage.py devstack --host '$(HOST)' --port '$(PORT)'

test: install-test ## run all tests: SQLite, PostgreSQL, Chromium where it is
	@exec $(PY) -m tests

check: install-test check-js ## lint, format, types, import directions, templates, settings, migrations
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo
	$(PY) -m djlint --quiet --lint templates
	$(PY) manage.py check --fail-level WARNING
	$(PY) manage.py makemigrations --check --dry-run
	$(PY) -m pytest -q tests/test_architecture.py

check-js: ## check the types of the browser code (needs Node)
	@tools/check_js.sh

lock: ## compile requirements*.in to locked files (needs uv)
	$(COMPILE) requirements.in -o requirements.txt
	$(COMPILE) -c requirements.txt requirements-test.in -o requirements-test.txt
	$(COMPILE) --no-deps requirements-embedded.in -o requirements-embedded.txt
	$(COMPILE) requirements-endpoint.in -o requirements-endpoint.txt

clean: ## remove .venv and caches; var/ with its data stays
	rm -rf .venv .venv-endpoint node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache artefacts
