# Everything a newcomer needs. `make run` and `make test` set up what they need themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= data
PORT ?= 29092
ONLY ?= tests
PROCESSES ?= 2
# For a machine with two cores: much of the time a test waits, for brokers and clients that are processes of their own.
TEST_PROCESSES ?= 3
QUICK ?=
CLUSTER ?=
SPARK ?=
GROUPS ?=
MOVES ?=
FORCE ?=
ONLY_PART ?=
KILLS ?= 20
ROUNDS ?= 1
DISTURBANCES ?= 12
MINUTES ?= 5
SEED ?=
ATTACK ?=
SEEDS ?= 100
FIRST ?= 1

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PIP_WITH_PROGRESS := $(BIN)/python -m tools.pip_progress
RUNTIME := $(VENV)/.runtime-installed
SPARK_READY := $(VENV)/.spark-installed
DEV := $(VENV)/.dev-installed

.PHONY: help run demo install spark test check format bench compat kills churn soak siege simulate docs lock clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## /  make \1|/' | column -t -s '|'

run: $(RUNTIME) ## Start three brokers on 127.0.0.1:29092 to 29094 with their data in ./data (PORT=9092 DATA=elsewhere)
	@$(BIN)/tidelog up --console --data $(DATA) --port $(PORT)

demo: $(SPARK_READY) ## A tour of two minutes: brokers, a pipeline into a table, a killed leader, an audit, and counts that must match
	@$(BIN)/python -m demo.run

install: $(RUNTIME) ## Install what the broker needs into .venv
	@echo "Installed: $(BIN)/tidelog"

spark: $(SPARK_READY) ## Install Spark, its Java and what pipelines need into .venv
	@echo "Installed: $(BIN)/tidelog pipeline"

test: $(DEV) ## Run all tests (ONLY=tests/cli runs a part)
	@echo "==> pytest $(ONLY)" && $(BIN)/python -m pytest --verbose --numprocesses $(TEST_PROCESSES) --dist loadscope --no-loadscope-reorder $(ONLY)

check: $(DEV) ## Formatting, lint, types and layers
	@echo "==> ruff format" && $(BIN)/ruff format --check .
	@echo "==> ruff check" && $(BIN)/ruff check .
	@echo "==> mypy --strict" && $(BIN)/mypy
	@echo "==> import-linter" && $(BIN)/lint-imports --no-logo

format: $(DEV) ## Format the code and apply safe fixes
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(DEV) ## Compare with Apache Kafka on this machine; goes on where it was interrupted (QUICK=1: a few minutes; CLUSTER=1, MOVES=1, GROUPS=1, TLS=1, SPARK=1: only these; FORCE=1: all anew)
	@$(BIN)/python -m bench.run $(if $(QUICK),--quick) $(if $(FORCE),--force) $(if $(CLUSTER),--part cluster) $(if $(MOVES),--part moves) $(if $(GROUPS),--part coordinators) $(if $(TLS),--part tls) $(if $(SPARK),--part spark)

compat: $(DEV) ## Drive three brokers with every client we know and Kafka's own tools; exchange files and brokers with Kafka; goes on where it was interrupted (ONLY_PART=Streams: only this)
	@$(BIN)/python -m compat.run $(if $(ONLY_PART),--only "$(ONLY_PART)")

kills: $(DEV) ## Kill drivers, executors, workers and brokers of queries under load (KILLS=20 SEED=7; ROUNDS=3: at each step thrice); each record must be there once
	@$(BIN)/python -m tests.kills.run --rounds $(ROUNDS) --kills $(KILLS) $(if $(SEED),--seed $(SEED))

churn: $(DEV) ## Kill and stop members of groups, transactional workers and brokers at random (DISTURBANCES=12 SEED=7)
	@$(BIN)/python -m tests.churn.run --disturbances $(DISTURBANCES) $(if $(SEED),--seed $(SEED))

soak: $(DEV) ## Three brokers under work of all kinds for a while (MINUTES=5): memory, descriptors, latencies and errors in a table
	@$(BIN)/python -m tests.soak.run --minutes $(MINUTES)

siege: $(DEV) ## Attack three brokers with requests and connections that nobody sends; others must not notice (ATTACK=half-frames: only this)
	@$(BIN)/python -m tests.siege.run $(if $(ATTACK),--only $(ATTACK))

simulate: $(RUNTIME) ## Run simulated clusters under faults (SEEDS=100 FIRST=1 PROCESSES=2); a seed that fails is printed with the command to repeat it
	@$(BIN)/tidelog simulate --seeds $(SEEDS) --first $(FIRST) --processes $(PROCESSES)

docs: $(DEV) ## Generate the reference pages again, and build the documentation site (site/index.html)
	@$(BIN)/python -m tools.settings_reference && $(BIN)/python -m tools.metrics_reference && $(BIN)/python -m tools.states_reference && $(BIN)/python -m tools.spark_options_reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict && echo "Built: site/index.html"

lock: $(DEV) ## Choose the pinned versions anew
	@$(PIP) install uv
	@$(call choose,runtime,--extra console --extra security)
	@$(call choose,spark,--extra console --extra security --extra spark)
	@$(call choose,dev,--extra console --extra security --extra spark --extra connect --extra registry --extra iceberg --extra tracing --extra dev)

define choose
$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
  --no-emit-index-url --no-annotate $(2) pyproject.toml --output-file requirements/$(1).lock
endef

clean: ## Remove everything that was installed or cached; data stays
	rm -rf $(VENV) src/tidelog/kernels/_compiled .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Tidelog needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing)." \
	    "If you have another one, name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "==> making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUNTIME): requirements/runtime.lock pyproject.toml hatch_build.py src/tidelog/kernels/records.py | $(VENV)/bin/python
	@echo "==> installing what the broker needs"
	@$(PIP) install --require-hashes -r requirements/runtime.lock
	@$(PIP) install --no-deps --editable .
	@touch $@

$(SPARK_READY): $(RUNTIME) requirements/spark.lock
	@echo "==> installing Spark and what pipelines need (a download of about 700 MB, once)"
	@$(PIP_WITH_PROGRESS) install --require-hashes -r requirements/spark.lock
	@touch $@

$(DEV): $(SPARK_READY) requirements/dev.lock
	@echo "==> installing what tests and checks need"
	@$(PIP_WITH_PROGRESS) install --require-hashes -r requirements/dev.lock
	@touch $@
