# run: the embedded sample, from raw dump to a table of results, offline.   test: the tests.
# slow: those that take minutes.   check: ruff and mypy.   bench: the benchmarks.
# pythons: the same bytes on each supported Python.   docs: the site of docs/, into build/site.
# docs-outputs: what the commands of the pages print, and the pictures, into docs; on an idle machine.
# engines: the same bytes on a real Flink and a real Spark.   failures: both, and stores, harmed.
# wheel: the package, into dist.
# gpu-kit: what a GPU machine without network needs, into build/gpu-kit.
# setup: what a run needs.   setup-dev: the rest of the lock.   lock: make requirements.lock anew.

# The newest of these that is there and runs; PYTHON=... names another.
SUPPORTED := 3.13 3.12 3.11
LOOK_FOR = $(or $(PYTHON),$(SUPPORTED:%=python%) python3)
VENV := .venv
BIN := $(VENV)/bin

# PyTorch for the CPU, or with CUDA where there is an NVIDIA GPU. TORCH=cpu or TORCH=cuda decides.
ifndef TORCH
TORCH := $(if $(shell nvidia-smi -L 2>/dev/null),cuda,cpu)
endif
TORCH_VERSION := $(shell sed -n s/^torch==//p requirements.lock)
TORCH_FOR_CPU := https://download.pytorch.org/whl/cpu
UV_VERSION := 0.13.9
SIZE := $(if $(filter cuda,$(TORCH)),3.0,0.4)
READY := $(VENV)/.ready-$(TORCH)
READY_DEV := $(VENV)/.ready-dev-$(TORCH)

.PHONY: run test slow pythons engines setup-engines failures check bench docs docs-outputs wheel gpu-kit setup setup-dev lock clean

setup: $(READY)
setup-dev: $(READY_DEV)

version_of = $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null

# Sets $$python. A name may be there and not run (a shim of pyenv), so each is asked.
define find_python
found=; for python in $(LOOK_FOR); do \
  version=`$(call version_of,$$python)` || continue; \
  case " $(SUPPORTED) " in *" $$version "*) break ;; esac; \
  found="$$found $$python is $$version;"; version=; \
done; \
test -n "$$version" || { \
  echo "error: no supported Python ($(SUPPORTED)) among $(LOOK_FOR):$${found:- none of them runs}"; \
  echo "install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12"; \
  exit 1; } >&2
endef

PIP := $(BIN)/python -m pip --disable-pip-version-check

# uv resolves and installs in seconds what takes pip minutes. It does not read pip's configuration,
# so it gets the package index from there. It does not know the builds of PyTorch for the CPU in
# indexes that pip may be configured for: these stay with pip.
UV = index=`$(PIP) config list 2>/dev/null | sed -n "s/^[a-z:]*\.index-url='\(.*\)'/\1/p" | tail -n 1`; \
  $${index:+env UV_DEFAULT_INDEX="$$index"} $(BIN)/python -m uv pip install --python $(BIN)/python

# The build for the CPU is version+cpu: not on PyPI, but maybe in an index that pip is configured for.
# On macOS the default build is the one for the CPU.
define install_torch_cpu
test "$$(uname)" = Darwin || \
  $(PIP) install --no-deps torch==$(TORCH_VERSION)+cpu 2>/dev/null || \
  $(PIP) install --no-deps torch==$(TORCH_VERSION)+cpu --index-url $(TORCH_FOR_CPU) || \
  { echo "error: $(TORCH_FOR_CPU) has no build of PyTorch $(TORCH_VERSION) for this machine, or cannot be reached: 'make setup TORCH=cuda' installs the default build of your package index" >&2; exit 1; }
endef

# version+cpu is the version that the lock names, and would stay.
define install_torch_cuda
$(PIP) --quiet uninstall --yes torch 2>/dev/null
endef

# PyTorch first, where the default build of the package index is not the wanted one; then this project
# in place with what a run needs, in the exact versions of the lock.
$(READY): requirements.lock pyproject.toml
	@test -x $(BIN)/python || { $(find_python); \
	  echo "$(VENV): Python $$version, $$python"; \
	  $$python -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@version=`$(call version_of,$(BIN)/python)`; case " $(SUPPORTED) " in *" $$version "*) ;; *) \
	  echo "error: $(VENV) is of Python $${version:-that does not run}, supported are $(SUPPORTED): rm -r $(VENV), and make again" >&2; \
	  exit 1 ;; esac
	@echo "$(VENV): downloading about $(SIZE) GB of packages, PyTorch for $(TORCH) among them (TORCH=cpu or TORCH=cuda decides)"
	@rm -f $(VENV)/.ready-*
	@$(install_torch_$(TORCH))
	@$(PIP) --quiet install uv==$(UV_VERSION)
	@$(UV) --constraints requirements.lock --build-constraints requirements.lock --editable ".[flows,model]"
	@touch $@

