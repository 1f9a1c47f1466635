"""One of several hosts, in a process of its own: a system's containerd and daemon with directories of their own, in the network
namespace that this process is in. `batch` starts some and tells each by a line of JSON what to start.

Usage: python3 -m scenarios.host SYSTEM. It prints a line when it is ready, and one for each line that it reads; it ends, and
nothing of it is left, when its standard input does; also in the middle of a start, by SIGTERM.
"""

import concurrent.futures
import json
import os
import signal
import sys
import time

import bench
import catalogue
import starting
import systems
from subject import Subject


def start(system, order):
    """Pulls an image, and starts as many containers of it as there are network namespaces, all at once; when each was ready."""
    node = system.node
    subject = Subject(catalogue.load(only=[order["image"]])[0], order["version"])
    starting.pull(node, order["reference"], order["timeout_s"])
    pulled = time.monotonic()

    def run(number, namespace):
        starting.run(node, subject, order["reference"], f"{order['host']}-{number}", namespace, order["timeout_s"])
        return time.monotonic()

    with concurrent.futures.ThreadPoolExecutor(len(order["namespaces"])) as threads:
        ready = list(threads.map(run, range(len(order["namespaces"])), order["namespaces"]))
    return {"pulled": pulled, "ready": ready, "daemon": system.daemon_pids()}


def end(system):
    """At once: threads may be waiting for containers, which nobody else waits for any more."""
    try:
        system.stop()
    finally:
        os._exit(1)


def main(name):
    kind = next(kind for kind in systems.ALL if kind.name == name)
    system = kind(os.path.join(bench.SCRATCH, "host"), os.environ["BENCH_NAMESPACE"])
    signal.signal(signal.SIGTERM, lambda *_: end(system))
    with system.running() as node:
        print(json.dumps({"containerd": node.process.pid, "daemon": system.daemon_pids()}), flush=True)
        for line in sys.stdin:
            print(json.dumps(start(system, json.loads(line))), flush=True)


try:
    main(sys.argv[1])
except Exception as error:
    print(json.dumps({"error": str(error)}), flush=True)
    raise
