# make demo       run the hello world
# make test       linter, type checker and tests: what continuous integration runs
# make test-fast  the half of the tests that is fast; with CORPUS=FOLDER, on the models of another folder or none
# make reference  write the pages of the documentation that follow from the code
# make format     format the code
# make matrix     the tests on every Python of $(PYTHONS) that is there
# make minimum    the tests with the lowest versions of the dependencies that are allowed
# make i386       the real models and the tests of the kernels on a Python of 32 bits, in $(I386)
# make aarch64    the same on a Python of 64-bit Arm under emulation, in $(AARCH64), with and without dot products
# make processors the real models and the tests of the kernels for each instruction set of x86, on a processor that has them all
# make wheel      the hello world and the command, from the built wheel
# make web        the page that runs the package in a browser, in build/web
# make web-test   all tests of that page in Chromium (two minutes); `make test` runs what needs no Python there
# make web-serve  that page on this machine, at port $(PORT), with a Pyodide of its own
# make docs       the documentation site in build/site; make docs-test walks it in Chromium
# make release-check  all checks of a release that need no account
# make explorer   node data of operators, held to Google's Model Explorer, whose adapter of 500 MB it installs
# make quantizer  float models quantized with the newest litert-quantizer, which it installs, with 313 MB
# make coverage   the tests with the share of lines that they run, which has a floor
# make faults     faults in single lines of each package, and how many of them the tests catch: FAULTS='--package boards'
# make graphs     10,000 random graphs through TFLM, numpy, the engine, rewriting, planning and as C: a quarter of an hour
# make device     10,000 sessions with a device over a link that loses, changes and delays bytes (ten minutes)
# make devices    firmware that serves, with TFLM's sources in $(TFLM_TREE) and as C: ten models, five machines of QEMU and this one
# make tree       TFLM's sources with their downloads in $(TFLM_TREE), from the git directories REPOSITORIES
# make long       the tests that take long, 2000 examples an operator, mutants of models, a soak: an hour or two
# make compiled   all models and operators as C, with every compiler that is installed (an hour or two), and names what was skipped;
#                 `make test` builds a few
# make stream     10,000 windows of random frames and 1,000 like sound through the streaming form of MODEL, in TFLM, here and in C
# make firmware   make compiled, and with LIBRARY and COMPILE 40 firmwares of random operators, linked with TFLM's library
# make compiled-figures  measure code, stack and instructions of their kernels, with arm-none-eabi-gcc and QEMU
# make compiled-check  compare these figures with those of models, under emulation
# make projects   projects compiled with the sources of TFLM, the Pico SDK and ST in $(TFLM_TREE), $(PICO_SDK) and $(STM32),
#                 run in QEMU, and compared with ESP-IDF's in $(IDF_TREE)
#
# Each makes its own environment first.

PYTHON ?= python3
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
NUMPY ?=
VENV ?= .venv
I386 ?= ../i386
AARCH64 ?= ../aarch64
PORT ?= 8000
FAULTS ?=
TFLM_TREE ?= ../tflite-micro
ifndef CORPUS
CORPUS := $(or $(TFLM_CORPUS),../shared)
endif
export TFLM_CORPUS := $(abspath $(CORPUS))
# Hundreds of processes start, and each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

