#!/usr/bin/env bash
# Makes packages of the release binary, in out/ or where XEBEC_OUT says.
#
#   scripts/package.sh deb         a Debian package: program, units, man pages, completion, documentation
#   scripts/package.sh container   a container image, as an OCI archive: the program alone, which installs itself on its host
#   scripts/package.sh registry-deb         the same of xebec-registry, with a configuration and Grafana's dashboard
#   scripts/package.sh registry-container   an image of xebec-registry, which serves
#
# The same commit gives the same bytes: times are the commit's. XEBEC_DEB_COMPRESSION=none is for tests, whose programs are large.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"
# Packages are for everybody, whichever user makes them.
umask 022

out=${XEBEC_OUT:-$XEBEC_TOP/out}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# XEBEC_BIN and XEBEC_REGISTRY_BIN save building them, where they are built already. Always both together: alone, each would be built of
# crates with other features, and be other bytes.
release() { XEBEC_REGISTRY=yes scripts/release.sh; }
program() {
    if [[ -n ${XEBEC_BIN:-} ]]; then printf '%s\n' "$XEBEC_BIN"; else release; fi
}
registry_program() {
    if [[ -n ${XEBEC_REGISTRY_BIN:-} ]]; then printf '%s\n' "$XEBEC_REGISTRY_BIN"; else release | sed 's/$/-registry/'; fi
}

put() { install -D -m "$1" "$2" "$tree/$3"; }

# begin_tree: a folder to fill, which goes with this script.
begin_tree() {
    tree=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$tree'" EXIT
    chmod 755 "$tree"
    mkdir -p "$out"
}

# put_program BINARY NAME: the program, and what it prints of itself.
put_program() {
    local binary=$1 name=$2
    put 755 "$binary" "usr/bin/$name"
    strip --strip-debug "$tree/usr/bin/$name"
    mkdir -p "$tree/usr/share/man/man1"
    "$binary" man "$tree/usr/share/man/man1"
    find "$tree/usr/share/man" -type f -exec gzip -9n {} +
    mkdir -p "$tree"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    "$binary" completion bash >"$tree/usr/share/bash-completion/completions/$name"
    "$binary" completion zsh >"$tree/usr/share/zsh/vendor-completions/_$name"
    "$binary" completion fish >"$tree/usr/share/fish/vendor_completions.d/$name.fish"
}

# build_deb NAME FOLDER: the package of what is in the tree; FOLDER has its control files. Prints where it is.
build_deb() {
    local name=$1 folder=$2 architecture size script package
    architecture=$(dpkg --print-architecture)
    package="$out/${name}_${version}_$architecture.deb"
    put 644 packaging/debian/copyright "usr/share/doc/$name/copyright"
    printf '%s (%s) unstable; urgency=medium\n\n  * Of commit %s.\n\n -- The Xebec developers <xebec@localhost>  %s\n' \
        "$name" "$version" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" |
        gzip -9n >"$tree/usr/share/doc/$name/changelog.gz"
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree/usr/share" -type f -exec chmod 644 {} +
    size=$(du -k -s --apparent-size "$tree" | cut -f1)
    mkdir "$tree/DEBIAN"
    (cd "$tree" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
        "$folder/control" >"$tree/DEBIAN/control"
    for script in postinst prerm postrm; do install -m 755 "$folder/$script" "$tree/DEBIAN/$script"; done
    [[ ! -e $folder/conffiles ]] || install -m 644 "$folder/conffiles" "$tree/DEBIAN/conffiles"
    chmod 644 "$tree/DEBIAN/md5sums" "$tree/DEBIAN/control"
    dpkg-deb --root-owner-group --build "-Z${XEBEC_DEB_COMPRESSION:-xz}" -z3 "$tree" "$package" >&2
    printf '%s\n' "$package"
}

deb() {
    local binary page unit
    binary=$(program)
    begin_tree
    put_program "$binary" xebec
    for unit in xebec.service xebec.socket xebec-containers.service; do
        put 644 "packaging/systemd/$unit" "lib/systemd/system/$unit"
    done
    for page in README.md docs/*.md; do put 644 "$page" "usr/share/doc/xebec/${page##*/}"; done
    build_deb xebec packaging/debian
}

registry_deb() {
    local binary page
    binary=$(registry_program)
    begin_tree
    put_program "$binary" xebec-registry
    put 644 packaging/systemd/xebec-registry.service lib/systemd/system/xebec-registry.service
    put 644 docs/registry.toml etc/xebec-registry/registry.toml
    for page in registry registry-rights trust glossary formats/store; do
        put 644 "docs/$page.md" "usr/share/doc/xebec-registry/${page##*/}.md"
    done
    put 644 packaging/grafana/xebec-registry.json usr/share/doc/xebec-registry/examples/grafana-dashboard.json
    build_deb xebec-registry packaging/debian/registry
}

# build_container NAME FILE: an image of what is in the tree. Prints where it is.
build_container() {
    local name=$1 file=$2 image
    image="$out/${name}_${version}_$(dpkg --print-architecture).oci.tar"
    rm -f "$image"
    buildah --root "$tree/storage" --runroot "$tree/run" --storage-driver vfs bud --isolation chroot --quiet \
        --timestamp "$SOURCE_DATE_EPOCH" --format oci -f "$file" -t "$name:$version" "$tree" >/dev/null
    buildah --root "$tree/storage" --runroot "$tree/run" --storage-driver vfs push --quiet \
        "$name:$version" "oci-archive:$image:$name:$version"
    printf '%s\n' "$image"
}

container() {
    local binary
    binary=$(program)
    begin_tree
    put 755 "$binary" xebec
    strip --strip-debug "$tree/xebec"
    build_container xebec packaging/container/Containerfile
}

registry_container() {
    local binary
    binary=$(registry_program)
    begin_tree
    put 755 "$binary" xebec-registry
    strip --strip-debug "$tree/xebec-registry"
    put 644 /etc/ssl/certs/ca-certificates.crt ca-certificates.crt
    install -d -m 700 "$tree/data"
    build_container xebec-registry packaging/container/Containerfile.registry
}

case "${1:-}" in
deb | container | registry-deb | registry-container) "${1/-/_}" ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
