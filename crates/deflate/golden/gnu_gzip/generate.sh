#!/usr/bin/env bash
# Writes golden/gnu_gzip.txt: digests of what GNU gzip makes of the corpora, without header and trailer. Run it where gzip has the wanted version
# (Debian 12's is 1.12):
#
#     cargo run --package xebec-testkit --example corpus CORPORA
#     bash golden/gnu_gzip/generate.sh CORPORA > golden/gnu_gzip.txt
set -euo pipefail

echo "# $(gzip --version | head -n 1), raw deflate: level, corpus, plain bytes of it (all: -), length, SHA-256"
digest() {
    local stream
    stream=$(mktemp)
    gzip -n -"$1" | tail -c +11 | head -c -8 >"$stream"
    echo "$1 $2 $3 $(stat -c %s "$stream") $(sha256sum <"$stream" | cut -d ' ' -f 1)"
    rm "$stream"
}

for level in 1 2 3 4 5 6 7 8 9; do
    for name in empty byte short run text records random zeros two tar; do
        digest "$level" "$name" - <"$1/$name"
    done
done
# Where the end lies in the window makes a difference. gzip reads files of these lengths, as it does whole ones.
part=$(mktemp)
for level in 2 6 9; do
    for length in 300 5000 65290 65400 65535 65536 65537 65700 98042 98200 131000 200000; do
        for name in records two; do
            head -c "$length" "$1/$name" >"$part"
            digest "$level" "$name" "$length" <"$part"
        done
    done
done
rm "$part"
