# `make help` lists what there is. Two commands matter to a newcomer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SAM_VENV := .venv-sam
SAM_READY := $(SAM_VENV)/.ready
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
NODE_READY := tests/node_modules/.ready
# Lambda's Python has these: the lock of an artifact leaves them out.
IN_RUNTIME := boto3 botocore jmespath python-dateutil s3transfer six urllib3
SAM := SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-eu-west-1} $(SAM_VENV)/bin/sam

.DEFAULT_GOAL := help
.PHONY: help setup demo test nightly bench lint format lock build clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

# --no-deps: the lock file is complete, and pip's hash mode stumbles over pins with extras.
setup: $(READY)  ## create the virtual environment from the lock file

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, found " + sys.version.split()[0])'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The SAM CLI pins its own boto3 and click, so it lives in an environment of its own.
$(SAM_READY): requirements-sam.lock
	$(PYTHON) -m venv --clear $(SAM_VENV)
	$(SAM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-sam.lock
	@touch $@

# The peers that the package is measured against; the package itself is read from here.
$(BENCH_READY): requirements-bench.lock
	$(PYTHON) -m venv --clear $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-bench.lock
	@touch $@

# dynalite proves the races between processes. Without Node those tests say so and the rest goes on.
$(NODE_READY): tests/package-lock.json
	@if command -v npm >/dev/null; then \
	  cd tests && npm ci --silent --no-audit --no-fund && touch node_modules/.ready; \
	else echo "npm not found: the race tests on dynalite will be left out"; fi

# --- the artifact: what `sam build` calls is in infra/build.mk, for every project that has this stack -
build: $(SAM_READY)  ## build every function, as `sam build` does
	$(SAM) build

include infra/build.mk

# --- work ----------------------------------------------------------------------------------------
demo: $(READY)  ## run the main job on the embedded local cloud, with kills
	@$(BIN)/python -m anarchon_ddb.local.demo

test: $(READY) $(SAM_READY) $(NODE_READY)  ## run all tests
	$(BIN)/python -m pytest -n auto $(ARGS)

nightly: $(READY) $(SAM_READY) $(NODE_READY)  ## the long searches
	NIGHTLY=1 $(BIN)/python -m pytest -n auto -m nightly $(ARGS)

bench: $(BENCH_READY) $(NODE_READY)  ## measure it against its peers; ARGS="run imports --rounds 9"
	@$(BENCH_VENV)/bin/python -m tests.bench $(ARGS)

lint: $(READY) $(SAM_READY)  ## ruff, mypy, the direction of imports, the template
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@for template in template.yaml infra/*.yaml; do $(SAM) validate --lint --template $$template || exit; done

format: $(READY)  ## apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(READY)  ## resolve the lock files again
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links --no-header --all-extras --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links --no-header --output-file requirements-sam.lock requirements-sam.in
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links --no-header --extra cli --extra local --output-file requirements-bench.lock pyproject.toml requirements-bench.in
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-header --constraint requirements.lock $(IN_RUNTIME:%=--unsafe-package %) --output-file requirements-lambda.lock requirements-lambda.in

clean:  ## remove everything that was made
	rm -rf $(VENV) $(SAM_VENV) $(BENCH_VENV) tests/node_modules .aws-sam .anarchon build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
