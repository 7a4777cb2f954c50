# Every target creates a virtual environment in .venv and installs what it needs.
# ARGS is passed on to the command of a target:  make test ARGS="tests/test_space.py -x"

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: search test bench evidence docs lint torture sanitize
.NOTPARALLEL:
.DELETE_ON_ERROR:

search: .venv/.installed-search
	$(BIN)/python -m ddas_gpu.search --data digits $(ARGS)

# A process per core; the tests of a file, which share what they build, stay together.
test: .venv/.installed-test .venv/.installed-beside
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist loadfile $(ARGS)

bench: .venv/.installed-bench
	$(BIN)/python -m pytest benchmarks --results benchmarks/RESULTS.md $(ARGS)

# Hours on two cores; goes on where it was stopped. ARGS=render only writes the page.
evidence: .venv/.installed-search
	$(BIN)/python -m benchmarks.evidence $(ARGS)

# Warnings, such as a link to nowhere, are errors.
docs: .venv/.installed-docs
	$(BIN)/python -m mkdocs build --quiet --strict $(ARGS)

lint: .venv/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

torture: .venv/.installed-test
	PYTHONPATH=tests $(BIN)/python -m torture --write docs/reliability.md $(ARGS)

sanitize: .venv/.installed-test
	PYTHONPATH=tests $(BIN)/python -m torture.sanitize $(ARGS)

# venv installs pip last: as long as it is missing, an interrupted setup is repeated.
$(BIN)/pip:
	$(PYTHON) -m venv .venv

# A stamp per installed extra: the next call installs nothing.
.venv/.installed-search: setup.py constraints.txt | $(BIN)/pip
	$(INSTALL) --editable .
	@touch $@

# What cannot be installed beside this torch, in a folder of its own: see tests/beside.py. Without
# it the tests are skipped. The last two lines are what Ultralytics needs and the tests do not have.
.venv/.installed-beside: constraints.txt Makefile | $(BIN)/pip
	-$(INSTALL) --no-deps --upgrade --target .venv/beside timm torchvision ultralytics \
		contourpy cycler fonttools kiwisolver matplotlib pyparsing \
		opencv-python-headless polars polars-runtime-32
	@touch $@

.venv/.installed-%: setup.py constraints.txt | $(BIN)/pip
	$(INSTALL) --editable ".[$*]"
	@touch $@
