# The commands of the project. `make setup` is what all others share; it is quick when nothing has changed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup brokers connectors test check lint format docs demo chaos soak fuzz bench requests stores clusters clean

PYTEST := .venv/bin/python -m pytest
RUFF := .venv/bin/python -m ruff
CLONOS := .venv/bin/clonos
# What goes to the command behind `demo`, `chaos`, `bench` and `test`: make demo ARGS="--json verdict.json"
ARGS ?=
export PYTHON
# Compiled modules are kept, also where the environment forbids it: else each of several hundred processes of the tests
# compiles the library anew, and pytest rewrites every test module in each run.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode

help: ## Say what can be made
	@sed -nE 's/^([a-z]+):[^#]*## (.*)$$/  make \1\t\2/p' Makefile | expand -t 16

setup: .venv/.installed ## Make .venv and install everything in it
	@.ci/check-java || echo "Going on without Java."

.venv/.installed: setup.cfg pyproject.toml setup.py .ci/setup $(wildcard clonos/kernels/*.[ch])
	@.ci/setup

# Essential tests come first, then real processes, then what is exhaustive, which has minutes and says how far it came. Each
# run has a worker per core. The seeds are the same in every run, so that a merge is not refused for a fault that it did
# not bring. `make chaos` seeks new ones. Real processes come in a run of their own: what travels to them by value must not
# take the modules of all other tests along.
WORKERS := -n 2 --dist loadscope --no-loadscope-reorder --durations 50
EXHAUSTIVE := controls or exhaustive
EXHAUSTIVE_MINUTES := 3.5
ESSENTIAL := tests/tidy tests/unit tests/worlds tests/fuzz
test: setup brokers ## Everything that .ci/run asks for: static gates, unit, processes, connectors, Spark, then worlds, fuzz
	@status=0; \
	$(PYTEST) $(WORKERS) $(ESSENTIAL) -m "not ($(EXHAUSTIVE))" --example-seconds 0.25 --run-share 0.45 $(ARGS) || status=$$?; \
	$(PYTEST) $(WORKERS) tests/processes tests/connectors tests/spark --run-share 0.95 $(ARGS) || status=$$?; \
	$(PYTEST) $(WORKERS) tests/worlds tests/fuzz -m "$(EXHAUSTIVE)" --minutes $(EXHAUSTIVE_MINUTES) $(ARGS) || status=$$?; \
	exit $$status

check: setup ## The quick part, in 90 s: static gates, unit tests, some worlds and wrong inputs; nothing marked slow
	@$(PYTEST) $(WORKERS) $(ESSENTIAL) -m "not (slow or controls)" --example-seconds 0 --minutes 0.1 $(ARGS)

lint: setup ## Static gates only: format, lint, types, imports, tidiness
	@$(PYTEST) tests/tidy $(ARGS)

format: setup ## Bring every file into the house's format
	@$(RUFF) format
	@$(RUFF) check --fix

docs: setup ## The documents as a site, into build/site; every broken link is an error
	@rm -rf build/site
	@.venv/bin/python -m sphinx --builder html --conf-dir docs/site --doctree-dir build/doctrees \
		--fail-on-warning --keep-going --quiet . build/site $(ARGS)
	@echo build/site/index.html

demo: setup ## Word count on Spark while its tasks are killed, and the verdict
	@case " $(ARGS) " in *"process"*) ;; *) .ci/check-java ;; esac
	@$(CLONOS) demo $(ARGS)

chaos: setup ## All scenarios and 100,000 simulated worlds, or fewer: make chaos ARGS="--worlds 2000 --resume"
	@$(CLONOS) chaos all $(ARGS)

soak: setup ## An hour of kills every 20 s with network faults in between: make soak ARGS="--minutes 5 --html soak.html"
	@$(CLONOS) chaos soak $(ARGS)

fuzz: setup ## 10 million wrong inputs to every reader and machine: make fuzz ARGS="--inputs 100000 --first-seed 7"
	@.venv/bin/python -m tests.fuzz $(ARGS)

bench: setup ## The benchmarks: what is measured, paired, in one session
	@.venv/bin/python -m benchmarks $(ARGS)

# Kept in ~/.cache/clonos/brokers or $CLONOS_BROKERS. Nothing is fetched that is there.
brokers: setup ## Fetch the brokers, databases and the browser that tests start; needs Maven
	@.venv/bin/python -m tests.connectors.servers fetch

# Not a part of `test`: each connector is killed, cut off and resumed for a minute. Builds Toxiproxy with Go, once.
connectors: brokers ## The guarantee of each connector under kills and network faults, into build/connectors.md
	@$(PYTEST) tests/connectors/guarantees/on_*.py $(ARGS)

# Not a part of `test`: they fetch 57 MB from Maven Central and build a server with Go and install one with npm, once, into build/.
stores: setup ## Checkpoint stores and files on a real HDFS cluster and on emulators of GCS and Azure; needs Java, Go and npm
	@.ci/check-java && go version && npm --version
	@$(PYTEST) tests/remote_stores/on_hdfs.py tests/remote_stores/on_gcs.py tests/remote_stores/on_azure.py $(ARGS)

# Not a part of `test`: it needs Linux, root, the commands `ip` and `nft`, 70 MB from Maven Central, and some minutes.
clusters: setup ## Jobs on a Spark cluster of three hosts behind a firewall, with dynamic allocation, and on YARN; needs root and Java
	@.ci/check-java
	@$(PYTEST) tests/clusters/on_spark.py tests/clusters/on_elastic_spark.py tests/clusters/on_yarn.py $(ARGS)

# Not a part of `test`, which sends 200.
requests: setup ## 10,000 made-up requests to a server, in each role: make requests ARGS="--fuzz-requests 1000"
	@$(PYTEST) tests/processes/server/test_fuzzed_requests.py --fuzz-requests 10000 $(ARGS)

clean: ## Remove what tests and runs left behind; .venv stays
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .clonos build dist *.egg-info
	@rm -rf spark-warehouse metastore_db derby.log artifacts
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
