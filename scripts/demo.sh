#!/usr/bin/env bash
# Starts a real nginx image from a real registry three ways, and compares them in one table:
#
#   full pull   skopeo fetches every layer, umoci unpacks them, runc starts
#   lazy        xebec, with nothing cached
#   warm        xebec again, with what the lazy start left on disk and in memory
#
# "Ready" is the first HTTP answer with status 200 from nginx itself. All of it happens in network, mount and
# process namespaces of its own: no port can clash, and nothing is left running or mounted when it ends.
# DEMO_MBIT=N limits the network to N Mbit/s each way; without it, loopback is as fast as memory.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source "$XEBEC_TOP/scripts/registry.sh"
cd "$XEBEC_TOP"

URL=http://127.0.0.1:8080/

now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }

# step TEXT COMMAND…: runs it, telling what happens and how long it took; its output is shown if it fails.
step() {
    local text=$1 start log=$scratch/step.log
    shift
    printf '  %-58s' "$text"
    start=$(now_ms)
    if ! "$@" >"$log" 2>&1; then
        printf 'FAILED\n'
        tail -n 30 "$log" >&2
        exit 1
    fi
    STEP_MS=$(($(now_ms) - start))
    printf '%6s ms\n' "$STEP_MS"
}

prepare() {
    echo "Preparing"
    [[ $(id -u) -eq 0 ]] || {
        echo "demo: must run as root (it mounts and starts containers): sudo make demo" >&2
        exit 1
    }
    scripts/images/build.sh nginx
    echo "  building the release binary"
    XEBEC_BIN=$(scripts/release.sh)
    export XEBEC_BIN
}

# Once more, inside namespaces of its own.
enter_namespaces() {
    exec unshare --net --mount --pid --fork --kill-child --mount-proc "${BASH_SOURCE[0]}" --inside
}

shape_network() {
    ip link set lo up
    [[ -z ${DEMO_MBIT:-} ]] && return
    ip link set lo mtu 1500
    tc qdisc add dev lo root tbf rate "${DEMO_MBIT}mbit" burst 256kb latency 50ms
}

# What is in memory is dropped as far as it is on disk already; a `sync` would wait for all that others write.
cold_caches() {
    echo 3 >/proc/sys/vm/drop_caches
}

# wait_for_answer LOG: the server's log, shown if no answer comes.
wait_for_answer() {
    local deadline=$(($(now_ms) + 30000))
    until [[ $(curl --silent --output /dev/null --max-time 5 --write-out '%{http_code}' "$URL") == 200 ]]; do
        [[ $(now_ms) -lt $deadline ]] || { cat "$1" && return 1; }
        sleep 0.002
    done
}

