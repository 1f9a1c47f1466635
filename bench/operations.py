"""Snapshot operations in a second, by calls of gRPC: containerd's snapshots service in front of each snapshotter, and Xebec's
socket itself. Called by scripts/bench.sh (`make bench-operations`); the calls are made by tests/containerd/operations.

All of them have on the disk what they say is done: containerd's records and overlayfs's own are bbolt files, Xebec's is a
redb file, and each change of either is synced before it is answered (a change by containerd's service is thus synced twice,
once by containerd). What a container writes is synced by nobody. A removal by containerd's service is a record only: the
snapshotter is asked when garbage is collected. Xebec deletes a removed snapshot's directories after its answer.

Environment: as for hello.py; BENCH_CALLS (200), BENCH_CLIENTS ("1 8"), BENCH_RUNS (5; SMALL=1: 3).
"""

import json
import os
import statistics

import bench
import results_file
import systems

RUNS = min(3 if os.environ.get("SMALL") == "1" else 5, bench.RUNS)
CALLS = os.environ.get("BENCH_CALLS", "200")
CLIENTS = os.environ.get("BENCH_CLIENTS", "1 8").split()
NAMES = ["prepare", "mounts", "stat", "usage", "commit", "walk", "find", "remove"]
# One of each snapshotter.
LEFT_OUT = ("stargz, optimised", "nydus, optimised", "Xebec, runtime image")
PROGRAM = os.path.join(os.environ["BENCH_GOTOOLS"], "operations")


def measure(system, clients, direct):
    with system.running() as node:
        os.sync()
        socket = [os.path.join(os.environ["XEBEC_RUN"], "snapshots.sock")] if direct else []
        output = bench.run(PROGRAM, system.snapshotter, CALLS, clients, *socket, env=node.environment)
    return json.loads(output)


def main():
    chosen, absent = systems.chosen()
    for name, reason in absent.items():
        print(f"SKIPPED {name}: {reason}", flush=True)
    present = [system for system in chosen if system.name not in LEFT_OUT]
    ways = [(system.name, system, False) for system in present]
    ways += [(f"{system.name}, its own socket", system, True) for system in present if system.is_ours]
    found = {
        "what": "snapshot operations", "machine": results_file.machine(), "versions": results_file.versions(present),
        "date": results_file.now(), "load_before": os.getloadavg()[0], "calls": int(CALLS), "rows": [],
    }
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs")
    for clients in CLIENTS:
        runs = {name: [] for name, _, _ in ways}
        for _ in range(RUNS):
            for name, system, direct in ways:
                runs[name].append(measure(system, clients, direct))
        rate = lambda name, operation: [run[operation]["calls"] / run[operation]["seconds"] for run in runs[name]]
        print(f"\ncalls in a second, {clients} at once, median (lowest-highest), and / overlayfs; walk: of {CALLS} snapshots")
        for name, _, _ in ways:
            parts = []
            for operation in NAMES:
                values, theirs = rate(name, operation), rate("overlayfs", operation) if "overlayfs" in runs else []
                ratio = f" {statistics.median(values) / statistics.median(theirs):.2f}" if theirs else ""
                parts.append(f"{operation} {statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f}){ratio}")
            print(f"  {name:27} {'; '.join(parts)}", flush=True)
            found["rows"].append({"system": name, "clients": int(clients), "runs": runs[name]})
    print(f"load {os.getloadavg()[0]:.1f} afterwards")
    if path := os.environ.get("BENCH_JSON"):
        with open(path, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
