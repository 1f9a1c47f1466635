"""Starts by `xebec run` as by hand: in the foreground, detached, and detached behind a published port, until nginx answers. Called by
scripts/bench.sh (`make bench-runner`). Cold: nothing of the image or of its network is on the host. Warm: all is. All ways in turn.

Environment: as for bench.py.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request

import bench
import network

RUNS = int(os.environ.get("BENCH_RUNS", "7"))
RATES = [int(rate) or None for rate in os.environ.get("BENCH_RATES", "0 1000 100").split() if rate.isdigit()]
# The image's own port, and the one that is published for it.
OWN, PUBLISHED = 8080, 18080
NAME = "bench-runner"
PATIENCE_S = 60
WAYS = {
    "in the foreground": ([], OWN),
    "detached": (["--detach"], OWN),
    "detached, published port": (["--detach", "--publish", f"{PUBLISHED}:{OWN}"], PUBLISHED),
}


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def start(image, options, port):
    """Milliseconds until the service answers; the container is gone afterwards."""
    if answers(port):
        raise RuntimeError(f"something answers at port {port} before the start")
    with open(os.path.join(bench.SCRATCH, "runner.log"), "w") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            [bench.XEBEC, "run", "--rm", "--name", NAME, *options, image], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        while not answers(port):
            if time.perf_counter() - began > PATIENCE_S or process.poll() not in (None, 0):
                with open(log.name) as output:
                    raise RuntimeError(f"no answer at port {port}: {output.read()[-2000:]}")
            time.sleep(0.002)
        took = (time.perf_counter() - began) * 1e3
        bench.xebec("stop", NAME)
        process.wait(timeout=PATIENCE_S)
    return took


def forget():
    """Also the networks, while their records are there: a bridge without one stays on the host."""
    for one in json.loads(bench.xebec("network", "ls", "--json")):
        bench.xebec("network", "rm", one["name"])
    bench.forget()


def measure(image, rate):
    found = {(way, state): [] for way in WAYS for state in ("cold", "warm")}
    for _ in range(RUNS):
        for way, (options, port) in WAYS.items():
            forget()
            for state in ("cold", "warm"):
                bench.drop_caches()
                with network.shaped(rate):
                    found[way, state].append(start(image, options, port))
    return found


def main():
    image, _ = bench.publish(os.path.join(bench.BUILT, "oci", "nginx"), "nginx")
    for rate in RATES:
        bench.heading(f"Starts of nginx by `xebec run`, {f'{rate} Mbit/s' if rate else 'network as fast as memory'}")
        label = rate or "unlimited"
        found = measure(image, rate)
        for (way, state), values in found.items():
            bench.figure(f"{way}, {state} ({label})", values, "ms", 0)
        for state in ("cold", "warm"):
            first = statistics.median(found["in the foreground", state])
            ratios = [f"{way} {statistics.median(found[way, state]) / first:.2f}" for way in list(WAYS)[1:]]
            bench.note(f"{state}, beside the foreground: {', '.join(ratios)}")
    forget()
    bench.keep_values()


if __name__ == "__main__":
    sys.exit(main())
