# SPDX-License-Identifier: BSD-3-Clause
# The one source of truth for compiler flags. Run from the repository root:
#
#   make -f csrc/build.mk lib                       the static archive
#   make -f csrc/build.mk extension PYTHON=… OUT=…  torchcomms._core, built at OUT
#   make -f csrc/build.mk shim PYTHON=… OUT=…       torchcomms._backend_wrapper
#   make -f csrc/build.mk programs VARIANT=asan     the C test programs
#   make -f csrc/build.mk check VARIANT=asan        runs them; ONLY=c/% for some
#
# VARIANT is release, asan, tsan or model; BUILD is where everything goes; WERROR=1 makes
# warnings errors; V=1 shows the commands.

VARIANT = release
BUILD = build
PYTHON ?= python3
WERROR ?= 0
ONLY = %
Q := $(if $(V),,@)

# Apart, so that going from one to the other compiles nothing twice.
DIR := $(BUILD)/$(VARIANT)$(if $(filter 1,$(WERROR)),-strict)

.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := lib

# Flags --------------------------------------------------------------------------------

# Messages are cut where they do not fit, on purpose: no format-truncation.
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
    -Wno-format-truncation
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif

release_FLAGS := -O3 -g
asan_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
    -fno-sanitize-recover=all
tsan_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
model_FLAGS := -O1 -g -DTC_MODEL

ifeq ($($(VARIANT)_FLAGS),)
$(error unknown VARIANT '$(VARIANT)'; known are release, asan, tsan and model)
endif

CPPFLAGS_ALL := -D_GNU_SOURCE -Icsrc -Icsrc/include
CFLAGS_ALL := -std=c11 -ffp-contract=off -fPIC -pthread -fvisibility=hidden \
    $($(VARIANT)_FLAGS) $(WARNINGS) $(CFLAGS)
LDFLAGS_ALL := -pthread $(filter -fsanitize=%,$($(VARIANT)_FLAGS)) $(LDFLAGS)
LDLIBS_ALL := -lm -ldl

# What is built: found by wildcard, so that a new file needs no row anywhere -----------

find_c = $(sort $(shell find $(1) -name '*.c' 2>/dev/null))

FACES := csrc/python csrc/torch
LIB_SOURCES := $(filter-out $(addsuffix /%,$(FACES)),$(call find_c,csrc))
PYTHON_SOURCES := $(call find_c,csrc/python)

ifeq ($(VARIANT),model)
TEST_DIRS := tests/model
SHARED_SUPPORT :=
else
TEST_DIRS := tests/c tests/sim tests/conformance
SHARED_SUPPORT := tests/c/support
endif
TEST_SOURCES := $(sort $(wildcard $(addsuffix /test_*.c,$(TEST_DIRS))))

object = $(patsubst %.c,$(DIR)/obj/%.o,$(1))
LIB_OBJECTS := $(call object,$(LIB_SOURCES))
# A program is linked with the support of its directory and with that of tests/c.
support = $(call object,$(call find_c,$(sort $(1)/support $(SHARED_SUPPORT))))
SUPPORT_OBJECTS := $(sort $(foreach dir,$(TEST_DIRS),$(call support,$(dir))))
TEST_PROGRAMS := $(filter $(DIR)/tests/$(ONLY),$(TEST_SOURCES:%.c=$(DIR)/%))
LIB := $(DIR)/libtorchcomms.a

# Stamps: their time changes when their text does, so that other flags or a deleted
# source rebuild what they must and nothing else does.
define stamp
$(shell mkdir -p $(dir $(1)); printf '%s\n' '$(subst ','\'',$(2))' | cmp -s - $(1) || \
    printf '%s\n' '$(subst ','\'',$(2))' > $(1))
endef

FLAGS_STAMP := $(DIR)/flags
LIST_STAMP := $(DIR)/objects
$(call stamp,$(FLAGS_STAMP),$(shell $(CC) --version | head -n 1) $(CPPFLAGS_ALL) \
    $(CFLAGS_ALL) $(LDFLAGS_ALL))
$(call stamp,$(LIST_STAMP),$(LIB_OBJECTS) $(SUPPORT_OBJECTS))

# Rules --------------------------------------------------------------------------------

