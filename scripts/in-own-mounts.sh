#!/usr/bin/env bash
# Runs a command in a mount namespace of its own, so that nothing which it mounts or unmounts is the host's, and fails if it
# leaves a mount behind or takes one away.
#
#   scripts/in-own-mounts.sh COMMAND [ARGUMENT...]
#   scripts/in-own-mounts.sh --try      shows that a mount which is left is seen
set -uo pipefail

mounts() { awk '{ print $5 }' /proc/self/mountinfo | sort; }

case ${1:?a command} in
    --inside)
        shift
        before=$(mounts)
        "$@"
        status=$?
        if ! changed=$(diff <(printf '%s\n' "$before") <(mounts)); then
            printf 'in-own-mounts: mounts were left behind (>) or taken away (<):\n%s\n' "$changed" >&2
            [[ $status -ne 0 ]] || status=1
        fi
        exit "$status"
        ;;
    --try)
        directory=$(mktemp -d)
        trap 'rmdir "$directory"' EXIT
        outside=$(mounts)
        said=$("$0" mount -t tmpfs tried "$directory" 2>&1) && exit 1
        [[ $said == *"> $directory"* ]] || exit 1
        [[ $(mounts) == "$outside" ]] || exit 1
        "$0" true
        ;;
    *) exec unshare --mount --propagation private -- "$0" --inside "$@" ;;
esac
