# The commands of the project. `make run` and `make test` need nothing but Python >= 3.11 and make:
# everything is installed into .venv from the versions in requirements.lock, whose hashes are checked.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= results
WORKERS ?= 2

# Compiled modules are kept wherever the caller's environment says otherwise: every process would compile the library again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-oldest test-newest test-extras bench bench-compare docs docs-open release-check sbom conda lint types format licences lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(READY): pyproject.toml study/pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "polyhedge needs Python >= 3.11, $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e study
	@touch $@

run: $(READY)  ## the study: every method on the paper's tasks, beside its figures, and a page (about 4 minutes on two cores)
	$(BIN)/polyhedge reproduce tables --quick --page --out $(OUT)

# Types are checked beside the tests: alone, they would leave all cores but one idle.
test: lint  ## lint, type-check and run the tests (about 6 minutes on two cores)
	$(BIN)/mypy & types=$$!; $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal; tests=$$?; \
	  wait $$types || { echo "Types do not fit: make types says where."; exit 1; }; exit $$tests

test-slow: $(READY)  ## the longer checks
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow

# Environments of their own, with what polyhedge needs and no optional package, at the lowest or the newest versions that
# pyproject.toml allows. Wheels only: the lowest version is the lowest that this Python can install without a compiler.
$(VENV)-oldest/.ready: RESOLUTION := lowest-direct
$(VENV)-newest/.ready $(VENV)-extras/.ready: RESOLUTION := highest
$(VENV)-extras/.ready: EXTRAS := --extra mlflow --extra pyomo --extra parquet --extra plot mlflow polars pulp pyright
$(VENV)-%/.ready: pyproject.toml $(READY)
	$(BIN)/python -m venv --clear $(@D)
	$(BIN)/uv pip install --quiet --python $(@D) --only-binary :all: --resolution $(RESOLUTION) -r pyproject.toml --extra test $(EXTRAS)
	$(BIN)/uv pip install --quiet --python $(@D) --no-deps --no-build-isolation -e . -e study
	$(BIN)/uv pip list --quiet --python $(@D)
	@touch $@

test-oldest: $(VENV)-oldest/.ready  ## the tests that need no optional package, with the lowest versions allowed
	$(VENV)-oldest/bin/python -m pytest -n $(WORKERS) --dist worksteal

test-newest: $(VENV)-newest/.ready  ## the same with the newest versions
	$(VENV)-newest/bin/python -m pytest -n $(WORKERS) --dist worksteal

test-extras: $(VENV)-extras/.ready  ## the doors to other tools: MLflow, PyROS, PuLP, polars, pyright
	$(VENV)-extras/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/app/test_notebook.py tests/predictors/test_raw_frames.py \
	  tests/integrations/test_doors.py tests/project/test_typing.py

docs: $(READY)  ## the site, with every example of the gallery run: docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

docs-open: docs  ## the same, opened in a browser
	$(BIN)/python -m webbrowser -t docs/_build/html/index.html

bench: $(READY)  ## measured ratios of speed; also: polyhedge bench learning, polyhedge bench peers
	$(BIN)/polyhedge bench decisions --out $(OUT)

bench-compare: $(READY)  ## how many times as fast as a commit: make bench-compare REV=9679687 (hours for an old one)
	$(BIN)/polyhedge bench compare $(REV) --out $(OUT)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

release-check: $(READY)  ## build and check both archives, install the wheel alone into an empty environment and run the ten lines
	rm -rf dist .release
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .
	$(BIN)/uv venv --quiet .release
	$(BIN)/uv pip install --quiet --python .release dist/*.whl
	.release/bin/python tests/ten_lines.py
	.release/bin/polyhedge --version
	$(BIN)/uv pip install --quiet --python .release twine
	.release/bin/python -m twine check --strict dist/*
	rm -rf .release

sbom: $(READY)  ## a list of everything that `pip install polyhedge` brings, as CycloneDX: dist/sbom.cdx.json
	rm -rf .release
	$(BIN)/uv venv --quiet .release
	$(BIN)/uv venv --quiet .release/tool
	$(BIN)/uv pip install --quiet --python .release .
	$(BIN)/uv pip install --quiet --python .release/tool 'cyclonedx-bom>=7'
	mkdir -p dist
	.release/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  -o dist/sbom.cdx.json .release/bin/python
	rm -rf .release

conda:  ## a conda package from conda/recipe.yaml; needs rattler-build and the channel conda-forge
	rattler-build build --recipe conda/recipe.yaml --channel conda-forge --output-dir dist/conda

licences: $(READY)  ## the licences of everything that polyhedge brings; none may be of the GPL family
	$(BIN)/python tests/licences.py

lock: $(READY)  ## renew requirements.lock (all at once: make lock UPGRADE=--upgrade)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --generate-hashes \
	  $(addprefix --extra ,exact plot parquet sign dask test docs dev picnn) $(UPGRADE) --no-emit-package polyhedge -o requirements.lock pyproject.toml study/pyproject.toml

clean:  ## remove everything that was installed or made
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest $(VENV)-extras .bench $(OUT) .mypy_cache .ruff_cache .pytest_cache .hypothesis .release build dist docs/_build docs/gallery docs/reference docs/sg_execution_times.rst
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
