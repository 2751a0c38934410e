# Everything below works on a fresh machine with Python 3.11+, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
PROJECTS := pyproject.toml base/pyproject.toml sandbox/pyproject.toml
PIP := --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all lint bench reference sbom lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/runtime.done: requirements/runtime.txt requirements/build.txt $(PROJECTS)
	@echo "Installing levelog and the libraries of requirements/runtime.txt into $(VENV): half a minute, the first time."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP) --require-hashes -r requirements/build.txt
	$(BIN)/python -m pip install $(PIP) --require-hashes -r requirements/runtime.txt
	$(BIN)/python -m pip install $(PIP) --no-deps --no-build-isolation -e ./base -e ./sandbox -e .
	@touch $@

$(VENV)/dev.done: requirements/dev.txt $(PROJECTS)
	@echo "Installing levelog and the libraries of requirements/dev.txt into $(VENV): a minute or two, the first time."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP) --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install $(PIP) --no-deps --no-build-isolation -e ./base -e ./sandbox -e .
	@$(BIN)/python -m compileall -q -j 0 */levelog* tests/rigs  # or each worker of the tests would
	@touch $@ $(VENV)/runtime.done

demo: $(VENV)/runtime.done ## run the demonstration: everything embedded, nothing to configure
	$(BIN)/levelog demo

check: $(VENV)/dev.done ## what to run all day: quick linters, unit tests, the state machines on SQLite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n $(JOBS) -m "not long" -k "not postgresql" tests/machines tests/unit

# Where the environment forbids to keep bytecode, each of the thousand processes of the tests compiles levelog anew.
check test test-all: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/dev.done ## run the tests, but for the long searches
	$(BIN)/python -m pytest -n $(JOBS) -m "not long"

test-all: $(VENV)/dev.done ## run all tests
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(VENV)/dev.done ## run the linters and the type checkers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy .
	$(BIN)/pyright

$(VENV)-kopf/done: requirements/kopf.txt
	$(PYTHON) -m venv $(VENV)-kopf
	$(VENV)-kopf/bin/python -m pip install $(PIP) --require-hashes -r requirements/kopf.txt
	@touch $@

bench: $(VENV)/dev.done $(VENV)-kopf/done ## measure, beside Kopf; print tables
	PYTHONPATH=tests $(BIN)/python -m bench

reference: $(VENV)/dev.done ## make docs/reference.md, docs/commands.md and the tables in the READMEs
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/commands.py
	$(BIN)/python docs/rooms.py

$(VENV)-sbom/done: requirements/sbom.txt
	$(PYTHON) -m venv $(VENV)-sbom
	$(VENV)-sbom/bin/python -m pip install $(PIP) --require-hashes -r requirements/sbom.txt
	@touch $@

sbom: $(VENV)-sbom/done ## write what the image holds to dist/levelog.cdx.json, as CycloneDX
	@mkdir -p dist
	$(VENV)-sbom/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--output-file dist/levelog.cdx.json requirements/runtime.txt

lock: ## compile the locked requirements again (needs uv)
	requirements/compile

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) $(VENV)-kopf $(VENV)-sbom .mypy_cache .ruff_cache .hypothesis
