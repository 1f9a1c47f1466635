"""One containerd with root, state and socket of its own, as each system of `bench/systems` gets one.

Every system has the same containerd, shim and runc, and differs by what `bench/systems` adds to the configuration.
"""

import ctypes
import os
import re
import shutil
import subprocess
import time

import processes

# CRI and NRI look at directories of the host; the former is switched on by who needs it.
CRI = '"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", '
CONFIGURATION = """version = 3
root = "{top}/root"
state = "{top}/state"
disabled_plugins = [{disabled}"io.containerd.nri.v1.nri"]
[grpc]
address = "{top}/sock"
[ttrpc]
address = "{top}/ttrpc"
[plugins."io.containerd.internal.v1.opt"]
path = "{top}/opt"
"""
PATIENCE_S = 30
LIBC = ctypes.CDLL(None, use_errno=True)


def wait_until(what, is_so, process=None):
    """An error names `what`."""
    if not processes.holds(is_so, PATIENCE_S, process):
        raise RuntimeError(f"{what}: not within {PATIENCE_S} s")


def remove(top):
    """Unmounts all below a directory, deepest first, and removes it."""
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4].encode().decode("unicode_escape") for line in file]
    for point in reversed(points):
        if point.startswith(top + "/"):
            LIBC.umount2(point.encode(), 2)  # MNT_DETACH
    if os.path.exists(top):
        shutil.rmtree(top)


def tail(path, size=1500):
    try:
        with open(path, errors="replace") as file:
            return file.read()[-size:]
    except FileNotFoundError:
        return ""


class Node:
    """Started by `start`, with nothing in it; ended and removed by `stop`."""

    def __init__(self, top, snapshotter, namespace):
        self.top, self.namespace = top, namespace
        self.process = None
        self.environment = {
            **os.environ,
            "CONTAINERD_ADDRESS": os.path.join(top, "sock"),
            "CONTAINERD_NAMESPACE": namespace,
            "CONTAINERD_SNAPSHOTTER": snapshotter,
            "CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS": "true",
        }

    def start(self, more, environment=None):
        """`more` is added to the configuration."""
        os.makedirs(self.top)
        config, self.log = os.path.join(self.top, "config.toml"), os.path.join(self.top, "log")
        with open(config, "w") as file:
            file.write(CONFIGURATION.format(top=self.top, disabled="" if ".cri." in more else CRI) + more)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                ["containerd", "--config", config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(environment or {})},
            )
        answers = lambda: os.path.exists(self.environment["CONTAINERD_ADDRESS"]) and self.try_ctr("version").returncode == 0
        try:
            wait_until("containerd starts", answers, self.process)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; its log: {tail(self.log)}") from error
        time.sleep(0.3)  # its first collection of garbage

    def try_ctr(self, *arguments, timeout=900):
        return subprocess.run(
            ["ctr", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self.environment, timeout=timeout,
        )

    def ctr(self, *arguments, timeout=900):
        """Runs it, and gives what it printed."""
        done = self.try_ctr(*arguments, timeout=timeout)
        if done.returncode != 0:
            raise RuntimeError(
                f"ctr {' '.join(arguments)}: {done.stderr.decode()[-1500:]}; containerd's log: {tail(self.log)}"
            )
        return done.stdout.decode()

    def begin(self, reference, name, *options, output=None, arguments=()):
        """`ctr run`, which ends when the container's process was started. `output`: a file for what that writes."""
        written = ["--log-uri", f"file://{output}"] if output else ["--null-io"]
        return subprocess.Popen(
            ["ctr", "run", "--detach", *written, *options, reference, name, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment,
        )

    def exit_status(self, name):
        """Of a container's process that has ended, which containerd then forgets."""
        done = self.try_ctr("tasks", "rm", name)
        said = done.stderr.decode()
        if found := re.search(r"non-zero exit code (\d+)", said):
            return int(found[1])
        if done.returncode != 0:
            raise RuntimeError(f"ctr tasks rm: {said[-1500:]}")
        return 0

    def end(self, name):
        """Ends a container, and forgets it and its snapshot."""
        self.try_ctr("tasks", "rm", "--force", name)
        self.try_ctr("containers", "rm", name)

    def stop(self):
        if self.process and self.process.poll() is None:
            for name in self.try_ctr("tasks", "ls", "--quiet").stdout.decode().split():
                self.end(name)
            processes.end(self.process, seconds=PATIENCE_S)
        self.process = None
        remove(self.top)
