"""Measures starts by runtime images and prints a line for each image and network. Called by scripts/bench.sh.

Each line compares, in turn and in one go, a cold start without a runtime image, a cold start with one, and a warm start
with one. The limit of a cold start is the warm start and the time that its bytes take on the network; the ratio at the
end is the cold start with the runtime image over that limit.

Environment: as for bench.py; BENCH_ONLY is a list of images. SMALL=1: nginx and python, three runs.
"""

import json
import os
import statistics
import subprocess
import time

import bench
import network

SMALL = os.environ.get("SMALL") == "1"
RUNS = 3 if SMALL else min(5, bench.RUNS)
PROBES = {
    "nginx": "http://127.0.0.1:8080/",
    "python": "http://127.0.0.1:8081/",
    "node": "http://127.0.0.1:8082/",
    "redis": "port:6379",
}
IMAGES = ["nginx", "python"] if SMALL else list(PROBES)


def start_daemon():
    """The daemon of a host that starts services is running already."""
    log = open(os.path.join(bench.SCRATCH, "daemon.log"), "w")
    subprocess.Popen([bench.XEBEC, "daemon", "start"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + 10
    while subprocess.run([bench.XEBEC, "daemon", "metrics"], stdout=log, stderr=log).returncode != 0:
        if time.monotonic() > deadline:
            raise RuntimeError("the daemon does not start")
        time.sleep(0.02)


def start(image, probe, *options):
    path = os.path.join(bench.SCRATCH, "stats.json")
    common = ["--rm", "--require-lazy", "--probe", probe, "--exit-on-ready", "--stats", path]
    requests = bench.Requests()
    bench.xebec("run", *common, *options, image)
    with open(path) as file:
        result = json.load(file)
    # The daemon's own count ends when the service is ready; the registry's goes on until it was stopped.
    result["bytes_until_ready"] = result["network"]["bytes"]
    result["requests_until_ready"] = result["network"]["requests"]
    result["answers"] = requests.count()
    return result


def measure(image, probe, rate):
    ways = {"lazy": [], "cold": [], "warm": []}
    for _ in range(RUNS):
        for way, found in ways.items():
            if way != "warm":
                bench.forget()
                start_daemon()
            bench.drop_caches()
            with network.shaped(rate):
                found.append(start(image, probe, *(["--no-runtime-image"] if way == "lazy" else [])))
    bench.forget()
    return ways


def spread(values, digits=0):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def line(name, rate, ways):
    times = {way: [run["total_ms"] for run in found] for way, found in ways.items()}
    cold = ways["cold"]
    moved = statistics.median(run["bytes_until_ready"] for run in cold)
    on_the_wire = moved * 8 / (rate * 1e6) * 1e3 if rate else 0
    limit = statistics.median(times["warm"]) + on_the_wire
    loaded = cold[0].get("runtime_image") or {}
    problems = {run["runtime_image"]["problem"] for run in cold if run.get("runtime_image")} - {None}
    parts = [
        f"{name:7} {f'{rate} Mbit/s' if rate else 'unlimited':>11}:",
        f"lazy {spread(times['lazy'])} ms, {statistics.median(run['bytes_until_ready'] for run in ways['lazy']) / 1e6:.2f} MB;",
        f"runtime image {spread(times['cold'])} ms, {moved / 1e6:.2f} MB,",
        f"{statistics.median(run['requests_until_ready'] for run in cold):.0f} requests,",
        f"{loaded.get('pages', 0)} pages, {statistics.median(run['fills']['events'] for run in cold):.0f} events;",
        f"warm {spread(times['warm'])} ms, {statistics.median(run['fills']['events'] for run in ways['warm']):.0f} events;",
        f"limit {limit:.0f} ms;",
        f"lazy / runtime image {statistics.median(times['lazy']) / statistics.median(times['cold']):.1f};",
        f"runtime image / limit {statistics.median(times['cold']) / limit:.2f}",
    ]
    print(" ".join(parts), flush=True)
    for problem in problems:
        print(f"        {problem}", flush=True)
    bench.VALUES[f"{name}, {rate or 'unlimited'}"] = ways


def main():
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs, medians")
    for name in os.environ.get("BENCH_ONLY", "").split() or IMAGES:
        image, _ = bench.publish(os.path.join(bench.BUILT, "oci", name), name)
        recorded = json.loads(bench.xebec("record", "--json", "--probe", PROBES[name], image))
        bench.forget()
        whole = recorded["stored_bytes"] + recorded["recording_bytes"]
        share = whole / recorded["image_bytes"] * 100
        print(f"{name}: runtime image {whole / 1e6:.2f} MB, {share:.1f} % of the compressed image")
        for rate in bench.RATES:
            line(name, rate, measure(image, PROBES[name], rate))
    if path := os.environ.get("BENCH_JSON"):
        with open(path, "w") as file:
            json.dump(bench.VALUES, file, indent=1)


if __name__ == "__main__":
    main()
