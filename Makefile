# `make app` serves the page, `make test` checks everything CI checks; both set up what they need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo -n)
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: app test test-all bench lint types format clean

app: $(VENV)/.app
	$(BIN)/python app.py

test: lint types $(VENV)/.browser
	$(BIN)/python -m pytest -n auto -m "not slow and not alone"
	$(BIN)/python -m pytest -m "alone and not slow"

test-all: lint types $(VENV)/.browser
	$(BIN)/python -m pytest -n auto -m "not alone"
	$(BIN)/python -m pytest -m alone

# Who is faster, side by side. Half an hour on two cores that have nothing else to do.
bench: $(VENV)-bench/.bench $(VENV)-optimum/.bench
	$(VENV)-bench/bin/python -m benchmarks.speed --python optimum=$(VENV)-optimum/bin/python
	$(VENV)-bench/bin/python -m benchmarks.growth

$(VENV)-bench/.bench: requirements-bench.txt requirements.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	touch $@

$(VENV)-optimum/.bench: requirements-optimum.txt
	$(PYTHON) -m venv $(VENV)-optimum
	$(VENV)-optimum/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-optimum.txt
	touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app: requirements.txt | $(VENV)/bin/python
	$(PIP) -r requirements.txt
	touch $@

$(VENV)/.dev: requirements.txt requirements-dev.txt | $(VENV)/bin/python
	$(PIP) -r requirements-dev.txt
	touch $@ $(VENV)/.app

# A real browser for the page's tests: the Chromium that is there, else Debian's, else Playwright's own.
$(VENV)/.browser: $(VENV)/.dev
	chromium --version >/dev/null 2>&1 \
	|| { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq chromium && chromium --version >/dev/null; } \
	|| $(BIN)/python -m playwright install --with-deps chromium \
	|| { echo "No Chromium could be had; install one and have it on the PATH as chromium." >&2; exit 1; }
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
