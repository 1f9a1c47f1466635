#!/usr/bin/env bash
# Starts a real nginx image from a real registry in four ways, on two networks, and compares them in one table and a chart:
#
#   full pull   skopeo fetches every layer, umoci unpacks them, runc starts
#   lazy        xebec, with nothing cached
#   warm        xebec again, with what the lazy start left on disk and in memory
#   recorded    xebec, with nothing cached, after `xebec record`: the start-up pages come in one request
#
# It ends when nginx itself has answered with status 200. All of it happens in network, mount and process namespaces of its
# own, the registry in another network namespace at the end of a pair of veth devices: no port can clash, and nothing is left
# running or mounted, however it ends.
# DEMO_MBIT="N ..." are the networks, in Mbit/s each way; 0 is one without a limit ("0 100").
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source "$XEBEC_TOP/scripts/registry.sh"
source "$XEBEC_TOP/scripts/demo-steps.sh"
cd "$XEBEC_TOP"

DEMO_MBIT=${DEMO_MBIT:-0 100}
URL=http://127.0.0.1:8080/
HOST=10.88.0.1 SERVER=10.88.0.2
# How often the service is run to be recorded: it does not read the same each time.
RUNS_RECORDED=3

prepare() {
    need_root demo
    local rate
    for rate in $DEMO_MBIT; do
        [[ $rate =~ ^[0-9]{1,6}$ ]] || {
            echo "demo: DEMO_MBIT: \"$rate\" is no number of Mbit/s" >&2
            exit 2
        }
    done
    build_demo no nginx
}

# The registry is at the other end of a cable.
make_network() {
    # Network namespaces have names below /run.
    mount -t tmpfs tmpfs /run
    ip link set lo up
    ip netns add registry
    ip -n registry link set lo up
    ip link add xebec-host type veth peer name xebec-registry netns registry
    ip addr add "$HOST/24" dev xebec-host
    ip -n registry addr add "$SERVER/24" dev xebec-registry
    ip link set xebec-host up
    ip -n registry link set xebec-registry up
}

# limit_network MBIT: in each direction; 0 takes the limit away.
limit_network() {
    local limit=(tbf rate "${1}mbit" burst 256kb latency 50ms)
    tc qdisc del dev xebec-host root 2>/dev/null || true
    tc -n registry qdisc del dev xebec-registry root 2>/dev/null || true
    [[ $1 -gt 0 ]] || return 0
    tc qdisc add dev xebec-host root "${limit[@]}"
    tc -n registry qdisc add dev xebec-registry root "${limit[@]}"
}

