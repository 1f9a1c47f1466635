"""Networks between this host and the registry: the loopback of this network namespace, or a pair of veth devices to the
namespace of the registry, whose counters then say what moved.

A limited one is `tc`'s token bucket with packets of Ethernet's size. A far one goes through a proxy (delay.py), since not
every kernel has netem.
"""

import contextlib
import os
import subprocess
import sys

# The bytes that may go at once after each pause: as many as the link passes in this time, but not fewer than some packets of Ethernet's
# size. More would make a slow link a fast one for a client that asks for little at a time.
BURST_MS, LEAST_BURST = 2, 16 << 10


def bucket(mbit):
    """What `tc` is told of a link of `mbit` Mbit/s."""
    burst = max(mbit * 125 * BURST_MS, LEAST_BURST)
    return ["tbf", "rate", f"{mbit}mbit", "burst", f"{burst}b", "latency", "50ms"]


@contextlib.contextmanager
def shaped(mbit):
    """A link of `mbit` Mbit/s with packets of Ethernet's size; `None` leaves loopback as fast as memory."""
    if mbit is None:
        yield
        return
    run = lambda *command: subprocess.run(command, check=True)
    run("ip", "link", "set", "lo", "mtu", "1500")
    run("tc", "qdisc", "add", "dev", "lo", "root", *bucket(mbit))
    try:
        yield
    finally:
        run("tc", "qdisc", "del", "dev", "lo", "root")
        run("ip", "link", "set", "lo", "mtu", "65536")


class Link:
    """A pair of veth devices, which `scripts/bench.sh` has made: `device` here, `peer` in the namespace of the registry."""

    # In the order of /proc/net/dev (proc_net_dev in proc(5)); /sys shows those of the namespace that mounted it.
    COUNTERS = {"rx_bytes": 0, "rx_packets": 1, "tx_bytes": 8, "tx_packets": 9}

    def __init__(self, device, peer, namespace):
        self.device = device
        self.ends = [([], device), (["nsenter", f"--net={namespace}"], peer)]

    def counters(self):
        """What this end has received and sent so far: bytes with the headers of Ethernet, packets as the kernel handed them
        over (several segments of TCP may be one, where nothing limits the link)."""
        with open("/proc/self/net/dev") as file:
            fields = next(line for line in file if line.strip().startswith(f"{self.device}:")).partition(":")[2].split()
        return {name: int(fields[place]) for name, place in self.COUNTERS.items()}

    @contextlib.contextmanager
    def shaped(self, mbit):
        """Both ends limited to `mbit` Mbit/s; `None` leaves them as fast as memory."""
        done = []
        try:
            for enter, device in self.ends if mbit else []:
                subprocess.run([*enter, "tc", "qdisc", "add", "dev", device, "root", *bucket(mbit)], check=True)
                done.append([*enter, "tc", "qdisc", "del", "dev", device, "root"])
            yield
        finally:
            for command in done:
                subprocess.run(command, check=True)


@contextlib.contextmanager
def delayed(registry, round_trip_ms, namespace=None):
    """The registry (host:port) by a longer way, at another port, which is what this gives. `namespace`: path of the
    registry's network namespace, if it is not this one."""
    if not round_trip_ms:
        yield registry
        return
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "delay.py")
    enter = ["nsenter", f"--net={namespace}"] if namespace else []
    command = [*enter, sys.executable, program, registry, str(round_trip_ms)]
    proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield f"{registry.rpartition(':')[0]}:{int(proxy.stdout.readline())}"
    finally:
        proxy.stdin.close()
        proxy.wait()


class Network:
    """As it is written in BENCH_RATES: a rate in Mbit/s (0: as fast as memory), a round trip as `10ms`, or both as `100+10ms`."""

    def __init__(self, text):
        rate, _, far = text.rpartition("+") if text.endswith("ms") else (text, "", "0ms")
        self.round_trip = float(far.removesuffix("ms"))
        self.mbit = int(rate or 0) or None

    def __str__(self):
        parts = [f"{self.mbit} Mbit/s"] if self.mbit else []
        parts += [f"round trip {self.round_trip:g} ms"] if self.round_trip else []
        return ", ".join(parts) or "unlimited"

    def least_ms(self, size, round_trips):
        """What `size` bytes in so many round trips take here at least."""
        on_the_wire = size * 8 / (self.mbit * 1e3) if self.mbit else 0.0
        return on_the_wire + round_trips * self.round_trip
