#!/usr/bin/env bash
# Shows that images of xebec-registry are lazy by themselves: nobody indexes them, and nobody changes them.
#
#   pushed    skopeo pushes an nginx image to an empty xebec-registry; a host that never saw it starts it lazily
#   through   an image of another registry, which xebec-registry has as its upstream, is pulled through it, and starts lazily
#
# Between the push or the pull and the start there is one wait: until the registry has indexed the image in the background. The page for
# people stays open at the end, for DEMO_STAY seconds (300 on a terminal, until Enter; 0 elsewhere).
# It happens in mount and process namespaces of its own, and the containers have networks of their own: nothing is left running or
# mounted, however it ends. Registries listen on free ports of 127.0.0.1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source "$XEBEC_TOP/scripts/registry.sh"
source "$XEBEC_TOP/scripts/demo-steps.sh"
cd "$XEBEC_TOP"

# How long anything is waited for. Indexing gives way to all else on the machine, which may be busy.
PATIENCE_MS=900000
ARTIFACT=application/vnd.xebec.index.v1

prepare() {
    need_root demo-registry
    [[ ${DEMO_STAY:-0} =~ ^[0-9]{1,6}$ ]] || {
        echo "demo-registry: DEMO_STAY: \"$DEMO_STAY\" is no number of seconds" >&2
        exit 2
    }
    build_demo yes nginx redis
}

ask() { curl --silent --show-error --fail --noproxy '*' --max-time 10 "$@"; }

# The status of a command that will never be true: the program that it looks at is gone, and it has said why.
NEVER=99

# until_true COMMAND...: at most for PATIENCE_MS.
until_true() {
    local deadline=$(($(now_ms) + PATIENCE_MS)) status
    while true; do
        status=0
        "$@" || status=$?
        [[ $status -ne 0 ]] || return 0
        [[ $status -ne $NEVER ]] || return 1
        [[ $(now_ms) -lt $deadline ]] || { echo "in vain for $((PATIENCE_MS / 1000)) s: $*" && return 1; }
        sleep 0.02
    done
}

# The address is in the log, once it listens: it was told port 0.
is_serving() {
    kill -0 "$OWN_PID" 2>/dev/null || { tail -n 5 "$own/log" && return $NEVER; }
    OWN=$(sed -n 's,.*serving at http://\([0-9.]*:[0-9]*\).*,\1,p' "$own/log" | head -n1)
    [[ -n $OWN ]]
}

start_own() {
    printf '[log]\nformat = "json"\n[[upstream]]\nprefix = "hub"\nregistry = "%s"\n' "$REGISTRY" >"$own/config.toml"
    "$XEBEC_REGISTRY_BIN" serve --listen 127.0.0.1:0 --root "$own/data" --config "$own/config.toml" 2>"$own/log" &
    OWN_PID=$!
    until_true is_serving
}

own_mark() { stat -c %s "$own/log"; }

# own_count MARK: "REQUESTS RECEIVED SENT", requests and bytes of bodies since that mark. An answer is logged after it was sent.
own_count() {
    sleep 0.2
    tail -c +"$(($1 + 1))" "$own/log" |
        jq -rs '[.[] | select(.message == "answered")] | "\(length) \(map(.received) | add // 0) \(map(.sent) | add // 0)"'
}

# digest_of IMAGE: what its manifest is called, in the layout that was built.
digest_of() { jq -r '.manifests[0].digest' "$XEBEC_BUILD/oci/$1/index.json"; }

# is_indexed REPOSITORY DIGEST
is_indexed() {
    ask "http://$OWN/v2/$1/referrers/$2?artifactType=$ARTIFACT" | jq -e '.manifests | length > 0' >/dev/null
}

# is_started PID: `xebec run` writes its figures when the service answers.
is_started() {
    jq -e . "$scratch/stats.json" >/dev/null 2>&1 && return 0
    kill -0 "$1" 2>/dev/null || { cat "$scratch/run.log" && return $NEVER; }
    return 1
}

# start_lazily KIND IMAGE PROBE: on a host that never saw the image. `--require-lazy` fails if a layer had to be read whole.
start_lazily() {
    local kind=$1 image=$2 probe=$3 mark upstream run_pid
    rm -f "$scratch/stats.json"
    mark=$(own_mark) upstream=$(registry_mark)
    "$XEBEC_BIN" run --rm --require-lazy --network none --probe "$probe" --stats "$scratch/stats.json" "$image" \
        </dev/null >"$scratch/run.log" 2>&1 &
    run_pid=$!
    step "start it lazily, nothing cached, until it answers (xebec run)" until_true is_started "$run_pid"
    read -r start_requests[$kind] _ start_bytes[$kind] < <(own_count "$mark")
    read -r start_upstream[$kind] _ < <(registry_count "$upstream")
    start_ms[$kind]=$(jq '.total_ms | round' "$scratch/stats.json")
    kill "$run_pid"
    wait "$run_pid" || true
}

