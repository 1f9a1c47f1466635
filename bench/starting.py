"""`ctr run` until what was started is ready, as every benchmark under containerd has it."""

import concurrent.futures
import ctypes
import os
import time

import bench
import cost
import network
import node as hosts
import processes

LINK = network.Link("xebec-client", "xebec-server", os.environ["BENCH_REGISTRY_NETNS"])
# How long a pull, and a start, may take; more on a slow network.
TIMEOUT_S = 120
# A start on a host that never saw the image moves at least this: lazily, and as part of the compressed image. A lazy one of
# a very small image moves at least that part of it.
LEAST_BYTES, LEAST_PART, LEAST_PART_LAZY = 100_000, 0.95, 0.1
# Containerd's shim passes on the output of a program that has ended, which may take a moment longer.
OUTPUT_S = 2
# Bytes that still come in the background are waited for, but not for ever: until so few bytes come in a second.
QUIET_S, QUIET_BYTES, QUIET_WITHIN_S = 1, 5_000, 30
CLONE_NEWNET = 0x40000000


def in_namespace(path, work):
    """Does something in a thread that is in another network namespace, and gives what came of it."""

    def inside():
        with open(path) as namespace:
            if bench.LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns {path}: {os.strerror(ctypes.get_errno())}")
        return work()

    # One that ends with it, since a thread stays where it went.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(inside).result()


class Start:
    """`ctr run` of an image, from when this is made."""

    def __init__(self, node, subject, reference, name, options):
        self.node, self.subject, self.name = node, subject, name
        self.output, self.pid_file = (os.path.join(node.top, f"{name}.{end}") for end in ("log", "pid"))
        self.pid = self.created = None
        for path in (self.output, self.pid_file):
            if os.path.exists(path):
                os.unlink(path)
        self.began = time.perf_counter()
        self.process = node.begin(reference, name, "--pid-file", self.pid_file, *options,
                                  output=self.output, arguments=subject.arguments)

    def passed_ms(self):
        return (time.perf_counter() - self.began) * 1e3

    def has_ended(self):
        """Whether the container's process was there and is no more."""
        if self.pid is None:
            try:
                with open(self.pid_file) as file:
                    self.pid = int(file.read() or "none")
            except (OSError, ValueError):
                return False
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    def is_ready(self):
        task = self.subject.task
        if not task.ends:
            return task.ready(self.output)
        return self.has_ended() and processes.holds(lambda: task.ready(self.output), OUTPUT_S)

    def problem(self, timeout_s):
        """Why it will not be ready, or `None`."""
        if self.created is None and self.process.poll() is not None:
            self.created = self.passed_ms()
            if self.process.returncode != 0:
                return f"ctr run has failed: {self.process.stderr.read().decode()[-1500:]}"
        # A task that runs to its end is judged by `is_ready`, which was asked a moment ago, maybe before its end.
        if self.has_ended() and not self.is_ready():
            return "it has ended"
        return f"it is not ready after {timeout_s:.0f} s" if self.passed_ms() > timeout_s * 1e3 else None

    def wait(self, timeout_s):
        """Until it is ready; milliseconds."""
        while not self.is_ready():
            if problem := self.problem(timeout_s):
                self.process.kill()
                said = hosts.tail(self.output, 500)
                raise RuntimeError(f"{self.subject}: {problem}; it wrote: {said or 'nothing'}")
            time.sleep(min(0.001 + self.passed_ms() / 50e3, 0.02))
        return self.passed_ms()

    def finish(self, timeout_s):
        """Waits for `ctr run`, which is over as soon as the container's process runs."""
        status = self.process.wait(timeout=timeout_s)
        said = self.process.stderr.read().decode()
        self.process.stderr.close()
        if status != 0:
            raise RuntimeError(f"{self.subject}: ctr run: {said[-1500:]}")
        return self.created if self.created is not None else self.passed_ms()


