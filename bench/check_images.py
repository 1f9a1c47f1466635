"""Proves the tasks of images (tasks.py): starts each under containerd with overlayfs, and sees that its task is done, and that
it is not for a container that does something else. Called by build_images.py --check.

All of it happens in network, mount and process namespaces that end with this. For each image: nothing runs and the task is not
done; another image runs that answers at the same port, and writes, something else, and it is not done; its own container
runs, and it is done in time. For a program that is to end, that is with status 0.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import catalogue
import node
import tasks

TIMEOUT_S = 180
# How long something else is watched, once it runs.
WATCHED_S = 1
DECOY = "busybox"
WRITTEN = "something else"


class Failed(Exception):
    """What was seen instead of what was to be."""


class Host:
    """A containerd with overlayfs, and the images that it was given."""

    def __init__(self, top, namespace):
        self.top, self.node = top, node.Node(os.path.join(top, "c"), "overlayfs", namespace)

    def __enter__(self):
        self.node.start("")
        return self

    def __exit__(self, *_):
        self.node.stop()

    def imported(self, image, version):
        """Its name in containerd."""
        archive, name = os.path.join(self.top, "image.tar"), f"localhost/{image.built_as(version)}"
        subprocess.run(["tar", "--create", "--file", archive, "--directory", image.layout(version), "."], check=True)
        self.node.ctr("images", "import", "--base-name", name, archive)
        os.unlink(archive)
        return f"{name}:latest"

    def begin(self, reference, name, arguments):
        """A container whose output goes to the file `name`, and `ctr run`, which ends with it and with its status."""
        path = os.path.join(self.top, name)
        with open(path, "w") as output:
            command = ["ctr", "run", "--net-host", reference, name, *arguments]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.node.environment
            )
        return process, path

    def end(self, process, name):
        self.node.end(name)
        process.wait(timeout=node.PATIENCE_S)


def done(task, process, path):
    """Whether the task is done; a process that is to end must have ended well."""
    if task.ends and process.poll() != 0:
        return False
    return task.ready(path)


def decoy(task):
    """The command of something else: it writes, and answers, what nobody expects; by http with status 200, too."""
    if task.ends:
        return ["busybox", "echo", WRITTEN]
    answer = f"HTTP/1.0 200 OK\\r\\n\\r\\n{WRITTEN}\\r\\n" if task.protocol == "http" else f"{WRITTEN}\\r\\n"
    serve = f"busybox nc -ll -p {task.port} -e busybox printf '{answer}'" if task.port else "busybox sleep 1000"
    return ["busybox", "sh", "-c", f"busybox echo {WRITTEN}; exec {serve}"]


def heard(port):
    """What a peer says that was asked nothing, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=tasks.PATIENCE_S) as peer:
        return b"".join(iter(lambda: peer.recv(4096), b""))


def misleads(task, process, path):
    """Whether the decoy does all that could be taken for the task: what is not there is not taken for anything."""
    if not tasks.has(path, WRITTEN.encode()):
        return False
    if task.ends:
        return process.poll() == 0
    try:
        return process.poll() is None and (not task.port or WRITTEN.encode() in heard(task.port))
    except OSError:
        return False


def not_done(host, task, other):
    """That it is not for something else."""
    process, path = host.begin(other, "decoy", decoy(task))
    try:
        node.wait_until("the decoy is there", lambda: misleads(task, process, path))
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            if done(task, process, path):
                raise Failed("something else was taken for it")
            time.sleep(0.1)
        if not misleads(task, process, path):
            raise Failed(f"what it was not to be taken for is gone: status {process.poll()}")
    finally:
        host.end(process, "decoy")


def is_done(host, task, reference, arguments):
    """That it is for the image itself; milliseconds."""
    began = time.perf_counter()
    process, path = host.begin(reference, "itself", arguments)
    try:
        while not done(task, process, path):
            took = time.perf_counter() - began
            if took > TIMEOUT_S or process.poll() is not None and not done(task, process, path):
                raise Failed(f"not done after {took:.1f} s, status {process.poll()}; it wrote: {node.tail(path)}")
            time.sleep(0.01)
        return (time.perf_counter() - began) * 1e3
    finally:
        host.end(process, "itself")


def check(host, image, version, other):
    """One image; milliseconds until it was ready."""
    reference = host.imported(image, version)
    if image.task.ready(os.path.join(host.top, "nothing")):
        raise Failed("its task is done though nothing runs")
    not_done(host, image.task, other)
    took = is_done(host, image.task, reference, image.arguments)
    host.node.ctr("images", "rm", "--sync", reference)
    return took


def check_all(top, namespace, wanted):
    """`wanted`: names and versions. How many failed."""
    failed = 0
    with Host(top, namespace) as host:
        other = host.imported(catalogue.load(only=[DECOY])[0], "")
        for name, version in wanted:
            image, title = catalogue.load(only=[name])[0], f"{name} {version}".strip()
            try:
                took = check(host, image, version, other)
                print(f"{title}: {image.task.kind} after {took:.0f} ms, and not for something else", flush=True)
            except (Failed, RuntimeError, OSError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAILED {title}: {error}", flush=True)
    return failed


def isolated(built):
    """Calls this file in namespaces; how many of the images failed."""
    top = tempfile.mkdtemp(prefix="xebec-check.", dir=os.environ.get("TMPDIR", "/var/tmp"))
    namespace = os.path.basename(top).replace(".", "-")
    wanted = json.dumps([(image.name, version) for image, version in built])
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # Ended by a signal, this cleans up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen([*command, sys.executable, __file__, top, namespace, wanted])
    try:
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(top, ignore_errors=True)
        # Control groups bear the name of containerd's namespace, and outlive it.
        subprocess.run(
            ["find", "/sys/fs/cgroup", "-depth", "-type", "d", "-path", f"*/{namespace}*", "-exec", "rmdir", "{}", "+"],
            stderr=subprocess.DEVNULL,
        )
    return process.returncode if process.returncode >= 0 else len(built)


def main():
    top, namespace, wanted = sys.argv[1:]
    # Ctrl-C goes to all, and who called this ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    sys.exit(min(check_all(top, namespace, json.loads(wanted)), 100))


if __name__ == "__main__":
    main()
