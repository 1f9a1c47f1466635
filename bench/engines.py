"""Starts as users of an engine make them: `docker run` of an image that the host never saw, and a pod whose manifest is put where
a kubelet looks, until the task of the image is done. Called by scripts/bench.sh (`make bench-engines`).

The engine runs already, with a containerd and a daemon that were started a moment ago in empty directories. All systems in turn,
several times; then a warm start each, of another container.

Environment: as for hello.py, whose registry and published images these are; BENCH_ENGINES (names of engines or parts of them).
"""

import json
import os
import shutil
import statistics
import sys
import time

import bench
import catalogue
import cost
import dockerd
import kubelet
import network
import node
import results_file
import starting
import systems
from published import Published
from subject import Subject

RUNS = int(os.environ.get("BENCH_RUNS", "5"))
NETWORKS = [network.Network(text) for text in os.environ.get("BENCH_RATES", "1000 100").split()]
ENGINES = [dockerd.Dockerd, kubelet.Kubelet]
SYSTEMS = ["overlayfs", "Xebec", "Xebec, runtime image"]


def run(engine, subject, reference, name, timeout_s):
    """Milliseconds until the task is done."""
    began = time.perf_counter()
    process = engine.begin(subject, reference, name)
    passed_ms = lambda: (time.perf_counter() - began) * 1e3
    while not subject.task.answers():
        problem = None
        if process and process.poll() not in (None, 0):
            problem = process.stderr.read().decode()[-1500:]
        elif passed_ms() > timeout_s * 1e3:
            problem = f"it is not ready after {timeout_s:.0f} s"
        if problem:
            raise RuntimeError(f"{subject}: {problem}; the engine's log: {engine.last_words()}")
        time.sleep(min(0.001 + passed_ms() / 50e3, 0.02))
    ready = passed_ms()
    if process:
        said = process.communicate(timeout=timeout_s)[1].decode()
        if process.returncode != 0:
            raise RuntimeError(f"{subject}: {said[-1500:]}")
    return ready


def meter(system, engine):
    return cost.Meter(starting.LINK, {
        "containerd": lambda: [system.node.process.pid],
        "engine": engine.pids,
        "daemon": system.daemon_pids,
    })


def measure(kind, system, subject, reference, net):
    """A cold start, and a warm one."""
    patience = starting.patience_s(subject, net)
    system.engine = kind
    with system.running(), kind(system) as engine, starting.LINK.shaped(net.mbit):
        os.sync()
        step = meter(system, engine)
        ready = run(engine, subject, reference, "first", patience)
        found = {"ready_ms": ready} | step.read()
        prove_cold(system, subject, found)
        end(engine, subject, "first")
        starting.settle()
        found["warm_ms"] = run(engine, subject, reference, "again", patience)
        end(engine, subject, "again")
    return found


def end(engine, subject, name):
    """What still answers would be taken for the next one."""
    engine.end(name)
    node.wait_until(f"{subject} has ended", lambda: not subject.task.answers())


def prove_cold(system, subject, found):
    """That the host had nothing of the image, and did not bring all of it where that is not wanted, by what has moved."""
    least = subject.size * starting.LEAST_PART if system.is_full else starting.LEAST_BYTES
    if found["rx_bytes"] < least or found["requests"] == 0:
        raise RuntimeError(f"a cold start moved {found['rx_bytes']} bytes, less than {least:.0f}: it was not cold")
    if system.is_lazy(subject) and found["rx_bytes"] > subject.size * starting.LEAST_PART:
        raise RuntimeError(f"it moved {found['rx_bytes']} bytes, all of the image: it was not lazy")


def line(kind, subject, net, name, runs, plain):
    middle = lambda what: statistics.median(run[what] for run in runs)
    spread = lambda what: f"{middle(what):.0f} ({min(run[what] for run in runs):.0f}-{max(run[what] for run in runs):.0f})"
    ratio = f"{middle('ready_ms') / statistics.median(run['ready_ms'] for run in plain):.2f}" if plain else "-"
    return (
        f"{kind.name:10} {subject.name:8} {str(net):>11}  {name:21} ready {spread('ready_ms')} ms, / overlayfs {ratio};"
        f" warm {spread('warm_ms')} ms; {middle('rx_bytes') / 1e6:.2f} MB, {middle('requests'):.0f} requests;"
        f" processor ms: engine {middle('engine_cpu_ms'):.0f}, containerd {middle('containerd_cpu_ms'):.0f},"
        f" daemon {middle('daemon_cpu_ms'):.0f}"
    )


def engines():
    """Those that are asked for and can run; why the others cannot is said."""
    asked = systems.asked([kind.name for kind in ENGINES], os.environ.get("BENCH_ENGINES", ""))
    for kind in ENGINES:
        if kind.name not in asked:
            continue
        absent = [program for program in kind.programs if not shutil.which(program)]
        if absent:
            print(f"SKIPPED {kind.name}: {', '.join(absent)} not installed (make setup)", flush=True)
        else:
            yield kind


def main():
    chosen, absent = systems.chosen()
    present = [system for system in chosen if system.name in SYSTEMS]
    for name, reason in absent.items():
        if name in SYSTEMS:
            print(f"SKIPPED {name}: {reason}", flush=True)
    only = os.environ.get("BENCH_ONLY", "nginx python").split()
    subjects = [Subject(image) for image in catalogue.load(only=only)]
    published = Published()
    found = {
        "what": "engines", "machine": results_file.machine(), "versions": results_file.versions(present),
        "date": results_file.now(), "load_before": os.getloadavg()[0], "rows": [],
    }
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs, medians")
    failures = 0
    for kind in engines():
        for subject in subjects:
            made = {system.name: published.of(system, subject)["reference"] for system in present}
            for net in NETWORKS:
                runs = {system.name: [] for system in present}
                for number in range(RUNS):
                    for system in systems.in_turn(present, number):
                        try:
                            reference = system.here(made[system.name])
                            runs[system.name].append(measure(kind, system, subject, reference, net))
                        except (RuntimeError, OSError) as error:  # the others go on
                            failures += 1
                            print(f"FAILED {kind.name}, {subject}, {net}, {system.name}: {error}", flush=True)
                for system in present:
                    if done := runs[system.name]:
                        print(line(kind, subject, net, system.name, done, runs.get("overlayfs")), flush=True)
                        found["rows"].append({"engine": kind.name, "image": subject.name, "network": str(net),
                                              "system": system.name, "runs": done})
    print(f"load {os.getloadavg()[0]:.1f} afterwards")
    if path := os.environ.get("BENCH_JSON"):
        with open(path, "w") as file:
            json.dump(found, file, indent=1)
    return failures


if __name__ == "__main__":
    if failures := main():
        sys.exit(f"{failures} of the measurements failed")