$(DIR)/obj/tests/%.o: CPPFLAGS_ALL += -Itests -Itests/c

$(DIR)/obj/%.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	@echo "cc $@"
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

# Made under another name first: two builds at once never see half an archive.
$(LIB): $(LIB_OBJECTS) $(LIST_STAMP)
	@echo "ar $@"
	@rm -f $@.new
	$(Q)$(AR) rcs $@.new $(LIB_OBJECTS)
	@mv $@.new $@

.SECONDEXPANSION:
$(DIR)/tests/%: $(DIR)/obj/tests/%.o $$(call support,tests/$$(*D)) $(LIB) $(LIST_STAMP)
	@mkdir -p $(@D)
	@echo "ld $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) $(LIB) $(LDLIBS_ALL) -o $@

.PHONY: lib programs check extension shim clean
lib: $(LIB)

programs: $(TEST_PROGRAMS)

# One after another, since many of them run several ranks. `timeout` is the leader of
# the program's process group and takes forked ranks along.
check: programs
	@set -u; failed=0; count=0; log=$(DIR)/check.log; \
	for program in $(TEST_PROGRAMS); do \
	    count=$$((count + 1)); status=0; \
	    timeout -k 5 300 "$$program" >"$$log" 2>&1 </dev/null || status=$$?; \
	    if [ $$status -eq 0 ]; then \
	        echo "$${program#$(DIR)/tests/} ok"; \
	    else \
	        failed=$$((failed + 1)); cat "$$log"; \
	        if [ $$status -eq 124 ]; then status="still running after 300 s"; \
	        else status="exit status $$status"; fi; \
	        echo "$${program#$(DIR)/tests/} FAILED ($(VARIANT)): $$status"; \
	    fi; \
	done; \
	if [ $$count -eq 0 ]; then \
	    echo "no $(VARIANT) test program '$(ONLY)' in $(TEST_DIRS)"; exit 1; \
	fi; \
	echo "$(VARIANT): $$((count - failed)) of $$count programs passed"; \
	[ $$failed -eq 0 ]

check: export ASAN_OPTIONS = detect_leaks=1:detect_stack_use_after_return=1
check: export UBSAN_OPTIONS = print_stacktrace=1
check: export TSAN_OPTIONS = halt_on_error=1:second_deadlock_stack=1

clean:
	rm -rf $(BUILD)

# The Python face: objects by ABI, since one tree may serve several Pythons ------------

ifneq ($(filter extension,$(MAKECMDGOALS)),)
PYTHON_INFO := $(shell $(PYTHON) -c 'import sysconfig as s; \
    print(s.get_paths()["include"], s.get_config_var("EXT_SUFFIX"))')
PYTHON_INCLUDE := $(word 1,$(PYTHON_INFO))
EXT_SUFFIX := $(word 2,$(PYTHON_INFO))
ifeq ($(EXT_SUFFIX),)
$(error '$(PYTHON)' does not run: set PYTHON to the interpreter to build for)
endif
ifeq ($(wildcard $(PYTHON_INCLUDE)/Python.h),)
$(error no Python.h in $(PYTHON_INCLUDE): install the headers of $(PYTHON))
endif
OUT ?= $(DIR)/_core$(EXT_SUFFIX)
PYTHON_DIR := $(DIR)/python$(EXT_SUFFIX:.so=)
PYTHON_OBJECTS := $(patsubst %.c,$(PYTHON_DIR)/%.o,$(PYTHON_SOURCES))
PYTHON_STAMP := $(PYTHON_DIR)/objects
EXPORTS := $(PYTHON_DIR)/exports.map
$(call stamp,$(PYTHON_STAMP),$(PYTHON_INCLUDE) $(PYTHON_OBJECTS))
$(call stamp,$(EXPORTS),{ global: PyInit__core; local: *; };)

extension: $(OUT)

$(PYTHON_DIR)/%.o: %.c $(FLAGS_STAMP) $(PYTHON_STAMP)
	@mkdir -p $(@D)
	@echo "cc $@"
	$(Q)$(CC) $(CPPFLAGS_ALL) -isystem $(PYTHON_INCLUDE) $(CFLAGS_ALL) -MMD -MP \
	    -c $< -o $@

