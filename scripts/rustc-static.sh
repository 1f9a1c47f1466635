#!/usr/bin/env bash
# Stands between cargo and rustc (RUSTC_WRAPPER): links each of the programs xebec and xebec-registry as one static file, as
# scripts/release.sh does, out of what the tests are linked of. With flags for all that is compiled (RUSTFLAGS) all of it would be compiled a second time. Without line tables:
# they make three quarters of a file that cases copy into images and packages.
#
# Not for sh, which drops variables with a dash in their names: CARGO_BIN_EXE_xebec-registry is one.
set -euo pipefail
rustc=$1
shift
case " $* " in
*" --test "*) exec "$rustc" "$@" ;;
*" --crate-name xebec "*" --crate-type bin "* | *" --crate-name xebec_registry "*" --crate-type bin "*)
    # shellcheck disable=SC2086 # Several words.
    exec "$rustc" "$@" ${XEBEC_STATIC:?scripts/env.sh sets it} -C strip=debuginfo
    ;;
*) exec "$rustc" "$@" ;;
esac
