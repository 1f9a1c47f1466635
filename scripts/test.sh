#!/usr/bin/env bash
# Runs the checks and sums them up. `make test` is `test.sh all`, and so is CI.
#
#   scripts/test.sh all | lint | unit | e2e | smoke | fuzz
#
# Every check runs even if an earlier one failed. The last line counts all of them: single checks, the cases that `cargo test` reports,
# and the end-to-end cases. A check that cannot run here is counted as skipped, with a line that begins with SKIPPED and says why. Up to
# three tests of a part that failed are tried once more, alone; those that pass then have a line that begins with FLAKY before the last one.
#
# Before it, a table shows how long each part took beside its budget, and the ten slowest cases. Going over a budget is shown
# and fails nothing: machines differ, and so does what is built already.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP" || exit 1

# Seconds that each part may take on two idle processors with nothing built yet. Together with `make setup` they are 40 minutes.
declare -A BUDGETS=(
    ["formatting"]=10
    ["clippy"]=150
    ["documentation"]=60
    ["licences, bans, sources"]=10
    ["advisories"]=30
    ["compiling programs and tests"]=330
    ["unit and property tests"]=240
    ["tests of the benchmark's programs"]=15
    ["examples in the documentation"]=30
    ["a mount that is left behind is seen"]=5
    ["test images"]=240
    ["end to end"]=800
    ["benchmark, briefly"]=60
    ["fuzzing, briefly"]=210
)
BUDGET_OF_ALL=2200
# Megabytes on the disk that all parts take together with nothing built yet. With less, tests fail for a reason that is not theirs.
ROOM=9000
# How many of the slowest cases are shown.
SLOWEST=10

passed=0 failed=0 skipped=0
failures=() flaky=()
began=$(date +%s)
parts=()
declare -A took=()
log=$(mktemp)
# Lines "SECONDS NAME", of all cases whose durations are known.
durations=$(mktemp)
trap 'rm -f "$log" "$durations"' EXIT

# Runs a command, showing its output and keeping it in $log; tells how long it took.
timed() {
    local title=$1 started status
    shift
    started=$(date +%s)
    printf '\n== %s\n' "$title"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    note_time "$title" $(($(date +%s) - started))
    printf -- '-- %s: %s, %s s\n' "$title" "$([[ $status -eq 0 ]] && echo ok || echo FAILED)" "${took[$title]}"
    [[ $status -eq 0 ]] || failures+=("$title")
    return "$status"
}

note_time() {
    parts+=("$1")
    took[$1]=$2
}

# The durations in $log: those of end-to-end cases, and of each test program of a crate as a whole. Stable libtest does not tell how
# long a case took (`--report-time` is for nightly compilers).
note_durations() {
    awk '
        function flush() { if (program != "") print seconds, program; program = "" }
        /^test .* \.\.\. [A-Za-z]+ \([0-9.]+ s\)$/ { print substr($(NF - 1), 2), $2 }
        # A test that starts its program again prints the result of that as well: the last one counts.
        /^ +Running .* \(.*\)$/  { flush(); n = split($NF, path, "/"); program = path[n]; sub(/-[0-9a-f]+\)$/, "", program)
                                  program = "test program " program " (" ($2 == "unittests" ? $3 : $2) ")" }
        /^ +Doc-tests /          { flush(); program = "documentation of " $2 }
        /^test result: .* finished in [0-9.]+s$/ { seconds = $NF + 0 }
        END { flush() }' "$log" >>"$durations"
}

# One line of the table: NAME SECONDS BUDGET.
part_line() {
    local late=""
    [[ -z $3 || $2 -le $3 ]] || late="  OVER BUDGET"
    printf '  %-40s %6s s %10s%s\n' "$1" "$2" "${3:+of $3 s}" "$late"
}

