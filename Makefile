# Two commands matter: `make verify` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: verify test lint bench slow gpu reference setup constraints clean

verify: $(STAMP)
	$(BIN)/rescert verify

test: $(STAMP)
	$(BIN)/pytest -q -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python tests/bench/run.py

slow: $(STAMP)
	$(BIN)/pytest -q -n 2 --dist worksteal -m slow

gpu: $(STAMP)
	$(BIN)/pytest -q -m gpu

# The report of the quick preset that the repository carries.
reference: $(STAMP)
	rm -rf build/reference reports/reference && mkdir -p reports/reference/figures
	$(BIN)/rescert verify --device cpu --out build/reference
	cp build/reference/report/report.md reports/reference/
	cp build/reference/report/figures/*.png reports/reference/figures/

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rescert needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	# mypy follows paths, not import hooks: show it the repository under the package's name.
	mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/rescert
	touch $@

# The pinned versions, made anew from the ranges in pyproject.toml.
constraints:
	rm -rf build && $(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet torch==2.13.0
	build/constraints/bin/python -m pip install --quiet ".[dev]"
	{ echo "# Made by 'make constraints': every version that the tests ran with."; \
	  build/constraints/bin/python -m pip freeze --exclude rescert | sed 's/+cpu//'; } > constraints.txt; rm -rf build

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
