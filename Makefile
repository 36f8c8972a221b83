# Everything here needs only make and Python 3.11 or newer. `make` lists the targets.
VENV := .venv
PY := $(VENV)/bin/python
TYPE := cow
MINUTES := 10
ROUNDS := 50
HISTORIES := 10000
# The branch coverage of the fast tests may not fall below this, in percent; they reach 92.
FLOOR := 91
ARGS :=

# Brings $(VENV) up to date with the extras named; does nothing when they are there.
ready = @python="$$(sh scripts/find-python)" && "$$python" scripts/bootstrap.py --venv $(VENV) $(1)
check = @$(PY) scripts/check.py $(1)
ALL := test dev docs

.DEFAULT_GOAL := help
.PHONY: help quickstart quickstart-kafka quickstart-replicas test nightly test-fast test-local test-unit cover soak thresholds matrix stress stress-spark stream-kills stress-kafka stress-replicas stress-repush stress-unique fuzz schedules histories spec spec-long bench bench-dual-write bench-kafka peers-index fmt lint types docs certificate peers mutants release-check clean

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^#@ / { printf "\n%s\n", substr($$0, 4) } \
	  /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

#@ See it work
quickstart: ## Five PySpark processes write one table, one is killed (TYPE=mor)
	$(call ready,quickstart)
	@$(PY) -m examples.quickstart --type $(TYPE) $(ARGS)

quickstart-kafka: ## A Kafka topic into one table by three processes, one is killed; needs Maven
	$(call ready,test)
	@$(PY) -m tests.services.jars
	@$(PY) -m examples.quickstart_kafka $(ARGS)

quickstart-replicas: ## A table and two regions: one dies, comes back, is repaired and compared
	$(call ready,quickstart)
	@$(PY) -m examples.quickstart_replicas $(ARGS)

#@ Check it
test: ## Everything that CI runs, in order, each with its time
	$(call ready,$(ALL))
	$(call check)

nightly: ## The same in its long form: every parameter, model, mutant and crash; hours
	$(call ready,$(ALL))
	$(call check,--long)

test-fast: ## Five minutes: tests of less than a second that start no process, server or JVM
	$(call ready,$(ALL))
	$(call check,quick doctests)

test-local: ## Fifteen minutes: all tests that start no process, server or JVM
	$(call ready,$(ALL))
	$(call check,fast crashes doctests)

test-unit: ## tests/unit alone (ARGS="-k name")
	$(call ready,$(ALL))
	@$(PY) -m pytest -q tests/unit $(ARGS)

cover: ## Branch coverage of the fast tests; fails below the floor (ARGS="--cov-report=html")
	$(call ready,$(ALL))
	@$(PY) -m pytest -q -m "not processes and not spark and not s3 and not zookeeper and not kafka and not postgresql" --cov --cov-fail-under=$(FLOOR) $(ARGS)

soak: ## The randomised tests, much longer (ARGS="--hypothesis-seed=1")
	$(call ready,$(ALL))
	@HYPOTHESIS_PROFILE=soak PLAIT_KILLS=200 $(PY) -m pytest -q --timeout=3600 tests/property tests/interleave tests/processes $(ARGS)
	@HYPOTHESIS_PROFILE=soak $(PY) -m pytest -q -s --timeout=3600 tests/fault
	@$(PY) -m tests.support.gone
	@$(PY) scripts/schedules.py --minutes $(MINUTES)
	@$(PY) scripts/histories.py --seeds $(HISTORIES) --covered
	@$(MAKE) --no-print-directory thresholds

thresholds: ## The same with every size threshold at 1 (MINUTES=60, HISTORIES=50000)
	$(call ready,$(ALL))
	@$(PY) -m tests.support.thresholds pytest -q --timeout=3600 tests/property $(ARGS)
	@$(PY) -m tests.support.thresholds pytest -q --timeout=3600 tests/processes/test_concurrency_matrix.py -k "test_rfc22[ and (archive or no-service)"
	@$(PY) -m tests.support.thresholds --stepped scripts/schedules.py --minutes $(MINUTES) --round 20
	@$(PY) -m tests.support.thresholds --stepped scripts/histories.py --seeds $(HISTORIES)

matrix: ## RFC-22's matrix, every cell; each without each feature; a row for an hour (MINUTES=60)
	$(call ready,$(ALL))
	@PLAIT_MATRIX=whole PLAIT_MATRIX_MINUTES=$(MINUTES) $(PY) -m pytest -q -rP --timeout=7200 tests/processes/test_concurrency_matrix.py $(ARGS)

fuzz: ## Damage tables in every way and judge what comes of it (MINUTES=60, ARGS="--seed 5")
	$(call ready,$(ALL))
	@$(PY) -m tests.fuzz.run --minutes $(MINUTES) $(ARGS)
	@$(PY) -m tests.fuzz.messages --cases 20000
	@$(PY) -m tests.fuzz.decoders --cases 2000

mutants: ## 200 faults put into the rooms that decide (ARGS="--only txn/", ARGS=--write)
	$(call ready,$(ALL))
	@$(PY) scripts/mutants.py $(ARGS)

