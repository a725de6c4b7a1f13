# make             builds the C module, the extension's script and the Python package's wheel
# make install     puts them, and a Python environment of their own, into the server that PG_CONFIG is of
# make uninstall   leaves nothing of them
# The rest (test, demo, bench, lint) is in tests/dev.mk.

EXTENSION = pipeline_kafka
RELEASE := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" pipeline_kafka.control)
MODULE_big = $(EXTENSION)
OBJS = workers/pipeline_kafka.o
DATA = $(wildcard sql/$(EXTENSION)--*--*.sql)
DATA_built = $(EXTENSION)--$(RELEASE).sql
EXTRA_CLEAN = build
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-missing-prototypes -Wno-declaration-after-statement \
    -Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Werror=return-type -Werror=format
# Bitcode would let the server inline our functions into queries: nothing to gain, and clang is not everywhere.
override with_llvm := no

# The pg_config on PATH may be libpq's, with no server to build for.
has_server = $(wildcard $(shell $(1) --includedir-server 2>/dev/null)/postgres.h)
ifeq ($(origin PG_CONFIG),undefined)
PG_CONFIG := $(firstword $(foreach candidate,pg_config $(shell ls /usr/lib/postgresql/*/bin/pg_config 2>/dev/null | \
    sort -rV),$(if $(call has_server,$(candidate)),$(candidate))) pg_config)
endif
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

ifneq ($(wildcard $(PGXS)),)
include $(PGXS)

# The interpreter that plpython3u was built with, or PYTHON= of the command line: the environment serves both the
# workers and PL/Python, and what is compiled in it fits one version.
INTERPRETER := $(if $(filter command,$(origin PYTHON)),$(PYTHON),$(firstword \
    $(wildcard $(dir $(PYTHON))python$(python_version)) $(PYTHON) python3))
HOME_FOLDER := $(DESTDIR)$(pkglibdir)/$(EXTENSION)
PIP = umask 022; '$(HOME_FOLDER)/venv/bin/python' -I -m pip --quiet --disable-pip-version-check
WHEEL = build/pipeline_kafka-$(RELEASE)-py3-none-any.whl

all: $(WHEEL)

$(DATA_built): $(sort $(wildcard sql/install/*.sql)) pipeline_kafka.control
	cat $(filter %.sql,$^) > $@

$(WHEEL): pyproject.toml $(shell find pipeline_kafka ! -path '*/__pycache__*') | build/tools/bin/hatchling
	build/tools/bin/hatchling build -t wheel -d build

build/tools/bin/hatchling:
	$(INTERPRETER) -m venv --clear build/tools
	build/tools/bin/python -I -m pip --quiet --disable-pip-version-check install hatchling

.PHONY: install-python uninstall-python
install: install-python
uninstall: uninstall-python

# Readable by the server's user whatever the umask. Our package first: it says what else must be there.
install-python: all
	umask 022; test "$$(readlink -f '$(HOME_FOLDER)/venv/bin/python')" = "$$(readlink -f $(INTERPRETER))" || \
	    $(INTERPRETER) -m venv --clear '$(HOME_FOLDER)/venv'
	$(PIP) install --no-deps --force-reinstall $(WHEEL)
	$(PIP) install $(WHEEL)
ifneq ($(DESTDIR),)
	find '$(HOME_FOLDER)/venv/bin' '$(HOME_FOLDER)/venv/pyvenv.cfg' -type f -exec sed -i 's|$(DESTDIR)/|/|g' {} +
endif

uninstall-python:
	rm -rf '$(HOME_FOLDER)'
else
all install uninstall clean:
	@echo "$(PG_CONFIG) leads to no PostgreSQL server to build for: make bootstrap installs one on Debian," >&2
	@echo "make PG_CONFIG=/path/to/bin/pg_config chooses another." >&2
	@false
endif

include tests/dev.mk