RUNTIME := $(VENV)/runtime.stamp
TESTING := $(VENV)/testing.stamp
RELEASING := $(VENV)/releasing.stamp
DOCUMENTING := $(VENV)/documenting.stamp
PIP := $(VENV)/bin/pip --quiet --disable-pip-version-check
# uv takes seconds where pip takes a minute. Where it cannot be had, or finds no index, pip installs.
INSTALL = $(PIP) install uv && $(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python $(1) || $(PIP) install $(1)
LOWEST := 'numpy==2.0.*' 'flatbuffers==25.12.19' 'typer==0.15.*' 'rich==13.*' 'matplotlib==3.9.*'
COVERAGE_FLOOR := 90

# Tests that take longer than the usual limit.
UNLIMITED := --hang-seconds 0

# The extras that the README installs, and those that tests need.
USED := cli,fast,plot,images
TESTED := test,oracle,benchmark,vela,images,metrics,dask,device

# The real models, and kernels on their own.
ON_EVERY_PROCESSOR := $(addprefix tests/test_,$(addsuffix .py,real_models kernels signal fixed_point products \
	rounding_mode gathering movement resizing control_flow custom_operators))

ON_AARCH64 := tools/aarch64.sh $(AARCH64) -m pytest -o addopts= -p no:cacheprovider

.PHONY: demo device devices tree test lint pytest test-fast reference format matrix matrix-entry minimum i386 aarch64 processors wheel web web-runtime web-test \
	web-serve docs docs-test release-check stream explorer quantizer coverage firmware projects compiled compiled-cmsis-nn compiled-figures compiled-stacks \
	compiled-check faults figures graphs history overlaps long clean

demo: $(RUNTIME)
	$(VENV)/bin/python examples/hello_world/hello_world.py

# Tests wait for processes and files at times, in which the linter and the type checker run.
test: $(TESTING)
	$(MAKE) --jobs 2 lint pytest

lint: $(TESTING)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/python tools/check_types.py

pytest: $(TESTING)
	$(VENV)/bin/pytest

test-fast: $(TESTING)
	$(VENV)/bin/pytest -m 'not slow and not long'

# TFLM itself has no build for 32 bits: the oracle runs in the environment's own Python. Debian's flatbuffers is too old, and its
# hypothesis takes a global object for garbage, because tests freeze what garbage collection would scan.
i386: $(TESTING)
	$(PIP) install --upgrade --no-deps --target $(VENV)/i386 flatbuffers
	PYTHONPATH=$(CURDIR)/$(VENV)/i386 TFLM_ORACLE=$(CURDIR)/$(VENV)/bin/python tools/i386.sh $(I386) -m pytest -o addopts= -p no:cacheprovider \
		-W 'ignore:It looks like `register_random`' \
		$(ON_EVERY_PROCESSOR)

# Kernels are compiled by this machine's own LLVM, but for the tests of the compiler itself.
aarch64: $(TESTING)
	PIP=$(VENV)/bin/pip $(ON_AARCH64) tests/test_machine_code.py
	for path in dotprod:max neon:cortex-a53 plain:cortex-a53; do \
		TFLM_CPU=$${path%:*} QEMU_CPU=$${path#*:} TFLM_CROSS=$(CURDIR)/$(VENV)/bin/python TFLM_ORACLE=$(CURDIR)/$(VENV)/bin/python \
			$(ON_AARCH64) tests/test_compiled.py tests/test_recorded.py $(ON_EVERY_PROCESSOR) || exit 1; \
	done

reference: $(TESTING)
	$(VENV)/bin/python tools/reference.py
	$(VENV)/bin/python tools/notebook.py

format: $(TESTING)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

matrix:
	@for python in $(PYTHONS); do \
		$$python --version >/dev/null 2>&1 || { echo "$$python is not there: left out"; continue; }; \
		$(MAKE) matrix-entry PYTHON=$$python VENV=build/$$python || exit 1; \
	done

matrix-entry: $(TESTING)
	$(PIP) install 'numpy$(NUMPY)'
	$(VENV)/bin/pytest

minimum:
	$(MAKE) build/minimum/testing.stamp VENV=build/minimum
	build/minimum/bin/pip install --quiet --disable-pip-version-check $(LOWEST)
	build/minimum/bin/pytest

wheel:
	rm -rf build/wheel
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install --quiet --disable-pip-version-check build
	build/wheel/bin/python -m build --outdir build/wheel/dist
	build/wheel/bin/pip install --quiet --disable-pip-version-check "$$(echo build/wheel/dist/*.whl)[cli]"
	cd build/wheel && bin/python ../../examples/hello_world/hello_world.py
	cd build/wheel && bin/tflm arena ../../examples/hello_world/hello_world_int8.tflite

MODEL ?= $(CORPUS)/stream/str_ww_ref_model.tflite

stream: $(TESTING)
	$(VENV)/bin/python tools/stream_windows.py $(MODEL)

web: $(RUNTIME)
	$(VENV)/bin/python tools/website.py build build/web

# What the page loads from elsewhere; the tests of the page bring it themselves.
web-runtime: build/pyodide/pyodide-lock.json

build/pyodide/pyodide-lock.json: tools/website.py | $(RUNTIME)
	$(VENV)/bin/python tools/website.py runtime build/pyodide

web-test: $(TESTING) web-runtime
	$(VENV)/bin/pytest $(UNLIMITED) -n 0 -m '' tests/test_web.py tests/test_arena_page.py

web-serve: web-runtime
	$(VENV)/bin/python tools/website.py build build/web-local --runtime build/pyodide
	$(VENV)/bin/python -m http.server --bind 127.0.0.1 --directory build/web-local $(PORT)

docs:
	$(MAKE) build/documenting/documenting.stamp VENV=build/documenting
	build/documenting/bin/python tools/documentation.py build build/site

docs-test: web-runtime
	$(MAKE) build/documenting/testing.stamp build/documenting/documenting.stamp VENV=build/documenting
	build/documenting/bin/pytest $(UNLIMITED) -n 0 tests/test_documentation.py

# With TAG=v0.2.0, the checks of that release.
release-check:
	$(MAKE) build/releasing/releasing.stamp VENV=build/releasing
	build/releasing/bin/python tools/release.py check $(if $(value TAG),--tag "$$TAG") $(if $(STRICT),--strict)

processors: $(TESTING)
	for path in avx512vnni avx512 avx2 sse2 plain; do \
		TFLM_CPU=$$path $(VENV)/bin/pytest tests/test_compiled.py $(ON_EVERY_PROCESSOR) || exit 1; \
	done

explorer: $(TESTING)
	$(PIP) install --editable '.[explorer]'
	$(VENV)/bin/pytest tests/test_node_data.py

quantizer: $(TESTING)
	$(PIP) install --upgrade litert-quantizer
	$(VENV)/bin/pytest $(UNLIMITED) tests/test_quantizer.py

coverage: $(TESTING)
	$(VENV)/bin/pytest $(UNLIMITED) --cov=tflm --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR)

firmware: compiled
	$(if $(LIBRARY),$(VENV)/bin/python tools/flash_groups.py $(LIBRARY) --compile '$(COMPILE)' --variant 'a check' --check 40)

# Every line that was recorded of TFLM's history, of which the tests compare a sample.
history: $(TESTING)
	TFLM_HISTORY=whole $(VENV)/bin/pytest $(UNLIMITED) -n 0 tests/test_releases.py

# TFLM_TREE is a checkout with its downloads, STM32 a folder with ST's repositories; what is not named is skipped.
projects: $(TESTING)
	TFLM_TREE=$(TFLM_TREE) PICO_SDK=$(PICO_SDK) STM32=$(STM32) IDF_TREE=$(IDF_TREE) $(VENV)/bin/pytest $(UNLIMITED) -n 0 tests/test_emulated_projects.py \
	tests/test_project_verdicts.py tests/test_emulated_memories.py tests/test_audio_example.py

# ST's repository is in the folder STM32. An hour or two, most of it for TFLM's libraries in build/projects.
devices: $(TESTING)
	TFLM_TREE=$(TFLM_TREE) STM32=$(STM32) $(VENV)/bin/pytest $(UNLIMITED) -n 0 tests/test_emulated_devices.py \
	tests/test_emulated_faults.py

tree: $(TESTING)
	$(VENV)/bin/python tools/tflm_tree.py $(TFLM_TREE) $(REPOSITORIES)

compiled: $(TESTING)
	TFLM_C=all $(VENV)/bin/pytest $(UNLIMITED) -rs tests/test_compile.py tests/test_c_source.py

# Models that call CMSIS-NN, built with its sources in the folder CMSIS_NN, on this machine and under emulation.
compiled-cmsis-nn: $(TESTING)
	TFLM_CMSIS_NN=$(CMSIS_NN) $(VENV)/bin/pytest $(UNLIMITED) -n 2 tests/test_cmsis_nn_programs.py

# The tables of kernels in tflm/c, after a change of kernels.
compiled-figures: $(TESTING)
	$(VENV)/bin/python tools/compiled_figures.py $(CORPUS)/models/*.tflite $(CORPUS)/ops/*.tflite

# The stack of CMSIS-NN's functions, from its sources in the folder CMSIS_NN; needs arm-none-eabi-gcc.
compiled-stacks: $(TESTING)
	$(VENV)/bin/python tools/compiled_figures.py --library $(CMSIS_NN)

compiled-check: $(TESTING)
	$(VENV)/bin/python tools/compiled_figures.py --check --parts $(CORPUS)/models/*.tflite

# CMSIS-NN's kernels with outputs that overlap inputs; needs arm-none-eabi-gcc, qemu-system-arm and CMSIS_NN, a git
# directory of the library.
overlaps: $(TESTING)
	$(VENV)/bin/python tools/prove_overlap.py $(CMSIS_NN)

# The figures of plans, programs and reports that the tests compare with: after a change that is meant to change some.
figures: $(TESTING)
	$(VENV)/bin/python tests/test_figures.py
	PYTHONPATH=tools $(VENV)/bin/python tests/test_recorded_programs.py
	$(VENV)/bin/python tests/test_public_defaults.py
	$(VENV)/bin/python tests/test_concerns.py
	$(VENV)/bin/python tests/test_operator_figures.py
	TFLM_RECORD=1 $(VENV)/bin/pytest -q -n 0 -k "seen or schema_says or recorded" \
		tests/test_options.py tests/test_json_schema.py tests/test_boards.py tests/test_allocator_check.py \
		tests/test_planner_check.py tests/test_projects.py tests/test_several_memories.py

faults: $(TESTING)
	$(VENV)/bin/python tools/faults.py $(FAULTS)

graphs: $(TESTING)
	TFLM_HYPOTHESIS=graphs $(VENV)/bin/pytest $(UNLIMITED) -n 2 --dist load -rP tests/test_joined_graphs.py

device: $(TESTING)
	TFLM_DEVICE_RUNS=10000 $(VENV)/bin/pytest $(UNLIMITED) -n 0 tests/test_device.py

long: $(TESTING)
	$(VENV)/bin/pytest $(UNLIMITED) -m long
	TFLM_HYPOTHESIS=long $(VENV)/bin/pytest $(UNLIMITED)
	$(VENV)/bin/python tools/fuzz.py --count 100000
	$(VENV)/bin/python tools/fuzz.py --count 10000 --compressed
	TFLM_COMPILED=0 $(VENV)/bin/python tools/fuzz.py --count 10000 --commands
	$(VENV)/bin/python tools/soak.py

clean:
	rm -rf $(VENV) build

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,--editable '.[$(USED)]')
	$(VENV)/bin/python -m compileall -q tflm
	touch $@

$(TESTING): pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,--editable '.[$(TESTED)]')
	$(VENV)/bin/python -m compileall -q tflm
	touch $@ $(RUNTIME)

$(DOCUMENTING): pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,--editable '.[docs]')
	touch $@ $(RUNTIME)

$(RELEASING): pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,--editable '.[release]')
	touch $@ $(RUNTIME)
