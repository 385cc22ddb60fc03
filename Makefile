# What a fresh Debian machine needs is git, make, a C compiler and Rust; the rest these targets install themselves.
#
#   make run      build Weir and start it on examples/quickstart.cfg
#   make check    formatting, clippy, imports between crates and modules, generated pages, unit tests: needs a C compiler and
#                 OpenSSL's headers, installs nothing, and takes three minutes at most once everything has been built
#   make test     everything that must pass: prints what it installs before it does so
#   make test-configs CONFIGS=<folder>   that configurations collected elsewhere are read
#   make release  the binary to install, target/weir: compiled with a profile of what it is used for
#   make bench              what `make release` builds beside a plain release build, haproxy, nginx and a bare forwarder: CPU,
#                           system calls, memory (HAPROXY35=PATH HAPROXY_PROFILED=PATH for further builds of haproxy)
#   make bench-balance      what balancing costs and does, simulated and beside haproxy
#   make bench-busy-polling latency of one connection at a time
#   make bench-checks       what health checks cost, many threads (PAGES=5000000 ROUNDS=1 for p99.9999)
#   make bench-expressions  ns a fetch, a converter, a condition, a format
#   make bench-load         time and memory to load 33,000 backends
#   make bench-cache        hits of a cache, beside haproxy
#   make bench-compression  bodies compressed, beside haproxy
#   make bench-diff         random expressions over random requests, results beside haproxy's; with EXCHANGES=N whole
#                           exchanges instead (SEED=S, HAPROXY=path of a HAProxy 3.5)
#   make bench-h2           HTTP/2 on either side, beside haproxy and nginx
#   make bench-lua          what actions of scripts cost, beside haproxy (HAPROXY=PATH for one that has Lua)
#   make bench-lookups      large lists of patterns: load, memory, lookups
#   make bench-peers      what it takes to teach a table of a million entries, beside haproxy
#   make bench-reloads      1,000 reloads by each way, what they lose and keep, beside haproxy (HAPROXY35=PATH for a second one,
#                           SCALE=1 for 20)
#   make bench-tables       stick tables: requests that track and stick, a million entries, beside haproxy
#   make bench-threads      what sharing costs, groups of threads
#   make bench-trials       reloads, dying servers, memory, floods, the runtime socket, beside haproxy (TRIALS="reload memory" SCALE=10)
#   make bench-variables    many variables, many accesses
#   make fuzz               fuzz targets one after the other, SECONDS=60 each (TARGETS="hpack url" chooses); not part of `make test`
#   make lint     formatting, clippy, imports between crates and modules, fields of the plan that nobody reads, generated pages
#   make fmt      format the sources

SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
SECONDS ?= 60
.PHONY: run build release check test test-configs fuzz lint fmt bench bench-balance bench-busy-polling bench-cache bench-checks bench-compression bench-diff bench-expressions bench-h2 bench-load bench-lookups bench-lua bench-peers bench-reloads bench-tables bench-threads bench-tls bench-trials bench-variables tools docs clean

run: build
	@./tools/quickstart.sh $(TARGET)/quick/weir

build:
	@./tools/need.sh cc openssl pkg-config openssl/ssl.h
	$(CARGO) build --profile quick -p weir

release:
	@./tools/need.sh cc openssl pkg-config openssl/ssl.h h2load
	@CARGO_TARGET_DIR=$(TARGET) ./tools/release.sh

tools:
	@./tools/need.sh cc pkg-config openssl/ssl.h varnishtest haproxy nginx wrk curl strace time openssl postgres mariadbd redis-server slapd php-fpm pebble h2spec grpc-interop-client grpc-interop-server nghttp h2load node python3-h2 python3-aiosmtpd

# Everything but the tests of the program from outside, which need services. Doc comments have no tests.
check:
	@./tools/need.sh -n cc pkg-config openssl openssl/ssl.h
	@$(MAKE) --no-print-directory lint
	$(CARGO) test --workspace --exclude weir-tests --lib --bins --tests --locked --quiet

