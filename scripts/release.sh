#!/usr/bin/env bash
# Builds the release binary as one static file, so that the daemon needs no library that could lie on a lazy
# mount, and so that it runs on any distribution.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

# Naming the target keeps the flags away from build scripts and procedural macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} $XEBEC_STATIC" \
    cargo build --release --locked --target "$XEBEC_TARGET" --package xebec-cli --bin xebec
binary="$CARGO_TARGET_DIR/$XEBEC_TARGET/release/xebec"
if readelf --program-headers "$binary" | grep -q INTERP; then
    echo "release: $binary is not static" >&2
    exit 1
fi
# With a C library that is too old for its linker it would not even begin.
if ! "$binary" --version >/dev/null; then
    echo "release: $binary does not run" >&2
    exit 1
fi
printf '%s\n' "$binary"
