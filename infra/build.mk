# The build of every function: include this in the Makefile. `sam build` calls `make build-<LogicalId>`.
# What goes along: handlers/, and what requirements-lambda.lock, or else requirements-lambda.txt, names.

# What an artifact is built for. Everything in it is pure Python, so the version decides only whose
# bytecode is beside the sources; another runtime runs it all the same.
LAMBDA_PYTHON ?= 3.13
LAMBDA_PLATFORM ?= manylinux2014_aarch64
BUILD_PYTHON := $(firstword $(wildcard .venv/bin/python) $(PYTHON) python3)
ARTIFACT_DEPENDENCIES := build/lambda-$(LAMBDA_PYTHON)-$(LAMBDA_PLATFORM)
ARTIFACT_SOURCES := $(wildcard anarchon_ddb handlers)
LAMBDA_REQUIREMENTS := $(firstword $(wildcard requirements-lambda.lock requirements-lambda.txt))
HASHED := $(if $(filter %.lock,$(LAMBDA_REQUIREMENTS)),--no-deps --require-hashes)
# Lambda's Python has these: boto3 and what it needs.
PROVIDED := boto3 botocore jmespath dateutil s3transfer six.py urllib3
# What is for developers stays at home.
FOR_DEVELOPERS := adopt cli doctor local scaffold template testing
COMPILE := -m compileall -q --invalidation-mode unchecked-hash -p /var/task

# Resolved once for all functions, for the platform of Lambda whatever this machine is.
$(ARTIFACT_DEPENDENCIES)/.ready: $(LAMBDA_REQUIREMENTS)
	@test -n "$<" || { echo "requirements-lambda.txt is missing: write anarchon_ddb into it"; exit 1; }
	@rm -rf $(@D)
	@$(BUILD_PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile $(HASHED) \
	  --only-binary :all: --implementation cp --python-version $(LAMBDA_PYTHON) --platform $(LAMBDA_PLATFORM) \
	  --target $(@D) -r $<
	@rm -rf $(@D)/bin $(PROVIDED:%=$(@D)/%) $(FOR_DEVELOPERS:%=$(@D)/anarchon_ddb/%)
	@$(call compile,$(@D),.)
	@touch $@

# One rule for all: which of the handlers a function runs is said by its Handler.
build-%: $(ARTIFACT_DEPENDENCIES)/.ready
	@test -n "$(ARTIFACTS_DIR)" || { echo "make $@ is called by sam build; run make build"; exit 1; }
	@cp -R $(ARTIFACT_DEPENDENCIES)/. $(ARTIFACTS_DIR)/ && rm $(ARTIFACTS_DIR)/.ready
	@tar -cf - --exclude __pycache__ $(FOR_DEVELOPERS:%=--exclude 'anarchon_ddb/%') $(ARTIFACT_SOURCES) \
	  | tar -xf - -C $(ARTIFACTS_DIR)
	@$(call compile,$(ARTIFACTS_DIR),$(ARTIFACT_SOURCES))

# SAM dates every file 1980, so Python would not trust bytecode that is checked by date.
define compile
for python in $(BUILD_PYTHON) python$(LAMBDA_PYTHON) python3; do \
  if [ "$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = $(LAMBDA_PYTHON) ]; then \
    python=$$(command -v $$python); case $$python in /*) ;; *) python=$$PWD/$$python;; esac; \
    cd $(1) && exec $$python $(COMPILE) $(2); \
  fi; \
done; echo "no Python $(LAMBDA_PYTHON) here: the artifact has no bytecode, so a cold start takes longer" >&2
endef
