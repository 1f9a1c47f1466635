"""Starts under containerd: Xebec beside overlayfs and the peers of `bench/systems`. Called by scripts/bench.sh.

For each image and network, all systems in turn, several times: a start on a host that never saw the image, in two steps,
`ctr images pull` and `ctr run` until the service answers a real request; then a warm start (another container of the
image, alone), and a second container beside the first. docs/bench.md says what each figure is, and what is fair.

A cold start has a containerd and a daemon that were started a moment ago in empty directories; one that moves too few
bytes is an error. A system that fails for an image is said to have failed, and the others go on.

Environment: as for bench.py; BENCH_ONLY (images), BENCH_SYSTEMS (parts of systems' names, separated by commas), BENCH_RATES
(Mbit/s), BENCH_JSON (results; rows that it has already are kept if they are of the same versions), BENCH_BUDGET (seconds,
after which no further row is begun). SMALL=1: nginx and python, three runs.
"""

import ctypes
import datetime
import hashlib
import json
import os
import platform
import statistics
import subprocess
import threading
import time

import bench
import cost
import network
import services
import systems

SMALL = os.environ.get("SMALL") == "1"
RUNS = min(3 if SMALL else 5, bench.RUNS)
IMAGES = ["nginx", "python"] if SMALL else ["nginx", "redis", "python", "node"]
NETWORKS = [network.Network(text) for text in os.environ.get("BENCH_RATES", "0 1000 100").split()]
LINK = network.Link("xebec-client", "xebec-server", os.environ["BENCH_REGISTRY_NETNS"])
SECOND_NETNS = os.environ["BENCH_SECOND_NETNS"]
TIMEOUT_S = 120
# A start on a host that never saw the image moves at least this: lazily, and as part of the compressed image.
LEAST_BYTES, LEAST_PART = 100_000, 0.95
# A warm start that moves more is not one.
MOST_WARM_BYTES = 20_000
CLONE_NEWNET = 0x40000000


# --- one start -------------------------------------------------------------------------------------------------------


def in_namespace(path, work):
    """Does something in a thread that is in another network namespace."""
    found = []

    def inside():
        with open(path) as namespace:
            if bench.LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns {path}")
        found.append(work())

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    return found[0]


def run(node, service, reference, name, beside=False):
    """`ctr run` until the service answers; milliseconds."""
    namespace = ["--with-ns", f"network:{SECOND_NETNS}"] if beside else ["--net-host"]
    began = time.perf_counter()
    process = node.begin(reference, name, *namespace)

    def wait():
        while not service.answers():
            passed = time.perf_counter() - began
            if passed > TIMEOUT_S or process.poll():
                process.kill()
                said = process.communicate()[1].decode()
                raise RuntimeError(f"{service.image} does not answer after {passed:.1f} s: {said[-1500:]}")
            time.sleep(min(0.001 + passed / 50, 0.02))
        return (time.perf_counter() - began) * 1e3

    took = in_namespace(SECOND_NETNS, wait) if beside else wait()
    if process.wait(timeout=TIMEOUT_S) != 0:
        raise RuntimeError(f"ctr run: {process.stderr.read().decode()[-1500:]}")
    process.stderr.close()
    return took


def start(system, service, reference, net, size):
    """Cold, warm and a second container. `size`: of the compressed image."""
    with system.running() as node:
        os.sync()  # what the one before wrote
        groups = {
            "containerd": [node.process.pid],
            "daemon": system.daemon_pids(),
            "registry": [int(os.environ["BENCH_REGISTRY_PID"])],
        }
        with LINK.shaped(net.mbit):
            meter = cost.Meter(LINK, groups)
            began = time.perf_counter()
            node.ctr("images", "pull", "--plain-http", reference)
            pulled = (time.perf_counter() - began) * 1e3
            pull_bytes = LINK.counters()["rx_bytes"] - meter.before["rx_bytes"]
            ready = run(node, service, reference, "first")
            found = {"pull_ms": pulled, "start_ms": ready, "ready_ms": pulled + ready, "pull_bytes": pull_bytes, **meter.read()}
            least = size * LEAST_PART if system.is_full else LEAST_BYTES
            if found["rx_bytes"] < least or found["requests"] == 0:
                raise RuntimeError(f"a cold start moved {found['rx_bytes']} bytes, less than {least:.0f}: it was not cold")
            if not system.is_full and pull_bytes > size * LEAST_PART:
                raise RuntimeError(f"its pull moved {pull_bytes} bytes, all of the image: it was not lazy")
            found["disk_bytes"] = cost.disk_bytes(system.top) + cost.disk_bytes(os.environ["XEBEC_ROOT"])
            node.end("first")
            meter = cost.Meter(LINK, groups)
            found["warm_ms"] = run(node, service, reference, "again")
            found["warm_bytes"] = meter.read()["rx_bytes"]
            found["second_ms"] = run(node, service, reference, "second", beside=True)
    return found