# A host that never saw the image. The registry speaks plain HTTP, which Xebec takes from loopback only unless it is told.
forget() {
    "$XEBEC_BIN" daemon stop --force >/dev/null 2>&1 || true
    rm -rf --one-file-system "$XEBEC_ROOT" "$XEBEC_RUN"
    mkdir -p "$XEBEC_ROOT"
    printf 'plain_http = ["%s"]\n' "$REGISTRY" >"$XEBEC_ROOT/registries.toml"
    # Pages in memory are dropped as far as they are on disk already; a `sync` would wait for all that others write.
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

# The ordinary way.
start_after_full_pull() {
    local rate=$1 bundle=$scratch/bundle mark start pull unpack ready total counted
    rm -rf --one-file-system "$bundle" "$scratch/pulled"
    forget
    mark=$(registry_mark)
    start=$(now_ms)
    step "pull every layer (skopeo)" \
        skopeo copy -q --src-tls-verify=false "docker://$IMAGE" "oci:$scratch/pulled:latest"
    pull=$STEP_MS
    step "unpack them (umoci)" umoci unpack --image "$scratch/pulled:latest" "$bundle"
    unpack=$STEP_MS
    # The network of this namespace, as `--net host` of Xebec; nothing on a terminal; and the capabilities that
    # nginx needs to hand its files to its workers, which umoci's template lacks.
    jq '.process.terminal = false
        | .linux.namespaces |= map(select(.type != "network"))
        | .process.capabilities |= map_values(. + ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SETGID", "CAP_SETUID"])' \
        "$bundle/config.json" >"$bundle/config.json.new"
    mv "$bundle/config.json.new" "$bundle/config.json"
    runc run --bundle "$bundle" xebec-demo-full </dev/null >"$scratch/runc.log" 2>&1 &
    local runc_pid=$!
    step "start it (runc) until it answers" wait_for_answer "$scratch/runc.log"
    ready=$STEP_MS
    total=$(($(now_ms) - start))
    read -r -a counted < <(registry_count "$mark")
    find "$bundle/rootfs" -type f -printf '%s\n' |
        jq -s --argjson pull "$pull" --argjson unpack "$unpack" --argjson ready "$ready" --argjson total "$total" \
            --argjson requests "${counted[0]}" --argjson bytes "${counted[1]}" '{
                stages_ms: {pull: $pull, unpack: $unpack, ready: $ready}, total_ms: $total,
                network: {requests: $requests, bytes: $bytes}, counted: {requests: $requests, bytes: $bytes},
                touched: {files: length, pages: (map((. + 4095) / 4096 | floor) | add)}}' >"$results/$rate.full.json"
    runc kill xebec-demo-full KILL
    wait "$runc_pid" || true
    runc delete --force xebec-demo-full
}

# wait_for_stats PID: `xebec run` writes them when the service answers.
wait_for_stats() {
    until jq -e . "$scratch/stats.json" >/dev/null 2>&1; do
        kill -0 "$1" 2>/dev/null || { cat "$scratch/run.log" && return 1; }
        sleep 0.002
    done
}

# start_with_xebec RATE NAME TEXT: what is read when the service is stopped again does not count.
start_with_xebec() {
    local rate=$1 name=$2 text=$3 mark counted run_pid
    mark=$(registry_mark)
    rm -f "$scratch/stats.json"
    "$XEBEC_BIN" run --rm --require-lazy --net host --probe "$URL" --stats "$scratch/stats.json" "$IMAGE" \
        </dev/null >"$scratch/run.log" 2>&1 &
    run_pid=$!
    step "$text" wait_for_stats "$run_pid"
    sleep 0.1 # the registry logs an answer after it was sent
    read -r -a counted < <(registry_count "$mark")
    kill "$run_pid"
    wait "$run_pid" || true
    jq --argjson requests "${counted[0]}" --argjson bytes "${counted[1]}" \
        '. + {counted: {requests: $requests, bytes: $bytes}}' "$scratch/stats.json" >"$results/$rate.$name.json"
}

network_name() { [[ $1 -gt 0 ]] && echo "$1 Mbit/s" || echo "unlimited network"; }

# Without a recording, also when there is one.
start_unrecorded() {
    local rate
    for rate in $DEMO_MBIT; do
        limit_network "$rate"
        echo "Full pull, $(network_name "$rate")"
        start_after_full_pull "$rate"
        echo "Xebec, $(network_name "$rate")"
        forget
        start_with_xebec "$rate" lazy "start it lazily, nothing cached, until it answers"
        start_with_xebec "$rate" warm "start it again, until it answers"
    done
}

start_recorded() {
    local rate
    limit_network 0
    forget
    echo "Recording"
    step "record what it reads until it answers, push that (xebec record)" \
        "$XEBEC_BIN" record --repeat "$RUNS_RECORDED" --net host --probe "$URL" "$IMAGE"
    for rate in $DEMO_MBIT; do
        limit_network "$rate"
        forget
        start_with_xebec "$rate" recorded "start it recorded, nothing cached, $(network_name "$rate")"
    done
}

inside() {
    results=$scratch/results
    mkdir "$results"
    export XEBEC_ROOT=$scratch/root XEBEC_RUN=/run/xebec-demo
    trap clean_up EXIT
    make_network
    registry_start "$scratch/registry" "$SERVER:5000" ip netns exec registry
    IMAGE=$REGISTRY/nginx:latest
    echo "Publishing (registry at $REGISTRY)"
    step "push the image (skopeo)" \
        skopeo copy -q --dest-tls-verify=false "oci:$XEBEC_BUILD/oci/nginx:latest" "docker://$IMAGE"
    forget
    step "index it and push the index (xebec index --push)" "$XEBEC_BIN" index --push "$IMAGE"
    start_unrecorded
    start_recorded
    python3 -B bench/demo.py "$results" "$(width)"
}

# Of the terminal; 100 where there is none.
width() { [[ -t 1 ]] && tput cols 2>/dev/null || echo 100; }

clean_up() {
    local status=$?
    runc delete --force xebec-demo-full >/dev/null 2>&1 || true
    "$XEBEC_BIN" daemon stop --force >/dev/null 2>&1 || true
    registry_stop || true
    umount --recursive --lazy "$XEBEC_ROOT" >/dev/null 2>&1 || true
    umount --recursive --lazy "$XEBEC_RUN" >/dev/null 2>&1 || true
    exit "$status"
}

if [[ ${1:-} == --inside ]]; then
    inside
else
    prepare
    enter_namespaces "${BASH_SOURCE[0]}" --net
fi
