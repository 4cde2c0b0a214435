# `make app` serves the page, `make check` is the quick check, `make test` checks everything CI checks; all of them set
# up what they need in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Worksteal gives each worker whole files to begin with, so that what a file sets up is set up once.
PYTEST := $(BIN)/python -m pytest
# One worker more than there are cores: servers and browsers make tests wait.
SPREAD := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist worksteal

# Hundreds of processes of the tests import the package: without bytecode each would compile it anew, for 0.2 s.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: app check test test-all bench lint types format clean

app: $(VENV)/.app
	$(BIN)/python app.py

check: lint types
	$(PYTEST) $(SPREAD) -m "not slow and not alone and not browser and not long"

# What the first run of pytest makes (exported models, a wheel), the second one uses.
test test-all: export TEST_SHARED := $(or $(TMPDIR),/tmp)/tiny-transformer-tests.$(shell echo $$PPID)

test: $(VENV)/.browser web/node_modules lint types
	$(PYTEST) $(SPREAD) -m "not slow and not alone"
	$(PYTEST) -m "alone and not slow"
	rm -rf $(TEST_SHARED)

test-all: $(VENV)/.browser $(VENV)/.emulated $(VENV)/.ray web/node_modules lint types
	$(PYTEST) $(SPREAD) -m "not alone"
	$(PYTEST) -m alone
	rm -rf $(TEST_SHARED)

# Who is faster, side by side. Half an hour on two cores that have nothing else to do.
bench: $(VENV)-bench/.bench $(VENV)-optimum/.bench web/node_modules
	$(VENV)-bench/bin/python -m benchmarks.speed --python optimum=$(VENV)-optimum/bin/python
	$(VENV)-bench/bin/python -m benchmarks.growth
	$(VENV)-bench/bin/python -m benchmarks.web --python transformers-js=$(VENV)-optimum/bin/python \
		--json benchmarks/results/web-cpu.json

$(VENV)-bench/.bench: requirements-bench.txt requirements-dev.txt requirements.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	touch $@

# optimum needs an older huggingface_hub than we do, so it gets an environment of its own.
OPTIMUM := numpy==2.4.6 onnx==1.23.2 onnxruntime==1.31.1 optimum-onnx==0.1.0 tokenizers==0.22.2 torch==2.13.0 \
	playwright==1.65.0 transformers==4.57.6

$(VENV)-optimum/.bench: Makefile
	$(PYTHON) -m venv $(VENV)-optimum
	$(VENV)-optimum/bin/python -m pip install --quiet --disable-pip-version-check $(OPTIMUM)
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

# A real browser for the page's tests: the Chromium on the PATH, or Playwright's own. Only root installs one.
CHROMIUM_IS_THERE = chromium --version >/dev/null 2>&1 || $(BIN)/python -c 'import os; from playwright.sync_api import \
	sync_playwright; os._exit(not os.path.exists(sync_playwright().start().chromium.executable_path))'

$(VENV)/.browser: $(VENV)/.dev
	@$(CHROMIUM_IS_THERE) \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium && chromium --version >/dev/null; } \
	|| { echo "make test needs Chromium: install the package chromium, or run \
	'$(BIN)/playwright install chromium'; make check needs none." >&2; exit 1; }
	@touch $@

# The runtime of web/, as its lock file names it, and Node to run the modules. Only root installs Node.
web/node_modules: web/package-lock.json
	@node --version >/dev/null 2>&1 && npm --version >/dev/null 2>&1 \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq nodejs npm && npm --version >/dev/null; } \
	|| { echo "make test needs Node and npm: install the packages nodejs and npm; make check needs none." >&2; exit 1; }
	npm ci --prefix web --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Other processors for the slow sweep: qemu-user, and a Python of the other architecture (220 MB). Only root installs.
$(VENV)/.emulated: $(VENV)/.dev tests/support/emulation.py
	$(BIN)/python -m tests.support.emulation $(VENV)/emulated
	@touch $@

# Ray for the slow tests of a cluster: 250 MB, which nothing else needs. Its own requirement on pandas comes with gradio.
$(VENV)/.ray: requirements-ray.txt $(VENV)/.dev
	$(PIP) -r requirements-ray.txt
	@touch $@

clean:
	rm -rf $(VENV) web/node_modules build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
