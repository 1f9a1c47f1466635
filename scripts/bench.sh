#!/usr/bin/env bash
# Measures what the performance goals are about and prints one table: indexing, the view of a large image, reads of
# complete files, the first byte of a lazy file, cold starts. docs/performance.md explains each figure.
#
#   bench.sh            everything but runtime images
#   bench.sh runtime    starts by runtime images, a line for each image and network; SMALL=1 for nginx and python only
#   bench.sh native     starts from xebec-registry: plainly, and by one request; SMALL=1 for nginx and python only
#   bench.sh large      the same for an image of several gigabytes, which is built first (20 GB of room)
#   bench.sh readahead  what read-ahead, prefetching and the unit of fills do to starts
#   bench.sh hello      starts under containerd of all images, beside overlayfs and peers; SMALL=1 for six images. With
#                       --budget SECONDS nothing is begun that would take longer
#   bench.sh smoke      two images of it once, in two systems, and whether its results are whole
#   bench.sh scenarios  what the papers do with images besides (docs/bench-scenarios.md); ONLY="NAME ..." takes some of them,
#                       SMALL=1 a short form; --budget as above
#   bench.sh operations snapshot operations in a second, beside containerd's own snapshotters
#   bench.sh runner     starts of nginx by `xebec run`: in the foreground, detached, with a published port
#   bench.sh registry   xebec-registry beside CNCF distribution: pulls, pushes, manifests, memory, a large store, two nodes; and layers
#                       whose files are kept once, intact, restored ahead, and restored while they are sent.
#                       BENCH_ONLY="alone memory indexing deduplication large nodes" takes some of them (distribution is needed for
#                       alone, memory and large), XEBEC_REGISTRY_BIN is another program
#   bench.sh engines    starts of nginx and python by `docker run` and as a pod of a kubelet, beside overlayfs
#
#   BENCH_RUNS=N             runs of each measurement (7; of runtime 5, of hello 3)
#   BENCH_ONLY="NAME ..."    only these: index view read first_byte nginx python; of runtime and readahead: images
#   BENCH_RATES="N ..."      networks of the cold starts, in Mbit/s (0 1000 100; 0: as fast as memory); runtime: also
#                            round trips (0 1000 100 10ms); hello: (0 1000 100 20), also as 10ms or 100+10ms
#   BENCH_PARTS="NAME ..."   experiments of readahead: cold warm disk lazy complete ahead shared large unit
#   BENCH_UNITS="N ..."      of the experiment unit: units of fills in KiB, for each of which a program is built
#   BENCH_JSON=FILE          every single value, as JSON; of hello: what it has is not measured again, and there is one
#                            without being asked for, $XEBEC_CACHE/bench/hello.json
#   BENCH_SYSTEMS="NAME,..." of hello and operations: names of systems, or parts of them
#   BENCH_EROFS_UTILS=DIR    of hello: a folder with another mkfs.erofs than that of make bench-peers
#   BENCH_NYDUS=DIR          of hello: a folder with programs of nydus, in place of those that bench-peers builds
#   BENCH_BUDGET=SECONDS     of hello: as --budget
#   BENCH_SECONDS=N          of scenarios: how long throughput is measured (60)
#   BENCH_HOSTS=N            of scenarios: how many hosts a batch is started on (4)
#   BENCH_MARKDOWN=FILE      of registry: its table, too
#   BENCH_TAGS=N             of registry: tags of the large repository (100000); BENCH_REPOSITORIES=N others (10000);
#                            BENCH_BLOBS=N blobs of images (20000)
#   BENCH_PUBLISH=only       of hello: only make the images, which are kept
#
# Everything happens in network, mount and process namespaces of its own, with state of its own; nothing is left
# running or mounted. Needs root, 6 GB of room and an otherwise idle machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source "$XEBEC_TOP/scripts/registry.sh"
cd "$XEBEC_TOP"

export BENCH_IMAGES="$XEBEC_CACHE/bench"

say() { printf 'bench: %s\n' "$*" >&2; }

build_programs() {
    say "building the release binary and the programs"
    XEBEC_BIN=${XEBEC_BIN:-$(scripts/release.sh)}
    BENCH_PROGRAMS=$CARGO_TARGET_DIR/$XEBEC_TARGET/release/examples
    export XEBEC_BIN BENCH_PROGRAMS
    # With the flags of scripts/release.sh, so that nothing is compiled twice.
    RUSTFLAGS="${RUSTFLAGS:-} $XEBEC_STATIC" \
        cargo build --release --locked --quiet --target "$XEBEC_TARGET" \
        --package xebec-index --example bench_index
}