# --- images ----------------------------------------------------------------------------------------------------------


class Published:
    """What each system needs of each image is made once and kept in the registry's directory, which lasts."""

    def __init__(self):
        self.path = os.path.join(os.path.dirname(bench.REGISTRY_LOG), "published.json")
        try:
            with open(self.path) as file:
                self.known = json.load(file)
        except FileNotFoundError:
            self.known = {}

    def plain(self, service):
        image = f"{bench.REGISTRY}/{service.image}:latest"
        bench.run("skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{service.layout}:latest", f"docker://{image}")
        return image

    def of(self, system, service):
        with open(os.path.join(service.layout, "index.json")) as file:
            key = f"{system.name} {system.version()} {service.image} {hashlib.sha256(file.read().encode()).hexdigest()[:12]}"
        if key not in self.known:
            began = time.perf_counter()
            reference = system.publish(service, self.plain(service))
            self.known[key] = {"reference": reference, "seconds": round(time.perf_counter() - began, 1)}
            with open(self.path + ".new", "w") as file:
                json.dump(self.known, file, indent=1)
            os.rename(self.path + ".new", self.path)
        return self.known[key]


def compressed_size(service):
    blobs = os.path.join(service.layout, "blobs", "sha256")
    return sum(entry.stat().st_size for entry in os.scandir(blobs) if entry.stat().st_size > 20_000)


# --- the table -------------------------------------------------------------------------------------------------------


def middle(runs, name):
    return statistics.median(run[name] for run in runs)


def spread(runs, name):
    values = [run[name] for run in runs]
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def line(image, net, system, runs, rows):
    """`rows`: of this image and network, by system."""
    ready = {name: middle(found, "ready_ms") for name, found in rows.items()}
    peers = [ready[other.name] for other in systems.ALL if other.name in ready and not other.is_ours and other.name != system.name]
    ratio = lambda other: f"{ready[system.name] / other:.2f}" if other else "-"
    return (
        f"{image:7} {str(net):>11}  {system.name:21} ready {spread(runs, 'ready_ms')} ms"
        f" = pull {middle(runs, 'pull_ms'):.0f} + start {middle(runs, 'start_ms'):.0f};"
        f" warm {spread(runs, 'warm_ms')}, second {spread(runs, 'second_ms')} ms;"
        f" processor ms: containerd {middle(runs, 'containerd_cpu_ms'):.0f}, daemon {middle(runs, 'daemon_cpu_ms'):.0f},"
        f" client {middle(runs, 'client_cpu_ms'):.0f}, registry {middle(runs, 'registry_cpu_ms'):.0f};"
        f" {middle(runs, 'rx_bytes') / 1e6:.2f} MB, {middle(runs, 'requests'):.0f} requests,"
        f" disk {middle(runs, 'disk_bytes') / 1e6:.1f} MB;"
        f" / overlayfs {ratio(ready.get('overlayfs'))}; / best peer {ratio(min(peers, default=None))}"
    )


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((row.split(":")[1].strip() for row in file if row.startswith("model name")), platform.machine())
    return {
        "processors": os.cpu_count(),
        "model": model,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": os.uname().release,
    }


def versions(present):
    tools = {
        "containerd": bench.run("containerd", "--version").split()[2],
        "runc": bench.run("runc", "--version").split("\n")[0].split()[-1],
        "registry": bench.run("registry", "--version").split()[-1],
    }
    return {**tools, **{system.name: system.version() for system in present}}