def run(node, subject, reference, name, namespace=None, timeout_s=TIMEOUT_S):
    """`ctr run` until the task of the image is done. Milliseconds until the container's process was started (`create_ms`) and
    until it was ready (`start_ms`), and what the container has then used. `namespace`: path of a network namespace, if not
    this one."""
    started = Start(node, subject, reference, name, ["--with-ns", f"network:{namespace}"] if namespace else ["--net-host"])
    wait = lambda: started.wait(timeout_s)
    ready = in_namespace(namespace, wait) if namespace else wait()
    used = cost.container(node.namespace, name)
    # A container may serve or end before ctr knows that it was started.
    created = min(started.finish(timeout_s), ready)
    if subject.task.ends and (status := node.exit_status(name)) != 0:
        raise RuntimeError(f"{subject}: its status is {status}; it wrote: {hosts.tail(started.output, 500)}")
    return {"create_ms": created, "start_ms": ready, **used}


def meter(system):
    """What a step costs the network, containerd, the system's daemon and the registry, from now on."""
    return cost.Meter(LINK, {
        "containerd": lambda: [system.node.process.pid],
        "daemon": system.daemon_pids,
        "registry": lambda: [int(os.environ["BENCH_REGISTRY_PID"])],
    })


def patience_s(subject, net):
    """How long a pull or a start may take on a network: several times what the whole image takes."""
    return TIMEOUT_S + 4 * net.least_ms(subject.size, 100) / 1e3


def settle():
    """Waits until nothing comes any more in the background, so that it is in no figure of what follows."""
    deadline = time.monotonic() + QUIET_WITHIN_S
    moved = lambda: LINK.counters()["rx_bytes"]
    before = moved()
    while time.monotonic() < deadline:
        time.sleep(QUIET_S)
        if (now := moved()) - before <= QUIET_BYTES:
            return
        before = now


def pull(node, reference, timeout_s=TIMEOUT_S):
    """Milliseconds."""
    began = time.perf_counter()
    node.ctr("images", "pull", "--plain-http", reference, timeout=timeout_s)
    return (time.perf_counter() - began) * 1e3


def pull_and_run(system, subject, reference, name, timeout_s=TIMEOUT_S):
    """Both steps of a start, and what they cost."""
    os.sync()  # what the one before wrote
    step = meter(system)
    pulled = pull(system.node, reference, timeout_s)
    pull_bytes = LINK.counters()["rx_bytes"] - step.before["rx_bytes"]
    ran = run(system.node, subject, reference, name, timeout_s=timeout_s)
    return {"pull_ms": pulled, "ready_ms": pulled + ran["start_ms"], "pull_bytes": pull_bytes, **ran, **step.read()}


def prove_cold(system, subject, found):
    """That a host which pulled and ran an image had nothing of it, by what that has moved."""
    least = subject.size * LEAST_PART if system.is_full else min(LEAST_BYTES, subject.size * LEAST_PART_LAZY)
    if found["rx_bytes"] < least or found["requests"] == 0:
        raise RuntimeError(f"a cold start moved {found['rx_bytes']} bytes, less than {least:.0f}: it was not cold")
    if system.is_lazy(subject) and found["pull_bytes"] > subject.size * LEAST_PART:
        raise RuntimeError(f"its pull moved {found['pull_bytes']} bytes, all of the image: it was not lazy")


def cold(system, subject, reference, name, timeout_s=TIMEOUT_S):
    """Pulls and runs an image of which the host has nothing."""
    found = pull_and_run(system, subject, reference, name, timeout_s)
    prove_cold(system, subject, found)
    found["disk_bytes"] = cost.disk_bytes(system.top) + cost.disk_bytes(os.environ["XEBEC_ROOT"])
    found["containerd_anonymous_bytes"] = cost.anonymous_bytes([system.node.process.pid])
    found["daemon_anonymous_bytes"] = cost.anonymous_bytes(system.daemon_pids())
    return found
