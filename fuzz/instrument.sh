#!/bin/sh
# Stands between cargo and rustc (RUSTC_WRAPPER): adds libFuzzer's coverage to Xebec's crates and to the parsers that
# they lean on. The rest is left alone, which compiles faster and keeps the fuzzer's eye on what it is to explore.
# After a change here, remove the target directory: cargo does not notice.
rustc=$1
shift
case "${CARGO_PKG_NAME:-}: $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "*) exec "$rustc" "$@" ;;
# Built beside the targets to see that it follows the crates, with what is compiled for those. It has no libFuzzer, and is not run.
*" --crate-name seeds "*) exec "$rustc" "$@" -C link-arg=-Wl,--unresolved-symbols=ignore-all ;;
xebec-* | pem-rfc7468:* | serde_json:* | toml*)
    exec "$rustc" "$@" -C codegen-units=1 -C passes=sancov-module \
        -C llvm-args=-sanitizer-coverage-level=4 \
        -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
        -C llvm-args=-sanitizer-coverage-pc-table \
        -C llvm-args=-sanitizer-coverage-trace-compares
    ;;
*) exec "$rustc" "$@" ;;
esac
