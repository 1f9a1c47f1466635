#!/usr/bin/env bash
# Builds the release binary as one static file, so that the daemon needs no library that could lie on a lazy
# mount, and so that it runs on any distribution. XEBEC_PROFILE=demo builds it with less optimisation, in less time, for the demos.
# XEBEC_REGISTRY=yes builds xebec-registry beside it, also as one file: in the same run of cargo, so that what both are made of is built
# once. It takes as long again as all else.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

profile=${XEBEC_PROFILE:-release}
registry=()
[[ ${XEBEC_REGISTRY:-no} != yes ]] || registry=(--package xebec-registry --bin xebec-registry)
# Naming the target keeps the flags away from build scripts and procedural macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} $XEBEC_STATIC" \
    cargo build --profile "$profile" --locked --target "$XEBEC_TARGET" --package xebec-cli --bin xebec "${registry[@]}"
directory="$CARGO_TARGET_DIR/$XEBEC_TARGET/$profile"
programs=(xebec)
[[ ${#registry[@]} -eq 0 ]] || programs+=(xebec-registry)
for program in "${programs[@]}"; do
    if readelf --program-headers "$directory/$program" | grep -q INTERP; then
        echo "release: $directory/$program is not static" >&2
        exit 1
    fi
    # With a C library that is too old for its linker it would not even begin.
    if ! "$directory/$program" --version >/dev/null; then
        echo "release: $directory/$program does not run" >&2
        exit 1
    fi
done
printf '%s\n' "$directory/xebec"