# The ordinary way. Sets full[...].
declare -A full
start_after_full_pull() {
    local bundle=$scratch/bundle mark start
    cold_caches
    mark=$(registry_mark)
    start=$(now_ms)
    step "pull every layer (skopeo)" \
        skopeo copy -q --src-tls-verify=false "docker://$IMAGE" "oci:$scratch/pulled:latest"
    full[pull]=$STEP_MS
    step "unpack them (umoci)" umoci unpack --image "$scratch/pulled:latest" "$bundle"
    full[unpack]=$STEP_MS
    # The network of this namespace, as `--net host` below; nothing on a terminal; and the capabilities that
    # nginx needs to hand its files to its workers, which umoci's template lacks.
    jq '.process.terminal = false
        | .linux.namespaces |= map(select(.type != "network"))
        | .process.capabilities |= map_values(. + ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SETGID", "CAP_SETUID"])' \
        "$bundle/config.json" >"$bundle/config.json.new"
    mv "$bundle/config.json.new" "$bundle/config.json"
    runc run --bundle "$bundle" xebec-demo-full </dev/null >"$scratch/runc.log" 2>&1 &
    local runc_pid=$!
    step "start it (runc) until it answers" wait_for_answer "$scratch/runc.log"
    full[ready]=$STEP_MS
    full[total]=$(($(now_ms) - start))
    read -r full[requests] full[bytes] < <(registry_count "$mark")
    full[files]=$(find "$bundle/rootfs" -type f | wc -l)
    full[pages]=$(find "$bundle/rootfs" -type f -printf '%s\n' | awk '{ pages += int(($1 + 4095) / 4096) } END { print pages }')
    runc kill xebec-demo-full KILL
    wait "$runc_pid" || true
    runc delete --force xebec-demo-full
}

# start_with_xebec NAME TEXT: leaves the statistics in $scratch/NAME.json and what the registry counted beside it.
start_with_xebec() {
    local name=$1 text=$2 mark
    mark=$(registry_mark)
    step "$text" "$XEBEC_BIN" run --require-lazy --net host --probe "$URL" --exit-on-ready \
        --stats "$scratch/$name.json" "$IMAGE"
    registry_count "$mark" >"$scratch/$name.counted"
}

# stat NAME PATH: one number of a statistics file; "-" where there is none.
stat_of() { jq -r "$2 // \"-\" | if type == \"number\" then (. * 10 | round / 10) else . end" "$scratch/$1.json"; }

row() { printf '  %-34s %12s %12s %12s\n' "$@"; }
stage_row() { row "$1" "$2" "$(stat_of lazy ".stages_ms.$3")" "$(stat_of warm ".stages_ms.$3")"; }
megabytes() { awk -v bytes="$1" 'BEGIN { if (bytes == "-") print "-"; else printf "%.2f\n", bytes / 1e6 }'; }

print_table() {
    local lazy_counted warm_counted
    read -r -a lazy_counted <"$scratch/lazy.counted"
    read -r -a warm_counted <"$scratch/warm.counted"
    printf '\n'
    row "nginx, milliseconds" "full pull" "lazy, cold" "lazy, warm"
    row "----------------------------------" "------------" "------------" "------------"
    row "pull every layer" "${full[pull]}" - -
    row "unpack them" "${full[unpack]}" - -
    stage_row "resolve: name to manifest" - resolve
    stage_row "index: what is where" - index
    stage_row "view: merge, write EROFS metadata" - view
    stage_row "mount" - mount
    stage_row "create the container" - create
    stage_row "ready: start to HTTP 200" "${full[ready]}" ready
    row "all, until HTTP 200" "${full[total]}" "$(stat_of lazy .total_ms)" "$(stat_of warm .total_ms)"
    row "requests" "${full[requests]}" "$(stat_of lazy .network.requests)" "$(stat_of warm .network.requests)"
    row "MB over the network" "$(megabytes "${full[bytes]}")" \
        "$(megabytes "$(stat_of lazy .network.bytes)")" "$(megabytes "$(stat_of warm .network.bytes)")"
    row "the same, as the registry counted" "$(megabytes "${full[bytes]}")" \
        "$(megabytes "${lazy_counted[1]}")" "$(megabytes "${warm_counted[1]}")"
    row "files written / touched" "${full[files]}" "$(stat_of lazy .touched.files)" "$(stat_of warm .touched.files)"
    row "4 KiB pages written / touched" "${full[pages]}" "$(stat_of lazy .touched.pages)" "$(stat_of warm .touched.pages)"
    printf '\n'
}

inside() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/xebec-demo.XXXXXX")
    export XEBEC_ROOT=$scratch/root XEBEC_RUN=$scratch/run
    trap clean_up EXIT
    shape_network
    registry_start "$scratch/registry"
    IMAGE=$REGISTRY/nginx:latest
    echo "Publishing (registry at $REGISTRY)"
    step "push the image (skopeo)" \
        skopeo copy -q --dest-tls-verify=false "oci:$XEBEC_BUILD/oci/nginx:latest" "docker://$IMAGE"
    step "index it and push the index (xebec)" "$XEBEC_BIN" index --push "$IMAGE"
    # What indexing left on this host must not help the lazy start.
    "$XEBEC_BIN" daemon stop --force >/dev/null 2>&1 || true
    rm -rf "$XEBEC_ROOT" "$XEBEC_RUN"
    echo "Full pull"
    start_after_full_pull
    echo "Xebec"
    cold_caches
    start_with_xebec lazy "start it lazily, nothing cached, until it answers"
    start_with_xebec warm "start it again, until it answers"
    print_table
}

clean_up() {
    local status=$?
    runc delete --force xebec-demo-full >/dev/null 2>&1 || true
    "$XEBEC_BIN" daemon stop --force >/dev/null 2>&1 || true
    registry_stop || true
    umount --recursive --lazy "$XEBEC_ROOT" >/dev/null 2>&1 || true
    umount --recursive --lazy "$XEBEC_RUN" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$scratch"
    exit "$status"
}

if [[ ${1:-} == --inside ]]; then
    inside
else
    prepare
    enter_namespaces
fi
