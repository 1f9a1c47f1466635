#!/usr/bin/env bash
# Runs the soak tests in their full form, as root, and sums their figures up.
#
#   scripts/soak.sh [PART...]     only scenarios whose names contain a part
#
# The scenarios are cases of the end-to-end runner (tests/src/cases/soak/), which runs a short form of each in
# ordinary runs; XEBEC_SOAK=full makes them long and changes nothing else. So it does with the comparisons of images and with readers. The summary is kept in out/soak.txt.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

[[ $(id -u) -eq 0 ]] || {
    echo "soak: must run as root: it mounts and runs containers" >&2
    exit 1
}
parts=("$@")
[[ ${#parts[@]} -gt 0 ]] || parts=(soak/ differential/ reading/64-readers)
XEBEC_BIN=${XEBEC_BIN:-$(scripts/release.sh)}
# Programs beside a scenario would be measured, too.
export XEBEC_BIN XEBEC_SOAK=full E2E_JOBS=${E2E_JOBS:-1}
mkdir -p out
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
scripts/e2e.sh "${parts[@]}" | tee "$log" || status=$?

# Lines of a folder's sources up to their tests, blank lines and comments left out.
lines_of() {
    find "$1" -name '*.rs' ! -name 'tests.rs' -exec sed -s '/#\[cfg(test)\]/,$d' {} + | grep -cvE '^\s*(//.*)?$'
}

{
    printf '\n== soak: %s, Linux %s, %s processors, %s of memory\n' "$(date -u +%F)" "$(uname -r)" "$(nproc)" \
        "$(awk '/^MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
    printf 'binary: %s, %s bytes\n' "$("$XEBEC_BIN" --version)" "$(stat -c %s "$XEBEC_BIN")"
    printf 'keeper: %s lines of code (crates/keeper/src)\n' "$(lines_of crates/keeper/src)"
    sed -n 's/^test //; /\.\.\. /p; /^     /p; /passed, .* skipped$/p' "$log"
} | tee out/soak.txt
exit "$status"