# Programs and tests are built in one go: built apart they would take other features, and the whole workspace twice the
# time and the disk. What a fresh build would keep for the next one (incremental state) is left to daily work.
test: export WEIR = $(abspath $(TARGET))/debug/weir
test: tools
	$(CARGO) build --workspace --bins --tests --locked
	$(CARGO) test --workspace --locked --no-fail-fast
	./tests/run-vtc.sh $(WEIR)

test-configs: tools
	@test -d "$(CONFIGS)" || { echo "say where they are: make test-configs CONFIGS=<folder>"; exit 2; }
	WEIR_CONFIGS=$(abspath $(CONFIGS)) $(CARGO) test -p weir-config --test files -p weir-tests --test config -- --ignored

fuzz:
	@./tools/need.sh cc pkg-config openssl/ssl.h
	@./tools/fuzz.sh $(SECONDS) $(TARGETS)

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) run -q -p xtask -- imports
	$(CARGO) run -q -p xtask -- fields
	$(CARGO) test -q -p xtask --locked

fmt:
	$(CARGO) fmt --all

docs:
	$(CARGO) run -q -p xtask -- docs

bench-busy-polling: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/busy-polling.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-expressions:
	$(CARGO) bench -p weir-sample --bench expressions

bench-diff: tools
	$(CARGO) build -p weir -p weir-bench
	@haproxy="$${HAPROXY:-$$(PATH=$$PATH:/usr/sbin command -v haproxy)}"; \
	if [ -n "$(EXCHANGES)" ]; then \
		$(TARGET)/debug/weir-exchanges $(TARGET)/debug/weir "$$haproxy" exchanges=$(EXCHANGES) seed=$(or $(SEED),1); \
	else \
		$(TARGET)/debug/weir-diff $(TARGET)/debug/weir "$$haproxy" seed=$(or $(SEED),1); \
	fi

bench-lookups: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/lookups.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-peers: tools
	$(CARGO) build --release -p weir
	./bench/peers.sh $(TARGET)/release/weir

bench-variables: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/variables.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-trials: tools
	$(CARGO) build --profile quick -p weir
	$(CARGO) build -p weir-bench
	@ulimit -n "$$(ulimit -Hn)"; $(TARGET)/debug/weir-trials $(TARGET)/quick/weir \
		"$${HAPROXY:-$$(PATH=$$PATH:/usr/sbin command -v haproxy)}" $(TRIALS) scale=$(or $(SCALE),1)

bench-reloads: tools
	$(CARGO) build --profile quick -p weir
	$(CARGO) build -p weir-bench
	@ulimit -n "$$(ulimit -Hn)"; $(TARGET)/debug/weir-trials $(TARGET)/quick/weir \
		"$${HAPROXY:-$$(PATH=$$PATH:/usr/sbin command -v haproxy)}" reload scale=$(or $(SCALE),50)

bench-tables: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/tables.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-threads: tools
	$(CARGO) build --release -p weir -p weir-bench
	$(TARGET)/release/weir-contention
	@echo
	./bench/threads.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-load: tools
	$(CARGO) build --release -p weir
	./bench/load.sh $(TARGET)/release/weir

bench-balance: tools
	$(CARGO) run -q --release -p weir-balance --example picks
	@echo
	$(CARGO) run -q --release -p weir-balance --example simulation
	@echo
	$(CARGO) build --release -p weir -p weir-bench
	./bench/balance.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-checks: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/checks.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-h2: tools
	@./tools/need.sh h2load
	$(CARGO) build --release -p weir -p weir-bench
	./bench/h2.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-lua: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/lua.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-cache: tools
	@./tools/need.sh h2load
	$(CARGO) build --release -p weir -p weir-bench
	./bench/cache.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-compression: tools
	@./tools/need.sh h2load node curl
	$(CARGO) build --release -p weir -p weir-bench
	./bench/compression.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-tls: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/tls.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench: tools release
	$(CARGO) build --release -p weir -p weir-bench
	./bench/run.sh $(TARGET)/weir $(TARGET)/release/weir-load $(TARGET)/release/weir

clean:
	$(CARGO) clean
