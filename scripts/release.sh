#!/usr/bin/env bash
# Builds the release binary as one static file, so that the daemon needs no library that could lie on a lazy
# mount, and so that it runs on any distribution.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

# Naming the target keeps the flag away from build scripts and procedural macros, which cannot be static.
target="$(uname -m)-unknown-linux-gnu"
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" \
    cargo build --release --locked --target "$target" --package xebec-cli --bin xebec
binary="$CARGO_TARGET_DIR/$target/release/xebec"
if readelf --program-headers "$binary" | grep -q INTERP; then
    echo "release: $binary is not static" >&2
    exit 1
fi
printf '%s\n' "$binary"
