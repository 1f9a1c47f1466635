#!/usr/bin/env bash
# Writes golden/pigz.txt: digests of what pigz makes of the corpora, without header and trailer. Run it where pigz has the wanted version (Debian 12's
# is 2.6, with zlib 1.2.13):
#
#     cargo run --package xebec-testkit --example corpus CORPORA
#     bash golden/pigz/generate.sh CORPORA > golden/pigz.txt
set -euo pipefail

echo "# $(pigz --version 2>&1), raw deflate: threads, KiB of a block, level, corpus, length, SHA-256"
digest() {
    local stream
    stream=$(mktemp)
    pigz -n -p "$1" -b "$2" -"$3" <"$CORPORA/$4" | tail -c +11 | head -c -8 >"$stream"
    echo "$1 $2 $3 $4 $(stat -c %s "$stream") $(sha256sum <"$stream" | cut -d ' ' -f 1)"
    rm "$stream"
}

CORPORA=$1
for threads in 1 4; do
    for level in 1 2 3 4 5 6 7 8 9; do
        for name in empty byte short run text records random zeros two tar; do
            digest "$threads" 128 "$level" "$name"
        done
    done
    for level in 1 6 9; do
        for name in text records; do
            digest "$threads" 32 "$level" "$name"
            digest "$threads" 1000 "$level" "$name"
        done
    done
done
