# Only python3 >= 3.11, make and the package registries are needed. Each target sets up what it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint check test-cuda-stub test-gpu bench clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vramscope needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,lint]'
	@touch $(STAMP)

demo: $(STAMP)  ## Three load cycles of a full-size model on a simulated GPU; page and metrics on port 10089
	@trap : INT; $(BIN)/vramscope run deploy/plans/demo.yaml --device simulated || [ $$? -eq 130 ]

test: $(STAMP)  ## All tests that need no GPU
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(PYTEST_ARGS)

lint: $(STAMP)  ## Formatting, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## lint and test

test-cuda-stub:  ## The CUDA build of torch on a stub driver (x86-64 with gcc)
	@$(PYTHON) tests/cuda_stub/rig/prepare.py; code=$$?; \
	if [ $$code -eq 77 ]; then exit 0; elif [ $$code -ne 0 ]; then exit $$code; fi; \
	.venv-cuda-stub/bin/python -m pytest tests/cuda_stub -m cuda_stub $(PYTEST_ARGS)

test-gpu: $(STAMP)  ## The demo plan on a real GPU: forecast against measurement, ledger, phases (4 minutes at most)
	$(BIN)/python tests/gpu/measure.py

bench: $(STAMP)  ## Scrapes during loads, and loading against from_pretrained (a few minutes, 2 GB of disk)
	$(BIN)/python tests/benchmarks/scrape_under_load.py
	$(BIN)/python tests/benchmarks/load_qwen.py

clean:  ## Remove what the targets made
	rm -rf $(VENV) .venv-cuda-stub .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
