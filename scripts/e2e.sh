#!/usr/bin/env bash
# Runs the end-to-end tests whose names contain one of the arguments, or all. As root.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

# Built beforehand: the tests run without a network. XEBEC_PROGRAMS=DIRECTORY has what scripts/test.sh has built already; XEBEC_BIN and
# XEBEC_REGISTRY_BIN are single programs.
XEBEC_BIN=${XEBEC_BIN:-$(scripts/release.sh)}
if [[ -z ${XEBEC_PROGRAMS:-} ]]; then
    # For development: with optimisation the registry would take as long again as all else that is built here, and its cases ask what
    # it answers, not how fast.
    cargo build --locked --quiet --workspace --bin xebec-registry --bin xebec-e2e
    XEBEC_PROGRAMS=$CARGO_TARGET_DIR/debug
fi
XEBEC_REGISTRY_BIN=${XEBEC_REGISTRY_BIN:-$XEBEC_PROGRAMS/xebec-registry}
E2E_GOTOOLS=$CARGO_TARGET_DIR/gotools
# go_with CGO COMMAND...
go_with() { CGO_ENABLED=$1 GOFLAGS=$XEBEC_GOFLAGS go "${@:2}"; }
# Static, because one of them is all that an image of a test has.
go_with 0 build -C tests/gotools -o "$E2E_GOTOOLS/" ./...
go_with 0 build -C tests/containerd -o "$E2E_GOTOOLS/" ./cri ./labels ./offer
go_with 0 test -C tests/containerd -c -o "$E2E_GOTOOLS/snapshotter-suite" ./suite
# Go's race detector needs cgo.
go_with 1 test -C tests/containerd -race -c -o "$E2E_GOTOOLS/snapshotter-suite-race" ./suite
export XEBEC_BIN XEBEC_REGISTRY_BIN E2E_GOTOOLS
exec "$XEBEC_PROGRAMS/xebec-e2e" "$@"
