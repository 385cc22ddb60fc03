# What a fresh Debian machine needs is git, make, a C compiler and Rust; the rest these targets install themselves.
#
#   make run      build Weir and start it on examples/quickstart.cfg
#   make test     everything that must pass
#   make bench    Weir beside haproxy and nginx; make bench-busy-polling; make bench-variables; make bench-load: time and memory to load 33,000 backends
#   make lint     formatting, clippy, arrows between rooms, generated documents
#   make fmt      format the sources

SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
.PHONY: run build test lint fmt bench bench-busy-polling bench-load bench-variables tools docs clean

run: build
	@./tools/quickstart.sh $(TARGET)/quick/weir

build:
	@./tools/need.sh cc
	$(CARGO) build --profile quick -p weir

tools:
	@./tools/need.sh varnishtest haproxy nginx wrk curl strace time

test: tools
	$(CARGO) test --workspace --locked --no-fail-fast
	$(CARGO) build --locked -p weir
	./tests/run-vtc.sh $(TARGET)/debug/weir

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) run -q -p xtask -- arrows

fmt:
	$(CARGO) fmt --all

docs:
	$(CARGO) run -q -p xtask -- docs

bench-busy-polling: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/busy-polling.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-variables: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/variables.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

bench-load: tools
	$(CARGO) build --release -p weir
	./bench/load.sh $(TARGET)/release/weir

bench: tools
	$(CARGO) build --release -p weir -p weir-bench
	./bench/run.sh $(TARGET)/release/weir $(TARGET)/release/weir-load

clean:
	$(CARGO) clean
