# isthmus: `make` lists what can be made. Each target first installs what it
# needs and doesn't find (scripts/setup says what, and why).

.DEFAULT_GOAL := help
# Tests and benchmarks measure and share one machine: one target at a time.
.NOTPARALLEL:
SHELL := /bin/bash
MAKEFLAGS += --no-builtin-rules --no-print-directory

CARGO := scripts/cargo
DENY := PATH=$(CURDIR)/target/tools/bin:$$PATH $(CARGO) deny
TARGET := $(or $(CARGO_TARGET_DIR),target)
PREFIX ?= /usr/local
DESTDIR ?=
# A failed test ends with its reason. `make RUST_BACKTRACE=1 test` adds backtraces.
export RUST_BACKTRACE := 0
# Those that take longest come last, as each leaves the time that it doesn't need to the next ones.
BENCHES := lab direct pilot rails programs workers ray2mesh relay shim site-trunk nas slow start simulate connect patterns trunk coll

# The end-to-end tests and the benchmarks make network namespaces; the demo does
# so without root where the system lets ordinary users.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)
# How cargo runs a test as root: compiled as the user, only run by sudo.
HOST = $(shell $(CARGO) -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
RUNNER = $(if $(AS_ROOT),env CARGO_TARGET_$(HOST)_RUNNER="$(AS_ROOT)")

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9%-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo "  make bench-NAME     run one of them: $(BENCHES)"

# Separate calls of cargo, on purpose: in one, cargo would give the shim the features
# that the other crates ask of isthmus-wire, and a protobuf runtime with them.
.PHONY: build
build: setup-build ## compile the isthmus command, the lab, the helper and the libraries
	$(MAKE) release

# `make MACHINE=aarch64 release` (or x86_64) compiles for all machines of that kind, with this C
# library or a newer one: zig compiles C and links. Without it, for this machine's own C library.
GLIBC := 2.17
ZIG := $(CURDIR)/target/zig/bin
ifeq ($(origin MACHINE),command line)
TRIPLE := $(MACHINE)-unknown-linux-gnu
RELEASE := $(abspath $(TARGET))/$(TRIPLE)/release
# Its name has its checksum, as cargo links anew only if the name changes.
RELEASE_LINKED := $(RELEASE)/linked/libmpi.so.40 $(RELEASE)/linked/glibc-$(firstword $(shell cksum packaging/glibc.c)).o
RELEASE_CARGO := PATH="$(ZIG):$$PATH" RUSTFLAGS="-Clink-arg=$(lastword $(RELEASE_LINKED))" $(CARGO) zigbuild --target $(TRIPLE).$(GLIBC)
# Clang knows fewer warnings than GCC. Of Open MPI only the names of its symbols are linked.
RELEASE_CC := $(ZIG)/python3 -m ziglang cc -target $(MACHINE)-linux-gnu.$(GLIBC)
RELEASE_MPI := CC="$(RELEASE_CC)" \
	CFLAGS="-O2 -g -Wno-unknown-warning-option" OBJECTS="$(abspath $(TARGET))/$(TRIPLE)/mpi" \
	NEEDED_openmpi="$(RELEASE)/linked/libmpi.so.40"
else
RELEASE := $(abspath $(TARGET))/release
RELEASE_CARGO := $(CARGO) build
endif

.PHONY: release
release: $(if $(RELEASE_LINKED),setup-portable $(RELEASE_LINKED))
	$(RELEASE_CARGO) --locked --release --package isthmus --package isthmus-lab
	$(RELEASE_CARGO) --locked --release --package isthmus-shim
	$(RELEASE_CARGO) --locked --release --package isthmus-raw
	$(RELEASE_CARGO) --locked --release --package isthmus-pool
	$(MAKE) -C mpi OUT="$(RELEASE)" $(RELEASE_MPI)

$(RELEASE)/linked/libmpi.so.40: mpi/libmpi.c
	mkdir -p $(@D)
	$(RELEASE_CC) -shared -fPIC -Wl,-soname,$(@F) -o $@ $<
$(RELEASE)/linked/glibc-%.o: packaging/glibc.c
	mkdir -p $(@D)
	$(RELEASE_CC) -O2 -fPIC -c -o $@ $<

.PHONY: apps
apps: setup-test ## compile the MPI programs for every MPI
	$(MAKE) -C apps

.PHONY: demo
demo: setup-build setup-demo ## run LAMMPS as one job over three emulated sites
	$(MAKE) demo-build
	if $(TARGET)/demo/isthmus lab check >/dev/null; then scripts/demo; else $(AS_ROOT) scripts/demo; fi

.PHONY: demo-ray2mesh
demo-ray2mesh: setup-build setup-ray2mesh ## trace seismic rays over three emulated sites, and draw them
	$(MAKE) demo-build
	$(DEMO) --package isthmus-pool
	$(MAKE) -C apps/ray2mesh OUT="$(abspath $(TARGET))/ray2mesh" MPICC=mpicc.openmpi LIBRARIES="$(abspath $(TARGET))/demo"
	if $(TARGET)/demo/isthmus lab check >/dev/null; then scripts/demo-ray2mesh; else $(AS_ROOT) scripts/demo-ray2mesh; fi

# The bar says how far it is, also where no terminal is.
DEMO := env CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=72 $(CARGO) build --locked --profile demo
.PHONY: demo-build
demo-build:
	@echo "compiling isthmus for the demo, with few optimisations (1 of 4: the command and the lab, by far the longest)"
	$(DEMO) --package isthmus --package isthmus-lab
	@echo "compiling isthmus for the demo (2 of 4: the preloaded library)"
	$(DEMO) --package isthmus-shim
	@echo "compiling isthmus for the demo (3 of 4: the helper for raw packets)"
	$(DEMO) --package isthmus-raw
	@echo "compiling isthmus for the demo (4 of 4: the library for MPI)"
	$(MAKE) -C mpi OUT="$(abspath $(TARGET))/demo"

# CLIPPY=yes has clippy compile the tests, so that nothing is checked a second time (.ci/run);
# a warning is an error then. Clippy takes its own arguments from this variable.
COMPILE := $(if $(CLIPPY),env RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings) $(CARGO)

UNITS := $(COMPILE) test --locked --workspace --tests
E2E := $(COMPILE) test --locked --workspace --test e2e

# Each call names all packages, or one without features of its own, so that cargo
# compiles nothing again with other features. The preloaded library is tested as
# users get it. The programs under test are put apart from what later calls make.
.PHONY: test-build
test-build: setup-test ## compile the tests and what they run
	$(UNITS) --examples --no-run
	$(E2E) --no-run
	$(COMPILE) build --locked --package isthmus-pool
	$(CARGO) build --locked --release --package isthmus-shim
	$(MAKE) -C apps
	mkdir -p $(TARGET)/tested
	cp -p --remove-destination $(TARGET)/release/libisthmus_shim.so $(TARGET)/debug/isthmus-raw \
		$(TARGET)/debug/isthmus $(TARGET)/debug/isthmus-lab $(TARGET)/debug/libisthmus_pool.so $(TARGET)/tested/
	$(MAKE) -C mpi OUT="$(abspath $(TARGET))/tested"
	$(MAKE) -C apps/ray2mesh OUT="$(abspath $(TARGET))/tested" MPICC=mpicc.openmpi LIBRARIES="$(abspath $(TARGET))/tested"

.PHONY: test
test: test-build ## run what a change must pass (emulated grids need root: uses sudo)
	$(MAKE) units
	$(MAKE) mpi-check MPI_CHECK=--quick
	$(MAKE) e2e

# Everything that is tested: also under the other MPIs, in all variants, at the exact times
# that are promised, and for long. PART=2/4 runs the second of four shares; NAMES="units mpi"
# only some parts; scripts/test-all --help tells more.
TEST_ALL = scripts/test-all $(if $(PART),--part "$(PART)") $(NAMES)
.PHONY: test-all
test-all: setup-test-all ## run all tests, in parts, and print a table of them (hours)
	$(TEST_ALL) --check
	$(MAKE) test-build
	$(TEST_ALL)

# A test that asserts a time is in a module `alone`, and has the machine alone.
.PHONY: units
units: ## run the tests of the crates, as compiled by test-build
	status=0; \
	$(UNITS) --no-fail-fast -- --skip alone:: || status=$$?; \
	$(UNITS) --no-fail-fast -- --test-threads 1 alone:: || status=$$?; \
	exit $$status

.PHONY: doc-tests
doc-tests: ## compile and run the examples in the docs of the crates
	$(CARGO) test --locked --workspace --doc

.PHONY: mpi-check
mpi-check: ## run the tests of the library for MPI
	$(MAKE) -C mpi check CHECK="$(MPI_CHECK)"

# ARGS are of the test program: a part of the tests' names, or --include-ignored for those
# that only `make test-all` runs.
.PHONY: e2e
e2e: ## run end-to-end tests, as compiled by test-build: ARGS="life::"
	$(RUNNER) $(E2E) -- --test-threads 2 $(ARGS)

# SOAK is a time such as 90s, 20m or 2h, for each of four parts: streams, jobs of Open MPI,
# jobs of MPICH, and jobs over three sites under several faults at once. SOAK_SEED repeats a run's faults and what programs send.
# SOAK_JSON is a file that gets a line for each MPI. scripts/soak has the same as options.
SOAK ?= 10m
.PHONY: soak
soak: test-build ## break things under streams and MPI jobs, SOAK each (10m; needs root as well)
	export SOAK="$(SOAK)" SOAK_SEED="$(SOAK_SEED)" SOAK_JSON="$(abspath $(SOAK_JSON))"; \
		$(RUNNER) $(E2E) -- --nocapture --include-ignored --test-threads 1 \
		soak::streams_survive_whatever_breaks soak::jobs:: soak::wide::

# BENCH_TIME is for all benchmarks that are asked for together, 45 minutes for each by default.
# They go on where they ended last time. BENCH_ARGS are further options, such as
# "--only undecided". Without --slow in them, what links decide is measured 20 times slower, in
# three emulated grids side by side.
BENCH_TIME ?=
BENCH_ARGS ?=
# When the first benchmark begins: what is built before takes none of their time.
BENCH_BEGAN = $(eval BENCH_BEGAN := $(shell date +%s))$(BENCH_BEGAN)
BENCH_GOALS = $(if $(filter bench,$(MAKECMDGOALS)),$(filter-out lab,$(BENCHES)),$(patsubst bench-%,%,$(filter bench-%,$(MAKECMDGOALS))))
BENCH_BUDGET = $(if $(BENCH_TIME),--budget "$(BENCH_TIME)" --began $(BENCH_BEGAN) --share $$left)
BENCH_MOTION = $(if $(filter --slow --slow=%,$(BENCH_ARGS)),,--slow 20 $(if $(findstring --labs,$(BENCH_ARGS)),,--labs 3))
# The words of a list from this one on.
from = $(if $2,$(if $(filter $1,$(firstword $2)),$2,$(call from,$1,$(wordlist 2,$(words $2),$2))))
BENCH_LEFT = $(words $(call from,$*,$(BENCH_GOALS)) $(filter-out $(BENCH_GOALS),$(ALSO)))
.PHONY: bench
bench: $(patsubst %,bench-%,$(filter-out patterns,$(BENCHES))) ## run all benchmarks, for BENCH_TIME (such as 2h); results in bench/results
	-$(TARGET)/release/isthmus-bench check

.PHONY: bench-check
bench-check: setup-build ## list benchmark results that are missing or stale
	$(CARGO) build --quiet --locked --release --package isthmus-bench
	$(TARGET)/release/isthmus-bench check

.PHONY: bench-plan
bench-plan: setup-bench ## tell how long each benchmark takes until its rows are decided; BENCH_ARGS as for bench
	$(CARGO) build --quiet --locked --release --package isthmus-bench
	for bench in $(filter-out lab,$(BENCHES)); do \
		$(TARGET)/release/isthmus-bench $$bench --plan $(BENCH_MOTION) $(BENCH_ARGS) || exit; \
	done

bench-connect: ALSO := patterns

.PHONY: build-bench
build-bench: setup-bench
	$(MAKE) release
	$(MAKE) -C apps
	$(if $(filter simulate,$(BENCH_GOALS)),$(MAKE) -C mpi smpi OUT="$(abspath $(TARGET))/mpi")
	$(if $(filter ray2mesh,$(BENCH_GOALS)),$(MAKE) -C apps/ray2mesh smpi OUT="$(abspath $(TARGET))/ray2mesh")
	$(if $(filter pilot,$(BENCH_GOALS)),$(CARGO) build --locked --release --package isthmus-matching --example scale)
	$(CARGO) build --locked --release --package isthmus-bench

.PHONY: $(BENCHES:%=bench-%)
$(BENCHES:%=bench-%): bench-%: build-bench
	status=0; left=$(BENCH_LEFT); for bench in $* $(ALSO); do \
		$(AS_ROOT) $(TARGET)/release/isthmus-bench $$bench $(if $(filter lab,$*),,$(BENCH_BUDGET) $(BENCH_MOTION) $(BENCH_ARGS)) || status=$$?; \
		left=$$((left > 1 ? left - 1 : 1)); \
	done; exit $$status

.PHONY: lint
lint: lint-text ## check formatting, clippy, shell scripts, dependencies, docs
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --test e2e -- -D warnings

.PHONY: lint-text
lint-text: setup-lint ## the same without clippy, which needs to compile
	$(CARGO) fmt --all --check
	shellcheck --external-sources $$(grep -rIlE '^#!.*[/ ](ba)?sh$$|^# shellcheck shell=' scripts .ci bench tests mpi packaging)
	scripts/check-dependencies
	scripts/check-docs
	scripts/map --check

.PHONY: deny
deny: setup-deny ## check licences, versions and sources of the dependencies
	$(DENY) --locked check bans licenses sources

.PHONY: advisories
advisories: setup-deny ## look dependencies up in the RustSec database (needs github.com)
	$(DENY) --locked check advisories

# Without a sanitizer, cargo-fuzz goes with the stable compiler. An input that breaks a
# rule is written to fuzz/crashes, which `make test` replays: keep it there.
FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: setup-fuzz ## fuzz each parser for FUZZ_SECONDS (60)
	export PATH="$(CURDIR)/target/tools/bin:$$PATH"; \
	for name in $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs))); do \
		echo "fuzz: $$name, $(FUZZ_SECONDS) s"; \
		mkdir -p fuzz/crashes/$$name $(TARGET)/fuzz/corpus/$$name; \
		$(CARGO) fuzz run --sanitizer none --target-dir $(TARGET)/fuzz $$name \
			$(TARGET)/fuzz/corpus/$$name fuzz/corpus/$$name fuzz/crashes/$$name -- \
			-max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
			-artifact_prefix=fuzz/crashes/$$name/ || exit 1; \
	done

