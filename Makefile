# Every task that a developer needs. CI calls the same targets (.ci/run).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
RUN := source scripts/env.sh;

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

PURPOSES := build demo test lint bench cosign

.PHONY: setup
setup: ## install what every target needs; setup-build, -demo, -test, -lint, -bench install for one purpose, setup-cosign what no target needs
	@scripts/setup.sh all

.PHONY: $(PURPOSES:%=setup-%)
$(PURPOSES:%=setup-%): setup-%:
	@scripts/setup.sh $*

.PHONY: build
build: setup-build ## build everything for development
	@$(RUN) cargo build --workspace --locked

.PHONY: release
release: setup-build ## build the release binaries xebec and xebec-registry, one static file each
	@XEBEC_REGISTRY=yes scripts/release.sh

.PHONY: package
package: setup-build ## make the Debian packages and the container images of xebec and xebec-registry, in out/
	@scripts/package.sh deb; scripts/package.sh container; scripts/package.sh registry-deb; scripts/package.sh registry-container

.PHONY: demo
demo: setup-demo ## start nginx in four ways (full pull, lazily, warm, recorded) on two networks, and compare
	@scripts/demo.sh

.PHONY: demo-registry
demo-registry: setup-demo ## start a registry, push nginx, start it lazily; the same for an image that comes through from another registry
	@scripts/demo-registry.sh

.PHONY: test
test: setup-test ## run everything that CI runs
	@scripts/test.sh all

.PHONY: lint
lint: setup-lint ## formatting, clippy, documentation, licences
	@scripts/test.sh lint

.PHONY: unit
unit: setup-test ## unit and property tests of the crates, examples in documentation, and of the benchmark's programs
	@scripts/test.sh unit

.PHONY: images
images: setup-test ## build the test images
	@scripts/images/build.sh all

.PHONY: e2e
e2e: setup ## end-to-end tests against real tools, as root; ONLY=NAME picks tests by a part of their name
	@scripts/test.sh e2e

.PHONY: e2e-release
e2e-release: setup ## the same with the release binary, which takes as long to build as all else
	@binary=$$(scripts/release.sh); XEBEC_BIN=$$binary scripts/test.sh e2e

.PHONY: test-snapshotter
test-snapshotter: setup-test ## containerd's own tests of our snapshotter ten times, and with Go's race detector, as root (once is part of e2e)
	@XEBEC_SUITE_RUNS=10 scripts/e2e.sh containerd/suite

.PHONY: bench-recompress
bench-recompress: setup-bench ## how much of layers by each tool comes back exactly from plain files, what that takes, and how fast
	@scripts/bench-recompress.sh

.PHONY: bench-dedup
bench-dedup: setup-bench ## how much room a registry needs that keeps each file once, over series of images with several versions; as root
	@scripts/bench-dedup.sh

.PHONY: soak-store
soak-store: setup-test ## a thousand kills of the registry's store over each of its engines
	@XEBEC_STORE_KILLS=1000 cargo test --locked -p xebec-store --test store -- --nocapture kill:: engines::

.PHONY: soak-dedup
soak-dedup: setup-test ## a thousand kills of what takes blobs apart and puts packs together anew; XEBEC_DEDUP_KILLS=N
	@XEBEC_DEDUP_KILLS=$${XEBEC_DEDUP_KILLS:-1000} cargo test --locked -p xebec-dedup --test dedup -- --nocapture kill::

.PHONY: soak-registry
soak-registry: setup-test ## a thousand kills of xebec-registry over HTTP and over each of its engines, as root; XEBEC_REGISTRY_KILLS=N
	@XEBEC_BIN=$${XEBEC_BIN:-none} XEBEC_REGISTRY_KILLS=$${XEBEC_REGISTRY_KILLS:-1000} scripts/e2e.sh registry/killed

.PHONY: soak
soak: setup-test ## the soak tests in their full form, as root (their short form is part of e2e)
	@scripts/soak.sh $(ONLY)

.PHONY: fuzz
fuzz: setup-build ## fuzz each parser; SECONDS_EACH=N (60) and TARGET=NAME may be given
	@scripts/fuzz.sh $(or $(SECONDS_EACH),60) $(TARGET)

