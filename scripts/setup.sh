#!/usr/bin/env bash
# Installs what the project's scripts use, and does nothing when it is all there.
#
#   scripts/setup.sh PURPOSE...      build, demo, test, lint, bench; all is all of them. cosign, too, which all leaves out
#   scripts/setup.sh --list [PURPOSE...]   what each tool is for, and where it comes from
#
# The needs of a purpose are in the table below, and nothing else is installed for it. Debian's packages are taken where they do. Programs
# that Debian 12 lacks, or has in a version that the tests cannot use, are built at a pinned version into a folder of our own. A program
# that is there at the version of the table is left alone, so a second run takes a fifth of a second.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

PURPOSES=(build demo test lint bench)
# Programs that are installed only by name, since they take too long to build.
UNASKED=(cosign)
OLDEST_RUST=1.90
OLDEST_GO=1.26

# name      The item that has to be there: a command, a file with its whole path, or (go, module, ...) a program in $XEBEC_TOOLS/bin.
# source    apt      the Debian package
#           deb      one program out of a Debian package that is not installed, since it would start a service: PACKAGE:PATH
#           go       `go install` of a module
#           module   a module of ours that pins what `go install` refuses: FOLDER:PROGRAM,...
#           runc     as go, with cgo, under another name
#           python   a package of PyPI, in a folder of its own
#           cargo    `cargo install` of a crate
# purposes  Separated by commas.
#
# name | source | what | purposes | why
TABLE='
cc                    | apt    | build-essential       | build,demo,test,lint,bench | links Rust programs, compiles zstd and ring
make                  | apt    | make                  | build,demo,test,lint,bench | the targets
git                   | apt    | git                   | build,test,lint,bench      | versions; tests ask for the files of the tree
python3               | apt    | python3               | demo,test,bench            | tables, benchmarks
curl                  | apt    | curl                  | demo,test,bench            | asks services whether they answer
jq                    | apt    | jq                    | demo,test,bench            | edits configurations of containers
skopeo                | apt    | skopeo                | demo,test,bench            | pushes and pulls images
umoci                 | apt    | umoci                 | demo,test,bench            | unpacks images, as a truth to compare with
buildah               | apt    | buildah               | build,demo,test,bench      | builds images
mmdebstrap            | apt    | mmdebstrap            | demo,test,bench            | makes the system that images are based on
runc                  | apt    | runc                  | demo,test,bench            | runs containers
ip                    | apt    | iproute2              | demo,test,bench            | networks that a test makes
mount                 | apt    | mount                 | demo,test,bench            | mounts
setpriv               | apt    | util-linux            | demo,test,bench            | namespaces that end with their script
ps                    | apt    | procps                | demo,test,bench            | finds processes of a namespace
docker-registry       | deb    | docker-registry:usr/bin/docker-registry | demo     | a registry without a compiler for Go
pip3                  | apt    | python3-pip           | test,bench                 | packages of Python in images
npm                   | apt    | npm                   | test,bench                 | packages of Node in images
podman                | apt    | podman                | test                       | runs beside Xebec
gzip                  | apt    | gzip                  | test,bench                 | layers by several writers
pigz                  | apt    | pigz                  | test,bench                 | layers by several writers
restic                | apt    | restic                | bench                      | a limit of what deduplication gives
sqlite3               | apt    | sqlite3               | bench                      | how large each table and index of the records is
unzip                 | apt    | unzip                 | bench                      | archives of programs
zstd                  | apt    | zstd                  | test,bench                 | layers by several writers
xz                    | apt    | xz-utils              | test,bench                 | layers by several writers
tar                   | apt    | tar                   | test,bench                 | layers by several writers
crun                  | apt    | crun                  | test                       | the other runtime
/usr/lib/cni/bridge   | apt    | containernetworking-plugins | test,bench         | networks of containers
iptables              | apt    | iptables              | test,bench                 | published ports, and networks that are kept apart
busybox               | apt    | busybox-static        | test,bench                 | images of one program
pkg-config            | apt    | pkg-config            | test,bench                 | builds the other runc, below
/usr/include/seccomp.h | apt   | libseccomp-dev        | test,bench                 | builds the other runc, below
mkfs.erofs            | apt    | erofs-utils           | test,bench                 | checks images, and makes those to compare with
mkfs.ext4             | apt    | e2fsprogs             | test,bench                 | file systems on loop devices
setfattr              | apt    | attr                  | test,bench                 | files with extended attributes
setcap                | apt    | libcap2-bin           | test,bench                 | files with capabilities
openssl               | apt    | openssl               | test                       | keys and signatures by another implementation
fincore               | apt    | util-linux-extra      | test,bench                 | what is in the page cache
fio                   | apt    | fio                   | test,bench                 | reads
strace                | apt    | strace                | test                       | what a program asks the kernel for
chromium              | apt    | chromium              | test                       | reads the pages of the registry
zsh                   | apt    | zsh                   | test                       | completes names
fish                  | apt    | fish                  | test                       | completes names
wrk                   | apt    | wrk                   | bench                      | loads web services
redis-benchmark       | apt    | redis-tools           | bench                      | loads databases
registry              | go     | github.com/distribution/distribution/v3/cmd/registry@v3.0.0 | test,bench | a registry with the referrers API, which Debian'"'"'s lacks
crane                 | go     | github.com/google/go-containerregistry/cmd/crane@v0.20.6 | test,bench | another client
regctl                | go     | github.com/regclient/regclient/cmd/regctl@v0.11.7 | test | another client
oras                  | go     | oras.land/oras/cmd/oras@v1.3.6 | test           | another client
conformance           | go     | github.com/opencontainers/distribution-spec/conformance@v0.0.0-20260831232431-97274622c111 | test | the specification'"'"'s own test of registries
versitygw             | go     | github.com/versity/versitygw/cmd/versitygw@v1.8.0 | test,bench | an object store for the registry
/usr/lib/postgresql/15/bin/postgres | apt | postgresql-15 | test,bench          | a database for the registry
containerd            | go     | github.com/containerd/containerd/v2/cmd/containerd@v2.4.2 | test,bench | Debian'"'"'s 1.6 knows no snapshotter by proxy for what is tested
containerd-shim-runc-v2 | go   | github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.4.2 | test,bench | as containerd
ctr                   | go     | github.com/containerd/containerd/v2/cmd/ctr@v2.4.2 | test,bench | as containerd
containerd-1.7        | module | scripts/containerd-1.7:containerd-1.7/containerd,containerd-1.7/containerd-shim-runc-v2,containerd-1.7/ctr | test | the version before; its go.mod excludes versions
kubernetes            | module | scripts/kubernetes:kubelet,kube-apiserver,kube-controller-manager,kube-scheduler,etcd | test,bench | a kubelet and a control plane
runc-idmap            | runc   | github.com/opencontainers/runc@v1.5.2 | test,bench      | maps the ids of mounts, which Debian'"'"'s cannot
dockerd               | go     | github.com/moby/moby/v2/cmd/dockerd@v2.0.0-beta.24 | test,bench | Docker Engine with containerd'"'"'s image store
docker-client         | deb    | docker.io:usr/bin/docker | test,bench              | Docker'"'"'s client, which no Go proxy has
cni/ptp               | go     | github.com/containernetworking/plugins/plugins/main/ptp@v1.9.1 | test | networks of pods
cni/loopback          | go     | github.com/containernetworking/plugins/plugins/main/loopback@v1.9.1 | test | networks of pods
cni/host-local        | go     | github.com/containernetworking/plugins/plugins/ipam/host-local@v1.9.1 | test | networks of pods
kustomize             | go     | sigs.k8s.io/kustomize/kustomize/v5@v5.6.0 | test        | builds the manifests; newer ones want a newer Go
kubernetes-validate   | python | kubernetes-validate==1.37.0 | test                 | carries the schemas of Kubernetes, which others fetch
cosign                | go     | github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5 | cosign | signs images, as another client of the registry; takes half an hour to build
cargo-deny            | cargo  | cargo-deny@0.20.2     | test,lint                  | licences and advisories of crates
'

