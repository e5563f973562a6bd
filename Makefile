# Two commands do everything on a machine with Python >= 3.11, make and a package registry:
#   make run    set up .venv and play the anchor policies over 10,000 episodes each
#   make test   set up .venv and pass the tests
# and two more are for before a release:
#   make verify the slow checks
#   make docs   the API page, in build/docs

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml arena_jax/version.py

.PHONY: run test verify lint docs clean

run: $(VENV)/.run-ready
	$(BIN)/arena-jax evaluate --episodes 10000 --seed 0 \
		--policy never-raise --policy one-shot-equity:amount=20e6 \
		--policy greedy-debt:amount=20e6 --policy greedy-equity:amount=20e6 \
		--policy cash-threshold:threshold=8e6,amount=12.6e6

test: $(VENV)/.test-ready lint
	$(BIN)/python -m pytest -q -n auto --dist loadfile
	JAX_ENABLE_X64=1 $(BIN)/python -m pytest -q tests/test_books.py

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.verify-ready
	$(BIN)/mkdocs build --quiet

verify: test docs
	$(BIN)/python -m pytest -q -rs -m slow
	JAX_ENABLE_X64=1 $(BIN)/python -m pytest -q -n auto --dist loadfile -m "slow or not slow" tests/test_twin_agreement.py tests/test_draws.py \
		tests/test_environment.py tests/test_errors.py
	$(BIN)/python tests/mutations.py
	$(BIN)/python tests/audit.py

$(VENV)/.run-ready: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.test-ready: $(VENV)/.run-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.verify-ready: $(VENV)/.test-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench,docs]'
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]'  # not made for every platform
	@touch $@

clean:
	rm -rf $(VENV) dist build
