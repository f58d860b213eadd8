# idempotency: HTTP idempotency keys inside PostgreSQL
#
#   make            build the library and the SQL script (PGXS)
#   make install    install both where pg_config says
#   make demo       set up a throwaway server and run a real payment through it
#   make test       the whole suite, against a throwaway server
#   make bench      what a key costs, as one table
#   make core-test  the core alone, under ASan and UBSan
#   make fuzz       the core's fuzzers (FUZZ_SECONDS=60)
#   make format     clang-format in place;  make lint: clang-tidy, cppcheck, shellcheck

EXTENSION  = idempotency
EXTVERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(EXTENSION).control)

MODULE_big = idempotency
CORE_SRCS  = $(sort $(wildcard src/core/*.cpp))
PG_SRCS    = $(sort $(wildcard src/pg/*.cpp))
OBJS       = $(patsubst %.cpp,%.o,src/idempotency.cpp $(PG_SRCS) $(CORE_SRCS))
DATA_built = sql/$(EXTENSION)--$(EXTVERSION).sql
# the scripts of released versions, and of the ways from one to the next
DATA       = $(filter-out $(DATA_built),$(wildcard sql/$(EXTENSION)--*.sql))

REGRESS        = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS   = --inputdir=test
ISOLATION      = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test

# The language, not its runtime (docs/design.md): no exceptions, no RTTI, no static with a
# constructor's guard, so that a longjmp of the server skips nothing and no throw can leave.
PG_CXXFLAGS = -std=c++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics \
	-fvisibility=hidden -fvisibility-inlines-hidden \
	-Wall -Wextra -Wno-register -Wno-unknown-warning-option -MMD -MP $(EXTRA_CXXFLAGS)

SHLIB_LINK = -lcrypto
EXTRA_CLEAN = $(DATA_built) $(OBJS:.o=.d) compile_commands.json

# PGXS of Debian's 15 can't compile C++17 to bitcode
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# the server's headers are not ours to warn about
override CPPFLAGS := -I$(CURDIR)/src $(patsubst -I%,-isystem %,$(filter -I/%,$(CPPFLAGS))) $(filter-out -I%,$(CPPFLAGS))
override COMPILER = $(CXX) $(CXXFLAGS)

all: $(DATA_built)
$(DATA_built): sql/$(EXTENSION).sql $(EXTENSION).control
	cp $< $@

-include $(OBJS:.o=.d)

.PHONY: demo test bench core-test fuzz format lint
demo:
	@examples/demo/run
test:
	@test/run
bench:
	@bench/run
core-test:
	@$(MAKE) --no-print-directory -C test/core check
fuzz:
	@$(MAKE) --no-print-directory -C test/fuzz run
CXX_FILES = $(shell git ls-files '*.cpp' '*.hpp')
format:
	clang-format -i $(CXX_FILES)
lint:
	@test/tools/lint