started=$SECONDS
say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# rows PURPOSE...: the rows of the table that any of them needs, their columns separated by tabs.
rows() {
    awk -F'|' -v wanted="$*" '
        BEGIN { count = split(wanted, purposes, " ") }
        NF < 5 { next }
        {
            for (i = 1; i <= NF; i++) gsub(/^ +| +$/, "", $i)
            is_wanted = 0
            for (i = 1; i <= count; i++) is_wanted = is_wanted || index("," $4 ",", "," purposes[i] ",")
            if (is_wanted) print $1 "\t" $2 "\t" $3 "\t" $4 "\t" $5
        }' <<<"$TABLE"
}

# is_there NAME SOURCE WHAT
is_there() {
    local program
    case $2 in
    apt) if [[ $1 == /* ]]; then [[ -e $1 ]]; else command -v "$1" >/dev/null; fi ;;
    module)
        local IFS=,
        for program in ${3#*:}; do [[ -x $XEBEC_TOOLS/bin/$program ]] || return 1; done
        ;;
    *) [[ -x $XEBEC_TOOLS/bin/$1 ]] ;;
    esac
}

# Which version a tool was built at is kept beside it, since not every tool can tell.
version_file() { echo "$XEBEC_TOOLS/versions/$1"; }
note_version() {
    mkdir -p "$(dirname "$(version_file "$1")")"
    printf '%s\n' "$2" >"$(version_file "$1")"
}
# version_of SOURCE WHAT: what the version file says of a tool that is as the table has it.
version_of() {
    case $1 in
    module) sha256sum <"$XEBEC_TOP/${2%%:*}/go.sum" ;;
    # Any version that the package has.
    apt | deb) ;;
    *) echo "$2" ;;
    esac
}

# missing PURPOSE...: the rows whose tools are not there, or are of another version.
missing() {
    local name source what purposes why version
    while IFS=$'\t' read -r name source what purposes why; do
        version=$(version_of "$source" "$what")
        if is_there "$name" "$source" "$what" &&
            [[ -z $version || $(cat "$(version_file "$name")" 2>/dev/null) == "$version" ]]; then
            continue
        fi
        printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$source" "$what" "$purposes" "$why"
    done < <(rows "$@")
}

# at_least HAVE WANT: whether version HAVE is WANT or newer.
at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]; }

check_rust() {
    command -v cargo >/dev/null || die "Rust is missing: install Rust $OLDEST_RUST or newer with rustup (https://rustup.rs)"
    local rust
    rust=$(cargo --version | awk '{print $2}')
    at_least "$rust" "$OLDEST_RUST" || die "Rust $rust is too old: $OLDEST_RUST or newer is needed (rustup update)"
}

check_go() {
    command -v go >/dev/null || die "Go is missing: install Go $OLDEST_GO or newer (https://go.dev/dl); it builds $*"
    local go
    go=$(go env GOVERSION | sed 's/^go//')
    at_least "$go" "$OLDEST_GO" || die "Go $go is too old: $OLDEST_GO or newer is needed (https://go.dev/dl); it builds $*"
}

# install_packages PACKAGE...; without one, only what is offered is looked up.
install_packages() {
    command -v apt-get >/dev/null || die "no apt-get here; please install: $*"
    local sudo=()
    [[ $(id -u) -eq 0 ]] || sudo=(sudo)
    "${sudo[@]}" apt-get update -q >&2
    [[ $# -gt 0 ]] || return 0
    # PostgreSQL's package would make a database and start it. Tests make their own.
    if [[ " $* " == *" postgresql-"* && ! -e /etc/postgresql-common/createcluster.conf ]]; then
        "${sudo[@]}" mkdir -p /etc/postgresql-common
        "${sudo[@]}" tee /etc/postgresql-common/createcluster.conf <<<"create_main_cluster = false" >/dev/null
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

# A folder of its own for each build, which goes with it: a build that was broken off leaves nothing where commands are looked for.
build_folder() { mktemp -d "$XEBEC_TOOLS/build.XXXXXX"; }

# install_one NAME SOURCE WHAT
install_one() {
    local name=$1 source=$2 what=$3 folder
    folder=$(build_folder)
    mkdir -p "$(dirname "$XEBEC_TOOLS/bin/$name")"
    case $source in
    deb)
        command -v apt-get >/dev/null || die "no apt-get here; please put the program $name at $XEBEC_TOOLS/bin/$name"
        (cd "$folder" && apt-get download -q "${what%%:*}" >&2 && dpkg-deb -x ./*.deb tree)
        mv "$folder/tree/${what#*:}" "$XEBEC_TOOLS/bin/$name"
        ;;
    go)
        # Flags of the caller count, such as -p=1 for a build that leaves the machine to others.
        GOBIN=$folder GOFLAGS="$XEBEC_GOFLAGS ${GOFLAGS:-}" go install "$what"
        mv "$folder/$(basename "$name")" "$XEBEC_TOOLS/bin/$name"
        ;;
    # It does not build without cgo. `go install` calls it runc, and whatever looks for runc is to find the system's.
    runc)
        GOBIN=$folder GOFLAGS=$XEBEC_GOFLAGS CGO_ENABLED=1 go install -tags seccomp "$what"
        mv "$folder/runc" "$XEBEC_TOOLS/bin/$name"
        ;;
    module) install_module "$folder" "${what%%:*}" "${what#*:}" ;;
    python)
        rm -rf "$XEBEC_TOOLS/python/$name"
        pip3 install --quiet --disable-pip-version-check --root-user-action ignore --target "$XEBEC_TOOLS/python/$name" "$what"
        printf '#!/bin/sh\nPYTHONPATH=%q exec python3 %q "$@"\n' \
            "$XEBEC_TOOLS/python/$name" "$XEBEC_TOOLS/python/$name/bin/$name" >"$XEBEC_TOOLS/bin/$name"
        chmod +x "$XEBEC_TOOLS/bin/$name"
        ;;
    # Unoptimised: to build it in another way takes some times as long as it ever works.
    cargo)
        CARGO_TARGET_DIR=$folder CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_INCREMENTAL=0 \
            cargo install --debug --quiet --locked --force --root "$XEBEC_TOOLS" "$what"
        ;;
    esac
    rm -rf "$folder"
    note_version "$name" "$(version_of "$source" "$what")"
}

# install_module FOLDER MODULE PROGRAMS. The module of etcd calls it "server".
install_module() {
    local program built
    GOFLAGS=$XEBEC_GOFLAGS go build -C "$XEBEC_TOP/$2" -o "$1/" tool
    for program in ${3//,/ }; do
        built=$(basename "$program")
        [[ $built != etcd ]] || built=server
        mkdir -p "$(dirname "$XEBEC_TOOLS/bin/$program")"
        mv "$1/$built" "$XEBEC_TOOLS/bin/$program"
    done
}

# install_all SOURCES: the missing tools of these sources, one after the other, from the list on standard input.
install_all() {
    local name source what purposes why
    while IFS=$'\t' read -r name source what purposes why; do
        [[ " $1 " == *" $source "* ]] || continue
        say "$((SECONDS - started)) s: $name (${what%%:*}): $why"
        # Its input is this list.
        install_one "$name" "$source" "$what" </dev/null
    done
}

# Go's tools need no package, so they are built while packages are fetched; what needs packages comes after both.
install_missing() {
    local list=$1 packages go_pid=''
    packages=$(awk -F'\t' '$2 == "apt" { print $3 }' <<<"$list" | sort -u)
    mkdir -p "$XEBEC_TOOLS/bin"
    if grep -qP '\t(go|module|runc)\t' <<<"$list"; then
        check_go "$(awk -F'\t' '$2 ~ /^(go|module|runc)$/ { printf "%s%s", comma, $1; comma = ", " }' <<<"$list")"
        install_all "go module" <<<"$list" &
        go_pid=$!
    fi
    if [[ -n $packages ]] || grep -qP '\tdeb\t' <<<"$list"; then
        say "$((SECONDS - started)) s: Debian packages: ${packages//$'\n'/ }"
        # shellcheck disable=SC2086
        install_packages $packages || {
            [[ -z $go_pid ]] || kill "$go_pid" 2>/dev/null || true
            die "the packages could not be installed; see above"
        }
    fi
    install_all "deb python" <<<"$list"
    [[ -z $go_pid ]] || wait "$go_pid" || die "a tool could not be built; see above"
    install_all "runc cargo" <<<"$list"
}

expand() {
    local purpose
    for purpose; do
        if [[ $purpose == all ]]; then
            printf '%s\n' "${PURPOSES[@]}"
        elif [[ " ${PURPOSES[*]} ${UNASKED[*]} " == *" $purpose "* ]]; then
            printf '%s\n' "$purpose"
        else
            die "\"$purpose\" is no purpose; there are ${PURPOSES[*]}, all (which is these), and ${UNASKED[*]}"
        fi
    done
}

list() {
    rows "$@" | awk -F'\t' '{ printf "%-24s %-7s %-27s %s\n", $1, $2, $4, $5 }'
}

main() {
    local wanted list
    if [[ ${1:-} == --list ]]; then
        wanted=$(expand "${@:2}")
        # shellcheck disable=SC2086
        list ${wanted:-${PURPOSES[@]} ${UNASKED[@]}}
        return
    fi
    wanted=$(expand "${@:-all}" | sort -u | tr '\n' ' ')
    check_rust
    # shellcheck disable=SC2086
    list=$(missing $wanted)
    [[ -n $list ]] || return 0
    mkdir -p "$XEBEC_TOOLS"
    # One setup at a time; the second finds the work done.
    exec 9>"$XEBEC_TOOLS/lock"
    flock 9
    rm -rf "$XEBEC_TOOLS"/build.??????
    # shellcheck disable=SC2086
    list=$(missing $wanted)
    [[ -n $list ]] || return 0
    # shellcheck disable=SC2086
    say "$(wc -l <<<"$list") of $(rows $wanted | wc -l) tools are missing for: $wanted"
    install_missing "$list"
    # shellcheck disable=SC2086
    list=$(missing $wanted | cut -f1 | tr '\n' ' ')
    [[ -z $list ]] || die "still missing after installing: $list"
    say "ready after $((SECONDS - started)) s; tools that are not Debian's are in $XEBEC_TOOLS"
}

main "$@"
