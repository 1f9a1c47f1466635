"""The services of the test images, and how to tell that one answers: by a real request, the same for every way to start.

The moment that counts is the first right answer that this process got, counted from when it started the program that
starts the container. Xebec's own probe runs beside it where `--stats` and `record` end with that.
"""

import json
import os
import signal
import subprocess
import time

import bench
import catalogue

TIMEOUT = 120


class Service:
    """An image of `scripts/images`, as the catalogue describes it, Xebec's probe and what asks it."""

    def __init__(self, image):
        self.image, self.layout, self.task = image.recipe, image.layout(), image.task
        self.answers, self.probe = image.task.answers, image.task.probe[1]

    def wait(self, began, process):
        """Milliseconds from `began` (time.perf_counter) to the first answer."""
        while not self.answers():
            passed = time.perf_counter() - began
            if passed > TIMEOUT or process.poll() is not None:
                raise RuntimeError(f"{self.image}: no answer after {passed:.1f} s, status {process.poll()}")
            # A fiftieth of the time that has passed, as Xebec's probes.
            time.sleep(min(0.001 + passed / 50, 0.02))
        return (time.perf_counter() - began) * 1e3


SERVICES = {
    service.image: service
    for service in (Service(image) for image in catalogue.load(large=True) if image.recipe and image.task.kind == "answer")
}


# --- the daemon ------------------------------------------------------------------------------------------------------


def start_daemon():
    """The daemon of a host that starts services is running already."""
    log = open(os.path.join(bench.SCRATCH, "daemon.log"), "a")
    subprocess.Popen([bench.XEBEC, "daemon", "start"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + 10
    while subprocess.run([bench.XEBEC, "daemon", "metrics"], stdout=log, stderr=log).returncode != 0:
        if time.monotonic() > deadline:
            raise RuntimeError("the daemon does not start")
        time.sleep(0.02)


def fresh_host(registry=None):
    """A host that never saw an image, and whose daemon runs. It is told that the registry speaks plain HTTP: one on the
    loopback would be asked for TLS first, by a connection of its own, as no other is."""
    bench.forget()
    os.makedirs(os.environ["XEBEC_ROOT"], exist_ok=True)
    with open(os.path.join(os.environ["XEBEC_ROOT"], "registries.toml"), "w") as file:
        file.write(f'plain_http = ["{registry or bench.REGISTRY}"]\n')
    start_daemon()


# --- starting --------------------------------------------------------------------------------------------------------


class Started:
    """A service that answers; `milliseconds` is how long it took."""

    def __init__(self, process, stop):
        self.process, self.stop, self.milliseconds = process, stop, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def end(process):
    """Ends at the third signal: `xebec run` then kills a container that does not listen."""
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(name)
            time.sleep(0.01)
    process.wait(timeout=60)


def begin(service, image, *options):
    """`xebec run` of a service, which answers when this returns. To be used with `with`."""
    stats = os.path.join(bench.SCRATCH, "stats.json")
    if os.path.exists(stats):
        os.unlink(stats)
    started = begin_unwatched(service, image, "--stats", stats, "--probe", service.probe, *options)
    try:
        started.stats = wait_for_json(stats)
    except BaseException as error:
        raise failed(started, service, error) from error
    return started


def begin_unwatched(service, image, *options):
    """The same without statistics: Xebec's own probe, whose request the service would have to answer besides, is not run."""
    command = [bench.XEBEC, "run", "--rm", "--require-lazy", "--name", f"bench-{service.image}", *options, image]
    log = open(run_log(), "w")
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    started = Started(process, lambda: end(process))
    try:
        started.milliseconds = service.wait(began, process)
    except BaseException as error:
        raise failed(started, service, error) from error
    return started


def run_log():
    return os.path.join(bench.SCRATCH, "run.log")


def failed(started, service, error):
    """What to raise when a service that was started does not do what it should; it is stopped."""
    started.stop()
    with open(run_log()) as file:
        return RuntimeError(f"{service.image}: {error}; its output: {file.read()[-2000:]}")


def wait_for_json(path):
    """Statistics are written when Xebec's own probe has seen the service, a little before or after us."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with open(path) as file:
                return json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.002)
    raise RuntimeError("xebec run writes no statistics")


def measure(service, image, *options):
    """Starts a service, and ends it when it has answered. What was moved until then, by the daemon's own count."""
    before = bench.status()
    with begin(service, image, *options) as started:
        after = bench.status()
    moved = {name: after[name] - before[name] for name in before}
    loaded = started.stats.get("runtime_image") or {}
    return {
        "ms": started.milliseconds,
        "stages_ms": started.stats["stages_ms"],
        "bytes": moved["network_bytes"],
        "requests": moved["network_requests"],
        "events": moved["events"],
        "hits": moved["hits"],
        "written_pages": moved["bytes_written"] // 4096,
        "touched_pages": started.stats["touched"]["pages"],
        "runtime_image": loaded,
    }


def record(task, image, *arguments):
    """Records what an image does, three runs of it, since programs with many threads do not read the same pages each time. What
    answers a real request belongs to it, so that is asked all the while. `arguments`: as those of `ctr run`, in place of the
    image's entrypoint and command."""
    entry = ["--entrypoint", arguments[0]] if arguments else []
    command = [bench.XEBEC, "record", "--json", "--repeat", "3", "--settle", "1s", *task.probe, *entry, image, *arguments[1:]]
    log = open(os.path.join(bench.SCRATCH, "record.log"), "w")
    # The program may say more than a pipe holds.
    said = open(os.path.join(bench.SCRATCH, "record.out"), "w+b")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=log)
    is_asked = task.kind == "answer"
    answers, deadline = 0, time.monotonic() + 3 * TIMEOUT
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        answers += is_asked and task.answers()
        time.sleep(0.02)
    said.seek(0)
    output = said.read()
    if process.returncode != 0 or (is_asked and answers == 0):
        with open(log.name) as file:
            raise RuntimeError(f"recording {image}: {answers} answers; {file.read()[-2000:]}")
    # The program's own output comes first.
    try:
        return json.loads(output[output.index(b"{\n") :])
    except ValueError as error:
        raise RuntimeError(f"recording {image}: {error}; it wrote: {output[-500:].decode(errors='replace')}") from error
