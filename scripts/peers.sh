#!/usr/bin/env bash
# Builds the peers that `make bench-hello` compares with, into the cache's folder of tools: those whose parts package registries
# offer, at the versions that bench/peers/*/{go.mod,Cargo.lock} pin, and takes a newer mkfs.erofs out of a newer Debian. A peer
# that cannot be built is named, and the others are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

say() { printf 'peers: %s\n' "$*" >&2; }

# is_built STAMP VERSION PROGRAM...: whether all of the programs are there, and made of this.
is_built() {
    local stamp=$XEBEC_TOOLS/versions/$1 version=$2 program
    for program in "${@:3}"; do
        [[ -x $XEBEC_TOOLS/bin/$program ]] || return 1
    done
    [[ -f $stamp && $(<"$stamp") == "$version" ]]
}

# build_go DIRECTORY: a program of our own, and the commands that its go.mod names as tools.
build_go() {
    local directory=$1 peer version command module
    local -a commands
    peer=peer-$(basename "$directory")
    mapfile -t commands < <(awk '$1 == "tool" { print $2 }' "$directory/go.mod")
    version=$(cat "$directory"/{main.go,go.mod,go.sum} | sha256sum)
    is_built "$peer" "$version" "$peer" "${commands[@]##*/}" && return
    say "building $peer (some minutes)"
    # cgo as the peer wants it: one of them calls zlib.
    GOFLAGS=-buildvcs=false go build -C "$directory" -o "$XEBEC_TOOLS/bin/$peer" . || return 1
    for command in "${commands[@]}"; do
        # It is told its version by the linker.
        module=${command%%/cmd/*}
        module+=/version.Version=$(go list -C "$directory" -m -f '{{.Version}}' "$module") || return 1
        GOFLAGS=-buildvcs=false go build -C "$directory" -o "$XEBEC_TOOLS/bin/${command##*/}" -ldflags "-X $module" "$command" ||
            return 1
    done
    printf '%s\n' "$version" >"$XEBEC_TOOLS/versions/$peer"
    say "$peer${commands[*]:+, ${commands[*]##*/}}: $("$XEBEC_TOOLS/bin/$peer" version)"
}

# build_crate DIRECTORY CRATE PROGRAM...: programs of the crate that a package of ours depends on.
build_crate() {
    local directory=$1 crate=$2 build=$XEBEC_TOOLS/build-$2 version program
    local -a programs=("${@:3}")
    # The version of the crate, which its programs do not know: without a repository to ask, they say that it is unknown.
    version=$(sed -n "s/^$crate = \"=\(.*\)\"/\1/p" "$directory/Cargo.toml")
    version+=" $(cat "$directory"/Cargo.{toml,lock} | sha256sum)"
    is_built "$crate" "$version" "${programs[@]}" && return
    say "building $crate (some minutes)"
    GIT_DIR=/dev/null CARGO_TARGET_DIR=$build cargo build --quiet --release --locked --manifest-path "$directory/Cargo.toml" \
        --package "$crate" "${programs[@]/#/--bin=}" || return 1
    for program in "${programs[@]}"; do
        install "$build/release/$program" "$XEBEC_TOOLS/bin/$program" || return 1
    done
    rm -rf "$build"
    printf '%s\n' "$version" >"$XEBEC_TOOLS/versions/$crate"
    say "$crate, ${programs[*]}: ${version%% *}"
}

# The programs that containerd's EROFS differ calls: from the release of Debian after the one that this is made for, with the libraries
# that they were linked with, and a script that starts them with these.
take_erofs_utils() {
    local root=$XEBEC_TOOLS/erofs-utils suite=trixie loader
    [[ -x $root/bin/mkfs.erofs && -f $root/suite && $(<"$root/suite") == "$suite" ]] && return
    say "taking erofs-utils out of Debian $suite"
    rm -rf "$root"
    mmdebstrap --quiet --variant=extract --include=erofs-utils "$suite" "$root" || return 1
    loader=$(find "$root/usr/lib" -name 'ld-linux*.so.*' | head -n1)
    mkdir -p "$root/bin"
    printf '#!/bin/sh\nexec %q --library-path %q %q "$@"\n' "$loader" "$(dirname "$loader")" "$root/usr/bin/mkfs.erofs" \
        >"$root/bin/mkfs.erofs"
    chmod +x "$root/bin/mkfs.erofs"
    "$root/bin/mkfs.erofs" -V >/dev/null || return 1
    echo "$suite" >"$root/suite"
}

failed=0
mkdir -p "$XEBEC_TOOLS/bin" "$XEBEC_TOOLS/versions"
for directory in bench/peers/*/; do
    build_go "$directory" || {
        say "SKIPPED peer-$(basename "$directory"): it cannot be built here"
        failed=1
    }
done
build_crate bench/peers/nydus nydus-rs nydusd nydus-image || {
    say "SKIPPED nydusd, nydus-image: they cannot be built here; BENCH_NYDUS may name a folder that has them"
    failed=1
}
take_erofs_utils || {
    say "SKIPPED mkfs.erofs: no newer one is available here; BENCH_EROFS_UTILS may name a folder that has it"
    failed=1
}
exit "$failed"
