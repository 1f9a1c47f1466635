"""Networks between this host and the registry, all of them on the loopback of this network namespace.

A limited one is `tc`'s token bucket with packets of Ethernet's size. A far one goes through a proxy (delay.py), since not
every kernel has netem.
"""

import contextlib
import os
import subprocess
import sys


@contextlib.contextmanager
def shaped(mbit):
    """A link of `mbit` Mbit/s with packets of Ethernet's size; `None` leaves loopback as fast as memory."""
    if mbit is None:
        yield
        return
    run = lambda *command: subprocess.run(command, check=True)
    run("ip", "link", "set", "lo", "mtu", "1500")
    run("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")
    try:
        yield
    finally:
        run("tc", "qdisc", "del", "dev", "lo", "root")
        run("ip", "link", "set", "lo", "mtu", "65536")


@contextlib.contextmanager
def delayed(registry, round_trip_ms):
    """The registry (host:port) by a longer way, under another address, which is what this gives."""
    if not round_trip_ms:
        yield registry
        return
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "delay.py")
    command = [sys.executable, program, registry.rpartition(":")[2], str(round_trip_ms)]
    proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield f"127.0.0.1:{int(proxy.stdout.readline())}"
    finally:
        proxy.stdin.close()
        proxy.wait()


class Network:
    """As it is written in BENCH_RATES: a rate in Mbit/s (0: as fast as memory), or a round trip as `10ms`."""

    def __init__(self, text):
        self.round_trip = float(text.removesuffix("ms")) if text.endswith("ms") else 0.0
        self.mbit = None if self.round_trip else int(text) or None

    def __str__(self):
        if self.round_trip:
            return f"round trip {self.round_trip:g} ms"
        return f"{self.mbit} Mbit/s" if self.mbit else "unlimited"

    def least_ms(self, size, round_trips):
        """What `size` bytes in so many round trips take here at least."""
        on_the_wire = size * 8 / (self.mbit * 1e3) if self.mbit else 0.0
        return on_the_wire + round_trips * self.round_trip
