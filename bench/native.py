"""Measures starts from xebec-registry: plainly, by its native service the first time, and by it when the registry is known. Called by
scripts/bench.sh.

Each line compares, in turn and in one go, a start on a host that never saw the image:
  plain      the host is told not to use the native service
  first      it has never asked this registry, and learns of the service by the first answer
  one        it knows the registry: one request after the connection
and a warm start after that. The limit is the warm start, what the bytes take on the network at least, the connection, and one and a half
round trips. Then what the registry's process spends on one start, and how long many hosts wait that ask for the same start at once.

Environment: as for bench.py; BENCH_ONLY is a list of images, BENCH_RATES one of networks (network.py). SMALL=1: nginx and
python, three runs. XEBEC_REGISTRY_BIN: the registry's program.
"""

import concurrent.futures
import glob
import http.client
import json
import os
import shutil
import statistics
import time

import bench
import network
import registries
import services

SMALL = os.environ.get("SMALL") == "1"
RUNS = int(os.environ.get("BENCH_RUNS", "3" if SMALL else "5"))
IMAGES = ["nginx", "python"] if SMALL else ["nginx", "python", "node", "jvm"]
NETWORKS = [network.Network(text) for text in os.environ.get("BENCH_RATES", "0 10ms 50ms").split()]
# The connection, and what the goal allows.
ROUND_TRIPS = 1 + 1.5
HOSTS = 64
STARTS = 50
CPU_MS, CROWD = 2.0, 1.5
WAYS = ("plain", "first", "one", "warm")


def fresh_host(registry, seen=None, native=True):
    """A host that never saw the image; `seen` is what it remembers of registries."""
    bench.forget()
    root = os.environ["XEBEC_ROOT"]
    os.makedirs(root, exist_ok=True)
    with open(os.path.join(root, "registries.toml"), "w") as file:
        file.write(f'plain_http = ["{registry}"]\n')
        if not native:
            file.write(f'[registries."{registry}"]\nnative = false\n')
    if seen:
        shutil.copy(seen, os.path.join(root, "registries.json"))
    services.start_daemon()


def learn(service, image, registry):
    """A file with what a host remembers that has started the image once."""
    fresh_host(registry)
    services.measure(service, image)
    seen = os.path.join(bench.SCRATCH, "registries.json")
    shutil.copy(os.path.join(os.environ["XEBEC_ROOT"], "registries.json"), seen)
    return seen


def measure(service, image, registry):
    """All ways in turn, several times."""
    seen = learn(service, image, registry)
    found = {way: [] for way in WAYS}
    for _ in range(RUNS):
        for way in WAYS:
            if way != "warm":
                fresh_host(registry, seen if way == "one" else None, way != "plain")
            found[way].append(services.measure(service, image))
    bench.forget()
    return found


def middle(found, name):
    return statistics.median(run[name] for run in found)


def line(name, net, found):
    times = {way: middle(runs, "ms") for way, runs in found.items()}
    spread = lambda way: f"({min(run['ms'] for run in found[way]):.0f}-{max(run['ms'] for run in found[way]):.0f})"
    limit = times["warm"] + net.least_ms(middle(found["one"], "bytes"), ROUND_TRIPS)
    columns = [
        f"{way} {times[way]:.0f} {spread(way)} ms, {middle(found[way], 'requests'):.0f} requests, {middle(found[way], 'bytes') / 1e6:.2f} MB"
        for way in WAYS
    ]
    print(f"{name:8} {str(net):>12}: {'; '.join(columns)}; limit {limit:.0f} ms; one / limit {times['one'] / limit:.2f}", flush=True)
    bench.VALUES[f"{name}, {net}"] = {"ways": found, "limit_ms": limit}
    return times["one"] / limit


def processor_ms(pids):
    """What processes have spent so far, of all their threads."""
    total = 0
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            try:
                with open(path) as file:
                    total += int(file.read().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass
    return total / 1e6


def ask(address, name):
    """Asks for a start as a host does that has nothing; the bytes of the answer, and how long it took in milliseconds."""
    request = {"reference": "latest", "platform": "linux/amd64", "service": {}}
    headers = {"Content-Type": "application/vnd.xebec.start-request.v1+json"}
    began = time.perf_counter()
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        connection.request("POST", f"/v2/{name}/_xebec/start/answer", json.dumps(request), headers)
        answer = connection.getresponse()
        size = sum(len(part) for part in iter(lambda: answer.read(1 << 20), b""))
        if answer.status != 200:
            raise RuntimeError(f"start of {name}: status {answer.status}")
    finally:
        connection.close()
    return size, (time.perf_counter() - began) * 1e3


def crowd(own, name):
    """What one start costs the registry, and what many hosts wait."""
    address = own.addresses[0]
    size, _ = ask(address, name)
    before = processor_ms(own.pids())
    for _ in range(STARTS):
        ask(address, name)
    each = (processor_ms(own.pids()) - before) / STARTS
    with concurrent.futures.ThreadPoolExecutor(HOSTS) as pool:
        took = sorted(took for _, took in pool.map(lambda _: ask(address, name), range(HOSTS)))
    middle, late = statistics.median(took), took[int(len(took) * 0.99)]
    print(
        f"{name:8} {each:.2f} ms of the registry's processors for a start of {size / 1e6:.2f} MB; {HOSTS} at once: median"
        f" {middle:.0f} ms, 99th percentile {late:.0f} ms",
        flush=True,
    )
    bench.VALUES[f"{name}, registry"] = {"processor_ms": each, "bytes": size, "crowd_ms": took}
    bench.verdict(f"{name}: at most {CPU_MS} ms", each <= CPU_MS)
    bench.verdict(f"{name}: 99th percentile at most {CROWD} times the median", late <= CROWD * middle)


def main():
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs, medians")
    with registries.Xebec(bench.SCRATCH).running() as own:
        bench.REGISTRY = own.addresses[0]
        for name in os.environ.get("BENCH_ONLY", "").split() or IMAGES:
            service = services.SERVICES[name]
            image, _ = bench.publish(service.layout, name)
            services.record(service.task, image)
            for net in NETWORKS:
                with network.delayed(bench.REGISTRY, net.round_trip) as registry, network.shaped(net.mbit):
                    ratio = line(name, net, measure(service, image.replace(bench.REGISTRY, registry), registry))
                if net.round_trip:
                    bench.verdict(f"{name}, {net}: within the limit", ratio <= 1)
            crowd(own, name)
    print(f"load {os.getloadavg()[0]:.1f} afterwards")
    bench.keep_values()


if __name__ == "__main__":
    main()
