#!/usr/bin/env bash
# Encodes the layers of an OCI layout anew: recode.sh SOURCE TARGET MEDIA_TYPE ENCODER…
#
# ENCODER reads a tar file from its input and writes the blob to its output; annotations of the layer, one
# KEY=VALUE a line, it may write to the file $ANNOTATIONS. Diff IDs are taken anew from what the blobs decode to,
# since some encoders add entries of their own.
set -euo pipefail
source=$1 target=$2 media_type=$3
shift 3

# put FILE: into the target's blobs; prints "DIGEST SIZE".
put() {
    local hex
    hex=$(sha256sum "$1" | cut -d' ' -f1)
    stat -c "sha256:$hex %s" "$1"
    mv "$1" "$target/blobs/sha256/$hex"
}
blob() { echo "$source/blobs/sha256/${1#sha256:}"; }
decode() {
    case $media_type in
    *+gzip) gzip --decompress --stdout "$1" ;;
    *+zstd) zstd --decompress --quiet --stdout "$1" ;;
    *) cat "$1" ;;
    esac
}

mkdir -p "$target/blobs/sha256"
cp "$source/oci-layout" "$target/"
manifest=$(blob "$(jq -r '.manifests[0].digest' "$source/index.json")")
config=$(blob "$(jq -r .config.digest "$manifest")")
layers='[]' diff_ids='[]'
export ANNOTATIONS=$target/annotations
for layer in $(jq -r '.layers[].digest' "$manifest"); do
    : >"$ANNOTATIONS"
    gzip --decompress --stdout "$(blob "$layer")" | "$@" >"$target/layer"
    diff_id=sha256:$(decode "$target/layer" | sha256sum | cut -d' ' -f1)
    diff_ids=$(jq -c --arg id "$diff_id" '. + [$id]' <<<"$diff_ids")
    annotations=$(jq -cR -s 'split("\n") | map(select(. != "") | index("=") as $at
        | {key: .[:$at], value: .[$at + 1:]}) | from_entries' "$ANNOTATIONS")
    read -r digest size < <(put "$target/layer")
    layers=$(jq -c --arg type "$media_type" --arg digest "$digest" --argjson size "$size" --argjson notes "$annotations" \
        '. + [{mediaType: $type, digest: $digest, size: $size} + if $notes == {} then {} else {annotations: $notes} end]' \
        <<<"$layers")
done
rm "$ANNOTATIONS"
jq -c --argjson ids "$diff_ids" '.rootfs.diff_ids = $ids' "$config" >"$target/config"
read -r config_digest config_size < <(put "$target/config")
jq -c --argjson layers "$layers" --arg digest "$config_digest" --argjson size "$config_size" \
    '.layers = $layers | .config.digest = $digest | .config.size = $size' "$manifest" >"$target/manifest"
read -r digest size < <(put "$target/manifest")
jq -c --arg digest "$digest" --argjson size "$size" \
    '.manifests[0].digest = $digest | .manifests[0].size = $size' "$source/index.json" >"$target/index.json"