.PHONY: mutants
mutants: setup-test ## break the code on purpose and see whether the tests of five crates notice; SEED=N CRATES="oci trust" (scripts/mutants.sh)
	@scripts/mutants.sh $(or $(SEED),0) $(CRATES)

.PHONY: bench
bench: setup-bench ## run the benchmarks and print their tables; BENCH_ONLY and BENCH_JSON are for the first
	@failed=0; scripts/bench.sh || failed=1; unset BENCH_ONLY BENCH_JSON; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	BENCH_JSON=$$fresh/hello.json BENCH_ONLY="nginx python" BENCH_RATES="0 1000 100" scripts/bench.sh hello || failed=1; \
	scripts/bench.sh operations || failed=1; exit $$failed

.PHONY: bench-runtime
bench-runtime: setup-bench ## measure starts by runtime images, a line for each image and network; SMALL=1 for two images
	@scripts/bench.sh runtime

.PHONY: bench-native
bench-native: setup-bench ## measure starts from xebec-registry, plainly and by its native service; SMALL=1 for two images
	@scripts/bench.sh native

.PHONY: bench-large
bench-large: setup-bench ## the same for an image of several gigabytes; needs 20 GB of room
	@scripts/bench.sh large

.PHONY: bench-readahead
bench-readahead: setup-bench ## measure what read-ahead, prefetching and the unit of fills do to starts
	@scripts/bench.sh readahead

.PHONY: bench-peers
bench-peers: setup-bench ## build what bench-hello compares with: stargz-snapshotter, soci-snapshotter and nydus
	@scripts/peers.sh

.PHONY: bench-images
bench-images: setup-bench ## build the images of bench/catalogue; SMALL=1 for six, LARGE=1 for all, ONLY="NAME ...", CHECK=1 to prove them
	@$(RUN) python3 -B bench/build_images.py $(if $(SMALL),--small) $(if $(LARGE),--large) $(if $(CHECK),--check) $(ONLY)

.PHONY: bench-hello
bench-hello: setup-bench ## measure starts of all images under containerd beside the peers that are installed; SMALL=1 for six images
	@scripts/bench.sh hello $(if $(BUDGET),--budget $(BUDGET))

.PHONY: bench-smoke
bench-smoke: setup-bench ## the same for two images in two systems, once, which CI does to keep it alive
	@scripts/bench.sh smoke

.PHONY: bench-scenarios
bench-scenarios: setup-bench ## measure the scenarios of the papers: development, updates, batches, throughput; ONLY=NAME
	@scripts/bench.sh scenarios $(if $(BUDGET),--budget $(BUDGET))

.PHONY: bench-operations
bench-operations: setup-bench ## measure snapshot operations in a second beside containerd's own snapshotters
	@scripts/bench.sh operations

.PHONY: bench-engines
bench-engines: setup-bench ## measure starts by Docker and by a kubelet, of nginx and Python, beside overlayfs
	@scripts/bench.sh engines

.PHONY: bench-runner
bench-runner: setup-bench ## measure starts by `xebec run`: in the foreground, detached, and with a published port
	@scripts/bench.sh runner

.PHONY: bench-registry
bench-registry: setup-bench ## measure xebec-registry beside CNCF distribution; BENCH_ONLY="alone memory indexing deduplication large nodes", BENCH_JSON, BENCH_MARKDOWN
	@scripts/bench.sh registry

.PHONY: bench-report
bench-report: ## print results as tables and make out/report.html of them; FILES="A.json B.json" (what bench-hello wrote)
	@python3 -B bench/report.py --html out/report.html $(or $(FILES),$(or $(XEBEC_CACHE),$(HOME)/.cache/xebec)/bench/hello.json)

.PHONY: bench-compare
bench-compare: ## what changed between two results files beyond noise; A=BEFORE.json B=AFTER.json
	@python3 -B bench/compare.py $(OPTIONS) $(A) $(B)

.PHONY: picture
picture: ## draw the README's picture of starts again, from bench/results
	@python3 -B bench/picture.py bench/results/hello-2026-11-22.json docs/starts.svg

.PHONY: clean
clean: ## remove what building leaves in the checkout (not the caches of tools and images)
	@cargo clean; rm -rf out
