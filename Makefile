# Every target sets itself up: a virtual environment in .venv, and in it what the target needs.
# ARGS goes to the command behind the target:  make test ARGS="tests/test_space.py -x"

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: search test bench lint
.NOTPARALLEL:
.DELETE_ON_ERROR:

search: .venv/.installed-search
	$(BIN)/python -m ddas_gpu.search --data digits $(ARGS)

test: .venv/.installed-test
	$(BIN)/python -m pytest $(ARGS)

bench: .venv/.installed-bench
	$(BIN)/python -m pytest benchmarks --results benchmarks/RESULTS.md $(ARGS)

lint: .venv/.installed-ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# pip is the last thing that venv puts in place: without it, an interrupted start is repeated.
$(BIN)/pip:
	$(PYTHON) -m venv .venv

# A stamp for what is installed, so that the next call starts at once.
.venv/.installed-search: setup.py constraints.txt | $(BIN)/pip
	$(INSTALL) --editable .
	@touch $@

.venv/.installed-ruff: constraints.txt | $(BIN)/pip
	$(INSTALL) ruff
	@touch $@

.venv/.installed-%: setup.py constraints.txt | $(BIN)/pip
	$(INSTALL) --editable ".[$*]"
	@touch $@
