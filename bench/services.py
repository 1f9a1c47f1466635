"""The services of the test images, and how to tell that one answers: by a real request, the same for every way to start.

The moment that counts is the first right answer that this process got, counted from when it started the program that
starts the container. Xebec's own probe runs beside it, since `--stats` and `record` end with that.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import time

import bench

TIMEOUT = 120


class Service:
    """An image of `scripts/images`, its port, Xebec's probe and what asks it."""

    def __init__(self, image, port, ask, probe=None):
        self.image, self.port, self.ask = image, port, ask
        self.probe = probe or f"http://127.0.0.1:{port}/"

    @property
    def layout(self):
        return os.path.join(bench.BUILT, "oci", self.image)

    def answers(self):
        """Whether it answers rightly now."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as peer:
                return self.ask(peer)
        except OSError:
            return False

    def wait(self, began, process):
        """Milliseconds from `began` (time.perf_counter) to the first answer."""
        while not self.answers():
            passed = time.perf_counter() - began
            if passed > TIMEOUT or process.poll() is not None:
                raise RuntimeError(f"{self.image}: no answer after {passed:.1f} s, status {process.poll()}")
            # A twentieth of the time that has passed, as Xebec's probes.
            time.sleep(min(0.001 + passed / 50, 0.02))
        return (time.perf_counter() - began) * 1e3


def http(peer):
    peer.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
    return b" 200 " in peer.recv(4096).split(b"\r\n")[0]


def redis(peer):
    peer.sendall(b"PING\r\n")
    return peer.recv(64) == b"+PONG\r\n"


def postgres(peer):
    """`select 6 * 7`, in the simple protocol, by a user who needs no password."""
    parameters = b"user\0postgres\0database\0postgres\0\0"
    peer.sendall(struct.pack("!II", 8 + len(parameters), 3 << 16) + parameters)
    asked, data = False, b""
    while part := peer.recv(4096):
        data += part
        while len(data) >= 5 and len(data) > (length := struct.unpack("!I", data[1:5])[0]):
            kind, body, data = data[:1], data[5 : length + 1], data[length + 1 :]
            if kind == b"E":
                return False  # it is starting up
            if kind == b"D":
                return body.endswith(b"42")
            if kind == b"Z" and not asked:
                query = b"select 6 * 7\0"
                peer.sendall(b"Q" + struct.pack("!I", 4 + len(query)) + query)
                asked = True
    return False


SERVICES = {
    service.image: service
    for service in (
        Service("nginx", 8080, http),
        Service("redis", 6379, redis, "log:Ready to accept connections"),
        Service("node", 8082, http),
        Service("python", 8081, http),
        Service("postgres", 5432, postgres, "log:database system is ready to accept connections"),
        Service("jvm", 8084, http),
        Service("scipy", 8083, http),
        Service("torch", 8085, http),
    )
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
    """Who asks three times gets it: `xebec run` then kills a container that does not listen."""
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
    command = [bench.XEBEC, "run", "--rm", "--require-lazy", "--name", f"bench-{service.image}", "--stats", stats]
    command += ["--probe", service.probe, *options, image]
    log = open(os.path.join(bench.SCRATCH, "run.log"), "w")
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    started = Started(process, lambda: end(process))
    try:
        started.milliseconds = service.wait(began, process)
        started.stats = wait_for_json(stats)
    except BaseException as error:
        end(process)
        with open(log.name) as file:
            raise RuntimeError(f"{service.image}: {error}; its output: {file.read()[-2000:]}") from error
    return started


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


def record(service, image, *options):
    """Records a service, three runs of it, since programs with many threads do not read the same pages each time. What
    answers a real request belongs to it, so that is asked all the while."""
    command = [bench.XEBEC, "record", "--json", "--repeat", "3", "--settle", "1s", "--probe", service.probe]
    log = open(os.path.join(bench.SCRATCH, "record.log"), "w")
    process = subprocess.Popen(
        [*command, *options, image], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
    )
    answers, deadline = 0, time.monotonic() + 3 * TIMEOUT
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        answers += service.answers()
        time.sleep(0.02)
    output = process.communicate()[0]
    if process.returncode != 0 or answers == 0:
        with open(log.name) as file:
            raise RuntimeError(f"recording {service.image}: {answers} answers; {file.read()[-2000:]}")
    # The service may have said something, too.
    return json.loads(output[output.index(b"{\n") :])
