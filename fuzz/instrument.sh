#!/bin/sh
# Stands between cargo and rustc for the crates of the workspace (RUSTC_WORKSPACE_WRAPPER), and adds libFuzzer's coverage to them. Cargo
# keeps what it compiles so apart from what it compiles otherwise, and everything else is shared. After a change here, remove the
# target directory: cargo does not notice.
rustc=$1
shift
case " $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "*) exec "$rustc" "$@" ;;
*)
    exec "$rustc" "$@" -C codegen-units=1 -C passes=sancov-module \
        -C llvm-args=-sanitizer-coverage-level=4 \
        -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
        -C llvm-args=-sanitizer-coverage-pc-table \
        -C llvm-args=-sanitizer-coverage-trace-compares
    ;;
esac
