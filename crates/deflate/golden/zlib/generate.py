#!/usr/bin/env python3
"""Writes golden/zlib.txt: digests of what zlib makes of the corpora.

Run it with a Python whose zlib module has the wanted version of zlib (Debian 12's has 1.2.13):

    cargo run --package xebec-testkit --example corpus CORPORA
    python3 golden/zlib/generate.py CORPORA > golden/zlib.txt
"""

import hashlib
import sys
import zlib

CORPORA = ["empty", "byte", "short", "run", "text", "records", "random", "zeros", "two", "tar"]
SOME = ["short", "run", "text", "records", "random", "two"]
# Pieces after each of which the stream is flushed, over and over.
PIECES = [1, 2, 3, 70_000, 100, 131_072, 5, 33_000, 262, 261]


def whole(level, memory, plain):
    encoder = zlib.compressobj(level, zlib.DEFLATED, -15, memory)
    return encoder.compress(plain) + encoder.flush(zlib.Z_FINISH)


def primed(level, memory, plain):
    encoder = zlib.compressobj(level, zlib.DEFLATED, -15, memory, zlib.Z_DEFAULT_STRATEGY, plain[-40_000:])
    return encoder.compress(plain) + encoder.flush(zlib.Z_FINISH)


def flushed(level, memory, plain):
    encoder = zlib.compressobj(level, zlib.DEFLATED, -15, memory)
    stream = b""
    place = 0
    turn = 0
    while place < len(plain):
        piece = plain[place : place + PIECES[turn % len(PIECES)]]
        stream += encoder.compress(piece) + encoder.flush(zlib.Z_SYNC_FLUSH)
        place += len(piece)
        turn += 1
    return stream + encoder.flush(zlib.Z_FINISH)


def main():
    print(f"# zlib {zlib.ZLIB_RUNTIME_VERSION}, raw deflate: how, level, memory level, corpus, length, SHA-256")
    plain = {name: open(f"{sys.argv[1]}/{name}", "rb").read() for name in CORPORA}
    cases = [(whole, 8, CORPORA), (whole, 9, CORPORA), (primed, 8, SOME), (flushed, 8, SOME)]
    for how, memory, corpora in cases:
        for level in range(1, 10):
            for name in corpora:
                stream = how(level, memory, plain[name])
                digest = hashlib.sha256(stream).hexdigest()
                print(how.__name__, level, memory, name, len(stream), digest)


main()
