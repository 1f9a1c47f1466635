"""Docker Engine on a system's containerd, with state of its own. What is configured is what docs/docker.md says; without networks,
since containers have that of the benchmark.
"""

import json
import os
import subprocess

import bench
import node
import processes
from engine import Engine

# Debian's client speaks an older language.
OLDEST_API = "1.24"


class Dockerd(Engine):
    name = "docker run"
    programs = ["dockerd", "docker-client", "runc-idmap"]

    def __init__(self, system):
        super().__init__(system, os.path.join(system.top, "d"))
        self.relay = None

    def stop(self):
        for process in (self.process, self.relay):
            if process and process.poll() is None:
                processes.end(process, seconds=node.PATIENCE_S)
        node.remove(self.top)

    def start(self):
        os.makedirs(self.top)
        address = self.system.node.environment["CONTAINERD_ADDRESS"]
        if self.system.is_ours:
            address = self.start_relay(address)
        place = lambda name: os.path.join(self.top, name)
        settings = {
            "containerd": address,
            "containerd-namespace": self.system.namespace,
            "features": {"containerd-snapshotter": True},
            "storage-driver": self.system.snapshotter,
            "data-root": place("root"),
            "exec-root": place("exec"),
            "pidfile": place("pid"),
            "hosts": [f"unix://{place('sock')}"],
            "bridge": "none",
            "iptables": False,
            "ip6tables": False,
            "userland-proxy": False,
            "cgroup-parent": f"/{self.system.namespace}",
            "insecure-registries": [self.system.registry],
            "runtimes": {"newer": {"path": bench.run("which", "runc-idmap").strip()}},
            "default-runtime": "newer",
        }
        with open(place("daemon.json"), "w") as file:
            json.dump(settings, file)
        environment = {**os.environ, "DOCKER_MIN_API_VERSION": OLDEST_API}
        with open(place("log"), "w") as log:
            self.process = subprocess.Popen(["dockerd", "--config-file", place("daemon.json")], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=environment)
        answers = lambda: self.client("version").returncode == 0
        try:
            node.wait_until("Docker answers", answers, self.process)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; its log: {node.tail(place('log'))}") from error

    def start_relay(self, address):
        """Gives what Docker is told of containerd."""
        link = os.path.join(self.top, "relay", "containerd.sock")
        with open(os.path.join(self.top, "relay.log"), "w") as log:
            self.relay = subprocess.Popen([bench.XEBEC, "docker-relay", "--link", link, "--address", address],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        node.wait_until("the relay serves", lambda: os.path.exists(link), self.relay)
        return link

    def command(self, *arguments):
        return ["docker-client", "--host", f"unix://{self.top}/sock", *arguments]

    def environment(self):
        return {**os.environ, "DOCKER_CONFIG": os.path.join(self.top, "client")}

    def client(self, *arguments):
        return subprocess.run(self.command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.environment())

    def begin(self, subject, reference, name):
        """`docker run`, which pulls what is not there, and ends when the container's process was started."""
        return subprocess.Popen(
            self.command("run", "--detach", "--network", "host", "--name", name, reference, *subject.arguments),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment(),
        )

    def end(self, name):
        done = self.client("rm", "--force", name)
        if done.returncode != 0:
            raise RuntimeError(f"docker rm: {done.stderr.decode()[-1500:]}")

    def pids(self):
        return [process.pid for process in (self.process, self.relay) if process]

    def last_words(self):
        return node.tail(os.path.join(self.top, "log"))
