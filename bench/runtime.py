"""Measures starts by runtime images and prints a line for each image and network. Called by scripts/bench.sh.

Each line compares, in turn and in one go: a start on a host that never saw the image, lazily and with its runtime image;
a warm start after that, and another whose page cache was dropped before. The limit of a start is the warm one (all is
there and in memory) and what its bytes take on the network at least, with the round trips that cannot be saved where
the registry is far; the ratio at the end is the start with the runtime image over that limit. The page cache is not
dropped before a cold start: nothing of the image is in it, and the registry's disk and the host's own programs are not
what is measured. Then warm starts beside overlayfs (overlay.py), and a second service of the image (second.py).

Environment: as for bench.py; BENCH_ONLY is a list of images, BENCH_RATES one of networks (network.py). SMALL=1: nginx and
python, three runs.
"""

import os
import statistics
import time

import bench
import network
import overlay
import second
import services

SMALL = os.environ.get("SMALL") == "1"
RUNS = int(os.environ.get("BENCH_RUNS", "3" if SMALL else "5"))
IMAGES = ["nginx", "python"] if SMALL else ["nginx", "redis", "postgres", "scipy", "node", "jvm"]
NETWORKS = [network.Network(text) for text in os.environ.get("BENCH_RATES", "0 1000 100 10ms").split()]
# A connection, the manifest, who refers to it, the recording, its pages: each needs the answer before it.
ROUND_TRIPS = 5
# The goals.
OVER_LIMIT, OVER_LIMIT_SHORT, SHORT_MS = 1.1, 1.25, 200
REQUESTS, AMPLIFICATION = 5, 1.1


class Goals:
    """What was met and what was not, for the end."""

    def __init__(self):
        self.found = {}

    def check(self, goal, what, value, most):
        self.found.setdefault(goal, []).append((value <= most, f"{what} {value:.2f}"))

    def report(self):
        print("\nGoals")
        for goal, found in self.found.items():
            missed = [what for met, what in found if not met]
            met = len(found) - len(missed)
            text = f"met by all {met}" if not missed else f"NOT MET by {len(missed)} of {len(found)}: {'; '.join(missed)}"
            print(f"  {goal}: {text}")


def measure(service, image, net):
    """All ways in turn, several times."""
    ways = {"lazy": [], "cold": [], "warm": [], "disk": []}
    for _ in range(RUNS):
        for way, found in ways.items():
            if way in ("lazy", "cold"):
                services.fresh_host(image.split("/")[0])
            if way == "disk":
                bench.drop_caches()
            with network.shaped(net.mbit):
                found.append(services.measure(service, image, *(["--no-runtime-image"] if way == "lazy" else [])))
    bench.forget()
    return ways


def full_pull(service, image):
    """Once, on the network that is as fast as memory; in its own words by stage, and the bytes it moved."""
    moved = bench.Requests()

    def wait(process):
        service.wait(time.perf_counter(), process)

    stages = bench.full_pull(image, wait)
    stages["bytes"] = moved.count()[1]
    return stages


def middle(found, name):
    return statistics.median(run[name] for run in found)


def spread(values, digits=0):
    low, median, high = min(values), statistics.median(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def line(name, net, ways, full, goals):
    times = {way: [run["ms"] for run in found] for way, found in ways.items()}
    cold = ways["cold"]
    moved, requests, events = (middle(cold, what) for what in ("bytes", "requests", "events"))
    limit = statistics.median(times["warm"]) + net.least_ms(moved, ROUND_TRIPS)
    touched = max(run["runtime_image"].get("pages", 0) for run in cold)
    brought = statistics.median(run["runtime_image"].get("injected", 0) + run["written_pages"] for run in cold)
    ratio = statistics.median(times["cold"]) / limit
    amplification = brought / max(touched, 1)
    whole = max(full["pull"], net.least_ms(full["bytes"], 0)) + full["unpack"] + full["ready"]
    measured = "" if net.mbit is None and not net.round_trip else " at least"
    parts = [
        f"{name:8} {str(net):>16}:",
        f"lazy {spread(times['lazy'])} ms, {middle(ways['lazy'], 'bytes') / 1e6:.2f} MB,",
        f"{middle(ways['lazy'], 'requests'):.0f} requests;",
        f"runtime image {spread(times['cold'])} ms, {moved / 1e6:.2f} MB, {requests:.0f} requests, {events:.0f} events,",
        f"{touched} pages touched, brought / touched {amplification:.2f}, bytes moved / touched",
        f"{moved / max(touched, 1) / 4096:.2f};",
        f"warm {spread(times['warm'])} ms, {middle(ways['warm'], 'events'):.0f} events; warm from disk",
        f"{spread(times['disk'])} ms; full pull{measured} {whole:.0f} ms;",
        f"limit {limit:.0f} ms;",
        f"lazy / runtime image {statistics.median(times['lazy']) / statistics.median(times['cold']):.1f};",
        f"runtime image / limit {ratio:.2f}",
    ]
    print(" ".join(parts), flush=True)
    for problem in {run["runtime_image"].get("problem") for run in cold} - {None}:
        print(f"        {problem}", flush=True)
    bench.VALUES[f"{name}, {net}"] = {"ways": ways, "limit_ms": limit}
    what = f"{name}, {net}:"
    if net.mbit:
        short = statistics.median(times["cold"]) < SHORT_MS
        most = OVER_LIMIT_SHORT if short else OVER_LIMIT
        goals.check(f"over the limit, {most} where {'under' if short else 'over'} {SHORT_MS} ms", what, ratio, most)
    goals.check(f"at most {REQUESTS} requests", what, requests, REQUESTS)
    goals.check(f"pages brought / touched {AMPLIFICATION}", what, amplification, AMPLIFICATION)


def main():
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs, medians")
    goals, stored, compressed = Goals(), 0, 0
    names = os.environ.get("BENCH_ONLY", "").split() or IMAGES
    for name in names:
        service = services.SERVICES[name]
        image, _ = bench.publish(service.layout, name)
        recorded = services.record(service.task, image)
        bench.forget()
        full = full_pull(service, image)
        bench.VALUES[name] = {"recorded": recorded, "full": full}
        whole = recorded["stored_bytes"] + recorded["recording_bytes"]
        stored, compressed = stored + whole, compressed + recorded["image_bytes"]
        print(
            f"{name}: {recorded['pages']} pages; runtime image {whole / 1e6:.2f} MB,"
            f" {whole / recorded['image_bytes'] * 100:.1f} % of the compressed image of {recorded['image_bytes'] / 1e6:.1f} MB;"
            f" full pull {full['pull']:.0f} ms, unpacked in {full['unpack']:.0f}, ready in {full['ready']:.0f}"
        )
        for net in NETWORKS:
            with network.delayed(bench.REGISTRY, net.round_trip) as registry:
                at = image.replace(bench.REGISTRY, registry)
                line(name, net, measure(service, at, net), full, goals)
        overlay.compare(service, image, RUNS)
        second.compare(service, image, 1 if SMALL else 3)
    print(f"all images: runtime images {stored / 1e6:.1f} MB, {stored / compressed * 100:.1f} % of {compressed / 1e6:.0f} MB")
    goals.report()
    print(f"load {os.getloadavg()[0]:.1f} afterwards")
    bench.keep_values()


if __name__ == "__main__":
    main()
