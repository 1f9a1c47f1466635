#!/usr/bin/env bash
# Makes packages of the release binary, in out/ or where XEBEC_OUT says.
#
#   scripts/package.sh deb         a Debian package: program, units, man pages, completion, documentation
#   scripts/package.sh container   a container image, as an OCI archive: the program alone, which installs itself on its host
#
# The same commit gives the same bytes: times are the commit's.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"
# Packages are for everybody, whoever makes them.
umask 022

out=${XEBEC_OUT:-$XEBEC_TOP/out}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# XEBEC_BIN saves building it, where it is built already.
program() {
    if [[ -n ${XEBEC_BIN:-} ]]; then printf '%s\n' "$XEBEC_BIN"; else scripts/release.sh; fi
}

put() { install -D -m "$1" "$2" "$tree/$3"; }

deb() {
    local binary architecture name
    binary=$(program)
    architecture=$(dpkg --print-architecture)
    name="$out/xebec_${version}_$architecture.deb"
    tree=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$tree'" EXIT
    chmod 755 "$tree"
    put 755 "$binary" usr/bin/xebec
    strip --strip-debug "$tree/usr/bin/xebec"
    put 644 packaging/systemd/xebec.service lib/systemd/system/xebec.service
    put 644 packaging/systemd/xebec.socket lib/systemd/system/xebec.socket
    put 644 packaging/systemd/xebec-containers.service lib/systemd/system/xebec-containers.service
    mkdir -p "$tree/usr/share/man/man1"
    "$binary" man "$tree/usr/share/man/man1"
    find "$tree/usr/share/man" -type f -exec gzip -9n {} +
    mkdir -p "$tree"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    "$binary" completion bash >"$tree/usr/share/bash-completion/completions/xebec"
    "$binary" completion zsh >"$tree/usr/share/zsh/vendor-completions/_xebec"
    "$binary" completion fish >"$tree/usr/share/fish/vendor_completions.d/xebec.fish"
    local page
    for page in README.md docs/*.md; do put 644 "$page" "usr/share/doc/xebec/${page##*/}"; done
    put 644 packaging/debian/copyright usr/share/doc/xebec/copyright
    printf 'xebec (%s) unstable; urgency=medium\n\n  * Of commit %s.\n\n -- The Xebec developers <xebec@localhost>  %s\n' \
        "$version" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" |
        gzip -9n >"$tree/usr/share/doc/xebec/changelog.gz"
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree/usr/share" -type f -exec chmod 644 {} +

    local size
    size=$(du -k -s --apparent-size "$tree" | cut -f1)
    mkdir "$tree/DEBIAN"
    (cd "$tree" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
        packaging/debian/control >"$tree/DEBIAN/control"
    local script
    for script in postinst prerm postrm; do install -m 755 "packaging/debian/$script" "$tree/DEBIAN/$script"; done
    chmod 644 "$tree/DEBIAN/md5sums" "$tree/DEBIAN/control"
    mkdir -p "$out"
    dpkg-deb --root-owner-group --build -Zxz -z3 "$tree" "$name" >&2
    printf '%s\n' "$name"
}

container() {
    local binary image
    binary=$(program)
    mkdir -p "$out"
    tree=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$tree'" EXIT
    install -m 755 "$binary" "$tree/xebec"
    strip --strip-debug "$tree/xebec"
    image="$out/xebec_${version}_$(dpkg --print-architecture).oci.tar"
    rm -f "$image"
    buildah --root "$tree/storage" --runroot "$tree/run" --storage-driver vfs bud --isolation chroot --quiet \
        --timestamp "$SOURCE_DATE_EPOCH" --format oci -f packaging/container/Containerfile -t "xebec:$version" "$tree" >/dev/null
    buildah --root "$tree/storage" --runroot "$tree/run" --storage-driver vfs push --quiet \
        "xebec:$version" "oci-archive:$image:xebec:$version"
    printf '%s\n' "$image"
}

case "${1:-}" in
deb | container) "$1" ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
