PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := .venv/installed
BENCH_INSTALLED := .venv/installed-bench
DOCS_INSTALLED := .venv/installed-docs
# Accountants and models of others that only `make outside` needs.
ZOO := build/outside

# Tests start many processes: compiled modules, and tests with their assertions, are kept.
check test: export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo lint check test bench outside mutants faults docs tutorials wheel release format clean

help:  ## say what can be made
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile | expand -t 14

demo: $(INSTALLED)  ## compare every method on census data: which to use, and what privacy costs
	$(BIN)/tacit compare adult --epsilon 0.5,1,3 --seeds 2 --out demo

lint: $(INSTALLED)  ## lint, check the types and layers
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache

check: lint  ## lint, check the types and layers, run the fast half of the tests
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow" tests

test: lint  ## lint, check the types and layers, run every test
	$(BIN)/python -m pytest -n auto --dist worksteal

bench: $(BENCH_INSTALLED)  ## measure accounting, training and audits, beside their peers where there are any
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/accounting_growth.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/loops.py
	$(BIN)/python benchmarks/large_table.py
	$(BIN)/python benchmarks/methods.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/correlated.py
	$(BIN)/python benchmarks/allocation.py
	$(BIN)/python benchmarks/audit_controls.py

outside: $(INSTALLED)  ## let others judge: accountants, scikit-learn, recorded noise, architectures; some minutes
	-$(PIP) install --quiet --no-deps --upgrade --target $(ZOO) \
		prv-accountant==0.2.0 riskcal==1.5.1 timm==1.0.31 torchvision==0.28.0
	PYTHONPATH=$(ZOO) $(BIN)/python benchmarks/outside.py
	$(BIN)/python benchmarks/scikit_checks.py
	$(BIN)/python benchmarks/recorder.py
	PYTHONPATH=$(ZOO) $(BIN)/python benchmarks/architectures.py

mutants: $(INSTALLED)  ## plant bugs, one at a time, and see who catches each: types, tests, tacit audit
	$(BIN)/python benchmarks/mutants.py

faults: $(INSTALLED)  ## kill runs, fill disks, race for budgets, damage every input; goes on where it stopped
	$(BIN)/python benchmarks/faults.py

docs: $(DOCS_INSTALLED)  ## build the documentation site into build/site; any warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Documentation: build/site/index.html"

tutorials: $(INSTALLED)  ## run the tutorials and write their output into the pages; draw the pictures
	$(BIN)/python docs/_tools/tutorials.py
	$(BIN)/python docs/_tools/pictures.py

wheel: $(INSTALLED)  ## build a wheel and a source distribution into dist
	$(BIN)/python -m hatchling build

release: $(INSTALLED)  ## build wheel and sources twice, compare them, and list all dependencies with licences
	$(BIN)/python docs/_tools/release.py

format: $(INSTALLED)  ## repair what ruff can repair
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:  ## remove the virtual environment and everything made
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install --quiet -c constraints.txt -e ".[dev]"
	touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(PIP) install --quiet -c constraints.txt -e ".[dev,bench]"
	touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(PIP) install --quiet -c constraints.txt -e ".[dev,docs]"
	touch $@
