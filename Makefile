.DEFAULT_GOAL := help
PYTHON ?= python

.PHONY: help check lint types imports test bench bench-what-if bench-drift bench-hook bench-planner bench-ranks bench-snapshot clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

check: lint types imports test ## everything CI runs

lint: ## style of all code
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types: ## static types of the package
	$(PYTHON) -m mypy

imports: ## the layers import in one direction only
	lint-imports

test: ## tests, in parallel
	$(PYTHON) -m pytest -n auto --dist loadfile

bench: ## side by side with HolisticTraceAnalysis (installs it into its own environment)
	$(PYTHON) benchmarks/matching.py
	$(PYTHON) benchmarks/ingest.py
	$(PYTHON) -m benchmarks.what_if

bench-what-if: ## the replay of a pipeline of 128 workers and 100 micro-batches: time, memory, loss found
	$(PYTHON) -m benchmarks.what_if

bench-ranks: ## simulated jobs of up to 1,024 ranks in all orders: dimensions, spans, pairs under faults, clocks
	$(PYTHON) benchmarks/rank_orders.py

bench-drift: ## causes of slowing down, put in and found again: the confusion matrix
	$(PYTHON) benchmarks/drift.py

bench-snapshot: ## a memory snapshot of 1.2 GB: time, memory, size of the report
	$(PYTHON) -m benchmarks.snapshot --mb 1200

bench-hook: ## what the live hook costs in a running job: a long A/B with its interval
	$(PYTHON) benchmarks/hook.py

bench-planner: ## the planner against published runs ($DIAGNOSE_VALIDATION), from one anchor each
	$(PYTHON) benchmarks/planner.py

clean: ## remove what builds and tests left
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis diagnose-report benchmarks/.work
