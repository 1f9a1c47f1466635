# Functions that the demos share. To be sourced after env.sh.
#
#   now_ms                       the time in milliseconds
#   step TEXT COMMAND...         runs it, telling what happens and how long it took, which STEP_MS says, too
#   need_root TARGET             ends the demo of `make TARGET` unless it is root's
#   build_demo REGISTRY IMAGE... builds images and programs; sets XEBEC_BIN and, if REGISTRY is "yes", XEBEC_REGISTRY_BIN. Programs that
#                                these two name are taken as they are
#   enter_namespaces SCRIPT [OPTION...]
#                                runs SCRIPT --inside in mount and process namespaces of its own, and in those that OPTIONs of unshare
#                                name; $scratch is a directory for it, which goes with them

now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }

# Output is shown if the command fails.
step() {
    local text=$1 start log=$scratch/step.log
    shift
    printf '  %-66s' "$text"
    start=$(now_ms)
    if ! "$@" >"$log" 2>&1; then
        printf 'FAILED\n'
        tail -n 30 "$log" >&2
        exit 1
    fi
    STEP_MS=$(($(now_ms) - start))
    printf '%6s ms\n' "$STEP_MS"
}

need_root() {
    [[ $(id -u) -eq 0 ]] || {
        echo "$1: must run as root (it mounts and starts containers): sudo make $1" >&2
        exit 1
    }
}

# Images are built beside programs: the ones wait for the network, the others for the processor.
build_demo() {
    local registry=$1 started=$SECONDS images binary
    shift
    echo "Preparing: images (from Debian packages) and programs; on two idle processors some minutes" >&2
    scripts/images/build.sh "$@" &
    images=$!
    # Where a release of all that is needed was built before, it is the quicker one.
    local profile=demo needed=xebec
    [[ $registry != yes ]] || needed=xebec-registry
    [[ ! -e $CARGO_TARGET_DIR/$XEBEC_TARGET/release/$needed ]] || profile=release
    if [[ -z ${XEBEC_BIN:-} || ($registry == yes && -z ${XEBEC_REGISTRY_BIN:-}) ]]; then
        binary=$(XEBEC_PROFILE=$profile XEBEC_REGISTRY=$registry scripts/release.sh) || {
            kill "$images" 2>/dev/null || true
            exit 1
        }
        XEBEC_BIN=${XEBEC_BIN:-$binary}
        [[ $registry != yes ]] || XEBEC_REGISTRY_BIN=${XEBEC_REGISTRY_BIN:-$binary-registry}
        echo "Programs are of the profile \"$profile\" of Cargo.toml" >&2
    fi
    export XEBEC_BIN XEBEC_REGISTRY_BIN
    wait "$images"
    echo "Prepared in $((SECONDS - started)) s" >&2
}

# The namespaces end with this script even if it is killed. If it is interrupted, all that it has started is killed.
enter_namespaces() {
    local script=$1
    shift
    scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/xebec-demo.XXXXXX")
    export scratch
    setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$@" \
        "$script" --inside &
    local child=$! status=0
    trap 'kill -KILL "$child"' INT TERM HUP
    # Interrupted by a signal, it returns before the child has ended.
    wait "$child" || status=$?
    wait "$child" 2>/dev/null || true
    # A killed process may take a moment to end.
    for _ in {1..50}; do
        rm -rf --one-file-system "$scratch" 2>/dev/null && break
        sleep 0.1
    done
    exit "$status"
}
