# Starts the CNCF distribution registry, for scripts: `registry`, or Debian's if the one of the tests was not built. To be sourced after
# env.sh.
#
#   registry_start DIR [ADDRESS [COMMAND...]]
#                        storage, configuration and logs go below DIR; sets REGISTRY (host:port) and REGISTRY_PID. It
#                        listens on ADDRESS (127.0.0.1:0), and COMMAND starts it (in another network namespace)
#   registry_mark        a mark in the access log, for registry_count
#   registry_count MARK  "REQUESTS BYTES" that were answered since that mark
#   registry_stop        ends it

REGISTRY='' REGISTRY_PID='' REGISTRY_LOG=''

registry_start() {
    local dir=$1 address=${2:-127.0.0.1:0} program=registry tries
    local -a start=("${@:3}")
    command -v "$program" >/dev/null || program=docker-registry
    mkdir -p "$dir/storage"
    REGISTRY_LOG="$dir/access.log"
    : >"$dir/registry.log" # it is looked into before the server may have opened it
    cat >"$dir/config.yml" <<YAML
version: 0.1
log: {level: info, accesslog: {disabled: false}}
storage:
  filesystem: {rootdirectory: $dir/storage}
  delete: {enabled: true}
http: {addr: "$address"}
YAML
    OTEL_TRACES_EXPORTER=none ${start[@]+"${start[@]}"} "$program" serve "$dir/config.yml" >"$REGISTRY_LOG" 2>"$dir/registry.log" &
    REGISTRY_PID=$!
    # It was told port 0; the one it got is in its log.
    for ((tries = 0; tries < 100; tries++)); do
        REGISTRY=$(sed -n 's/.*listening on \([0-9.]*:[0-9]*\).*/\1/p' "$dir/registry.log" | head -n1)
        [[ -n $REGISTRY ]] && return 0
        kill -0 "$REGISTRY_PID" 2>/dev/null || break
        sleep 0.1
    done
    echo "the registry did not start:" >&2
    tail -n 5 "$dir/registry.log" >&2
    return 1
}

registry_mark() { stat -c %s "$REGISTRY_LOG"; }

# The common log format: … "GET /path HTTP/1.1" STATUS BYTES …
registry_count() {
    tail -c +"$(($1 + 1))" "$REGISTRY_LOG" |
        awk -F'"' '{ split($3, answer, " "); requests++; bytes += answer[2] } END { print requests + 0, bytes + 0 }'
}

registry_stop() {
    [[ -n $REGISTRY_PID ]] || return 0
    kill "$REGISTRY_PID" 2>/dev/null
    wait "$REGISTRY_PID" 2>/dev/null
    REGISTRY_PID=''
}
