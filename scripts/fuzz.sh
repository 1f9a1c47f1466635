#!/usr/bin/env bash
# Fuzzes each parser for a while: fuzz.sh SECONDS_EACH [TARGET]
#
# Coverage-guided, by libFuzzer, on the stable compiler: the instrumentation that `cargo fuzz` asks a nightly
# compiler for is an LLVM pass that stable can be told to run, too (without AddressSanitizer, which safe code can
# do without). What is found is left in fuzz/artifacts; a corpus grows in fuzz/corpus.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP/fuzz"
seconds=${1:-60} only=${2:-}

# Naming the target keeps the flags away from build scripts and procedural macros.
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/fuzz
flags=(--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
RUSTFLAGS="${flags[*]}" cargo build --quiet --release --locked --target "$host"

passed=0 failed=0
for file in fuzz_targets/*.rs; do
    target=$(basename "$file" .rs)
    [[ -z $only || $target == *"$only"* ]] || continue
    seeds=()
    [[ -d seeds/$target ]] && seeds=("seeds/$target")
    mkdir -p "corpus/$target" "artifacts/$target"
    printf 'fuzz %s ... ' "$target"
    log=$(mktemp)
    if "$CARGO_TARGET_DIR/$host/release/$target" "corpus/$target" "${seeds[@]}" -artifact_prefix="artifacts/$target/" \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 >"$log" 2>&1; then
        awk '/stat::number_of_executed_units/ { runs = $2 } /cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
            END { printf "ok, %s runs, coverage %s\n", runs, cov }' "$log"
        passed=$((passed + 1))
    else
        echo FAILED
        tail -n 40 "$log"
        failed=$((failed + 1))
    fi
    rm -f "$log"
done
printf '%s passed, %s failed, 0 skipped\n' "$passed" "$failed"
[[ $failed -eq 0 ]]
