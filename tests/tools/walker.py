#!/usr/bin/env python3
"""Walks a mounted image again and again, and compares every file with its digest.

walker.py MOUNT TRUTH PROGRESS SLOT SEED WAITS

TRUTH has a line "sha256 size path" for each file. Each file is read by lot with read(2) or through a mapping, and
by lot after its pages were dropped, so that the kernel has to ask again. PROGRESS is a file that others read at the
same time: a word at 0 that tells to stop, then 64 bytes for each slot: files, bytes, walks, wrong files, errors,
and since when (CLOCK_MONOTONIC, ns; 0: not at all) the present file is being read. WAITS gets a line "begin end"
(ns) for each reading that took longer than SLOW. What is wrong is told on standard output; the walk goes on.
"""

import hashlib
import mmap
import os
import random
import struct
import sys
import time

SLOW = 5_000_000
PART = 1 << 20
FILES, BYTES, WALKS, WRONG, ERRORS, SINCE = range(6)


def digest_of(path, mapped, cold):
    fd = os.open(path, os.O_RDONLY)
    try:
        if cold:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if mapped:
            with mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) as memory:
                return hashlib.sha256(memory).hexdigest()
        digest = hashlib.sha256()
        while part := os.read(fd, PART):
            digest.update(part)
        return digest.hexdigest()
    finally:
        os.close(fd)


def main():
    mount, truth, progress, slot, seed, waits = sys.argv[1:]
    lot = random.Random(int(seed))
    with open(truth) as lines:
        files = [line.rstrip("\n").split(" ", 2) for line in lines]
    fd = os.open(progress, os.O_RDWR)
    shared = mmap.mmap(fd, 0)
    at = 64 * (int(slot) + 1)
    counts = [0] * 6

    def show():
        struct.pack_into("<6Q", shared, at, *counts)

    with open(waits, "w", buffering=1) as waits:
        while True:
            lot.shuffle(files)
            for wanted, size, path in files:
                if shared[0]:
                    counts[SINCE] = 0
                    show()
                    return 0
                mapped, cold = lot.random() < 0.5, lot.random() < 0.5
                begin = counts[SINCE] = time.monotonic_ns()
                show()
                try:
                    found = digest_of(os.path.join(mount, path), mapped, cold)
                    if found != wanted:
                        counts[WRONG] += 1
                        print(f"{path}: {found} instead of {wanted}", flush=True)
                except OSError as error:
                    counts[ERRORS] += 1
                    print(f"{path}: {error} at {begin}", flush=True)
                end = time.monotonic_ns()
                if end - begin > SLOW:
                    print(begin, end, file=waits)
                counts[FILES] += 1
                counts[BYTES] += int(size)
            counts[WALKS] += 1


if __name__ == "__main__":
    sys.exit(main())
