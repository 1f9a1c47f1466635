"""Xebec: plain layers and an index beside the image, read by the kernel. `Runtime` has a recording of the service, too."""

import hashlib
import os
import subprocess
import time

import bench
import node
import services
from systems.base import System, listens, processes, proxy


class Lazy(System):
    name, snapshotter, is_ours = "Xebec", "xebec", True

    def version(self):
        return f"{bench.run(bench.XEBEC, '--version').split()[-1]} ({self.program_digest()})"

    @staticmethod
    def program_digest():
        with open(bench.XEBEC, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:12]

    def publish(self, subject, plain):
        # The index of another program is in another repository.
        kind = "recorded" if self.is_recorded else "indexed"
        image = f"{bench.REGISTRY}/{subject.repository}-{kind}-{self.program_digest()}:{subject.tag}"
        bench.run("skopeo", "copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false",
                  f"docker://{plain}", f"docker://{image}")
        try:
            services.fresh_host()
            began = time.perf_counter()
            bench.xebec("index", "--push", image)
            found = {"reference": image}
            if self.is_recorded:
                recorded = services.record(subject.task, image, *subject.arguments)
                found["read_bytes"] = recorded["pages"] * 4096
            found["convert_ms"] = (time.perf_counter() - began) * 1e3
            return found
        finally:
            bench.forget()

    def publish_next(self, subject, plain):
        """What is there of the layers that both versions have stays there."""
        root = os.path.join(self.top, "root")
        if not os.path.exists(root):
            self.make_root(root)
        bench.run(bench.XEBEC, "index", "--root", root, "--run", os.path.join(self.top, "run"), "--push", plain)
        return {"reference": plain}

    def make_root(self, root):
        os.makedirs(root)
        with open(os.path.join(root, "registries.toml"), "w") as file:
            file.write(f'plain_http = ["{self.registry}"]\n')

    def configuration(self):
        return proxy(self.snapshotter, os.path.join(os.environ["XEBEC_RUN"], "snapshots.sock"), os.environ["XEBEC_ROOT"])

    def start_daemon(self):
        root = os.environ["XEBEC_ROOT"]
        self.make_root(root)
        with open(os.path.join(root, "daemon.toml"), "w") as file:
            containerd = os.path.join(self.top, "c", "sock")
            file.write(f'[snapshotter]\nenabled = true\naddress = "{containerd}"\n')
        with open(os.path.join(self.top, "daemon.log"), "w") as log:
            subprocess.Popen([bench.XEBEC, "daemon", "start"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        address = os.path.join(os.environ["XEBEC_RUN"], "snapshots.sock")
        node.wait_until("xebec daemon serves containerd", lambda: listens(address))

    def stop_daemon(self):
        bench.forget()

    def daemon_pids(self):
        """Keeper and worker."""
        return processes(bench.XEBEC)


class Runtime(Lazy):
    name, is_recorded = "Xebec, runtime image", True