# build_unit KIB: a program with another unit of fills, from a copy of the sources. Such an index is right for no other
# program, so this is no setting.
build_unit() {
    local kib=$1 copy=$XEBEC_CACHE/bench/unit-sources
    say "building a program with a unit of $kib KiB"
    rm -rf "$copy"
    mkdir -p "$copy"
    git ls-files -z crates fuzz tests Cargo.toml Cargo.lock | xargs -0 cp --parents --preserve=timestamps --target-directory "$copy"
    sed -i "s/^pub const SPACING: u64 = .*/pub const SPACING: u64 = $kib << 10;/" "$copy/crates/index/src/indexer/options.rs"
    (cd "$copy" && RUSTFLAGS="${RUSTFLAGS:-} $XEBEC_STATIC" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/units" \
        cargo build --release --locked --quiet --target "$XEBEC_TARGET" --package xebec-cli --bin xebec)
    install -D "$CARGO_TARGET_DIR/units/$XEBEC_TARGET/release/xebec" "$XEBEC_CACHE/bench/units/$kib"
    BENCH_UNIT_PROGRAMS+=" $kib=$XEBEC_CACHE/bench/units/$kib"
}

# One that cannot be built is said by name, and is among what has failed; no longer than the budget allows. In a process group
# that ends with this script, which it would outlive otherwise.
build_catalogue() {
    local options=() child
    [[ ${SMALL:-} != 1 ]] || options+=(--small)
    [[ $what != smoke ]] || BENCH_ONLY="nginx redis"
    [[ -z ${BENCH_ONLY:-} ]] || read -r -a options <<<"$BENCH_ONLY"
    if [[ $what == scenarios ]]; then
        local wanted
        wanted=$(PYTHONPATH=bench python3 -B -m scenarios images) || exit 2
        read -r -a options <<<"$wanted"
    fi
    timeout "${BENCH_BUDGET:-0}" python3 -B bench/build_images.py ${options[@]+"${options[@]}"} >&2 &
    child=$!
    trap 'kill "$child"; wait "$child" || true; exit 1' INT TERM HUP
    wait "$child" || say "not all images could be built"
    trap - INT TERM HUP
}

# Builds the program that calls snapshotters, and the one that waits in a pod.
build_operations() {
    export BENCH_GOTOOLS=$XEBEC_CACHE/bench/gotools
    CGO_ENABLED=0 go build -C tests/containerd -o "$BENCH_GOTOOLS/" ./operations
    CGO_ENABLED=0 go build -C tests/gotools -o "$BENCH_GOTOOLS/" ./linger
}

# The registry, and what asks it.
build_registry() {
    export BENCH_GOTOOLS=$XEBEC_CACHE/bench/gotools
    CGO_ENABLED=0 go build -C tests/gotools -o "$BENCH_GOTOOLS/" ./registryload
    if [[ $what == registry ]] && [[ -z ${BENCH_ONLY:-} || " $BENCH_ONLY " == *" deduplication "* ]]; then
        export BENCH_LAYERS=$XEBEC_CACHE/bench/layers
        say "making layers (once)"
        CGO_ENABLED=0 go build -C bench/recompress -o "$BENCH_GOTOOLS/compress" .
        python3 -B bench/layers_of_tree.py "$BENCH_LAYERS" "$BENCH_GOTOOLS/compress"
    fi
    if [[ -z ${XEBEC_REGISTRY_BIN:-} ]]; then
        XEBEC_BIN=$(XEBEC_REGISTRY=yes scripts/release.sh)
        XEBEC_REGISTRY_BIN=$(dirname "$XEBEC_BIN")/xebec-registry
    fi
    BENCH_PROGRAMS=$(dirname "$XEBEC_REGISTRY_BIN")
    XEBEC_BIN=${XEBEC_BIN:-$BENCH_PROGRAMS/xebec}
    export XEBEC_REGISTRY_BIN XEBEC_BIN BENCH_PROGRAMS
}

# make_image NAME ARGUMENT...: unless it is there already.
make_image() {
    local name=$1 target=$BENCH_IMAGES/$1
    shift
    [[ -e $target ]] && return
    say "making the image \"$name\" (once)"
    mkdir -p "$BENCH_IMAGES"
    rm -rf "$target.new"
    python3 bench/images.py "$name" "$target.new" "$@"
    mv "$target.new" "$target"
}

prepare() {
    [[ $(id -u) -eq 0 ]] || {
        say "must run as root (it mounts and starts containers): sudo make bench"
        exit 1
    }
    if [[ $what == registry ]]; then
        build_registry
        return
    fi
    if [[ $what != all ]]; then
        local images=(nginx redis postgres scipy node jvm)
        [[ $what == native ]] && images=(nginx python node jvm)
        [[ ${SMALL:-} == 1 ]] && images=(nginx python)
        [[ -n ${BENCH_ONLY:-} ]] && read -r -a images <<<"$BENCH_ONLY"
        [[ $what == large ]] && images=(torch)
        [[ $what == runner ]] && images=(nginx)
        # Operations are made without an image.
        case $what in
        operations) ;;
        hello | smoke) build_catalogue ;;
        engines)
            BENCH_ONLY=${BENCH_ONLY:-nginx python} build_catalogue
            ;;
        scenarios)
            scripts/setup.sh bench || say "going on without what could not be installed"
            build_catalogue
            ;;
        *) scripts/images/build.sh "${images[@]}" python ;;
        esac
        [[ $what != readahead ]] || make_big
        [[ $what != native ]] || build_registry
        [[ $what != operations && $what != engines ]] || build_operations
        XEBEC_BIN=${XEBEC_BIN:-$(scripts/release.sh)}
        BENCH_PROGRAMS=$(dirname "$XEBEC_BIN")
        export XEBEC_BIN BENCH_PROGRAMS
        local kib
        for kib in ${BENCH_UNITS:-}; do build_unit "$kib"; done
        [[ -z ${BENCH_UNITS:-} ]] || export BENCH_UNIT_PROGRAMS
        return
    fi
    scripts/images/build.sh nginx python
    build_programs
    make_image many
    make_big
}

