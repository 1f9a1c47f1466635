#!/usr/bin/env python3
"""Reads files of a view in every way that programs read, and compares with the same files elsewhere.

readers.py VIEW TRUTH PROCESSES SEED EACH

Each process takes EACH of the regular files of TRUTH, or all if there are fewer, in an order of its own and reads each from
VIEW in a way that is drawn by lot. Prints how many files each way compared; ends with 1 when anything differed.
"""

import collections
import errno
import mmap
import multiprocessing
import os
import random
import socket
import stat
import sys

ODD_SIZES = (1, 3, 511, 513, 4095, 4097, 65535, 131073, 1 << 20)


def whole(fd, size, lot):
    """read(2) from the start in one odd size."""
    parts, step = [], lot.choice(ODD_SIZES)
    step = max(step, size // 5000 + 1)
    while part := os.read(fd, step):
        parts.append(part)
    return [(0, b"".join(parts))]


def scattered(fd, size, lot):
    """pread(2) of odd sizes at odd places, also across the end."""
    found = []
    for _ in range(20):
        at, length = lot.randrange(size + 2), lot.choice(ODD_SIZES)
        part = os.pread(fd, length, at)
        if len(part) != max(0, min(length, size - at)):
            raise AssertionError(f"pread of {length} at {at} of {size} gave {len(part)}")
        found.append((at, part))
    return found


def vectored(fd, size, _lot):
    """preadv(2) into buffers of odd sizes."""
    buffers = [bytearray(length) for length in (7, 4089, 100_000)]
    length = os.preadv(fd, buffers, size // 3)
    return [(size // 3, b"".join(buffers)[:length])]


def mapped(flags, access):
    def read(fd, size, lot):
        if size == 0:
            return []
        found = []
        with mmap.mmap(fd, size, flags=flags, prot=access) as memory:
            for _ in range(20):
                at = lot.randrange(size)
                found.append((at, memory[at : at + lot.choice(ODD_SIZES)]))
            if access & mmap.PROT_WRITE:
                # A private page becomes our own when it is written; the rest must stay the file's.
                at = lot.randrange(size)
                old, memory[at] = memory[at], 0
                memory[at] = old
            found.append((0, memory[:]))
        return found

    return read


def by_sendfile(fd, size, _lot):
    """sendfile(2) into a socket."""
    here, there = socket.socketpair()
    with here, there:
        parts, at = [], 0
        while at < size:
            at += os.sendfile(here.fileno(), fd, at, min(65536, size - at))
            wanted = at - sum(map(len, parts))
            while wanted > 0:
                parts.append(there.recv(wanted))
                wanted -= len(parts[-1])
    return [(0, b"".join(parts))]


def by_splice(fd, size, _lot):
    """splice(2) into a pipe."""
    out, into = os.pipe()
    parts = []
    try:
        while moved := os.splice(fd, into, 65536):
            parts.append(os.read(out, moved))
    finally:
        os.close(out)
        os.close(into)
    return [(0, b"".join(parts))]


def direct(fd, size, lot):
    """O_DIRECT into aligned memory."""
    with mmap.mmap(-1, 1 << 20) as memory:
        at = lot.randrange(size // 4096 + 1) * 4096
        length = os.preadv(fd, [memory], at)
        return [(at, memory[:length])]


direct.flags = os.O_DIRECT

WAYS = {
    "read": whole,
    "pread": scattered,
    "preadv": vectored,
    "mmap-shared": mapped(mmap.MAP_SHARED, mmap.PROT_READ),
    "mmap-private": mapped(mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE),
    "sendfile": by_sendfile,
    "splice": by_splice,
    "O_DIRECT": direct,
}


def compare(job):
    view, truth, files, seed, each = job
    lot, counts, wrong = random.Random(seed), collections.Counter(), []
    lot.shuffle(files)
    for name in files[:each]:
        way = lot.choice(list(WAYS))
        try:
            with open(os.path.join(truth, name), "rb") as file:
                want = file.read()
            try:
                fd = os.open(os.path.join(view, name), os.O_RDONLY | getattr(WAYS[way], "flags", 0))
            except OSError as error:
                # The kernel's EROFS has no direct reads when its devices are files, and says so at open.
                if WAYS[way] is direct and error.errno == errno.EINVAL:
                    counts["O_DIRECT refused by the kernel"] += 1
                    continue
                raise
            try:
                for at, got in WAYS[way](fd, len(want), lot):
                    if got != want[at : at + len(got)]:
                        wrong.append(f"{way} at {at}: {name!r}")
                    if at == 0 and way in ("read", "sendfile", "splice") and len(got) != len(want):
                        wrong.append(f"{way} gave {len(got)} of {len(want)}: {name!r}")
            finally:
                os.close(fd)
        except (OSError, AssertionError) as error:
            wrong.append(f"{way}: {name!r}: {error}")
        counts[way] += 1
    return counts, wrong


def main():
    view, truth = sys.argv[1:3]
    processes, seed, each = map(int, sys.argv[3:6])
    files = []
    for top, _, names in os.walk(os.fsencode(truth)):
        for name in names:
            path = os.path.join(top, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                files.append(os.path.relpath(path, os.fsencode(truth)))
    files.sort()
    jobs = [(os.fsencode(view), os.fsencode(truth), files, seed + number, each) for number in range(processes)]
    counts, wrong = collections.Counter(), []
    with multiprocessing.Pool(processes) as pool:
        for some, errors in pool.imap_unordered(compare, jobs):
            counts.update(some)
            wrong.extend(errors)
    print(f"{len(files)} files, {processes} readers of {min(each, len(files))}:", ", ".join(f"{way} {n}" for way, n in sorted(counts.items())))
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong or not files else 0)


main()
