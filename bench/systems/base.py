"""What a system is: how its images are made, how its containerd is configured, which processes it has besides."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess

import bench
import node
import processes


class System:
    """One way to start containers under containerd. An object belongs to one run of the benchmark."""

    # As it stands in the table; how containerd calls its snapshotter.
    name = snapshotter = None
    # Whether all of an image is downloaded by a pull.
    is_full = False
    # Whether it is ours; the others are peers.
    is_ours = False
    # Whether services of its images were recorded.
    is_recorded = False

    def __init__(self, top, namespace):
        self.top, self.namespace = top, namespace
        self.node = None
        # The client that has containerd start containers, if that is not `ctr`.
        self.engine = None
        # Another one if the way to the registry is longer (network.delayed).
        self.address = bench.REGISTRY

    @property
    def registry(self):
        """What it calls the registry."""
        return self.address

    def here(self, reference):
        """A reference to where the registry is reached now."""
        return f"{self.registry}/{reference.partition('/')[2]}"

    def is_lazy(self, subject):
        """Whether a pull of an image moves only a part of it."""
        return not self.is_full

    def missing(self):
        """Why it cannot run here, or `None`."""
        return None

    def version(self):
        """What the table says of its version and configuration."""
        return ""

    def publish(self, subject, plain):
        """Makes what it needs of an image that is in the registry as `plain`: the reference to pull, and `convert_ms`, what it
        takes from an image in the registry to all that is needed in the registry, if there is anything to make."""
        return {"reference": plain}

    def publish_next(self, subject, plain):
        """The same for the next version of an image, by the host that made the one before, while other hosts run."""
        return self.publish(subject, plain)

    def configuration(self):
        """Added to containerd's."""
        return ""

    def environment(self):
        """Of its containerd."""
        return {}

    def start_daemon(self):
        """Starts what containerd needs besides, with nothing in it."""

    def last_words(self):
        """The end of what the daemon has logged."""
        return node.tail(os.path.join(self.top, "daemon.log"))

    def stop_daemon(self):
        """Ends that, and removes what it wrote."""

    def daemon_pids(self):
        return []

    def start(self):
        """A host that never saw an image."""
        self.node = node.Node(os.path.join(self.top, "c"), self.snapshotter, self.namespace)
        os.makedirs(self.top)
        self.start_daemon()
        more = self.engine.configuration(self) if self.engine else ""
        self.node.start(self.configuration() + more, self.environment())

    def stop(self):
        """Nothing of it is left, whatever happened."""
        try:
            if self.node:
                self.node.stop()
        finally:
            self.stop_daemon()
            node.remove(self.top)

    @contextlib.contextmanager
    def running(self):
        try:
            self.start()
            yield self.node
        except Exception as error:
            raise RuntimeError(f"{error}; the daemon's log: {self.last_words() or 'nothing'}") from error
        finally:
            self.stop()


class Proxied(System):
    """A snapshotter in a process of its own, a program of `bench/peers`."""

    program = None

    def __init__(self, top, namespace):
        super().__init__(top, namespace)
        self.daemon = None
        self.socket = os.path.join(top, "snapshotter.sock")

    def missing(self):
        return None if shutil.which(self.program) else f"{self.program} is not installed (make bench-peers)"

    def version(self):
        return bench.run(self.program, "version").strip()

    def configuration(self):
        return proxy(self.snapshotter, self.socket, os.path.join(self.top, "daemon"))

    def command(self, root):
        """What starts the snapshotter with a directory of its own."""
        return [self.program, "serve", root, self.socket, self.registry]

    def start_daemon(self):
        root = os.path.join(self.top, "daemon")
        os.makedirs(root)
        with open(os.path.join(self.top, "daemon.log"), "w") as log:
            self.daemon = subprocess.Popen(
                self.command(root), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "CONTAINERD_ADDRESS": self.node.environment["CONTAINERD_ADDRESS"]},
            )
        node.wait_until(f"{self.program} starts", lambda: listens(self.socket), self.daemon)

    def stop_daemon(self):
        if self.daemon and self.daemon.poll() is None:
            processes.end(self.daemon, signal.SIGINT, 20)
        self.daemon = None

    def daemon_pids(self):
        return [self.daemon.pid] if self.daemon else []


def processes(program):
    """Identifiers of those that run a program; every process here is of this benchmark."""
    found, program = [], os.path.realpath(program)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/exe").removesuffix(" (deleted)") == program:
                found.append(int(entry))
        except OSError:
            continue
    return found


def listens(path):
    with socket.socket(socket.AF_UNIX) as peer:
        try:
            peer.connect(path)
        except OSError:
            return False
    return True


def proxy(name, address, root):
    """A proxy plugin that is told which image is pulled, and that images may be unpacked into."""
    return f"""
[proxy_plugins.{name}]
  type = "snapshot"
  address = "{address}"
  [proxy_plugins.{name}.exports]
    root = "{root}"
    enable_remote_snapshot_annotations = "true"
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "{name}"
"""
