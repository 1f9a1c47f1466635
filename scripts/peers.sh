#!/usr/bin/env bash
# Builds the peers that `make bench-containerd` compares with, into the cache's folder of tools: those whose parts the Go
# proxy offers, at the versions that bench/peers/*/go.mod pins. A peer that cannot be built is named, and the others are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

say() { printf 'peers: %s\n' "$*" >&2; }

failed=0
mkdir -p "$XEBEC_TOOLS/bin" "$XEBEC_TOOLS/versions"
for directory in bench/peers/*/; do
    peer=peer-$(basename "$directory")
    version=$(cat "$directory"/{main.go,go.mod,go.sum} | sha256sum)
    stamp=$XEBEC_TOOLS/versions/$peer
    [[ -x $XEBEC_TOOLS/bin/$peer && -f $stamp && $(<"$stamp") == "$version" ]] && continue
    say "building $peer (about a minute)"
    # cgo as the peer wants it: one of them calls zlib.
    if GOFLAGS=-buildvcs=false go build -C "$directory" -o "$XEBEC_TOOLS/bin/$peer" .; then
        printf '%s\n' "$version" >"$stamp"
        say "$peer: $("$XEBEC_TOOLS/bin/$peer" version)"
    else
        say "SKIPPED $peer: it cannot be built here"
        failed=1
    fi
done
exit "$failed"
