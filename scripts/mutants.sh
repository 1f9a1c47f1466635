#!/usr/bin/env bash
# Breaks the code in small ways, one at a time (mutants), and lists those that the crate's own tests do not notice.
#
#   scripts/mutants.sh [SEED [CRATE...]]     SEED: a number (0), CRATE: cache index format trust oci (all)
#
# Of each crate a sample is tried; another SEED picks another one. The environment may set
#   MUTANTS_SAMPLE    mutants of each crate (20)
#   MUTANTS_RE        instead of a sample, all mutants whose names match this regular expression
#   MUTANTS_MINUTES   minutes for each crate (30); what was not tried by then is not counted
#   MUTANTS_WORK      a folder that is kept, so that the next run need not build everything anew
#
# Fails if fewer than 95 % were noticed. A mutant that changes nothing which a test could see belongs in
# .cargo/mutants.toml with the reason; every other survivor wants a test.
#
# Runs as root like the tests, and mutants may remove the wrong files: all of the host is read-only to them, but for a folder that
# is removed at the end (some 4 GB).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

CARGO_MUTANTS=cargo-mutants@27.1.0
WANTED_PERCENT=95

seed=${1:-0}
shift || true
crates=("$@")
[[ ${#crates[@]} -gt 0 ]] || crates=(cache index format trust oci)
sample=${MUTANTS_SAMPLE:-20}
seconds=$((${MUTANTS_MINUTES:-30} * 60))

# As scripts/setup.sh installs Cargo's programs; nothing else needs this one.
install_tool() {
    local version="$XEBEC_TOOLS/versions/cargo-mutants"
    [[ -x $XEBEC_TOOLS/bin/cargo-mutants && $(cat "$version" 2>/dev/null) == "$CARGO_MUTANTS" ]] && return
    echo "mutants: building $CARGO_MUTANTS (some minutes)" >&2
    CARGO_TARGET_DIR="$work/tool" cargo install --quiet --locked --force --root "$XEBEC_TOOLS" "$CARGO_MUTANTS"
    rm -rf "$work/tool"
    mkdir -p "$(dirname "$version")"
    echo "$CARGO_MUTANTS" >"$version"
}

# Runs a command that can write in $work only.
confined() {
    unshare --mount --propagation private -- bash -euc '
        work=$1; shift
        mount --bind "$work" "$work"
        # Every mount, and what is on top before what is below it.
        awk "{ print \$5 }" /proc/self/mountinfo | tac | while IFS= read -r place; do
            case $(printf %b "$place") in
            "$work" | /proc | /proc/* | /dev | /dev/*) ;;
            *) mount -o remount,bind,ro "$(printf %b "$place")" 2>/dev/null || true ;;
            esac
        done
        # As root, but what cannot be written here is what counts: try it.
        ! touch "$XEBEC_TOP/.mutants" 2>/dev/null || { echo "mutants: the checkout is not read-only" >&2; exit 1; }
        exec "$@"' confined "$work" "$@"
}

# So many lines a file of the results has.
lines() { [[ ! -f $1 ]] || wc -l <"$1"; }

# Tries mutants of a crate; adds its line to the table and its survivors to the list.
try() {
    local crate=$1 picked=() all shards results="$work/$1/mutants.out" status=0
    if [[ -n ${MUTANTS_RE:-} ]]; then
        picked=(--re "$MUTANTS_RE")
    else
        all=$(cargo mutants --list --package "xebec-$crate" | wc -l)
        shards=$(((all + sample - 1) / sample))
        picked=(--shard "$((seed % shards))/$shards" --sharding round-robin)
    fi
    rm -rf "${work:?}/$crate"
    mkdir -p "$work/$crate"
    confined timeout --signal=INT --kill-after=60 "$seconds" cargo mutants --package "xebec-$crate" \
        --test-package "xebec-$crate" --output "$work/$crate" --no-shuffle --colors never "${picked[@]}" || status=$?
    # 0: all were caught; 2: some were not; 3: some took too long, which is noticed; 124, 130: time is up.
    case $status in
    0 | 2 | 3) ;;
    124 | 130) echo "mutants: the time for $crate is up; those that were tried by now count" >&2 ;;
    *)
        echo "mutants: cargo mutants failed for $crate with status $status" >&2
        failed=1
        return
        ;;
    esac
    local noticed=$(($(lines "$results/caught.txt") + $(lines "$results/timeout.txt")))
    local missed=$(($(lines "$results/missed.txt") + 0))
    table+=("$(printf '%-8s %6s of %4s' "$crate" "$noticed" $((noticed + missed)))")
    [[ $missed -eq 0 ]] || survivors+=("$(cat "$results/missed.txt")")
    caught=$((caught + noticed)) tried=$((tried + noticed + missed))
}

if [[ $(id -u) -ne 0 ]]; then
    echo "SKIPPED mutants: must run as root, to make the host read-only for them"
    exit 0
fi
if [[ -n ${MUTANTS_WORK:-} ]]; then
    mkdir -p "$MUTANTS_WORK"
    work=$(realpath "$MUTANTS_WORK")
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/xebec-mutants.XXXXXX")
    trap 'rm -rf "$work"' EXIT
fi
install_tool
# Without what debuggers read the programs of the tests are linked faster.
export CARGO_TARGET_DIR="$work/target" CARGO_PROFILE_DEV_DEBUG=none CARGO_INCREMENTAL=0
# Being stopped when time is up is no defect to be traced.
export RUST_BACKTRACE=0
mkdir -p "$work/tmp"
export TMPDIR="$work/tmp"
export CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
export GOMODCACHE="${GOMODCACHE:-$(go env GOMODCACHE)}" GOCACHE="$work/go"

caught=0 tried=0 failed=0 table=() survivors=()
for crate in "${crates[@]}"; do try "$crate"; done

printf '\ncrate    noticed of tried\n'
printf '%s\n' "${table[@]}"
[[ ${#survivors[@]} -eq 0 ]] || printf '\nnot noticed:\n%s\n' "$(printf '%s\n' "${survivors[@]}")"
[[ $tried -gt 0 ]] || { echo "mutants: none was tried" >&2; exit 1; }
printf '\n%s of %s mutants were noticed, %s %%\n' "$caught" "$tried" $((caught * 100 / tried))
[[ $failed -eq 0 && $((caught * 100)) -ge $((tried * WANTED_PERCENT)) ]]
