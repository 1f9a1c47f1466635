"""What a service does in a second, long after its start (Slacker, figure 21; Gear, V.F): a lazy one must lose nothing then.

After the start the same load runs for a while unmeasured, which brings in what it touches; then it is measured, for a minute.
The systems take turns, so ratios are of neighbours. The load runs on the same processors as the service: redis-benchmark for
redis, wrk for web servers, and for postgres pgbench (what its authors call TPC-B-like) out of the image itself, since Debian
has it in the server's package, which would start a server here.
"""

import csv
import os
import re
import shutil

import bench
import starting
from scenarios import base

SECONDS = float(os.environ.get("BENCH_SECONDS", 5 if base.SMALL else 60))
# Before it counts: a part of that, but not less than it takes to have seen all kinds of requests.
BEFORE_S = max(SECONDS / 6, 2.0)
CLIENTS = 16
CONTAINER = "first"


class Throughput(base.Scenario):
    """requests in a second, long after the start"""

    name, networks, settings = "throughput", "1000", {"seconds": SECONDS}
    figures = [
        ("operations_per_s", "operations", "/s", 1), ("latency_ms", "latency", "ms", 1),
        ("rx_bytes", "received meanwhile", "kB", 1e3),
    ]

    def load(self, subject):
        return next((kind for kind in (Redis, Postgres, Web) if kind.fits(subject.task)), None)

    def missing(self, subject):
        load = self.load(subject)
        if not load:
            return "no load is known for it"
        return None if not load.package or shutil.which(load.tool) else f"{load.tool} is not installed ({load.package})"

    def measure(self, system, subject, made, group):
        with system.running() as node:
            started = starting.cold(system, subject, made, CONTAINER, self.patience_s(subject))
            load = self.load(subject)(node, subject.task)
            load.prepare()
            load.run(BEFORE_S)
            before = starting.meter(system)
            found = load.run(SECONDS)
            cost = before.read()
        return {None: {"ready_ms": started["ready_ms"], **cost, **found}}


class Load:
    """A program that asks a service for a time. `run` gives operations_per_s and latency_ms, the mean."""

    # No package: it is a program of the image.
    tool = package = protocol = None

    def __init__(self, node, task):
        self.node, self.task, self.port = node, task, str(task.port)

    @classmethod
    def fits(cls, task):
        return task.kind == "answer" and task.protocol == cls.protocol

    def prepare(self):
        """Fills the service with what it is asked for."""


class Redis(Load):
    """Sets and gets of three bytes, each asked when the one before is answered."""

    tool, package, protocol = "redis-benchmark", "redis-tools", "redis"
    rate = None

    def requests(self, count):
        output = bench.run(
            self.tool, "-p", self.port, "-c", str(CLIENTS), "-n", str(count), "-r", "100000", "-t", "set,get", "--csv",
        )
        rows = {row["test"]: row for row in csv.DictReader(output.splitlines())}
        return [(float(rows[name]["rps"]), float(rows[name]["avg_latency_ms"])) for name in ("SET", "GET")]

    def run(self, seconds):
        # It takes a number of requests, not of seconds: so many as the time before had in a second.
        if self.rate is None:
            self.rate = 2 / sum(1 / rate for rate, _ in self.requests(20_000))
        (sets, set_ms), (gets, get_ms) = self.requests(max(round(self.rate * seconds / 2), 1000))
        self.rate = 2 / (1 / sets + 1 / gets)
        return {"operations_per_s": self.rate, "set_per_s": sets, "get_per_s": gets, "latency_ms": (set_ms + get_ms) / 2}


class Postgres(Load):
    """Transactions on tables of a million rows."""

    tool, protocol = "pgbench", "postgres"
    calls = 0

    def ask(self, *arguments):
        self.calls += 1
        return self.node.ctr(
            "tasks", "exec", "--exec-id", f"load{self.calls}", CONTAINER,
            self.tool, "-h", "127.0.0.1", "-p", self.port, "-U", "postgres", *arguments, "postgres",
        )

    def prepare(self):
        self.ask("--initialize", "--quiet", "--scale=10")

    def run(self, seconds):
        output = self.ask(f"--time={round(seconds)}", f"--client={CLIENTS}", "--jobs=2", "--no-vacuum")
        latency = number(r"latency average = ([\d.]+) ms", output)
        return {"operations_per_s": number(r"tps = ([\d.]+)", output), "latency_ms": latency}


class Web(Load):
    """The page that says that it is ready, over and over on open connections."""

    tool, package, protocol = "wrk", "wrk", "http"
    units = {"us": 1e-3, "ms": 1, "s": 1e3}

    def run(self, seconds):
        page = f"http://127.0.0.1:{self.port}{self.task.path}"
        output = bench.run(self.tool, "-t", "2", "-c", str(CLIENTS), "-d", f"{round(seconds)}s", page)
        if "Non-2xx" in output or "Socket errors" in output:
            raise RuntimeError(f"wrk had wrong answers: {output}")
        latency = re.search(r"Latency\s+([\d.]+)(us|ms|s)\b", output)
        if not latency:
            raise RuntimeError(f"wrk has said: {output}")
        rate = number(r"Requests/sec:\s+([\d.]+)", output)
        return {"operations_per_s": rate, "latency_ms": float(latency[1]) * self.units[latency[2]]}


def number(pattern, output):
    found = re.search(pattern, output)
    if not found:
        raise RuntimeError(f"no {pattern} in: {output[-1500:]}")
    return float(found[1])
