#!/usr/bin/env bash
# Builds the real test images, each as an OCI layout directory $XEBEC_BUILD/oci/NAME with the tag "latest".
#
#   scripts/images/build.sh NAME...     build these (and what they are based on)
#   scripts/images/build.sh --list      the names, in the order in which they can be built
#   scripts/images/build.sh all         build every image but those that only the benchmarks need (a file benchmark)
#
# XEBEC_RECIPES may name another folder with recipes, such as those that bench/build_images.py makes; they are built by their
# names, and neither listed nor part of "all".
#
# A recipe is a folder scripts/images/NAME with a Containerfile (built by buildah in a chroot), or with a script build (run with the
# target directory as its argument). A script prepare, if there is one, first fills the build context (its argument). An image is built
# again only when its recipe, or the recipe of the image that it is based on, has changed. Needs root, since packages are installed in a
# chroot.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../env.sh"

DEBIAN_SUITE=bookworm
layouts="$XEBEC_BUILD/oci"
work="$XEBEC_BUILD/work"
logs="$XEBEC_BUILD/logs"

say() { printf 'images: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# The folder of a recipe: ours, or else one of XEBEC_RECIPES.
recipe() { if [[ -d $here/$1 ]]; then echo "$here/$1"; else echo "${XEBEC_RECIPES:-$here}/$1"; fi; }

# The images that an image is based on: the names in its file "needs", one per line.
needs() { cat "$(recipe "$1")/needs" 2>/dev/null || true; }

names() {
    local name need
    local -A done=()
    visit() {
        [[ -z ${done[$1]:-} ]] || return 0
        done[$1]=1
        for need in $(needs "$1"); do visit "$need"; done
        echo "$1"
    }
    for name in "$here"/*/; do visit "$(basename "$name")"; done
}

# The hash of a recipe and of all that it is based on; a changed hash means a new build.
recipe_hash() {
    local need
    {
        for need in $(needs "$1"); do recipe_hash "$need"; done
        (cd "$(recipe "$1")" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
    } | sha256sum | cut -d' ' -f1
}

# buildah with a storage of our own, so that nothing of the user's is touched.
buildah_here() {
    local driver=overlay
    [[ $(stat -f -c %T "$XEBEC_BUILD") == overlayfs ]] && driver=vfs
    buildah --root "$XEBEC_BUILD/storage" --runroot "$XEBEC_BUILD/storage-run" --storage-driver "$driver" "$@"
}
# Recipe scripts use these.
export DEBIAN_SUITE XEBEC_IMAGE_LAYOUTS="$layouts"

build_containerfile() {
    local name=$1 target=$2 context="$work/$1"
    rm -rf "$context"
    mkdir -p "$context"
    cp -a "$(recipe "$name")/." "$context/"
    # A caller that tests whether this fails switches off `set -e`, and an image of an earlier build must not be pushed for this one.
    if [[ -x $context/prepare ]]; then (cd "$context" && ./prepare "$context") || return; fi
    buildah_here bud --isolation chroot --layers --format oci --tag "xebec-test/$name" \
        --file "$context/Containerfile" "$context" || return
    buildah_here push "xebec-test/$name" "oci:$target:latest" || return
    rm -rf "$context"
}

# is_built NAME HASH
is_built() { [[ -f $layouts/$1/recipe && $(<"$layouts/$1/recipe") == "$2" ]]; }

build_one() {
    local name=$1 folder hash started
    folder=$(recipe "$name")
    [[ -d $folder ]] || die "no recipe $folder"
    hash=$(recipe_hash "$name")
    is_built "$name" "$hash" && return
    started=$(date +%s)
    say "building $name (log: $logs/$name.log)"
    rm -rf "$layouts/$name" "$layouts/$name.new"
    if ! (
        if [[ -f $folder/Containerfile ]]; then
            build_containerfile "$name" "$layouts/$name.new"
        else
            "$folder/build" "$layouts/$name.new"
        fi
    ) >"$logs/$name.log" 2>&1; then
        tail -n 20 "$logs/$name.log" >&2
        die "building $name failed"
    fi
    printf '%s\n' "$hash" >"$layouts/$name.new/recipe"
    mv "$layouts/$name.new" "$layouts/$name"
    say "built $name in $(($(date +%s) - started)) s, $(du -sh "$layouts/$name" | cut -f1)"
}

# Whether it and all that it is based on are there as they are to be: then nothing is built, and nobody waited for who builds.
are_built() {
    local name need
    for name; do
        [[ -d $(recipe "$name") ]] || return
        for need in $(needs "$name"); do are_built "$need" || return; done
        is_built "$name" "$(recipe_hash "$name")" || return
    done
}

build_with_needs() {
    local need
    for need in $(needs "$1"); do build_with_needs "$need"; done
    build_one "$1"
}

main() {
    case "${1:-}" in
    "" | -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit 0 ;;
    --list) names && exit 0 ;;
    esac
    [[ $(id -u) -eq 0 ]] || die "must run as root: packages are installed in a chroot"
    mkdir -p "$layouts" "$work" "$logs"
    local wanted=("$@") name
    [[ $1 == all ]] && mapfile -t wanted < <(names | while read -r name; do
        [[ -e $here/$name/benchmark ]] || echo "$name"
    done)
    are_built "${wanted[@]}" && exit 0
    exec 9>"$XEBEC_BUILD/lock"
    flock 9
    for name in "${wanted[@]}"; do build_with_needs "$name"; done
}

main "$@"
