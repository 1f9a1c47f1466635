#!/usr/bin/env bash
# Measures the room that keeping each file once saves over series of images with several versions. It builds layers of packages of Debian, PyPI, npm,
# Maven and Go (bench/dedup_layers.py; bench/dedup_series.py says which), puts them into a store of their own, and prints what that takes: by whole layers,
# by files, by pieces of their contents; the growth by each series; how much of it equal files give alone; and the database by tables and indexes. If
# restic is installed, it backs up the same layers unpacked, which is a limit of what pieces of contents give.
#
#   scripts/bench-dedup.sh
#   XEBEC_DEDUP_SET=few scripts/bench-dedup.sh    the smaller set: six images with a few versions
#
# Layers stay in $XEBEC_CACHE/bench/dedup-SET (7 GB). Needs root, for mmdebstrap. docs/deduplication-figures.md explains the tables.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

set="${XEBEC_DEDUP_SET:-many}"
layers="${XEBEC_DEDUP_LAYERS:-$XEBEC_CACHE/bench/dedup-$set}"
mkdir -p "$layers"

(cd bench/recompress && go build -o "$layers/compress" .)
python3 -B bench/dedup_layers.py "$layers" "$layers/compress" "$set"
cargo build --quiet --locked --release --package xebec-dedup --example dedup-measure
measure="$CARGO_TARGET_DIR/release/examples/dedup-measure"

# Files of all layers, each once; or without those that are only made again.
files() { # PATTERN
    awk -v kind="$1" '$4 ~ kind && !seen[$3]++ { print $3 }' "$layers/layers" | sed "s|^|$layers/|"
}
# The same, with a word after the last file that a series has more than those before it.
files_by_series() { # PATTERN
    awk -v kind="$1" -v at="$layers/" '
        $4 !~ kind { next }
        $1 != series && series { print "--so-far"; print series }
        { series = $1 }
        !seen[$3]++ { print at $3 }
        END { print "--so-far"; print series }' "$layers/layers"
}
kinds=('new|again')
grep -q ' again ' "$layers/layers" && kinds+=('new')
for kind in "${kinds[@]}"; do
    mapfile -t chosen < <(files_by_series "$kind")
    case $kind in
        new) printf '\n== layers that are only made again left out, as if a build found them in its cache\n' ;;
        *) printf '\n== every layer that a build made\n' ;;
    esac
    for chunks in files contents; do
        printf -- '-- by %s\n' "$chunks"
        "$measure" --space --chunks "$chunks" --records "$layers/$chunks.db" "${chosen[@]}" >"$layers/$chunks.out"
        python3 -B bench/dedup_growth.py "$layers/$chunks.out"
        sed -n '/^distinct/,$p' "$layers/$chunks.out"
        # What is in its log goes into the file.
        sqlite3 "$layers/$chunks.db" 'PRAGMA wal_checkpoint(TRUNCATE)' >/dev/null
        printf 'database %d bytes\n' "$(stat --format %s "$layers/$chunks.db")"
        sqlite3 -readonly "$layers/$chunks.db" "SELECT printf('%-28s %9d bytes, %d used', name, SUM(pgsize), SUM(pgsize - unused)) FROM dbstat
            GROUP BY name HAVING SUM(pgsize) > 16384 ORDER BY SUM(pgsize) DESC"
    done
done
printf -- '-- equal files alone\n'
python3 -B bench/dedup_shares.py "$layers" "$layers/compress"

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
