#!/usr/bin/env bash
# Installs what building, testing and the demo need, and does nothing when it is all there.
#
# Three sources: Debian packages (apt), Go programs (`go install`) and Cargo programs (`cargo install`), the
# latter two at pinned versions into a directory of our own. A stamp holds the hash of this script and of the files that
# pin versions; with an unchanged stamp only the presence of each command is checked, which takes milliseconds.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# command:package, or file:package where there is no command; a package is installed when that is missing.
PACKAGES=(
    # building
    cc:build-essential make:make git:git curl:curl python3:python3 pip3:python3-pip npm:npm
    # images and registries
    skopeo:skopeo umoci:umoci buildah:buildah podman:podman mmdebstrap:mmdebstrap jq:jq
    gzip:gzip pigz:pigz zstd:zstd xz:xz-utils tar:tar
    # running containers
    runc:runc crun:crun busybox:busybox-static
    # building the other runc, below
    pkg-config:pkg-config /usr/include/seccomp.h:libseccomp-dev
    # file systems and measuring
    mkfs.erofs:erofs-utils mkfs.ext4:e2fsprogs setfattr:attr setcap:libcap2-bin
    ip:iproute2 mount:mount setpriv:util-linux flock:util-linux fincore:util-linux-extra ps:procps fio:fio strace:strace
)
# What `make bench-scenarios` loads services with: `setup.sh bench`.
[[ ${1:-} != bench ]] || PACKAGES+=(wrk:wrk redis-benchmark:redis-tools)
# command=module@version
GO_TOOLS=(
    registry=github.com/distribution/distribution/v3/cmd/registry@v3.0.0
    crane=github.com/google/go-containerregistry/cmd/crane@v0.20.6
    containerd=github.com/containerd/containerd/v2/cmd/containerd@v2.4.2
    containerd-shim-runc-v2=github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.4.2
    ctr=github.com/containerd/containerd/v2/cmd/ctr@v2.4.2
)
# containerd 1.7, whose programs have the same names, is in a folder beside them. Its go.mod excludes versions, so
# `go install` refuses it; a module of our own pins it instead.
CONTAINERD_1_7=scripts/containerd-1.7
CONTAINERD_1_7_COMMANDS=(containerd-1.7/{containerd,containerd-shim-runc-v2,ctr})
# The kubelet and a control plane, which take the modules that are staged in Kubernetes' own repository from beside it, and so
# cannot be installed by themselves either. The last one is called etcd, and its module calls it "server".
KUBERNETES=scripts/kubernetes
KUBERNETES_COMMANDS=(kubelet kube-apiserver kube-controller-manager kube-scheduler etcd)
# A runc that can map the ids of mounts, as containerd wants for pods in user namespaces; Debian 12's cannot. It is called
# runc-idmap, so that whatever looks for runc finds the system's.
RUNC_IDMAP=github.com/opencontainers/runc@v1.5.2
# Docker Engine. Its client cannot be had from the Go proxy; Debian's package is taken apart for it, since installing that would
# start an engine of its own. It is called docker-client, so that whoever looks for docker finds the system's.
GO_TOOLS+=(dockerd=github.com/moby/moby/v2/cmd/dockerd@v2.0.0-beta.24)
DOCKER_CLIENT=docker.io
# Plugins that give pods networks of their own, in a folder as containerd wants it.
CNI_PLUGINS=github.com/containernetworking/plugins/plugins
GO_TOOLS+=(
    cni/ptp=$CNI_PLUGINS/main/ptp@v1.9.1
    cni/loopback=$CNI_PLUGINS/main/loopback@v1.9.1
    cni/host-local=$CNI_PLUGINS/ipam/host-local@v1.9.1
)
# What `kubectl kustomize` is made of. Newer ones want a newer Go than Debian's users have.
GO_TOOLS+=(kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.6.0)
# command=package==version. This one carries the schemas of the objects of Kubernetes, which others fetch.
PYTHON_TOOLS=(
    kubernetes-validate=kubernetes-validate==1.37.0
)
# command=crate@version
CARGO_TOOLS=(
    cargo-deny=cargo-deny@0.20.2
)
OLDEST_RUST=1.90
OLDEST_GO=1.26

