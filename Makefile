# Two commands are enough on a fresh machine with Python 3.10 or later and a C++ compiler:
#   make demo   set up, build, and run the example
#   make test   set up, build, and run all tests
# The environment lives in .venv and is made once; it is renewed when pyproject.toml changes,
# the extension is rebuilt when a file of csrc/ changes. Another torch: make test TORCH=2.15

PYTHON ?= python3
TORCH  ?= 2.13
VENV   := .venv
BIN    := $(VENV)/bin
ENV    := $(VENV)/.env-ready-$(TORCH)
BUILD  := $(VENV)/.build-ready-$(TORCH)
# In the order of folders: files with one long test, which pytest-xdist would keep for the end, start early.
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder
SOURCE := setup.py $(shell find csrc -type f)
CPP    := $(shell git ls-files '*.h' '*.cpp' '*.cu')

.PHONY: help demo test test-fast lint format check docs bench dist cuda-check clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(BUILD)  ## set up, build, and run the embedded example
	@echo "== Running the example"
	@$(BIN)/python -m tensus_tn.demo

test: $(BUILD)  ## set up, build, and run all tests and doctests
	@echo "== Running the tests"
	@$(PYTEST)

test-fast: $(BUILD)  ## the tests without the slow ones
	@$(PYTEST) -m "not slow"

lint: $(BUILD)  ## format, lint and type checks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy

format: $(BUILD)  ## format Python and C++ in place
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

check: lint  ## lint, then all tests with coverage
	$(BIN)/python -m pytest -q --cov --cov-report=term-missing:skip-covered

docs: $(BUILD)  ## build the site to build/site; a warning is an error
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --no-build-isolation -e ".[docs]"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict -f docs/site/mkdocs.yml
	@echo "== The site is at build/site/index.html"

bench: $(BUILD)  ## install the peers and print the benchmark tables
	$(BIN)/pip install --quiet -e ".[bench]" --no-build-isolation
	$(BIN)/python -m benchmarks.tensor
	$(BIN)/python -m benchmarks.propagate

# The wheel is built from the sdist, so both are tried. auditwheel checks that it runs on other Linux systems, and tags it.
dist: $(BUILD)  ## build sdist and wheel into dist, and try the wheel in an empty environment
	rm -rf dist build/empty build/wheel
	$(BIN)/python -m build --no-isolation --sdist
	TENSUS_RELEASE=1 $(BIN)/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/wheel dist/tensus_tn-*.tar.gz
	PATH="$(CURDIR)/$(BIN):$$PATH" auditwheel repair --exclude "libtorch*.so" --wheel-dir dist build/wheel/tensus_tn-*-cp310-abi3-linux_*.whl
	$(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet "torch==$(TORCH).*" dist/tensus_tn-*-cp310-abi3-manylinux*.whl
	cd build/empty && bin/python ../../tests/smoke.py

cuda-check:  ## compile the CUDA kernels for every architecture; registers and occupancy (needs nvcc)
	$(PYTHON) csrc/tools/check.py

$(ENV): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed: make PYTHON=...")'
	@echo "== Setting up $(VENV): PyTorch and the development tools, once (a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip "setuptools>=77" wheel ninja numpy
	@$(BIN)/pip install --progress-bar on "torch==$(TORCH).*" | grep -E '^(Collecting|Successfully)' || true
	@rm -f $(VENV)/.env-ready-* && touch $@

# No build isolation: the extension is built against the torch that was just installed.
$(BUILD): $(ENV) $(SOURCE)
	@echo "== Building the extension and installing tensus_tn with its development tools"
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --no-build-isolation -e ".[dev]"
	@touch $@

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info tensus_tn/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
