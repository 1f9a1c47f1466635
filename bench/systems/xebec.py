"""Xebec: plain layers and an index beside the image, read by the kernel. `Runtime` has a recording of the service, too."""

import hashlib
import os
import subprocess

import bench
import node
import services
from systems.base import System, listens, proxy


class Lazy(System):
    name, snapshotter, is_ours = "Xebec", "xebec", True
    is_recorded = False

    def version(self):
        return f"{bench.run(bench.XEBEC, '--version').split()[-1]} ({self.program_digest()})"

    @staticmethod
    def program_digest():
        with open(bench.XEBEC, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:12]

    def publish(self, service, plain):
        # What another program wrote is in another repository.
        kind = "recorded" if self.is_recorded else "indexed"
        image = f"{bench.REGISTRY}/{service.image}-{kind}-{self.program_digest()}:latest"
        bench.run("skopeo", "copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false",
                  f"docker://{plain}", f"docker://{image}")
        services.fresh_host()
        bench.xebec("index", "--push", image)
        if self.is_recorded:
            services.record(service, image)
        bench.forget()
        return image

    def configuration(self):
        return proxy(self.snapshotter, os.path.join(os.environ["XEBEC_RUN"], "snapshots.sock"), os.environ["XEBEC_ROOT"])

    def start_daemon(self):
        root = os.environ["XEBEC_ROOT"]
        os.makedirs(root)
        with open(os.path.join(root, "registries.toml"), "w") as file:
            file.write(f'plain_http = ["{bench.REGISTRY}"]\n')
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
        """Keeper and worker; every process here is of this benchmark."""
        found, program = [], os.path.realpath(bench.XEBEC)
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/exe").removesuffix(" (deleted)") == program:
                    found.append(int(entry))
            except OSError:
                continue
        return found


class Runtime(Lazy):
    name, is_recorded = "Xebec, runtime image", True