# Of the layers of a real image, largest first.
make_big() {
    local layers
    mapfile -t layers < <(find "$XEBEC_BUILD/oci/python/blobs/sha256" -size +1M -printf '%s %p\n' |
        sort -rn | cut -d' ' -f2)
    make_image big "${layers[@]}"
}

# Kills all that runs in the namespaces of `unshare` (its argument). A file system of FUSE whose process is killed while one of
# its own threads asks it for something would keep that process for ever, unless its connection is ended.
kill_all() {
    local inside connections control=$BENCH_SCRATCH/fuse number
    inside=$(pgrep --parent "$1" | head -n1)
    connections=$(awk '/ - fuse\./ || / - fuse / { split($3, device, ":"); print device[2] }' \
        "/proc/${inside:-0}/mountinfo" 2>/dev/null)
    kill -KILL "$1"
    mkdir -p "$control"
    mount -t fusectl fusectl "$control" || return 0
    for number in $connections; do
        [[ ! -e $control/$number/abort ]] || echo 1 >"$control/$number/abort"
    done
    umount "$control"
}

# In namespaces that end with this script: if it is interrupted, all that it has started is killed and unmounted.
isolated() {
    BENCH_SCRATCH=$(mktemp -d "${TMPDIR:-/var/tmp}/xebec-bench.XXXXXX")
    BENCH_NAMESPACE=$(basename "${BENCH_SCRATCH/./-}")
    export BENCH_SCRATCH BENCH_NAMESPACE
    # Of the budget.
    export BENCH_SPENT=$SECONDS
    # It ends with this script even if that is killed, or by a signal that it cannot trap, since it was ignored before.
    setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc "${BASH_SOURCE[0]}" --inside "$what" &
    local child=$! status=0
    # It waits for its child with these signals held back.
    trap 'kill_all "$child"' INT TERM HUP
    # Interrupted by a signal, it returns before the child has ended.
    wait "$child" || status=$?
    wait "$child" 2>/dev/null || true
    # A killed process may take a moment to end.
    for _ in {1..50}; do
        rm -rf --one-file-system "$BENCH_SCRATCH" 2>/dev/null && break
        sleep 0.1
    done
    remove_groups
    exit "$status"
}

# A new file system for all that hosts write, since the time for new files depends on the history of the file system. ext4 passes over
# inodes that were deleted in the last minutes (`recently_deleted`, fs/ext4/ialloc.c). A large and old one makes 10,000 files in 0.9 s of
# processor time and, when as many have been deleted a few times, in 8. Its loop device goes with its mount.
new_file_system() {
    truncate --size "$1" "$BENCH_SCRATCH/disk"
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$BENCH_SCRATCH/disk"
    mkdir "$BENCH_SCRATCH/state"
    mount -o loop "$BENCH_SCRATCH/disk" "$BENCH_SCRATCH/state"
    BENCH_SCRATCH=$BENCH_SCRATCH/state
}

# Whether containerd is what starts containers, and the registry is far.
under_containerd() { [[ $what =~ ^(hello|scenarios|smoke|operations|engines)$ ]]; }

