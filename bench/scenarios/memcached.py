"""An object store that is filled right after a cold start (FlacIO, object storage): 10 K, 100 K and 1 M objects of 2 KB.

One start, one fill: the times at which so many objects were stored are noted as it goes on. Sixty-four sets are asked at once
on one connection, each answer is compared, and in the end some of all objects are read back and compared.
"""

import random
import socket
import time

import starting
from scenarios import base

SIZE = 2048
COUNTS = [10_000, 100_000] if base.SMALL else [10_000, 100_000, 1_000_000]
AT_ONCE = 64
READ_BACK = 2_000
PORTS = {"memcached": 11211, "redis": 6379}


class Memcached(base.Scenario):
    """filled with objects of 2 KB right after a cold start"""

    name, variable = "memcached", "objects"
    figures = [
        ("filled_ms", "filled", "ms", 1), ("ready_ms", "of which ready", "", 1), ("objects_per_s", "objects", "/s", 1),
        ("rx_bytes", "received", "MB", 1e6),
    ]

    def missing(self, subject):
        return None if subject.name in PORTS else f"it is filled by the protocol of {' or '.join(PORTS)}"

    def variables(self):
        return [COUNTS]

    def measure(self, system, subject, made, group):
        with system.running() as node:
            step = starting.meter(system)
            began = time.perf_counter()
            pulled = starting.pull(node, made, self.patience_s(subject))
            ready = starting.run(node, subject, made, "first", timeout_s=self.patience_s(subject))
            with socket.create_connection(("127.0.0.1", PORTS[subject.name]), timeout=60) as peer:
                filled = fill(Store(peer, subject.name), group, lambda: {
                    "filled_ms": (time.perf_counter() - began) * 1e3,
                    "rx_bytes": starting.LINK.counters()["rx_bytes"] - step.before["rx_bytes"],
                })
            cost = step.read()
            starting.prove_cold(system, subject, {**cost, "pull_bytes": 0})
        own = {"pull_ms": pulled, **ready, "ready_ms": pulled + ready["start_ms"]}
        for x, found in filled.items():
            found |= own
            found["objects_per_s"] = x / (found["filled_ms"] - found["ready_ms"]) * 1e3
        # Costs that were counted to the end belong to the last one.
        filled[group[-1]] |= {name: value for name, value in cost.items() if name not in filled[group[-1]]}
        return filled


class Store:
    """Sets and gets, many at once, by the text protocol of memcached or by that of redis."""

    def __init__(self, peer, kind):
        self.peer, self.kind = peer, kind

    def set(self, numbers):
        if self.kind == "memcached":
            parts = [b"set k%08d 0 0 %d\r\n%b\r\n" % (number, SIZE, content(number)) for number in numbers]
            answer = b"STORED\r\n"
        else:
            parts = [b"*3\r\n$3\r\nSET\r\n$9\r\nk%08d\r\n$%d\r\n%b\r\n" % (number, SIZE, content(number)) for number in numbers]
            answer = b"+OK\r\n"
        self.exchange(parts, answer * len(parts))

    def get(self, numbers):
        if self.kind == "memcached":
            parts = [b"get k%08d\r\n" % number for number in numbers]
            answers = [b"VALUE k%08d 0 %d\r\n%b\r\nEND\r\n" % (number, SIZE, content(number)) for number in numbers]
        else:
            parts = [b"*2\r\n$3\r\nGET\r\n$9\r\nk%08d\r\n" % number for number in numbers]
            answers = [b"$%d\r\n%b\r\n" % (SIZE, content(number)) for number in numbers]
        self.exchange(parts, b"".join(answers))

    def exchange(self, parts, expected):
        self.peer.sendall(b"".join(parts))
        got = bytearray()
        while len(got) < len(expected):
            part = self.peer.recv(1 << 20)
            if not part:
                raise RuntimeError(f"{self.kind} ended the connection")
            got += part
            if expected[: len(got)] != got:
                raise RuntimeError(f"{self.kind} answered {bytes(part[-200:])!r}, which is wrong")


def content(number):
    """Of an object: no two are alike."""
    return b"%08d" % number * (SIZE // 8)


def fill(store, counts, look):
    """Stores as many objects as the last of `counts` says; what `look` gave when each count was reached."""
    found, number = {}, 0
    for count in counts:
        while number < count:
            store.set(range(number, min(number + AT_ONCE, count)))
            number = min(number + AT_ONCE, count)
        found[count] = look()
    some = random.Random(count).sample(range(count), min(count, READ_BACK))
    for at in range(0, len(some), AT_ONCE):
        store.get(some[at : at + AT_ONCE])
    return found