# The rest of the lock: the tests, ruff, mypy, the peers of the benchmarks, the site of the documentation.
$(READY_DEV): $(READY)
	@echo "$(VENV): downloading about 0.2 GB of packages for development"
	@$(UV) --requirements requirements.lock
	@touch $@

run: setup
	$(BIN)/bertloom sample runs/sample
	$(BIN)/bertloom run sample --store runs/store --engine prefect

# Three processes on two cores; the tests of a module stay together, as they share what is slow to make.
test: setup-dev
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow and not engines and not failures"

# Files with tests of a mark. Each process imports all files that it gets, which takes half a minute
# for those of all tests.
files_with = $(shell grep -rl --include='test_*.py' 'mark\.$(1)\b' tests | sort)

slow: setup-dev
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "slow and not engines and not failures" $(call files_with,slow)

# Engines have an environment of their own, as theirs are other versions of what we use. They need
# Java 17 (openjdk-17-jre-headless) and Beam's job servers ($BERTLOOM_JOB_SERVERS); one process, as
# each engine takes the whole machine.
engines: setup-dev $(VENV).engines/.ready
	$(BIN)/python -m pytest -m engines $(call files_with,engines)

# An environment for each supported Python that is here, and the same bytes on all of them. The model's
# packages are left out: their wheels of CUDA are gigabytes.
pythons: setup-dev
	@for version in $(SUPPORTED); do \
	  python=$(VENV).$$version/bin/python; \
	  python$$version -c "" 2>/dev/null || { echo "no python$$version here"; continue; }; \
	  test -x $$python || python$$version -m venv $(VENV).$$version || exit 1; \
	  $$python -m pip install --quiet --disable-pip-version-check -c requirements.lock setuptools ".[flows,s3]" || exit 1; \
	  $$python -m pip uninstall --quiet --yes bertloom; \
	done
	$(BIN)/python -m pytest tests/project/test_pythons.py

# Processes that are stopped or killed, servers that go away or fail: a quarter of an hour and more.
failures: setup-dev $(VENV).engines/.ready
	$(BIN)/python -m pytest -m failures $(call files_with,failures)

setup-engines: $(VENV).engines/.ready

$(VENV).engines/.ready:
	@test -x $(VENV).engines/bin/python || { $(find_python); $$python -m venv $(VENV).engines; }
	$(VENV).engines/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  apache-flink-libraries==1.19.3 pyspark==3.5.9 py4j==0.10.9.7 && touch $@ || \
	  echo "Flink and Spark could not be installed: the tests on real engines will skip"

check: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup-dev
	$(BIN)/python -m benchmarks

# The generated pages, then all pages as a site: a dead link or anchor is an error.
docs: setup-dev
	$(BIN)/python docs/site/reference.py
	$(BIN)/python docs/site/api.py
	$(BIN)/python docs/site/commands.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: python -m http.server --directory build/site"

# One run of the commands of all pages: six minutes on two idle cores.
docs-outputs: setup-dev
	PYTHONPATH=tests $(BIN)/python -m support.doc_outputs

# setuptools would add what an earlier build left in build/lib.
wheel: setup-dev
	rm -rf build/lib build/bdist.*
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Wheels and the data of a small training; BERTLOOM_DATA names the raw data. See docs/how-to/gpu.md.
gpu-kit: setup
	$(BIN)/python -m deploy.gpu.kit

# A throw-away environment, so that nothing installed by hand gets into the lock. Which build of
# torch is taken (CPU or CUDA) is the installing machine's affair, so its tag is cut off, and what
# it brings of CUDA, which macOS has not; torch's own pins decide that. On the oldest Python;
# tests/project/test_packaging.py says what another needs besides.
FROM_3_13 := whenever==0.10.5
lock:
	rm -rf $(VENV).lock && $(or $(PYTHON),python3.11) -m venv $(VENV).lock
	$(VENV).lock/bin/python -m pip install --quiet "setuptools>=80" -e ".[dev]"
	{ echo "# Made by 'make lock': the whole closure of bertloom[dev] on Python 3.11, 3.12 and 3.13."; \
	  { $(VENV).lock/bin/python -m pip freeze --exclude-editable; echo $(FROM_3_13); } | LC_ALL=C sort -f -t= -k1,1 | \
	    sed -E -e 's/\+cpu$$//' -e '/^(nvidia-|cuda-|triton==)/d' \
	      -e 's/^(pendulum|tzdata)==.*/& ; python_version < "3.13"/' \
	      -e 's/^$(FROM_3_13)$$/& ; python_version >= "3.13"/'; \
	  $(VENV).lock/bin/python -m pip freeze --all --exclude-editable | grep -i '^setuptools=='; } > requirements.lock
	rm -rf $(VENV).lock

clean:
	rm -rf $(VENV) $(VENV).* runs build dist *.egg-info