inside() {
    case $what in
    smoke) new_file_system 6G ;;
    large) new_file_system 60G ;;
    hello | scenarios | operations | runtime | native | engines | runner) new_file_system 20G ;;
    esac
    export XEBEC_ROOT=$BENCH_SCRATCH/root XEBEC_RUN=/run/xebec-bench
    trap clean_up EXIT
    # As on any host with a service manager: the state of all runtimes is in memory.
    mount -t tmpfs tmpfs /run
    ip link set lo up
    if under_containerd; then
        start_far_registry
    elif [[ $what == registry || $what == native ]]; then
        # They start their own.
        REGISTRY=none REGISTRY_LOG=none
    else
        registry_start "$BENCH_SCRATCH/registry"
    fi
    export REGISTRY REGISTRY_LOG
    local -a program=(bench/bench.py)
    case $what in
    runtime | native | readahead | operations | engines | runner | registry) program=("bench/$what.py") ;;
    hello)
        program=(bench/hello.py)
        export BENCH_JSON=${BENCH_JSON:-$XEBEC_CACHE/bench/hello.json}
        say "results are kept in $BENCH_JSON"
        ;;
    scenarios)
        program=(-m scenarios)
        export BENCH_JSON=${BENCH_JSON:-$XEBEC_CACHE/bench/scenarios}
        ;;
    smoke)
        program=(bench/smoke.py)
        export BENCH_JSON=$BENCH_SCRATCH/smoke.json
        ;;
    large)
        program=(bench/runtime.py)
        export BENCH_ONLY=torch
        ;;
    esac
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=bench python3 "${program[@]}"
}

# The registry in a network namespace of its own, at the other end of a pair of veth devices, and a third namespace for second containers.
# Images in the registry are kept in the cache, since converting them takes minutes. All of it is gone with this script's namespaces,
# however it ends.
start_far_registry() {
    export BENCH_REGISTRY_NETNS=/run/netns/registry BENCH_SECOND_NETNS=/run/netns/second
    ip netns add registry
    ip netns add second
    ip -n second link set lo up
    ip -n registry link set lo up
    ip link add xebec-client type veth peer name xebec-server netns registry
    ip addr add 10.88.0.1/24 dev xebec-client
    ip -n registry addr add 10.88.0.2/24 dev xebec-server
    ip link set xebec-client up
    ip -n registry link set xebec-server up
    # One of the peers speaks plain HTTP to no other name (bench/systems/soci.py).
    echo "10.88.0.2 localhost" >"$BENCH_SCRATCH/hosts"
    mount --bind "$BENCH_SCRATCH/hosts" /etc/hosts
    local directory=$BENCH_SCRATCH/registry
    if [[ $what == hello || $what == scenarios || $what == engines ]]; then
        directory=$XEBEC_CACHE/bench/registry
        mkdir -p "$directory"
        exec 8>"$directory.lock"
        flock --nonblock 8 || {
            say "another benchmark uses $directory"
            exit 1
        }
    fi
    registry_start "$directory" 10.88.0.2:5000 nsenter "--net=$BENCH_REGISTRY_NETNS"
    export BENCH_REGISTRY_PID=$REGISTRY_PID
}

# Control groups bear the name of containerd's namespace, and outlive everything else of it. One whose processes were killed a
# moment ago may not be empty yet.
remove_groups() {
    for _ in {1..50}; do
        find /sys/fs/cgroup -depth -type d -path "*/$BENCH_NAMESPACE*" -exec rmdir {} + 2>/dev/null || true
        [[ -n $(find /sys/fs/cgroup -type d -path "*/$BENCH_NAMESPACE*" -print -quit 2>/dev/null) ]] || return 0
        sleep 0.1
    done
}

clean_up() {
    local status=$?
    runc delete --force xebec-bench-full >/dev/null 2>&1 || true
    "$XEBEC_BIN" daemon stop --force >/dev/null 2>&1 || true
    registry_stop || true
    umount --recursive --lazy "$BENCH_SCRATCH"/{plain,mounted,overlay/merged,root} "$XEBEC_RUN" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$BENCH_SCRATCH" 2>/dev/null || true # it may be a mount
    exit "$status"
}

case "${1:-all}" in
--inside)
    what=$2
    inside
    ;;
all | runtime | native | large | readahead | hello | scenarios | smoke | operations | engines | runner | registry)
    what=${1:-all}
    if [[ $what == hello || $what == scenarios ]] && [[ ${2:-} == --budget ]]; then
        [[ ${3:-} =~ ^[0-9]+$ ]] || {
            say "--budget: how many seconds?"
            exit 2
        }
        export BENCH_BUDGET=$3
    fi
    prepare
    isolated
    ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
