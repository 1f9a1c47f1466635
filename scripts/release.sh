#!/usr/bin/env bash
# Builds the release binary as one static file, so that the daemon needs no library that could lie on a lazy
# mount, and so that it runs on any distribution. XEBEC_PROFILE=demo builds it with less optimisation, in less time, for the demo.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

profile=${XEBEC_PROFILE:-release}
# Naming the target keeps the flags away from build scripts and procedural macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} $XEBEC_STATIC" \
    cargo build --profile "$profile" --locked --target "$XEBEC_TARGET" --package xebec-cli --bin xebec
binary="$CARGO_TARGET_DIR/$XEBEC_TARGET/$profile/xebec"
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
