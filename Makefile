# Every task that a developer needs. CI calls the same targets (.ci/run).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
RUN := source scripts/env.sh;

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what is needed (Debian packages, Go and Cargo tools); quick when it is all there
	@scripts/setup.sh

.PHONY: build
build: setup ## build everything for development
	@$(RUN) cargo build --workspace --locked

.PHONY: release
release: setup ## build the release binary: one static file
	@scripts/release.sh

.PHONY: package
package: setup ## make the Debian package and the container image, in out/
	@scripts/package.sh deb; scripts/package.sh container

.PHONY: demo
demo: setup ## start nginx three ways (full pull, lazily, lazily and warm) and compare
	@scripts/demo.sh

.PHONY: test
test: setup ## run everything that CI runs
	@scripts/test.sh all

.PHONY: lint
lint: setup ## formatting, clippy, documentation, licences
	@scripts/test.sh lint

.PHONY: unit
unit: setup ## unit, property and documentation tests of the crates
	@scripts/test.sh unit

.PHONY: images
images: setup ## build the test images
	@scripts/images/build.sh all

.PHONY: e2e
e2e: setup ## end-to-end tests against real tools, as root; ONLY=NAME picks tests by a part of their name
	@scripts/test.sh e2e

.PHONY: test-snapshotter
test-snapshotter: setup ## containerd's own tests of our snapshotter ten times, and with Go's race detector, as root (once is part of e2e)
	@XEBEC_SUITE_RUNS=10 scripts/e2e.sh containerd/suite

.PHONY: soak
soak: setup ## the soak tests in their full form, as root (their short form is part of e2e)
	@scripts/soak.sh $(ONLY)

.PHONY: fuzz
fuzz: setup ## fuzz each parser; SECONDS_EACH=N (60) and TARGET=NAME may be given
	@scripts/fuzz.sh $(or $(SECONDS_EACH),60) $(TARGET)

.PHONY: bench
bench: setup ## run the benchmarks and print their tables; BENCH_ONLY and BENCH_JSON are for the first
	@failed=0; scripts/bench.sh || failed=1; unset BENCH_ONLY BENCH_JSON; \
	SMALL=1 scripts/bench.sh containerd || failed=1; scripts/bench.sh operations || failed=1; exit $$failed

.PHONY: bench-runtime
bench-runtime: setup ## measure starts by runtime images, a line for each image and network; SMALL=1 for two images
	@scripts/bench.sh runtime

.PHONY: bench-large
bench-large: setup ## the same for an image of several gigabytes; needs 20 GB of room
	@scripts/bench.sh large

.PHONY: bench-readahead
bench-readahead: setup ## measure what read-ahead, prefetching and the unit of fills do to starts
	@scripts/bench.sh readahead

.PHONY: bench-peers
bench-peers: setup ## build what bench-containerd compares with: stargz-snapshotter and soci-snapshotter
	@scripts/peers.sh

.PHONY: bench-containerd
bench-containerd: setup ## measure starts under containerd beside overlayfs and the peers that are installed; SMALL=1 for two images
	@scripts/bench.sh containerd

.PHONY: bench-operations
bench-operations: setup ## measure snapshot operations in a second beside containerd's own snapshotters
	@scripts/bench.sh operations

.PHONY: clean
clean: ## remove what building leaves in the checkout (not the caches of tools and images)
	@cargo clean; rm -rf out
