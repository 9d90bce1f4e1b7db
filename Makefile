# The commands of the project. `make run` and `make test` need nothing but Python >= 3.11 and make:
# everything is installed into .venv from the versions in requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= results

.DEFAULT_GOAL := help
.PHONY: help run test test-slow bench lint types format lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "polyhedge needs Python >= 3.11, $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(READY)  ## the paper's tables beside ours, and a report (under 5 minutes)
	$(BIN)/polyhedge reproduce tables --out $(OUT)
	$(BIN)/polyhedge report $(OUT)

test: lint types  ## lint, type-check and run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(READY)  ## the longer checks
	$(BIN)/python -m pytest -n 2 -m slow

bench: $(READY)  ## measured ratios of speed; also: polyhedge bench learning, polyhedge bench peers
	$(BIN)/polyhedge bench decisions --out $(OUT)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: pyproject.toml  ## renew requirements.lock (needs uv)
	uv pip compile --universal --python-version 3.11 --no-header --no-annotate \
	  --extra dev --extra plot --extra exact --extra picnn --extra parquet --extra sign --extra dask -o requirements.lock pyproject.toml

clean:  ## remove everything that was installed or made
	rm -rf $(VENV) .bench $(OUT) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
