# Only python3 >= 3.11, make and the package registries are needed. Each target sets up what it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEPLOY := $(VENV)/.deploy-tools

.PHONY: help demo test fuzz lint check dashboards docs draw-dashboards test-cuda-stub test-compose test-gpu bench bench-fleet long-run chaos clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt daemon/vramscope/loading/_halves.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vramscope needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,lint]'
	@touch $(STAMP)

$(DEPLOY): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[deploy]'
	@touch $(DEPLOY)

demo: $(STAMP)  ## Three load cycles of a full-size model on a simulated GPU; page and metrics on port 10089
	@trap : INT; $(BIN)/vramscope run deploy/plans/demo.yaml --device simulated || [ $$? -eq 130 ]

test: $(DEPLOY)  ## All tests that need no GPU
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(PYTEST_ARGS)

fuzz: $(STAMP)  ## The property tests with other examples than in `make test`, and many more (some minutes)
	$(BIN)/python -m pytest --numprocesses 2 --hypothesis-profile fuzz --timeout 1800 $$(grep -rl '^from hypothesis import' tests --include='test_*.py')

lint: $(STAMP)  ## Formatting, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## lint and test

dashboards: $(STAMP)  ## Write Grafana's dashboards from the code in dashboards/
	$(BIN)/python -m dashboards

docs: $(STAMP)  ## Write the reference of the metrics, docs/metrics.md, from the collectors
	$(BIN)/python -m docs.metrics

draw-dashboards:  ## Draw the dashboards from a running Prometheus' data (Node.js, Chromium): PROMETHEUS=, INSTANCE=, SECONDS_SHOWN=
	@cd tests/monitoring/draw && npm install --no-audit --no-fund --no-package-lock --ignore-scripts --silent && \
	node draw.mjs $(or $(PROMETHEUS),http://127.0.0.1:9090) $(or $(INSTANCE),127.0.0.1:10089) $(or $(SECONDS_SHOWN),1800) ../../../docs/images

test-cuda-stub:  ## The CUDA build of torch on a stub driver (x86-64 with gcc)
	@$(PYTHON) tests/cuda_stub/rig/prepare.py; code=$$?; \
	if [ $$code -eq 77 ]; then exit 0; elif [ $$code -ne 0 ]; then exit $$code; fi; \
	.venv-cuda-stub/bin/python -m pytest tests/cuda_stub -m cuda_stub $(PYTEST_ARGS)

test-compose: $(DEPLOY)  ## docker-compose.yml on a Docker engine, with a simulated GPU: healthy, alerts that arrive, a clean end
	@tests/compose/run.sh $(BIN)/python $(PYTEST_ARGS); code=$$?; [ $$code -eq 77 ] || exit $$code

test-gpu: $(STAMP)  ## The demo plan on a real GPU: forecast against measurement, ledger, phases (4 minutes at most)
	$(BIN)/python tests/gpu/measure.py

bench: $(STAMP)  ## Loads, starts and scrapes against their peers, in turn (some ten minutes, 2 GB of disk)
	$(BIN)/python tests/benchmarks/scrape_under_load.py
	$(BIN)/python tests/benchmarks/load_qwen.py
	$(BIN)/python tests/benchmarks/move.py
	$(BIN)/python tests/benchmarks/load_cold.py
	$(BIN)/python tests/benchmarks/start_up.py
	$(BIN)/python tests/benchmarks/inspect_shards.py

bench-fleet: $(STAMP)  ## 200 simulated daemons on one Prometheus: the Fleet dashboard's queries (some ten minutes; apt prometheus)
	$(BIN)/python -m tests.benchmarks.fleet

long-run: $(STAMP)  ## 200 cycles of several models and 1000 of one: nothing may be left, and nothing may grow (some 10 minutes)
	$(BIN)/python -m tests.benchmarks.long_run

chaos: $(STAMP)  ## 200 cycles of a tiny model while faults are injected at random: the same daemon, nothing lost, nothing left (5 minutes)
	$(BIN)/python -m tests.chaos.run $(CHAOS_ARGS)

clean:  ## Remove what the targets made
	rm -rf $(VENV) .venv-cuda-stub .venv-compose .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