stamp_file="$XEBEC_TOOLS/stamp"

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# is_there COMMAND, or is_there FILE with its whole path.
is_there() {
    case $1 in
    /*) [[ -e $1 ]] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

missing_commands() {
    local item
    for item in "${PACKAGES[@]}"; do
        is_there "${item%%:*}" || echo "${item%%:*}"
    done
    for item in "${GO_TOOLS[@]}" "${PYTHON_TOOLS[@]}" "${CARGO_TOOLS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/${item%%=*} ]] || echo "${item%%=*}"
    done
    for item in "${CONTAINERD_1_7_COMMANDS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/$item ]] || echo "$item"
    done
    [[ -x $XEBEC_TOOLS/bin/runc-idmap ]] || echo runc-idmap
    [[ -x $XEBEC_TOOLS/bin/docker-client ]] || echo docker-client
    for item in "${KUBERNETES_COMMANDS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/$item ]] || echo "$item"
    done
}

# at_least HAVE WANT: whether version HAVE is WANT or newer.
at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]; }

check_compilers() {
    command -v cargo >/dev/null || die "Rust is missing: install Rust $OLDEST_RUST or newer with rustup (https://rustup.rs)"
    command -v go >/dev/null || die "Go is missing: install Go $OLDEST_GO or newer (https://go.dev/dl); the test registry is built with it"
    local rust go
    rust=$(cargo --version | awk '{print $2}')
    go=$(go env GOVERSION | sed 's/^go//')
    at_least "$rust" "$OLDEST_RUST" || die "Rust $rust is too old: $OLDEST_RUST or newer is needed (rustup update)"
    at_least "$go" "$OLDEST_GO" || die "Go $go is too old: $OLDEST_GO or newer is needed (https://go.dev/dl)"
}

install_packages() {
    local wanted=() item
    for item in "${PACKAGES[@]}"; do
        is_there "${item%%:*}" || wanted+=("${item##*:}")
    done
    [[ ${#wanted[@]} -eq 0 ]] && return
    command -v apt-get >/dev/null || die "no apt-get here; please install: ${wanted[*]}"
    local sudo=()
    [[ $(id -u) -eq 0 ]] || sudo=(sudo)
    say "installing Debian packages: ${wanted[*]}"
    "${sudo[@]}" apt-get update -q
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${wanted[@]}"
}

install_go_tools() {
    local item
    for item in "${GO_TOOLS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/${item%%=*} && $(tool_version "${item%%=*}") == "${item#*=}" ]] && continue
        say "building ${item#*=} (about 2 minutes)"
        GOBIN=$(dirname "$XEBEC_TOOLS/bin/${item%%=*}") GOFLAGS=-buildvcs=false go install "${item#*=}"
        note_version "${item%%=*}" "${item#*=}"
    done
}

install_containerd_1_7() {
    local version item missing=0
    version=$(sha256sum <"$XEBEC_TOP/$CONTAINERD_1_7/go.sum")
    for item in "${CONTAINERD_1_7_COMMANDS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/$item ]] || missing=1
    done
    [[ $missing -eq 0 && $(tool_version containerd-1.7) == "$version" ]] && return
    say "building containerd 1.7 (about 3 minutes)"
    GOFLAGS=-buildvcs=false go build -C "$XEBEC_TOP/$CONTAINERD_1_7" -o "$XEBEC_TOOLS/bin/containerd-1.7/" tool
    note_version containerd-1.7 "$version"
}

install_kubernetes() {
    local version item missing=0
    version=$(sha256sum <"$XEBEC_TOP/$KUBERNETES/go.sum")
    for item in "${KUBERNETES_COMMANDS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/$item ]] || missing=1
    done
    [[ $missing -eq 0 && $(tool_version kubernetes) == "$version" ]] && return
    say "building the kubelet and a control plane (about 6 minutes)"
    rm -rf "$XEBEC_TOOLS/build"
    mkdir -p "$XEBEC_TOOLS/build"
    # Without what only debuggers read, which is a third of them.
    GOFLAGS=-buildvcs=false go build -C "$XEBEC_TOP/$KUBERNETES" -ldflags '-s -w' -o "$XEBEC_TOOLS/build/" tool
    mv "$XEBEC_TOOLS/build/server" "$XEBEC_TOOLS/build/etcd"
    mv "$XEBEC_TOOLS"/build/* "$XEBEC_TOOLS/bin/"
    rm -rf "$XEBEC_TOOLS/build"
    note_version kubernetes "$version"
}

# `go install` calls it runc, so it gets its name before it comes where commands are looked for. It does not build without cgo.
install_runc_idmap() {
    [[ -x $XEBEC_TOOLS/bin/runc-idmap && $(tool_version runc-idmap) == "$RUNC_IDMAP" ]] && return
    say "building $RUNC_IDMAP (about a minute)"
    rm -rf "$XEBEC_TOOLS/build"
    GOBIN="$XEBEC_TOOLS/build" GOFLAGS=-buildvcs=false CGO_ENABLED=1 go install -tags seccomp "$RUNC_IDMAP"
    mv "$XEBEC_TOOLS/build/runc" "$XEBEC_TOOLS/bin/runc-idmap"
    rm -rf "$XEBEC_TOOLS/build"
    note_version runc-idmap "$RUNC_IDMAP"
}

# The client of the package, whatever its version: what is tested speaks with old ones, too.
install_docker_client() {
    [[ -x $XEBEC_TOOLS/bin/docker-client ]] && return
    command -v apt-get >/dev/null || die "no apt-get here; please put a client of Docker at $XEBEC_TOOLS/bin/docker-client"
    say "taking the client out of $DOCKER_CLIENT"
    rm -rf "$XEBEC_TOOLS/build"
    mkdir -p "$XEBEC_TOOLS/build"
    (cd "$XEBEC_TOOLS/build" && apt-get download -q "$DOCKER_CLIENT" && dpkg-deb -x ./*.deb tree)
    mv "$XEBEC_TOOLS/build/tree/usr/bin/docker" "$XEBEC_TOOLS/bin/docker-client"
    rm -rf "$XEBEC_TOOLS/build"
}

# Each into a folder of its own, so that nothing of the system's Python changes.
install_python_tools() {
    local item folder
    for item in "${PYTHON_TOOLS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/${item%%=*} && $(tool_version "${item%%=*}") == "${item#*=}" ]] && continue
        say "installing ${item#*=}"
        folder="$XEBEC_TOOLS/python/${item%%=*}"
        rm -rf "$folder"
        pip3 install --quiet --disable-pip-version-check --root-user-action ignore --target "$folder" "${item#*=}"
        printf '#!/bin/sh\nPYTHONPATH=%q exec python3 %q "$@"\n' "$folder" "$folder/bin/${item%%=*}" \
            >"$XEBEC_TOOLS/bin/${item%%=*}"
        chmod +x "$XEBEC_TOOLS/bin/${item%%=*}"
        note_version "${item%%=*}" "${item#*=}"
    done
}

install_cargo_tools() {
    local item
    for item in "${CARGO_TOOLS[@]}"; do
        [[ -x $XEBEC_TOOLS/bin/${item%%=*} && $(tool_version "${item%%=*}") == "${item#*=}" ]] && continue
        say "building ${item#*=} (some minutes)"
        CARGO_TARGET_DIR="$XEBEC_TOOLS/build" cargo install --quiet --locked --force --root "$XEBEC_TOOLS" "${item#*=}"
        rm -rf "$XEBEC_TOOLS/build"
        note_version "${item%%=*}" "${item#*=}"
    done
}

# Which version each tool was built at is kept beside it, since not every tool can tell.
tool_version() { cat "$XEBEC_TOOLS/versions/$1" 2>/dev/null || true; }
note_version() {
    mkdir -p "$(dirname "$XEBEC_TOOLS/versions/$1")"
    printf '%s\n' "$2" >"$XEBEC_TOOLS/versions/$1"
}

main() {
    local hash missing
    hash=$(cat "${BASH_SOURCE[0]}" "$XEBEC_TOP"/{"$CONTAINERD_1_7","$KUBERNETES"}/go.sum | sha256sum | cut -d' ' -f1)
    missing=$(missing_commands)
    if [[ -z $missing && -f $stamp_file && $(<"$stamp_file") == "$hash" ]]; then
        return 0
    fi
    mkdir -p "$XEBEC_TOOLS/bin"
    # One setup at a time; the second finds the work done.
    exec 9>"$XEBEC_TOOLS/lock"
    flock 9
    check_compilers
    install_packages
    install_go_tools
    install_containerd_1_7
    install_runc_idmap
    install_docker_client
    install_kubernetes
    install_python_tools
    install_cargo_tools
    missing=$(missing_commands | tr '\n' ' ')
    [[ -z $missing ]] || die "still missing after installing: $missing"
    printf '%s\n' "$hash" >"$stamp_file"
    say "ready; tools are in $XEBEC_TOOLS"
}

main "$@"
