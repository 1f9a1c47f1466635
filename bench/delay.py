"""A network with a longer way: a proxy that passes bytes on, each of them later by half a round trip.

What it is for: kernels without netem. What it is not: a network. It delays every byte by the same time and holds as
many of them on their way as there are, so that a connection is never slowed down by its window or by slow start. A new
connection costs a round trip of its own, as a handshake would: the first bytes that a client sends are held for that
much longer.

Usage: delay.py HOST:PORT ROUND_TRIP_MS, which prints the port of that host that it listens on, and runs until its standard
input ends. `delay.py test` measures what it does to throughput.
"""

import asyncio
import collections
import contextlib
import sys
import threading

# Bytes on their way in one direction of one connection. At 10 ms that would be 12 GB/s.
ON_THE_WAY = 64 << 20


class Direction(asyncio.Protocol):
    """Reads from one end and writes to the other, later."""

    def __init__(self, half_trip):
        self.half_trip = half_trip
        self.loop = asyncio.get_running_loop()
        self.transport = None
        self.to = None
        self.way = collections.deque()
        self.size = 0
        self.extra = 0.0
        self.timer = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.send(data)

    def eof_received(self):
        self.send(None)
        return True  # the other direction may go on

    def connection_lost(self, error):
        if error is not None:
            self.send(None)

    def send(self, data):
        self.way.append((self.loop.time() + self.half_trip + self.extra, data))
        self.extra = 0.0
        self.size += len(data or b"")
        if self.size > ON_THE_WAY:
            self.transport.pause_reading()
        if self.timer is None:
            self.timer = self.loop.call_at(self.way[0][0], self.arrive)

    def arrive(self):
        if self.to is None:
            self.timer = None  # the client that connects begins again
            return
        now, parts, ends = self.loop.time(), [], False
        while self.way and self.way[0][0] <= now:
            data = self.way.popleft()[1]
            ends |= data is None
            parts.append(data or b"")
        arrived = b"".join(parts)
        if self.size > ON_THE_WAY >= self.size - len(arrived):
            self.transport.resume_reading()
        self.size -= len(arrived)
        if not self.to.is_closing():
            if arrived:
                self.to.write(arrived)
            if ends:
                with contextlib.suppress(OSError):  # it may be gone
                    self.to.write_eof()
        self.timer = self.loop.call_at(self.way[0][0], self.arrive) if self.way else None


class Client(Direction):
    """The end that connected; it makes the connection to the target."""

    def __init__(self, target, half_trip):
        super().__init__(half_trip)
        self.target = target
        self.extra = 2 * half_trip

    def connection_made(self, transport):
        super().connection_made(transport)
        self.connecting = self.loop.create_task(self.connect())

    async def connect(self):
        make = lambda: Direction(self.half_trip)
        try:
            transport, back = await self.loop.create_connection(make, *self.target)
        except OSError:
            self.transport.close()
            return
        self.to, back.to = transport, self.transport
        if self.timer is None and self.way:
            self.timer = self.loop.call_at(self.way[0][0], self.arrive)


async def listen(target, round_trip_ms):
    """A server on a port of its own choice. `target`: host and port."""
    half_trip = round_trip_ms / 2e3
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(target, half_trip), target[0], 0)
    return server, server.sockets[0].getsockname()[1]


async def serve(target, round_trip_ms):
    server, port = await listen(target, round_trip_ms)
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def test():
    """One connection that fetches 500 MB, without and with the proxy."""
    import socket
    import subprocess
    import time

    total = 500_000_000
    source = socket.create_server(("127.0.0.1", 0))

    def send():
        part = b"x" * (1 << 20)
        while True:
            peer, _ = source.accept()
            with peer:
                peer.recv(1)
                for _ in range(total // len(part)):
                    peer.sendall(part)

    def fetch(port):
        start = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"x")
            first, size = None, 0
            while part := peer.recv(1 << 20):
                first = first or time.perf_counter() - start
                size += len(part)
        return first * 1e3, size / 1e6 / (time.perf_counter() - start)

    threading.Thread(target=send, daemon=True).start()
    port = source.getsockname()[1]
    for round_trip in (None, 0, 10):
        proxy, at = None, port
        if round_trip is not None:
            command = [sys.executable, __file__, f"127.0.0.1:{port}", str(round_trip)]
            proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            at = int(proxy.stdout.readline())
        rates = sorted(fetch(at) for _ in range(5))
        label = "without the proxy" if round_trip is None else f"with it, round trip {round_trip} ms"
        first, rate = sorted(first for first, _ in rates)[2], sorted(rate for _, rate in rates)[2]
        print(f"{label}: first byte after {first:.1f} ms, {rate:.0f} MB/s")
        if proxy:
            proxy.stdin.close()
            proxy.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["test"]:
        test()
    else:
        host, _, port = sys.argv[1].rpartition(":")
        asyncio.run(serve((host, int(port)), float(sys.argv[2])))