pushed() {
    local mark
    echo "An image is pushed"
    mark=$(own_mark)
    step "push an nginx image as it is (skopeo)" \
        skopeo copy -q --dest-tls-verify=false "oci:$XEBEC_BUILD/oci/nginx:latest" "docker://$OWN/library/nginx:latest"
    read -r came_requests[pushed] came_bytes[pushed] _ < <(own_count "$mark")
    step "nobody does anything; the registry has indexed it" until_true is_indexed library/nginx "$(digest_of nginx)"
    index_ms[pushed]=$STEP_MS
    start_lazily pushed "$OWN/library/nginx:latest" http://127.0.0.1:8080/
}

through() {
    local mark
    echo "An image of another registry is pulled through"
    step "push a Redis image to that other registry (skopeo)" \
        skopeo copy -q --dest-tls-verify=false "oci:$XEBEC_BUILD/oci/redis:latest" "docker://$REGISTRY/library/redis:latest"
    mark=$(registry_mark)
    step "pull it from xebec-registry, which has none of it (skopeo)" \
        skopeo copy -q --src-tls-verify=false "docker://$OWN/hub/library/redis:latest" "oci:$scratch/pulled:latest"
    step "nobody does anything; the registry has indexed it" until_true is_indexed hub/library/redis "$(digest_of redis)"
    index_ms[through]=$STEP_MS
    read -r came_requests[through] came_bytes[through] < <(registry_count "$mark")
    start_lazily through "$OWN/hub/library/redis:latest" port:6379
}

# thousands NUMBER, with commas; megabytes BYTES
thousands() { sed ':more; s/\B[0-9]\{3\}\(\>\)/,&/; t more' <<<"$1"; }
megabytes() { awk -v bytes="$1" 'BEGIN { printf "%.2f", bytes / 1e6 }'; }
row() { printf '%-46s %18s %18s\n' "$@"; }

table() {
    local kind
    echo
    row "" "library/nginx" "hub/library/redis"
    row "----------------------------------------------" "------------------" "------------------"
    row "how it came" "pushed by skopeo" "from the upstream"
    row "  requests" "${came_requests[pushed]}" "${came_requests[through]}"
    row "  MB" "$(megabytes "${came_bytes[pushed]}")" "$(megabytes "${came_bytes[through]}")"
    row "ms until it was indexed, after that" "$(thousands "${index_ms[pushed]}")" "$(thousands "${index_ms[through]}")"
    row "start" "lazy" "lazy"
    row "  ms until it answers" "$(thousands "${start_ms[pushed]}")" "$(thousands "${start_ms[through]}")"
    row "  requests to xebec-registry" "${start_requests[pushed]}" "${start_requests[through]}"
    row "  requests of it to the upstream" "${start_upstream[pushed]}" "${start_upstream[through]}"
    row "  MB over the network" "$(megabytes "${start_bytes[pushed]}")" "$(megabytes "${start_bytes[through]}")"
    echo
    echo "Both images are made on one base, which the registry has fetched, stored and indexed once."
}

# The page for people, once by this script, then by a user who looks at it.
show_page() {
    local stay=${DEMO_STAY:-0}
    ask "http://$OWN/" >"$scratch/page.html"
    grep -q library/nginx "$scratch/page.html" || { echo "the page does not name library/nginx" && return 1; }
    [[ -n ${DEMO_STAY:-} || ! -t 1 ]] || stay=300
    echo "What is in the registry, for people: http://$OWN/"
    [[ $stay -gt 0 ]] || return 0
    echo "It stays there for $stay s; Enter ends it."
    if [[ -t 1 ]]; then
        read -r -t "$stay" </dev/tty || true
    else
        sleep "$stay"
    fi
}

inside() {
    own=$scratch/own
    mkdir "$own"
    export XEBEC_ROOT=$scratch/root XEBEC_RUN=/run/xebec-demo
    # Everything here is on loopback.
    export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1
    declare -A came_requests came_bytes index_ms start_ms start_requests start_upstream start_bytes
    OWN='' OWN_PID=''
    trap clean_up EXIT
    mount -t tmpfs tmpfs /run
    registry_start "$scratch/registry"
    : >"$own/log"
    echo "Registries"
    step "start an empty xebec-registry" start_own
    echo "  xebec-registry at $OWN, with the registry at $REGISTRY as its upstream \"hub\""
    pushed
    through
    table
    show_page
}

clean_up() {
    local status=$?
    "$XEBEC_BIN" daemon stop --force >/dev/null 2>&1 || true
    [[ -z $OWN_PID ]] || { kill "$OWN_PID" 2>/dev/null && wait "$OWN_PID" 2>/dev/null || true; }
    registry_stop || true
    umount --recursive --lazy "$XEBEC_ROOT" >/dev/null 2>&1 || true
    umount --recursive --lazy "$XEBEC_RUN" >/dev/null 2>&1 || true
    exit "$status"
}

if [[ ${1:-} == --inside ]]; then
    inside
else
    prepare
    enter_namespaces "${BASH_SOURCE[0]}"
fi