# As root through sudo nothing is compiled: that is for `make build` before it.
.PHONY: install
install: $(if $(SUDO_USER),,build) ## install into PREFIX (/usr/local)
	scripts/install --prefix "$(PREFIX)" --destdir "$(DESTDIR)" --from "$(TARGET)/release"

.PHONY: uninstall
uninstall: ## remove what install put there
	scripts/install --prefix "$(PREFIX)" --destdir "$(DESTDIR)" --remove

# MACHINES: some of `x86_64 aarch64`. PACKAGES and SUITES: some of `deb rpm tarball wheel`, and
# of Debian's `bullseye bookworm trixie`, and `arm`, in place of all. BUILT=tested packs what `make
# test-build` has compiled for this machine, and compiles nothing.
MACHINES ?= x86_64 aarch64
BUILT ?=
PACKAGES ?=
SUITES ?=
.PHONY: dist
dist: setup-dist ## compile for x86-64 and ARM, and make tarballs, Debian packages, RPMs and wheels (in target/dist)
	$(if $(BUILT),,for machine in $(MACHINES); do $(MAKE) MACHINE=$$machine release || exit; done)
	scripts/dist --to "$(TARGET)/dist" $(if $(BUILT),--from "$(TARGET)/$(BUILT)",--glibc $(GLIBC) $(MACHINES:%=--from "$(TARGET)/%-unknown-linux-gnu/release")) $(PACKAGES)

.PHONY: check-symbols
check-symbols: setup-symbols ## look whether the C library of `make dist` has what is used of it, as compiled by test-build
	scripts/check-symbols $(GLIBC) $(TARGET)/tested/{isthmus{,-lab,-raw,-coll-explain},libisthmus_*.so}

.PHONY: check-dist
check-dist: setup-dist ## install them in new Debian systems, and look (needs root and a mirror)
	$(AS_ROOT) scripts/check-dist --from "$(TARGET)/dist" $(SUITES)

.PHONY: clean
clean: ## remove everything that was built, target/mpich included
	if [ -n "$$CARGO_TARGET_DIR" ]; then $(CARGO) clean; fi
	rm -rf target

SETUPS := build portable symbols test test-all demo ray2mesh bench dist lint deny fuzz
.PHONY: $(SETUPS:%=setup-%)
$(SETUPS:%=setup-%): setup-%:
	@scripts/setup $*
