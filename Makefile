# SPDX-License-Identifier: BSD-3-Clause
# From a machine with python3 (pip, venv, headers), a C compiler and make to a running
# demo or a tested tree. Flags and C rules are in csrc/build.mk.

PYTHON ?= python3
VENV ?= .venv
TORCH_VERSION ?= 2.13.0
# Index with CPU builds of torch, where the default one brings CUDA along.
TORCH_INDEX ?=
JOBS ?= $(shell nproc)
PYTEST_ARGS ?=

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
STAMP := $(VENV)/installed-torch-$(TORCH_VERSION)
BUILD_MK := $(MAKE) --no-print-directory -f csrc/build.mk -j$(JOBS)
PYTEST := $(PY) -m pytest $(PYTEST_ARGS)
TORCHRUN := OMP_NUM_THREADS=1 $(PY) -m torch.distributed.run --standalone \
    --nproc-per-node 2

index_argument = $(if $(filter -%,$(TORCH_INDEX)),$(TORCH_INDEX),$(addprefix --index-url ,$(TORCH_INDEX)))
DOOR_TESTS = $(wildcard tests/multi/test_c10d_*.py) tests/unit/test_c10d_door.py
C_FILES = $(shell find csrc tests -name '*.[ch]' -not -path '*/build/*')
PY_FILES = setup.py _torchcomms_autoload.py torchcomms tests docs examples

.DEFAULT_GOAL := help
.PHONY: help env build demo test test-c test-sanitizers test-model test-python lint \
    test-torch test-door leaks asan-python format docs clean distclean

help:
	@echo "make env             environment in $(VENV) with torch $(TORCH_VERSION)"
	@echo "make build           torchcomms in it, editable; compiles only what changed"
	@echo "make demo            the examples on 2 ranks, then our times beside gloo's"
	@echo "make test            everything below, in this order"
	@echo "make lint            form, layers, sizes, options, symbols"
	@echo "make test-sanitizers C tests with address+undefined and with thread checks"
	@echo "make test-c          C tests and simulated plans"
	@echo "make test-model      all interleavings of the slot protocol"
	@echo "make test-python     pytest over the rest; PYTEST_ARGS='-k name'"
	@echo "make test-torch      the c10d tests against another torch, given as"
	@echo "                     TORCH_VERSION=2.14.1; not part of make test"
	@echo "make leaks           10,000 cycles of all objects: memory, descriptors flat"
	@echo "make asan-python     unit tests of the Python face under AddressSanitizer"
	@echo "make format          clang-format and ruff over the tree"
	@echo "make docs            docs/options.md and docs/contract.md from their tables"
	@echo "make clean           removes what was built; distclean also $(VENV)"
	@echo
	@echo "TORCH_INDEX=URL      package index with CPU builds of torch"
	@echo "PYTHON=python3.12    the interpreter $(VENV) is made from"

env: $(STAMP)

# torch first and alone: its index may have nothing else.
$(STAMP): tests/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(index_argument) torch==$(TORCH_VERSION)
	$(PIP) install -r tests/requirements.txt
	@touch $@

build: env
	$(PIP) install --quiet --no-build-isolation --no-deps --editable .

demo: build
	$(TORCHRUN) examples/all_reduce.py
	$(TORCHRUN) examples/train_digits.py --check
	$(TORCHRUN) examples/fsdp2_digits.py --check --against gloo
	$(TORCHRUN) -m torchcomms.bench --against gloo

# Warnings are errors in whatever a test target builds.
lint test test-c test-sanitizers test-model test-python test-torch leaks \
    asan-python: export WERROR = 1

# One after another, also under -j: each keeps all cores busy by itself, and the last
# line is pytest's summary.
test: build
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test-sanitizers
	@$(MAKE) --no-print-directory test-c
	@$(MAKE) --no-print-directory test-model
	@$(MAKE) --no-print-directory test-python

test-c:
	@$(BUILD_MK) programs
	@$(BUILD_MK) check

test-sanitizers:
	@$(BUILD_MK) programs VARIANT=asan
	@$(BUILD_MK) check VARIANT=asan
	@$(BUILD_MK) programs VARIANT=tsan
	@$(BUILD_MK) check VARIANT=tsan

test-model:
	@$(BUILD_MK) check VARIANT=model

test-python: build
	$(PYTEST) tests $(addprefix --ignore tests/,lint c sim model)

# In an environment of its own, where the package is installed and not editable: the tree
# keeps the shim for its own torch. So pytest is run as a program, which does not put the
# tree before the installed package.
test-torch:
	@$(MAKE) --no-print-directory VENV=build/torch-$(TORCH_VERSION) test-door

test-door: env
	$(PIP) install --quiet --no-build-isolation --no-deps --force-reinstall .
	$(VENV)/bin/pytest $(PYTEST_ARGS) $(DOOR_TESTS)

# Not part of make test, which runs 500 of them.
leaks: build
	$(PY) tests/leaks/cycles.py 10000

# The package again, with the C part under AddressSanitizer and the shim as it is. pytest
# is run as a program, which does not put the tree before that package.
# PYTHONMALLOC: so that freed Python objects are seen too. No leak detection: CPython and
# torch leave thousands of blocks at exit, all of them below frames of the interpreter,
# as ours would be; leaks are for `make leaks`. libstdc++ beside libasan, which otherwise
# does not find what throws. Not test_face_docs, which is about stubs.
ASAN_FACE := build/asan/face
ASAN_TESTS = $(filter-out %/test_face_docs.py,$(wildcard tests/unit/test_face_*.py \
    tests/unit/test_contract_*.py)) tests/leaks

asan-python: build
	rm -rf $(ASAN_FACE) && mkdir -p $(ASAN_FACE)
	cp -r torchcomms $(ASAN_FACE)
	rm $(ASAN_FACE)/torchcomms/_core.*.so
	@$(BUILD_MK) extension VARIANT=asan PYTHON=$(PY) \
	    OUT=$(ASAN_FACE)/torchcomms/_core$(shell $(PY) -c \
	    'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
	PYTHONPATH=$(ASAN_FACE) PYTHONMALLOC=malloc \
	    LD_PRELOAD="$(foreach lib,libasan.so libstdc++.so.6,$(shell \
	    $(CC) -print-file-name=$(lib)))" \
	    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	    $(VENV)/bin/pytest $(PYTEST_ARGS) $(ASAN_TESTS)

lint: build
	$(PYTEST) tests/lint

format: env
	$(PY) -m ruff format $(PY_FILES)
	$(PY) -m ruff check --fix $(PY_FILES)
	$(VENV)/bin/clang-format -i $(C_FILES)

docs: env
	$(PY) docs/generate_options.py
	$(PY) docs/generate_contract.py

clean:
	@$(BUILD_MK) clean
	rm -rf dist *.egg-info torchcomms/*.so .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
