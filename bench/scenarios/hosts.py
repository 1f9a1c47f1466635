"""Several hosts on one network: a bridge with a port for each host's network namespace, and one for the link to the
registry, whose limit all of them share."""

import contextlib
import json
import os
import subprocess
import sys

import bench
import starting

BRIDGE, OWN_ADDRESS = "xebec-hosts", "10.88.0.1/24"
# How long a host may take to end, with all of its containers.
PATIENCE_S = 120


def ip(*arguments):
    bench.run("ip", *arguments)


@contextlib.contextmanager
def namespaces(names):
    """Network namespaces with nothing but a loopback; their paths."""
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        yield [f"/run/netns/{name}" for name in made]
    finally:
        for name in made:
            ip("netns", "del", name)


@contextlib.contextmanager
def switch(names):
    """Namespaces of hosts that reach the registry; their paths."""
    device = starting.LINK.device
    with namespaces(names) as paths:
        ip("link", "add", BRIDGE, "type", "bridge")
        ports = []
        try:
            ip("addr", "del", OWN_ADDRESS, "dev", device)
            ip("addr", "add", OWN_ADDRESS, "dev", BRIDGE)
            ip("link", "set", device, "master", BRIDGE)
            ip("link", "set", BRIDGE, "up")
            for number, name in enumerate(names):
                port = f"port{number}"
                ip("link", "add", port, "type", "veth", "peer", "name", "host", "netns", name)
                ports.append(port)
                ip("link", "set", port, "master", BRIDGE, "up")
                ip("-n", name, "addr", "add", f"10.88.0.{10 + number}/24", "dev", "host")
                ip("-n", name, "link", "set", "host", "up")
            forget_neighbours()
            yield paths
        finally:
            # A namespace takes its devices along some time after it was deleted, and the next hosts want their names.
            for port in ports:
                ip("link", "del", port)
            ip("link", "del", BRIDGE)
            subprocess.run(["ip", "addr", "add", OWN_ADDRESS, "dev", device], stderr=subprocess.DEVNULL)  # it may have it still
            forget_neighbours()


def forget_neighbours():
    """The address of this end has moved to another device."""
    bench.run("nsenter", f"--net={os.environ['BENCH_REGISTRY_NETNS']}", "ip", "neigh", "flush", "all")


class Host:
    """A process `scenarios.host` in a network namespace, with directories of its own."""

    def __init__(self, name, namespace, system):
        self.name = name
        self.scratch = os.path.join(bench.SCRATCH, name)
        os.makedirs(self.scratch, exist_ok=True)
        environment = {
            **os.environ, "BENCH_SCRATCH": self.scratch, "XEBEC_ROOT": os.path.join(self.scratch, "root"),
            "XEBEC_RUN": f"{os.environ['XEBEC_RUN']}-{name}",
        }
        self.log = os.path.join(self.scratch, "log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                ["nsenter", f"--net={namespace}", sys.executable, "-m", "scenarios.host", system.name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True,
            )

    def ask(self, order):
        self.process.stdin.write(json.dumps({**order, "host": self.name}) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        found = json.loads(line) if line else {"error": "it ended"}
        if "error" in found:
            with open(self.log) as log:
                raise RuntimeError(f"{self.name}: {found['error']} {log.read()[-1500:]}")
        return found

    def end(self):
        """Its containerd goes on if it is killed."""
        self.process.stdin.close()
        for stop in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(timeout=PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                stop()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def running(system, count):
    """So many hosts of a system, all of them new and ready, and what each said of itself."""
    names = [f"host{number}" for number in range(count)]
    with switch(names) as paths:
        hosts = []
        try:
            for name, path in zip(names, paths):
                hosts.append(Host(name, path, system))
            yield hosts, [host.answer() for host in hosts]
        except BaseException:
            for host in hosts:
                host.process.terminate()  # one that is in the middle of a start does not see the end of its input
            raise
        finally:
            for host in hosts:
                host.process.stdin.close()  # they end at the same time
            for host in hosts:
                host.end()
