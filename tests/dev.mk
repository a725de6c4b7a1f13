# For developers: deps, installed, lint, test, demo, bench, faults, fuzz, soak. Included by the Makefile.
#
#   make test T=tests/unit     a part           make test PYTEST_ARGS=-x    pytest's options
#   make test N=0              in one process   make demo KEEP=1            leave it running
#   make faults SEED=1 N=200   200 faults       make fuzz SEED=1 N=100000   messages a format
#   make soak MINUTES=30
#
# On a bare machine `deps` comes first, and so there may be no pg_config and no python3 when this is read: what
# needs them is asked for in recipes only, and building is left to a make of its own.

PIPELINE_KAFKA_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pipeline_kafka
# The interpreter that plpython3u is linked to; the tools' venv serves one state of pyproject.toml.
SYSTEM_PYTHON := /usr/bin/python3
VENV := $(PIPELINE_KAFKA_CACHE)/tools-$(shell sha256sum pyproject.toml | cut -c 1-12)
PY := $(VENV)/bin/python
N ?= 3
T ?= tests
CODE = $(patsubst %/,%,$(sort $(dir $(wildcard pipeline_kafka/*.py demo/*.py bench/*.py)))) tests

# The server that is built for, started and tested: PG_CONFIG's where the caller says so, else Debian's newest.
NEWEST = $(shell ls -d /usr/lib/postgresql/*/bin/pg_config | sort -V | tail -n 1)
SERVER = $(if $(filter environment command,$(origin PG_CONFIG)),$(PG_CONFIG),$(NEWEST))
ENV = PG_CONFIG=$(SERVER) PIPELINE_KAFKA_CACHE=$(PIPELINE_KAFKA_CACHE) PYTHONPATH=.

.PHONY: bootstrap deps installed lint test demo bench faults fuzz soak

bootstrap:
	@tests/bootstrap

deps: $(VENV)/complete

REQUIREMENTS = import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
    print(*p["project"]["dependencies"], *p["dependency-groups"]["dev"], sep="\n")

$(VENV)/complete: | bootstrap
	@mkdir -p $(PIPELINE_KAFKA_CACHE)
	@echo "making $(VENV)"
	@flock $(PIPELINE_KAFKA_CACHE)/tools.lock sh -ec 'test ! -e $@ || exit 0; \
	    $(SYSTEM_PYTHON) -m venv --clear $(VENV); \
	    $(SYSTEM_PYTHON) -c "$$0" > $(VENV)/requirements.txt; \
	    $(PY) -m pip install --quiet -r $(VENV)/requirements.txt; \
	    touch $@' '$(REQUIREMENTS)'

installed: deps
	@tests/install_if_changed $(SERVER) $(PIPELINE_KAFKA_CACHE)

lint: deps
	@$(PY) -m ruff check --quiet $(CODE)
	@$(PY) -m ruff format --check --quiet $(CODE)
	@$(PY) -m mypy --no-error-summary $(CODE)

test: deps installed lint
	@$(ENV) $(PY) -m pytest -n $(N) --dist worksteal $(PYTEST_ARGS) $(T)

demo: deps installed
	@$(ENV) KEEP=$(KEEP) $(PY) -m demo

bench: deps installed
	@$(ENV) $(PY) -m bench $(BENCH_ARGS)

# N has a default of its own here, and without SEED another one is drawn each time.
PLAYED = $(if $(SEED),--seed $(SEED)) $(if $(filter environment command,$(origin N)),--count $(N))

faults: deps installed
	@$(ENV) $(PY) -m tests.faults $(PLAYED)

fuzz: deps installed
	@$(ENV) $(PY) -m tests.fuzz $(PLAYED)

soak: deps installed
	@$(ENV) $(PY) -m tests.soak $(if $(MINUTES),--minutes $(MINUTES))
