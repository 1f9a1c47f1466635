#!/bin/bash
# Makes golden/klauspost.txt: digests of what klauspost/compress, klauspost/pgzip 1.2.6 and Go's compress/flate write. Run it here, with a folder of
# the corpora (`cargo run --package xebec-testkit --example corpus CORPORA`). It needs Go 1.26 or newer, and gets other versions of Go and of modules as
# Go does.
#
#   ./make.sh CORPORA > ../klauspost.txt
set -euo pipefail

corpora=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp main.go go.mod go.sum "$work"
cd "$work"

# VERSION LEVELS HOWS
digests() {
    go mod edit -replace "github.com/klauspost/compress=github.com/klauspost/compress@v$1"
    go mod tidy > /dev/null 2>&1
    go run . "$1" "$2" "$3" "$corpora"
}

echo "# klauspost/compress and pgzip 1.2.6, and Go's compress/flate: version, way, level, corpus, length, SHA-256"
digests 1.19.2 '-2 0 1 2 3 4 5 6 7 8 9' 'whole flushed dictionary'
digests 1.19.2 '-2 0 1 3 5 6 7 9' 'pgzip'
digests 1.18.2 '1 5 6 9' 'whole'
digests 1.18.2 '5' 'pgzip'
digests 1.20.3 '1 4 5 6 9' 'whole'
digests 1.20.3 '7 8 9' 'dictionary'
digests 1.20.3 '5 9' 'pgzip'
digests 1.20.3 '1 5 9' 'pgzip-small'
digests 1.18.0 '-2 1 2 3 4 5 6 7 8 9' 'whole'
digests 1.18.0 '5' 'pgzip'
digests 1.17.11 '4 5 7 9' 'whole'
digests 1.15.15 '5 8 9' 'whole'
digests 1.15.12 '1 2 3 4 5 6' 'whole'
digests 1.15.12 '5' 'flushed dictionary pgzip'
digests 1.15.11 '5' 'whole'
digests 1.15.9 '5' 'whole flushed pgzip'
digests 1.15.1 '5' 'whole'
digests 1.14.4 '-2 0 5' 'whole flushed pgzip'
digests 1.13.6 '5' 'whole'
digests 1.12.3 '5' 'whole flushed dictionary pgzip'
digests 1.11.13 '5' 'whole flushed dictionary pgzip'
digests 1.11.3 '0 5' 'whole flushed dictionary pgzip'
GOTOOLCHAIN=go1.27.4 go run . go '-2 0 1 2 3 4 5 6 7 8 9' 'whole' "$corpora"
GOTOOLCHAIN=go1.27.4 go run . go '1 6 9' 'flushed dictionary' "$corpora"
