# `make` lists the targets. Everything runs in .venv, which `make setup` creates.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PY := .venv/bin/python
READY := .venv/ready

.PHONY: help setup demo test test-all coverage test-airflow test-dbt test-tpch test-tpcds test-slt test-sql test-browser test-notebook notebook pictures check format docs bench promises soak wheel clean

help: ## list the targets
	@printf 'make TARGET, where TARGET is one of\n\n'
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12
	@printf '\nmake test ARGS="-k join" passes arguments on to pytest.\n'

setup: ## .venv, Delta's jars, compiled kernels, a class archive; needs Python 3.11-3.13, and Java 17 for Spark
	@tools/setup.sh

$(READY): pyproject.toml constraints.txt
	@tools/setup.sh

demo: $(READY) ## ingest, run and diff on sample_data, in ./demo
	@examples/outages/demo.sh demo

test: $(READY) ## all tests but those marked long, and a sample of costly families; make test LANE=unit (or spark, recovery, docs) for one lane
	@$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(if $(LANE),-m "$(LANE) and not long") $(ARGS)

test-all: $(READY) ## all tests, those marked long, whole families and 2,000 random programs among them: for every night
	@DDCORE_FSYNC=1 DDCORE_SEEDS=$${DDCORE_SEEDS:-2000} $(PY) -m pytest -m "" $(ARGS)

coverage: $(READY) ## the tests of make test, and which lines they ran: a figure, and pages in build/coverage
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered --cov-report=html:build/coverage $(ARGS)

test-tpch: $(READY) ## TPC-H's 22 queries in SQL equal DuckDB at every version of a stream of refreshes
	@$(PY) -m pytest -m "" tests/test_tpch_sql.py $(ARGS)

test-tpcds: $(READY) ## TPC-DS's 99 queries in SQL equal DuckDB at every version of small tables; pip fetches the texts once
	@$(PY) tests/support/tpcds.py $(ARGS)

test-slt: $(READY) ## SQLite's sqllogictest: 20,000 of its queries, and statements after them; Maven fetches it once
	@$(PY) tests/support/slt.py $(ARGS)

test-sql: $(READY) ## random programs of SQL equal DuckDB, and PostgreSQL where it is installed, at every version
	@$(PY) tests/support/random_sql.py $(ARGS)

test-airflow: $(READY) ## the DAGs of examples/airflow under Airflow, in an environment of its own; needs the network once
	@$(PY) -m pytest -m "" tests/test_airflow.py $(ARGS)

test-dbt: $(READY) ## the project of examples/dbt equals what dbt builds, in an environment of its own; needs the network once
	@$(PY) -m pytest -m "" tests/test_dbt.py $(ARGS)

test-browser: $(READY) ## the pages of dd report in Debian's chromium, light and dark, wide and narrow
	@$(PY) -m pytest -m browser tests/test_browser.py $(ARGS)

test-notebook: $(READY) ## execute the notebook of examples/; every cell shows what is stored in it
	@$(PY) -m pytest -m "" tests/test_notebook.py $(ARGS)

notebook: $(READY) ## execute the notebook of examples/ and store what it shows
	@$(PY) tools/notebook.py

pictures: $(READY) ## draw the README's pictures anew
	@$(PY) tools/pictures.py

check: $(READY) ## formatting, lint, types and the contract of imports, as in CI
	@.venv/bin/ruff format --check --quiet . || { echo 'to fix it: make format' >&2; exit 1; }
	@.venv/bin/ruff check --quiet .
	@$(PY) tools/rooms.py
	@$(PY) tools/typecheck.py

format: $(READY) ## fix formatting and imports
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format --quiet .

docs: $(READY) ## build the documentation as a site in build/docs; a broken link is an error
	@$(PY) -m sphinx --fail-on-warning --keep-going --quiet -c docs -d build/doctrees . build/docs
	@echo 'the first page: build/docs/index.html'

bench: $(READY) ## measure against peers; a JSON object per line
	@$(PY) -m bench $(ARGS)

promises: $(READY) ## measure what bench/promises.toml promises; fails if a limit is broken; ARGS="where lookups" for some
	@$(PY) -m bench --promises $(ARGS)

soak: $(READY) ## kill commands at random moments and run them again; make soak CYCLES=300
	@$(PY) tools/soak.py --cycles $${CYCLES:-300} $(ARGS)

wheel: $(READY) ## build the wheel, with compiled kernels, in dist/; make wheel ARGS="--python python3.12" for more Pythons
	@$(PY) tools/build_wheel.py $(ARGS)

clean: ## remove what make created here (the cache of jars and kernels stays)
	@rm -rf .venv build dist demo *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
