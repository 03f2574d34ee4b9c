# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml $(wildcard native/*)

# Tests start many processes: let Python keep what it compiles.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test venv lint check package docs benchmark clean

demo: $(VENV)/.demo
	$(BIN)/divlearn demo

# Processes run beside each other: each keeps to one thread unless it asks for more, and threads that
# wait do not spin.
test: export OMP_NUM_THREADS := 1
test: export OMP_WAIT_POLICY := passive
test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal

venv: $(VENV)/.installed

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests benchmarks docs paper tools
	$(BIN)/ruff format --check src tests benchmarks docs paper tools
	$(BIN)/mypy

# What takes seconds and fails most often: before every commit.
check: lint
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_package.py

# The source distribution and the wheels, installed into empty environments; about 15 minutes.
package:
	$(PYTHON) tools/package.py

# Every chapter of the tutorial and every example of the gallery is run, that of torch where torch is
# installed; a warning is an error.
docs: $(VENV)/.documenting
	$(BIN)/python -m sphinx -q -W --keep-going -j auto docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

benchmark: $(VENV)/.installed
	$(BIN)/python benchmarks/engines.py

# Editable: Python sources are live, the kernels are rebuilt when they or the project file change.
# Python compiles what is imported; compiling all that is installed takes longer than copying it.
define install
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$(1)]"
	touch $@
endef

# The demonstration and the manual need no torch and no browser.
$(VENV)/.demo: $(SOURCES)
	$(call install,report$(comma)plot)
comma := ,

$(VENV)/.installed: $(SOURCES)
	$(call install,test)
	touch $(VENV)/.demo

$(VENV)/.documenting: $(SOURCES)
	$(call install,docs)
	touch $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist demo docs/_build docs/api docs/gallery docs/learn
