"""The second service of an image on a host that runs the first: its start asks for what differs. Part of
`make bench-runtime`.
"""

import json
import os
import statistics
import time

import bench
import services

# Another service of the image, which runs to its end: options of `xebec run`, and its arguments.
SECOND = {
    "nginx": (["--entrypoint", "nginx"], ["-T"]),
    "python": (["--entrypoint", "python3"], ["-c", "import sqlite3, numpy.fft, email.message"]),
    "scipy": (["--entrypoint", "python3"], ["-c", "import sqlite3, numpy.fft, scipy.optimize"]),
    "postgres": (["--entrypoint", "initdb"], ["--auth=trust", "/tmp/cluster"]),
    "node": (["--entrypoint", "node"], ["-e", "require('lodash'); require('zlib'); require('https')"]),
    "jvm": (["--entrypoint", "java"], ["--list-modules"]),
}


def start(image, name):
    """Runs the second service to its end; what it moved."""
    options, arguments = SECOND[name]
    path = os.path.join(bench.SCRATCH, "stats.json")
    before = bench.status()
    began = time.perf_counter()
    bench.xebec("run", "--rm", "--require-lazy", "--probe", "exit", "--stats", path, *options, image, *arguments)
    took = (time.perf_counter() - began) * 1e3
    after = bench.status()
    with open(path) as file:
        loaded = json.load(file).get("runtime_image") or {}
    moved = after["network_bytes"] - before["network_bytes"]
    requests = after["network_requests"] - before["network_requests"]
    return {"ms": took, "bytes": moved, "requests": requests, "runtime_image": loaded}


def compare(service, image, runs):
    """Alone, and after the first service of the image, whose recording is published."""
    name = service.image
    if name not in SECOND:
        return
    options, arguments = SECOND[name]
    recorded = json.loads(bench.xebec("record", "--json", "--probe", "exit", *options, image, *arguments))
    found = {"alone": [], "second": []}
    for _ in range(runs):
        services.fresh_host()
        found["alone"].append(start(image, name))
        services.fresh_host()
        services.measure(service, image)
        found["second"].append(start(image, name))
    bench.forget()
    alone, second = ([run["bytes"] for run in found[way]] for way in ("alone", "second"))
    loaded = found["second"][0]["runtime_image"]
    print(
        f"{name:8} second service ({' '.join(options[1:] + arguments)}): {recorded['pages']} pages,"
        f" {recorded['reused_pages']} of them in the first recording; alone {statistics.median(alone) / 1e6:.2f} MB,"
        f" after the first {statistics.median(second) / 1e6:.2f} MB for {loaded.get('missing', 0)} missing pages,"
        f" {statistics.median(run['requests'] for run in found['second']):.0f} requests",
        flush=True,
    )
    bench.VALUES[f"{name}, second service"] = found
