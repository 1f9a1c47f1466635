"""Results that nobody measured, for the tests of what reads results."""

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

RESULTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results")
SYSTEMS = {"overlayfs": 1, "EROFS snapshotter": 0.5, "nydus": 0.3, "Xebec": 0.2, "Xebec, runtime image": 0.1}
IMAGES = {"nginx": "web server", "redis": "database", "gcc": "language"}


def run(pull, start, received=1_000_000, **more):
    return {
        "pull_ms": pull, "create_ms": start / 4, "start_ms": start, "ready_ms": pull + start, "warm_ms": 80.0, "second_ms": 90.0,
        "rx_bytes": received, "requests": 7, "client_cpu_ms": 12.5, "containerd_cpu_ms": 100.0, "daemon_cpu_ms": 30.0,
        "registry_cpu_ms": 20.0, "disk_bytes": 3_000_000, **more,
    }


def row(image, system, runs, network="100 Mbit/s", **more):
    return {
        "image": image, "version": "", "category": IMAGES.get(image, "other"), "digest": "sha256:00", "network": network,
        "system": system, "date": "2026-01-02T03:04:05+00:00", "load_before": 0.5, "runs": runs, **more,
    }


def file(rows, what="hello", **more):
    return {
        "what": what, "format": 1, "date": "2026-01-02T03:04:05+00:00", "runs": 3,
        "machine": {"processors": 2, "model": "A processor", "memory_bytes": 8_000_000_000, "kernel": "6.18"},
        "versions": {"containerd": "2.0", "overlayfs": "", "Xebec": "0.1"}, "rows": rows, "failed": [], "skipped": [], **more,
    }


def starts(runs=3):
    """Three images, two networks, five systems; overlayfs is ready after 1000, 2000 and 3000 ms."""
    rows = []
    for at, image in enumerate(IMAGES, 1):
        for network in ("unlimited", "100 Mbit/s"):
            for system, part in SYSTEMS.items():
                made = [run(900 * at * part + 10 * turn - 10, 100 * at * part, 5_000_000 * at * part) for turn in range(runs)]
                rows.append(row(image, system, made, network, once={"push_ms": 300.0, "convert_ms": 4000.0}))
    return file(rows)


def scenario(places, name="batch"):
    """A figure that takes time, one that is a rate, and what a start costs; over a variable, or over nothing."""
    rows = []
    for system, part in SYSTEMS.items():
        for place in places:
            same = {"hosts": 4, "answers_per_s": 9000 / part, "rx_bytes": 7_000_000, "client_cpu_ms": 4}
            made = [{"all_ready_ms": 500 * part + turn, **same} for turn in range(3)]
            rows.append(row("redis", system, made, settings={"hosts": 4}, **({} if place == "" else {"x": place})))
    return file(rows, f"scenario {name}", variable="containers")


@contextlib.contextmanager
def written(*contents):
    """Paths of files with these contents: text, or what becomes JSON."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for at, content in enumerate(contents):
            paths.append(os.path.join(folder, f"{at}.json"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(content if isinstance(content, str) else json.dumps(content))
        yield paths


def called(program, *arguments):
    """Status, output and complaints of a program of bench/."""
    output, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
        try:
            status = importlib.import_module(program).main(list(arguments))
        except SystemExit as left:
            status = left.code
    return status, output.getvalue(), complaints.getvalue()
