# run: the embedded sample, from raw dump to a table of results, offline.   test: the tests.
# slow: those that take minutes.   check: ruff and mypy.   bench: the benchmarks.
# lock: make requirements.lock anew.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test slow check bench setup lock clean

setup: $(READY)

# Exact versions of the whole closure from the lock, then this project itself in place.
$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "needs Python 3.11 as $(PYTHON); set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

run: setup
	$(BIN)/bertloom sample runs/sample
	$(BIN)/bertloom run sample --store runs/store

# A process a core; the tests of a module stay together, as they share what is slow to make.
test: setup
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

slow: setup
	$(BIN)/python -m pytest -n auto --dist loadfile -m slow

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

# A throw-away environment, so that nothing installed by hand gets into the lock. Which build of
# torch is taken (CPU or CUDA) is the installing machine's affair, so its tag is cut off.
lock:
	rm -rf $(VENV).lock && $(PYTHON) -m venv $(VENV).lock
	$(VENV).lock/bin/python -m pip install --quiet "setuptools>=80" -e ".[dev]"
	{ echo "# Made by 'make lock': the whole closure of bertloom[dev] on Python 3.11."; \
	  $(VENV).lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; \
	  $(VENV).lock/bin/python -m pip freeze --all --exclude-editable | grep -i '^setuptools=='; } > requirements.lock
	rm -rf $(VENV).lock

clean:
	rm -rf $(VENV) runs build *.egg-info
