# A fresh Debian machine needs git, make, a C compiler and Rust. The targets install everything else, after printing it.
#
#   make run      build Weir and start it on examples/quickstart.cfg
#   make build    the program, target/quick/weir
#   make check    formatting, clippy, import rules, generated pages, unit tests: needs a C compiler and OpenSSL's headers, installs
#                 nothing; takes at most three minutes when it ran before (a build by `make test` has other features)
#   make test     everything that must pass (VTC=no without the scenarios, PACKAGES=no without the packages)
#   make test-configs CONFIGS=<folder>   that configurations collected elsewhere are read
#   make lint     formatting, clippy, imports between crates and modules, unread fields of the plan, dependencies, generated pages
#   make deny     dependencies by cargo-deny, with advisories, if it is installed
#   make fmt      format the sources
#   make docs     write the generated pages
#   make release  the binary to install, target/weir: compiled with a profile of typical use (PROFILE=none without, PROFILE=FILE with
#                 that profile)
#   make packages a .deb, an .rpm, a container image, an SBOM and checksums of that binary, and the image of weir-gateway, in
#                 target/packages
#   make test-packages   that the packages of a debug build can be made, installed, run and purged; needs root
#   make conformance   the Gateway API's suite against weir-gateway and a real API server (PROFILES="HTTP GRPC" only these); needs
#                 root, builds the API server for an hour the first time
#   make fuzz     fuzz targets one after the other, SECONDS=60 each (TARGETS="hpack url" chooses); not part of `make test`
#   make bench    the costs of the binary of `make release`, compared with haproxy and nginx; BENCH="trials floods scale=2" is
#                 another benchmark and its words, BENCH=help lists all (docs/performance.md)
#   make tools    install the tools that tests and benchmarks use

SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
SECONDS ?= 60
VTC ?= yes
PACKAGES ?= yes
BUILDING := cc pkg-config openssl openssl/ssl.h
PACKAGING := cargo-deb cargo-generate-rpm cargo-cyclonedx rpm objcopy
.PHONY: run build release packages check test test-configs test-packages conformance fuzz lint deny fmt docs bench tools clean

run: build
	@./tools/quickstart.sh $(TARGET)/quick/weir

build:
	@./tools/need.sh $(BUILDING)
	@echo "Building with $(CARGO), which takes 5 to 15 minutes the first time."
	@./tools/build.sh $(CARGO) build --profile quick -p weir

release:
	@./tools/need.sh $(BUILDING) h2load
	@CARGO_TARGET_DIR=$(TARGET) ./tools/release.sh

packages: release
	@./tools/need.sh $(PACKAGING)
	@./tools/build.sh $(CARGO) build --release --locked -p weir-gateway
	@GATEWAY=$(TARGET)/release/weir-gateway ./tools/packages.sh $(TARGET)/weir
	@[ ! -e $(TARGET)/weir.profdata ] || cp $(TARGET)/weir.profdata target/packages/

test-packages:
	@./tools/need.sh $(BUILDING) $(PACKAGING) debootstrap mandoc curl python3
	$(CARGO) build --workspace --bins --tests --locked
	@./tests/packages.sh $(TARGET)/debug/weir

conformance:
	@./tools/need.sh $(BUILDING) go python3 curl ip
	@./tools/conformance.sh $(PROFILES)

tools:
	@./tools/need.sh $(BUILDING) varnishtest haproxy nginx wrk curl strace time postgres mariadbd redis-server slapd php-fpm python3 socat pebble h2spec grpc-interop-client grpc-interop-server nghttp h2load node python3-h2 python3-aiosmtpd promtool python3-prometheus-client

# The tests of the program from outside need services. Doc comments have no tests.
check: unit := --workspace --exclude weir-tests --lib --bins --tests --locked
check:
	@./tools/need.sh -n $(BUILDING)
	@$(MAKE) --no-print-directory lint
	$(CARGO) test $(unit) --quiet

# All programs and tests are built by one command: separate ones would select other features and compile the workspace twice.
# Most tests wait for a process or a timer, so that twice as many run at once as there are cores.
test: export WEIR = $(abspath $(TARGET))/debug/weir
test: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test: step = @printf '\n== %s: %s\n' "$$(date +%H:%M:%S)"
test:
	$(step) "1 of 6, tools"
	@$(MAKE) --no-print-directory tools
	$(step) "2 of 6, lint"
	@$(MAKE) --no-print-directory lint
	$(step) "3 of 6, build"
	$(CARGO) build --workspace --bins --tests --locked
	$(step) "4 of 6, tests"
	$(CARGO) test --workspace --bins --lib --tests --locked --no-fail-fast
ifneq ($(VTC),no)
	$(step) "5 of 6, scenarios of tests/vtc"
	@./tests/run-vtc.sh $(WEIR)
endif
ifneq ($(PACKAGES),no)
	$(step) "6 of 6, packages"
	@$(MAKE) --no-print-directory test-packages
endif

test-configs: tools
	@test -d "$(CONFIGS)" || { echo "say where they are: make test-configs CONFIGS=<folder>"; exit 2; }
	WEIR_CONFIGS=$(abspath $(CONFIGS)) $(CARGO) test -p weir-config --test files -p weir-tests --test config -- --ignored

fuzz:
	@./tools/need.sh cc pkg-config openssl/ssl.h
	@./tools/fuzz.sh $(SECONDS) $(TARGETS)

# The rules that the compiler does not check are tests of xtask. `--workspace` gives them the features of the full build, which
# would otherwise be compiled a second time.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --bin xtask --locked --quiet

# Advisories are downloaded.
deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "cargo-deny is missing: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny check

fmt:
	$(CARGO) fmt --all

docs:
	$(CARGO) run -q -p xtask -- docs

bench:
	$(CARGO) run -q -p weir-bench -- $(or $(BENCH),overview)

clean:
	$(CARGO) clean