# A running process may have the old file mapped: replaced, never written over.
$(OUT): $(PYTHON_OBJECTS) $(LIB) $(EXPORTS)
	@mkdir -p $(@D)
	@echo "ld $@"
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,--version-script=$(EXPORTS) $(PYTHON_OBJECTS) \
	    $(LIB) $(LDLIBS_ALL) -o $@.new
	@mv $@.new $@

-include $(PYTHON_OBJECTS:.o=.d)
endif

# The c10d shim: C++, for the torch of $(PYTHON) and for no other. It has nothing of the
# core inside and reaches it through a capsule. Every torch that is supported is built
# with the C++11 ABI, which is the compiler's default ------------------------------------

ifneq ($(filter shim,$(MAKECMDGOALS)),)
TORCH_INFO := $(shell $(PYTHON) -c 'import importlib.util as u, os, sysconfig as s; \
    f = u.find_spec("torch"); \
    print(s.get_paths()["include"], s.get_config_var("EXT_SUFFIX"), \
          os.path.dirname(f.origin) if f else "")')
TORCH := $(word 3,$(TORCH_INFO))
TORCH_INCLUDE := $(TORCH)/include
ifeq ($(wildcard $(TORCH_INCLUDE)/torch/csrc/distributed/c10d/Backend.hpp),)
$(error '$(PYTHON)' has no torch with headers: the c10d shim is built for one)
endif
OUT ?= $(DIR)/_backend_wrapper$(word 2,$(TORCH_INFO))
SHIM_SOURCES := $(sort $(wildcard csrc/torch/*.cpp))
TORCH_H := $(TORCH_INCLUDE)/torch/headeronly/version.h
SHIM_DIR := $(DIR)/shim$(patsubst %.so,%,$(word 2,$(TORCH_INFO)))-torch-$(shell \
    awk '/define TORCH_VERSION_(MAJOR|MINOR|PATCH) / {printf s $$3; s = "."}' $(TORCH_H))
# Ours is C++17; the headers of torch 2.14 are not.
SHIM_STANDARD := $(if $(shell grep 'error C++20' $(TORCH_INCLUDE)/ATen/ATen.h),20,17)
# All in one translation unit: torch's headers take half a minute to read.
SHIM_UNIT := $(SHIM_DIR)/unit.cpp
SHIM_OBJECT := $(SHIM_DIR)/unit.o
SHIM_FLAGS := -std=c++$(SHIM_STANDARD) -O2 -fPIC -pthread -fvisibility=hidden -D_GNU_SOURCE \
    -iquote csrc -iquote csrc/include -isystem $(word 1,$(TORCH_INFO)) \
    -isystem $(TORCH_INCLUDE) -isystem $(TORCH_INCLUDE)/torch/csrc/api/include \
    -Wall -Wextra -Wshadow $(filter -Werror,$(WARNINGS)) $(CXXFLAGS)
SHIM_STAMP := $(SHIM_DIR)/flags
$(call stamp,$(SHIM_STAMP),$(shell $(CXX) --version | head -n 1) $(SHIM_FLAGS) \
    $(SHIM_SOURCES) $(shell cksum < $(TORCH_H)))

shim: $(OUT)

$(SHIM_UNIT): $(SHIM_STAMP)
	@printf '#include "%s"\n' $(SHIM_SOURCES:csrc/%=%) > $@

$(SHIM_OBJECT): $(SHIM_UNIT) $(SHIM_SOURCES)
	@echo "c++ $@"
	$(Q)$(CXX) $(SHIM_FLAGS) -MMD -MP -c $< -o $@

$(OUT): $(SHIM_OBJECT)
	@mkdir -p $(@D)
	@echo "ld $@"
	$(Q)$(CXX) -shared -pthread $(LDFLAGS) $(SHIM_OBJECT) -L$(TORCH)/lib -ltorch_python \
	    -ltorch_cpu -lc10 -o $@.new
	@mv $@.new $@

-include $(SHIM_OBJECT:.o=.d)
endif

-include $(LIB_OBJECTS:.o=.d) $(SUPPORT_OBJECTS:.o=.d)
-include $(patsubst %.c,$(DIR)/obj/%.d,$(TEST_SOURCES))
