#!/usr/bin/env bash
# Fuzzes every parser, or one. Coverage-guided (libFuzzer), on a stable compiler.
#
#   scripts/fuzz.sh [SECONDS_EACH] [TARGET]      60 s and all targets if not given; 0 s runs the seeds alone
#   scripts/fuzz.sh in:SECONDS                   shares so many seconds among all targets, however many there are
#
# Inputs that reach something new are kept in fuzz/corpus/TARGET, but not by a run that shares its seconds: that one begins with the
# seeds each time, so that it does not take longer from run to run. fuzz/seeds/TARGET is committed. An input that panics,
# takes over 20 s or over 2 GiB of memory fails its target, and stays in fuzz/artifacts/TARGET. To see it again:
#   "$CARGO_TARGET_DIR"/debug/TARGET fuzz/artifacts/TARGET/FILE
# Once the defect is mended, the input belongs in fuzz/seeds/TARGET under a name that says what it shows.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP" || exit 1

seconds=${1:-60}
only=${2:-}
is_brief=
[[ $seconds != in:* ]] || is_brief=yes
build="$CARGO_TARGET_DIR/debug"
# So much that no honest input comes near, and so little that a bomb is noticed. The largest thing that a parser may hold for one input is
# a section of an index (256 MiB), and libFuzzer counts its own memory as well.
limits=(-timeout=20 -rss_limit_mb=2048 -max_len=16384)
passed=0 failed=0 skipped=0

summary() {
    printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
    [[ $failed -eq 0 ]]
    exit
}

# How long each of so many targets may take. A second at least, which finds what is found at once.
each() { # SECONDS TARGETS
    local each=$(($1 * $(nproc) / $2))
    printf '%s\n' $((each > 0 ? each : 1))
}

# libFuzzer looks for whole seconds above its limit, so that one second takes two. Asked by a signal, it ends after the input that it is
# at, so that one which hangs is still found. It must not be asked before it has its seeds behind it, when it would die of the signal.
end_after_a_second() { # PID LOG
    until grep -q INITED "$2"; do
        [[ -n $(jobs -rp) ]] || return 0
        sleep 0.05
    done
    sleep 1
    kill -USR1 "$1" 2>/dev/null || true
}

# One line for each target; the whole log only of those that fail.
fuzz_one() {
    local target=$1 status=0 log runs time
    local artifacts="fuzz/artifacts/$target/" corpus="fuzz/corpus/$target" seeds="fuzz/seeds/$target"
    [[ -z $is_brief ]] || corpus=$(mktemp -d)
    mkdir -p "$artifacts" "$corpus" "$seeds"
    log=$(mktemp)
    # To libFuzzer, 0 seconds mean for ever, and 0 runs mean the given inputs alone.
    runs=-1 time=$seconds
    [[ $seconds -eq 0 ]] && runs=0
    "$build/$target" "${limits[@]}" -runs="$runs" -max_total_time="$time" -print_final_stats=1 \
        -artifact_prefix="$artifacts" "$corpus" "$seeds" >"$log" 2>&1 &
    [[ -z $is_brief || $seconds -ne 1 ]] || end_after_a_second "$!" "$log"
    wait "$!" || status=$?
    if [[ $status -eq 0 ]]; then
        printf 'ok      %-20s %s\n' "$target" "$(awk '
            /^#[0-9]+/ { for (i = 2; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
            /number_of_executed_units/ { runs = $2 }
            /peak_rss_mb/ { memory = $2 }
            END { printf "%d inputs, %d edges, %d MiB", runs, cov, memory }' "$log")"
    else
        tail -n 60 "$log"
        printf 'FAILED  %-20s %s\n' "$target" "$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
    fi
    rm -f "$log"
    [[ -z $is_brief ]] || rm -rf "$corpus"
    return "$status"
}

if ! command -v c++ >/dev/null; then
    printf 'SKIPPED fuzzing: there is no C++ compiler, which libFuzzer needs\n'
    skipped=1
    summary
fi

mapfile -t targets < <(cd fuzz/fuzz_targets && for file in *.rs; do
    [[ -z $only || ${file%.rs} == "$only" ]] && printf '%s\n' "${file%.rs}"
done)
if [[ ${#targets[@]} -eq 0 ]]; then
    printf 'FAILED  there is no target %s; the targets are the files of fuzz/fuzz_targets\n' "$only"
    failed=$((failed + 1))
    summary
fi

[[ $seconds != in:* ]] || seconds=$(each "${seconds#in:}" ${#targets[@]})

# Crates of others are those of the tests, compiled as for those: the same profile, and the features of the whole workspace. Xebec's own
# crates get coverage, and are compiled to be faster than for the tests.
if ! CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_INCREMENTAL=0 RUSTC_WORKSPACE_WRAPPER="$XEBEC_TOP/fuzz/instrument.sh" cargo build --quiet --locked \
    --workspace --features xebec-fuzz/fuzzing "${targets[@]/#/--bin=}"; then
    printf 'FAILED  the fuzz targets do not compile\n'
    failed=$((failed + 1))
    summary
fi
passed=$((passed + 1))

# As many at a time as there are processors; most of a target's time is spent in one thread.
declare -A running=()
reap() {
    local pid status=0
    wait -n -p pid || status=$?
    unset "running[$pid]"
    if [[ $status -eq 0 ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
for target in "${targets[@]}"; do
    [[ ${#running[@]} -lt $(nproc) ]] || reap
    fuzz_one "$target" &
    running[$!]=$target
done
while [[ ${#running[@]} -gt 0 ]]; do reap; done
summary
