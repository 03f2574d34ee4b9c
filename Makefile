# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/*)

.PHONY: demo test venv lint benchmark clean

demo: $(VENV)/.installed
	$(BIN)/divlearn demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto

venv: $(VENV)/.installed

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

benchmark: $(VENV)/.installed
	$(BIN)/python benchmarks/engines.py

# Editable: Python sources are live, the kernels are rebuilt when they or the project file change.
$(VENV)/.installed: pyproject.toml $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

clean:
	rm -rf $(VENV) build demo