class Results:
    """Written after every row, so that what was interrupted goes on."""

    def __init__(self, present):
        self.path = os.environ.get("BENCH_JSON")
        self.found = {
            "what": "starts under containerd", "machine": machine(), "versions": versions(present), "runs": RUNS, "rows": [],
        }
        if self.path and os.path.exists(self.path):
            with open(self.path) as file:
                before = json.load(file)
            if all(before.get(name) == self.found[name] for name in ("what", "machine", "versions", "runs")):
                self.found["rows"] = before["rows"]
                print(f"going on with the {len(before['rows'])} rows of {self.path}", flush=True)
            else:
                raise SystemExit(f"{self.path} was measured with other versions or runs: choose another BENCH_JSON")

    def row(self, image, net, system):
        wanted = (image, str(net), system)
        rows = self.found["rows"]
        return next((row for row in rows if (row["image"], row["network"], row["system"]) == wanted), None)

    def add(self, image, net, system, runs, published, load):
        self.found["rows"].append({
            "image": image, "network": str(net), "system": system, "runs": runs, "load_before": load,
            "date": now(),
            "published_in_s": published["seconds"],
        })

    def write(self):
        if self.path:
            with open(self.path + ".new", "w") as file:
                json.dump(self.found, file, indent=1)
            os.rename(self.path + ".new", self.path)


def chosen():
    """The systems that are asked for and can run; the others are named."""
    wanted = [part.strip() for part in os.environ.get("BENCH_SYSTEMS", "").split(",") if part.strip()]
    present = []
    for kind in systems.ALL:
        if wanted and not any(part in kind.name for part in wanted):
            continue
        system = kind(os.path.join(bench.SCRATCH, "host"), os.environ["BENCH_NAMESPACE"])
        if reason := system.missing():
            print(f"SKIPPED {kind.name}: {reason}", flush=True)
        else:
            present.append(system)
    return present


def measure(service, net, present, published, results):
    """One image on one network."""
    load, found, failed = os.getloadavg()[0], {}, {}
    size = compressed_size(service)
    for _ in range(RUNS):
        for system in present:
            if system.name in failed or system.name not in published:
                continue
            try:
                run = start(system, service, published[system.name]["reference"], net, size)
                found.setdefault(system.name, []).append(run)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                failed[system.name] = error
    rows = {name: runs for name, runs in found.items() if name not in failed}
    for system in present:
        if system.name in rows:
            print(line(service.image, net, system, rows[system.name], rows), flush=True)
            results.add(service.image, net, system.name, rows[system.name], published[system.name], load)
            moved = middle(rows[system.name], "warm_bytes")
            if moved > MOST_WARM_BYTES:
                print(f"{'':21}{system.name}: {moved / 1e6:.2f} MB moved during the warm start", flush=True)
        elif system.name in failed:
            print(f"FAILED {service.image}, {net}, {system.name}: {failed[system.name]}", flush=True)
    results.write()
    return len(failed)


def publish(service, present):
    """For each system; what fails is said and left out."""
    keeper, found = Published(), {}
    for system in present:
        try:
            found[system.name] = keeper.of(system, service)
            made = found[system.name]["seconds"]
            print(f"{service.image:7} for {system.name}: made in {made} s", flush=True)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"FAILED {service.image}, making it for {system.name}: {error}", flush=True)
    return found


def main():
    began, failures = time.monotonic(), 0
    budget = float(os.environ.get("BENCH_BUDGET", "inf"))
    present = chosen()
    results = Results(present)
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs, medians")
    for name, version in results.found["versions"].items():
        print(f"  {name}: {version}")
    for name in os.environ.get("BENCH_ONLY", "").split() or IMAGES:
        service = services.SERVICES[name]
        published = publish(service, present)
        failures += len(present) - len(published)
        for net in NETWORKS:
            if all(results.row(name, net, system.name) for system in present):
                print(f"{name}, {net}: measured before", flush=True)
            elif os.environ.get("BENCH_PUBLISH") == "only":
                continue
            elif time.monotonic() - began > budget:
                print(f"SKIPPED {name}, {net}: the budget of {budget:.0f} s is used up", flush=True)
            else:
                failures += measure(service, net, present, published, results)
    print(f"load {os.getloadavg()[0]:.1f} afterwards")
    if failures:
        raise SystemExit(f"{failures} of the measurements failed")


if __name__ == "__main__":
    main()
