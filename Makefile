# make demo: run the hello world.  make test: tests, linter and type checker.  make reference: write the pages of the
# documentation that follow from the code.  Each makes its own environment first.

PYTHON ?= python3
VENV := .venv
RUNTIME := $(VENV)/runtime.stamp
TESTING := $(VENV)/testing.stamp

.PHONY: demo test reference format clean

demo: $(RUNTIME)
	$(VENV)/bin/python examples/hello_world/hello_world.py

test: $(TESTING)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest

reference: $(TESTING)
	$(VENV)/bin/python tools/reference.py

format: $(TESTING)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable .
	$(VENV)/bin/python -m compileall -q tflm
	touch $@

$(TESTING): pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[test,oracle]'
	$(VENV)/bin/python -m compileall -q tflm
	touch $@ $(RUNTIME)
