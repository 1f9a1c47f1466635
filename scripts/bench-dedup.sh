#!/usr/bin/env bash
# Measures the room that keeping each file once saves over series of images with several versions. It builds layers of packages of Debian and PyPI
# (bench/dedup_layers.py), puts them into a store of their own, and prints what that takes: by whole layers, by files, by pieces of their contents. If
# restic is installed, it backs up the same layers unpacked, which is a limit of what pieces of contents give.
#
#   scripts/bench-dedup.sh
#
# Layers stay in $XEBEC_CACHE/bench/dedup (5 GB). Needs root, for mmdebstrap. docs/deduplication-figures.md explains the table.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

layers="${XEBEC_DEDUP_LAYERS:-$XEBEC_CACHE/bench/dedup}"
mkdir -p "$layers"

(cd bench/recompress && go build -o "$layers/compress" .)
python3 -B bench/dedup_layers.py "$layers" "$layers/compress"
cargo build --quiet --locked --release --package xebec-dedup --example dedup-measure
measure="$CARGO_TARGET_DIR/release/examples/dedup-measure"

# Files of all layers, each once; or without those that are only made again.
files() { # PATTERN
    awk -v kind="$1" '$4 ~ kind { print $3 }' "$layers/layers" | sort -u | sed "s|^|$layers/|"
}
for kind in 'new|again' 'new'; do
    mapfile -t chosen < <(files "$kind")
    case $kind in
        new) printf '\n== layers that are only made again left out, as if a build found them in its cache\n' ;;
        *) printf '\n== every layer that a build made\n' ;;
    esac
    for chunks in files contents; do
        printf -- '-- by %s\n' "$chunks"
        "$measure" --space --chunks "$chunks" "${chosen[@]}" | sed -n '/^distinct/,$p'
    done
done

if ! command -v restic >/dev/null; then
    echo "bench-dedup: SKIPPED restic: it is not installed" >&2
    exit 0
fi
work=$(mktemp -d -p "$layers")
trap 'rm -rf "$work"' EXIT
export RESTIC_REPOSITORY="$work/repository" RESTIC_PASSWORD=x RESTIC_CACHE_DIR="$work/cache" RESTIC_COMPRESSION=max
restic init --quiet --repository-version 2
while read -r layer; do
    mkdir "$work/layer"
    tar -xf "$layer" -C "$work/layer"
    restic backup --quiet --exclude-caches "$work/layer"
    rm -rf "$work/layer"
done < <(files 'new|again')
printf '\n-- restic, the same layers unpacked\n'
du -sb "$RESTIC_REPOSITORY" | awk '{ printf "%.1f MB\n", $1 / 1e6 }'