summarize_times() {
    local part whole=$(($(date +%s) - began))
    printf '\ntime by part\n'
    for part in "${parts[@]}"; do part_line "$part" "${took[$part]}" "${BUDGETS[$part]:-}"; done
    part_line "the whole" "$whole" "$BUDGET_OF_ALL"
    [[ -s $durations ]] || return
    printf '\nslowest cases\n'
    sort -rn "$durations" | head -n "$SLOWEST" | while read -r seconds name; do printf '  %8.1f s  %s\n' "$seconds" "$name"; done
}

# A check that passes or fails as a whole.
check() { if timed "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; }

skip() {
    printf 'SKIPPED %s: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
}

# A command whose output counts its own cases, as libtest or as our end-to-end runner does. Failing without a
# failed case (it did not compile, it died) counts as one failure.
counted() {
    local status=0 counts=(0 0 0)
    timed "$@" || status=$?
    note_durations
    mapfile -t counts < <(awk '
        /^test result: /                 { p += $4; f += $6; s += $8 }
        # A case of libtest that lacks something counts as passed there, and says so in what it prints.
        /^successes:$/                   { is_passed = 1 }
        /^(failures:|test result: )/     { is_passed = 0 }
        /^---- .* stdout ----$/          { is_new = is_passed }
        is_new && /^SKIPPED/             { p -= 1; s += 1; is_new = 0 }
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5 }
        END { print p+0; print f+0; print s+0 }' "$log")
    [[ $status -ne 0 && ${counts[1]} -eq 0 ]] && counts[1]=1
    local -a again
    mapfile -t again < <(grep '^FLAKY ' "$log")
    flaky+=("${again[@]}")
    # All that failed has passed at a second try.
    [[ $status -eq 0 && ${#again[@]} -gt 0 ]] && counts[1]=0
    # Named once more at the end, with the first of what each says, which may come long after its name: the whole is long.
    [[ ${counts[1]} -eq 0 ]] || mapfile -t -O ${#failures[@]} failures < <(awk '
        /^test .* \.\.\. / { name = / \.\.\. FAILED/ ? $2 : ""; if (name != "" && !(name in said)) { order[++n] = name; said[name] = 0 } next }
        /^     ./ && name != "" { if (said[name]++ < 10) text[name] = text[name] "\n" $0; next }
        { name = "" }
        END { for (i = 1; i <= n; i++) print "  " order[i] text[order[i]] }' "$log")
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
}

documentation() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet; }

# The advisory database is a git repository elsewhere; without it nothing is known, which is no failure.
advisories() {
    local text status=0 started
    started=$(date +%s)
    text=$(timeout 120 cargo deny check advisories 2>&1) || status=$?
    note_time advisories $(($(date +%s) - started))
    if grep -q 'failed to fetch advisory database' <<<"$text"; then
        skip "advisories" "the advisory database cannot be fetched from here"
    elif [[ $status -eq 0 ]]; then
        echo "advisories ok"
        passed=$((passed + 1))
    else
        printf '%s\n' "$text"
        failures+=("advisories")
        failed=$((failed + 1))
    fi
}

lint() {
    check "formatting" cargo fmt --all --check
    check "clippy" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
    check "documentation" documentation
    check "licences, bans, sources" cargo deny --log-level error check licenses bans sources
    advisories
}

# The crates with examples in their documentation. Asking rustdoc takes it some seconds for each crate, also for those without.
crates_with_examples() {
    find crates -path '*/src/*' -name '*.rs' -print0 | xargs -0 awk '
        FNR == 1 { is_open = 0 }
        /^[[:space:]]*\/\/[\/!][[:space:]]*```/ {
            if (!is_open && $0 !~ /```(text|toml|json|sh|console|ignore)/) { split(FILENAME, path, "/"); print "xebec-" path[2] }
            is_open = !is_open
        }' | sort -u
}

# The test programs and the programs themselves, in one run of cargo: what all are made of is compiled once. `xebec` is a static file, as
# in a release.
programs() {
    RUSTC_WRAPPER="$XEBEC_TOP/scripts/rustc-static.sh" cargo build --workspace --locked --lib --bins --tests --quiet || return
    # Cargo does not compare how a program was linked, and leaves one that `make build` has linked with libraries.
    [[ $(ldd "$CARGO_TARGET_DIR/debug/xebec" 2>&1) == *'=>'* ]] || return 0
    [[ ${1:-} != again ]] || { echo "$CARGO_TARGET_DIR/debug/xebec is not static" && return 1; }
    touch crates/cli/src/main.rs
    programs again
}

unit() {
    local examples
    # By itself, so that one sees which of the two takes long.
    check "compiling programs and tests" programs
    # With what passed cases print: they say so if they could not do what they are for. Tests leave nothing in the tree.
    counted "unit and property tests" \
        env PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 scripts/unit.py --show-output
    mapfile -t examples < <(crates_with_examples)
    [[ ${#examples[@]} -eq 0 ]] || counted "examples in the documentation" \
        scripts/in-own-mounts.sh cargo test --locked --doc "${examples[@]/#/--package=}"
    counted "tests of the benchmark's programs" scripts/in-own-mounts.sh python3 bench/tests/run.py
    check "a mount that is left behind is seen" scripts/in-own-mounts.sh --try
}

# End to end, the programs are those of the unit tests, with all assertions and checks for overflow: a release would be compiled as long
# again as all else. `make e2e-release` tries that one.
development_programs() {
    [[ -z ${XEBEC_BIN:-} ]] || return 0
    [[ -n ${took[compiling programs and tests]:-} ]] || check "compiling programs and tests" programs
    export XEBEC_PROGRAMS="$CARGO_TARGET_DIR/debug"
    export XEBEC_BIN="$XEBEC_PROGRAMS/xebec"
}

e2e() {
    if [[ $(id -u) -ne 0 ]]; then
        skip "end to end" "must run as root: it mounts, and unpacks device nodes"
        return
    fi
    check "test images" scripts/images/build.sh all
    development_programs
    counted "end to end" scripts/e2e.sh ${ONLY:+"$ONLY"}
}

# Keeps the benchmark alive: two images in two systems. It uses what the end-to-end tests use.
smoke() {
    if [[ $(id -u) -ne 0 ]]; then
        skip "benchmark, briefly" "must run as root: it mounts and starts containers"
        return
    fi
    development_programs
    counted "benchmark, briefly" scripts/bench.sh smoke
}

fuzz() { counted "fuzzing, briefly" scripts/fuzz.sh "${SECONDS_EACH:-in:24}"; }

# Says how much room there is where things are built, and ends if that is too little for all parts.
room() {
    local free built
    mkdir -p "$CARGO_TARGET_DIR"
    free=$(($(df -Pk "$CARGO_TARGET_DIR" | awk 'NR == 2 { print $4 }') / 1024))
    built=$(($(du -sk "$CARGO_TARGET_DIR" | awk '{ print $1 }') / 1024))
    printf 'room on the disk of %s: %s MB free, %s MB are built already\n' "$CARGO_TARGET_DIR" "$free" "$built"
    [[ $((free + built)) -ge $ROOM ]] && return
    printf 'FAILED: the tests take %s MB there; make room, or name another place by CARGO_TARGET_DIR\n' "$ROOM" >&2
    exit 1
}

case "${1:-}" in
all)
    room
    lint
    unit
    e2e
    smoke
    fuzz
    ;;
lint | unit | e2e | smoke | fuzz) "$1" ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

summarize_times
printf '\n'
[[ ${#flaky[@]} -eq 0 ]] || printf '%s\n' "${flaky[@]}"
for failure in "${failures[@]}"; do [[ $failure == ' '* ]] && printf '%s\n' "$failure" || printf 'FAILED %s\n' "$failure"; done
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[[ $failed -eq 0 ]]
