#!/usr/bin/env bash
# Compresses one tar file as many layer tools and encoders do, takes every stream apart, makes it again, and prints a line for each; then the same for
# the layers of the test images. docs/recompression.md explains the table.
#
#   scripts/bench-recompress.sh [TAR]      TAR: the largest layer of the image nginx, if not given
#
# Streams stay in $XEBEC_CACHE/bench/recompress. An encoder that is not installed is SKIPPED. Wants an idle machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$XEBEC_TOP"

streams="$XEBEC_CACHE/bench/recompress"
layouts="$XEBEC_CACHE/images/oci"
mkdir -p "$streams"

say() { printf 'bench-recompress: %s\n' "$*" >&2; }

# The blob of an image's largest layer.
largest() { find "$layouts/$1/blobs/sha256" -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-; }

if [[ $# -gt 0 ]]; then
    cp -f "$1" "$streams/plain.tar"
elif [[ ! -s $streams/plain.tar ]]; then
    scripts/images/build.sh nginx nginx >&2
    gzip -dc "$(largest nginx)" >"$streams/plain.tar"
fi
plain="$streams/plain.tar"

# A stream by a command that writes it to standard output. It is made once.
stream() { # NAME PROGRAM ARGUMENTS…
    local name=$1
    shift
    [[ ! -s $streams/$name || $streams/$name -ot $plain ]] || return 0
    if ! command -v "$1" >/dev/null; then
        say "SKIPPED $name: $1 is not installed"
        return 0
    fi
    say "$name"
    if ! "$@" <"$plain" >"$streams/$name.part"; then
        say "SKIPPED $name: $1 failed"
        rm -f "$streams/$name.part"
        return 0
    fi
    mv "$streams/$name.part" "$streams/$name"
}

# A stream by an encoder in Go, by the tool-chain GO.
by_go() { # NAME GO ENCODER LEVEL
    [[ ! -s $streams/$1 || $streams/$1 -ot $plain ]] || return 0
    say "$1"
    if ! (cd bench/recompress && GOTOOLCHAIN=$2 go run . "$3" "$4" "$plain" "$streams/$1.part"); then
        say "SKIPPED $1: this Go tool-chain or module cannot be had"
        rm -f "$streams/$1.part"
        return 0
    fi
    mv "$streams/$1.part" "$streams/$1"
}

python_gzip() { python3 -c 'import gzip,shutil,sys
with gzip.GzipFile("", "wb", int(sys.argv[1]), sys.stdout.buffer, 0) as out: shutil.copyfileobj(sys.stdin.buffer, out)' "$1"; }
java_gzip() {
    local source="$streams/Compress.java"
    printf '%s\n' 'import java.util.zip.*; class Compress { public static void main(String[] a) throws Exception {' \
        'try (GZIPOutputStream out = new GZIPOutputStream(System.out)) { System.in.transferTo(out); } } }' >"$source"
    java "$source"
}
# The layer that a tool writes into an image, from a layer that is not compressed.
by_crane() { local image; image=$(mktemp); crane append --new_layer "$plain" --new_tag x --output "$image" >&2; tar -xOf "$image" "$(tar -tf "$image" | grep 'tar.gz$')"; rm -f "$image"; }
by_umoci() {
    local at; at=$(mktemp -d)
    umoci init --layout "$at/image" >&2 && umoci new --image "$at/image:x" >&2 && umoci raw add-layer --image "$at/image:x" "$plain" >&2
    find "$at/image/blobs/sha256" -type f -size +100k -exec cat {} +
    rm -rf "$at"
}
# An OCI layout with one layer that is not compressed.
layout() { # DIRECTORY
    python3 - "$1" "$plain" <<'PYTHON'
import hashlib, json, os, shutil, sys
to, layer = sys.argv[1:]
os.makedirs(f"{to}/blobs/sha256")
def put(path, kind):
    digest = hashlib.file_digest(open(path, "rb"), "sha256").hexdigest()
    shutil.copy(path, f"{to}/blobs/sha256/{digest}")
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": os.path.getsize(path)}
def put_json(value, kind):
    json.dump(value, open(f"{to}/value", "w"))
    return put(f"{to}/value", kind)
layer = put(layer, "layer.v1.tar")
config = put_json({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}, "config.v1+json")
manifest = put_json({"schemaVersion": 2, "config": config, "layers": [layer]}, "manifest.v1+json")
manifest["annotations"] = {"org.opencontainers.image.ref.name": "x"}
json.dump({"schemaVersion": 2, "manifests": [manifest]}, open(f"{to}/index.json", "w"))
json.dump({"imageLayoutVersion": "1.0.0"}, open(f"{to}/oci-layout", "w"))
PYTHON
}
by_skopeo() { # FORMAT
    local at; at=$(mktemp -d)
    layout "$at/image"
    skopeo copy --quiet --dest-compress --dest-compress-format "$1" "oci:$at/image:x" "dir:$at/copy" >&2
    find "$at/copy" -type f -size +100k -exec cat {} +
    rm -rf "$at"
}

for level in 1 6 9; do by_go "go-1.26-$level.gz" local go "$level"; done
for level in 1 6 9; do by_go "go-1.27-$level.gz" go1.27.4 go "$level"; done
for level in 1 5 6 9; do by_go "klauspost-$level.gz" local klauspost "$level"; done
for level in 1 5 6 9; do by_go "pgzip-$level.gz" local pgzip "$level"; done
for level in 1 2 3 4; do by_go "klauspost-$level.zst" local zstd "$level"; done
stream python-6.gz python_gzip 6
stream python-9.gz python_gzip 9
stream java.gz java_gzip
for level in 1 6 9; do stream "gzip-$level.gz" gzip -n -c "-$level"; done
for level in 1 6 9; do stream "pigz-$level.gz" pigz -n -c "-$level"; done
for level in 1 3 9 19; do stream "zstd-$level.zst" zstd -q -c "-$level"; done
stream libdeflate-6.gz libdeflate-gzip -6 -c
stream 7zip.gz 7z a -tgzip -si -so x.gz
stream tool-crane.gz by_crane
stream tool-umoci.gz by_umoci
stream tool-skopeo.gz by_skopeo gzip
stream tool-skopeo.zst by_skopeo zstd

say "taking apart"
cargo build --quiet --locked --release --package xebec-recompress --example measure
measure="$CARGO_TARGET_DIR/release/examples/measure"
mapfile -t made < <(find "$streams" \( -name '*.gz' -o -name '*.zst' \) -size +1k | sort)
"$measure" "${made[@]}"
printf '\nlayers of the test images\n'
# Each layer once: images share them. Manifests and configurations are small.
mapfile -t layers < <(find "$layouts" -path '*/blobs/sha256/*' -type f -size +100k -printf '%f %p\n' | sort -u -k1,1 | cut -d' ' -f2-)
"$measure" "${layers[@]}"
