# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/*)

# Tests start many processes: let Python keep what it compiles.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test venv lint docs benchmark clean

demo: $(VENV)/.installed
	$(BIN)/divlearn demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal

venv: $(VENV)/.installed

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests benchmarks docs paper
	$(BIN)/ruff format --check src tests benchmarks docs paper
	$(BIN)/mypy

# Every chapter of the tutorial and every example of the gallery is run; a warning is an error.
docs: $(VENV)/.documenting
	$(BIN)/python -m sphinx -q -W --keep-going docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

benchmark: $(VENV)/.installed
	$(BIN)/python benchmarks/engines.py

# Editable: Python sources are live, the kernels are rebuilt when they or the project file change.
$(VENV)/.installed: pyproject.toml $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

$(VENV)/.documenting: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) build demo docs/_build docs/api docs/gallery docs/learn docs/sg_execution_times.rst