schedules: ## Random schedules of the commit protocol (MINUTES=60, ARGS="--from 5000")
	$(call ready,$(ALL))
	@$(PY) scripts/schedules.py --minutes $(MINUTES) $(ARGS)

histories: ## Random concurrent histories against a table in plain Python (HISTORIES=50000, ARGS="--from 10000")
	$(call ready,$(ALL))
	@$(PY) scripts/histories.py --seeds $(HISTORIES) --covered $(ARGS)

spec: ## The commit protocol and each of its rules by TLC (ARGS="core own_time", ARGS=--write)
	$(call ready,$(ALL))
	@$(PY) -m scripts.spec $(ARGS)

spec-long: ## The models that take TLC hours
	$(call ready,$(ALL))
	@$(PY) -m scripts.spec --long

stress: ## 16 processes, 1,000 commits, stopped and killed: disk, S3, ZooKeeper (ARGS="local")
	$(call ready,$(ALL))
	@$(PY) -m tests.services.jars
	@$(PY) -m tests.processes.stress $(or $(ARGS),local s3 zookeeper)

stress-spark: ## Four Spark jobs on one table, 50 commits each (ARGS="-k mor")
	$(call ready,$(ALL))
	@$(PY) -m tests.services.jars
	@PLAIT_ROUNDS=$(ROUNDS) $(PY) -m pytest -q --timeout=7200 tests/integration/spark/test_concurrent_jobs.py $(ARGS)

stream-kills: ## A Spark stream of 1,000 epochs, its driver killed 50 times (ARGS="--seed 1")
	$(call ready,$(ALL))
	@$(PY) -m tests.processes.stream_kills $(ARGS)

stress-kafka: ## The Kafka sink: kills, stops, a damaged control topic, two coordinators (ARGS="keyed-mor")
	$(call ready,$(ALL))
	@$(PY) -m tests.services.jars
	@$(PY) -m tests.processes.kafka $(ARGS)
	@$(PY) -m tests.processes.kafka.claims

stress-replicas: ## The dual write: four sinks in trouble, writers killed (ARGS="--rows 100000 --seed 1")
	$(call ready,$(ALL))
	@$(PY) -m tests.services.jars
	@$(PY) -m tests.processes.replicas $(ARGS)

stress-repush: ## Repushes on Spark, killed 50 times beside four writers; an hour (ARGS="--rows 100000 --arrow")
	$(call ready,$(ALL))
	@$(PY) -m tests.processes.repushes $(ARGS)

stress-unique: ## Keys unique across partitions: eight processes move them, killed and stopped (ARGS="--store s3 --lock zookeeper")
	$(call ready,$(ALL))
	@$(PY) -m tests.services.jars
	@$(PY) -m tests.processes.moves $(ARGS)

bench: ## The benchmarks beside their peers
	$(call ready,bench test)
	@$(PY) -m tests.services.jars
	@for program in benchmarks/*.py; do echo "== $$program"; $(PY) $$program $(ARGS) || exit 1; done

peers: ## Plait beside Delta, Iceberg and Hudi on Spark, forty minutes (ARGS="plait-cow delta-cow")
	$(call ready,bench test)
	@$(PY) -m benchmarks.peers $(ARGS)

peers-index: ## The record index beside Hudi's, half an hour (ARGS="--rows 400000 --upserts 2 --look-ups 1")
	$(call ready,bench test)
	@$(PY) -m benchmarks.peers.record_index $(ARGS)

bench-dual-write: ## The dual write: four slow sinks, and a table as a sink; two minutes (ARGS="--rows 100000")
	$(call ready,bench test)
	@$(PY) benchmarks/dual_write.py $(ARGS)

bench-kafka: ## A topic into a table: Plait's sink, Spark, and the limit; ten minutes (ARGS="--rounds 1")
	$(call ready,bench test)
	@$(PY) -m tests.services.jars
	@$(PY) -m benchmarks.kafka $(ARGS)

release-check: ## Build, install in bare environments, run the examples, compare versions (ARGS="--out dist")
	$(call ready,$(ALL))
	@$(PY) scripts/release_check.py $(ARGS)

#@ Work on it
fmt: ## Format and mend what can be mended; wrap the pages; write the schema of messages
	$(call ready,$(ALL))
	@$(PY) -m scripts.message_schema
	@$(PY) scripts/wrap.py
	@$(VENV)/bin/ruff check --fix src tests examples scripts benchmarks
	@$(VENV)/bin/ruff format src tests examples scripts benchmarks

lint: ## Style, spelling, layers
	$(call ready,$(ALL))
	$(call check,lint format spelling layers)

types: ## mypy, strict
	$(call ready,$(ALL))
	$(call check,types)

certificate: ## Kill every operation at every storage call; write docs/operations/crashes.md
	$(call ready,$(ALL))
	@$(PY) scripts/certificate.py

docs: ## Build the pages into build/site
	$(call ready,$(ALL))
	$(call check,docs)

clean: ## Remove what these targets made
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
