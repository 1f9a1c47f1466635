"""A kubelet on a system's containerd, with state of its own and no API server: it runs the pods whose manifests lie in a directory.

What it would change of this machine it finds as it wants it, in the benchmark's own mount namespace.
"""

import json
import os
import subprocess
import tarfile
import urllib.error
import urllib.request

import bench
import images
import node
from engine import Engine

PORT = 10255
# The settings of the kernel that it makes if they are not so (`setupKernelTunables` in `pkg/kubelet/cm/container_manager_linux.go`).
TUNABLES = {
    "vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}
# The settings that CRI needs here besides the snapshotter: an image for the pods' own process, where the registry is, and neither
# networks nor the right to lower a process's chance of being killed.
CRI = """
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  disable_snapshot_annotations = false
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{registries}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  conf_dir = "{networks}"
"""


def push_pause():
    """An image of one program that waits, into the registry; gives its name there."""
    image = f"{bench.REGISTRY}/pause:latest"
    layout = os.path.join(bench.SCRATCH, "pause")
    if os.path.exists(layout):
        return image
    layer = layout + ".tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(os.path.join(os.environ["BENCH_GOTOOLS"], "linger"), arcname="linger")
    written = images.Layout(layout)
    with open(layer, "rb") as file:
        descriptor, diff_id = written.add_layer([file.read()])
    os.unlink(layer)
    written.finish([(descriptor, diff_id)], {"Entrypoint": ["/linger", "1h"]})
    bench.run("skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{layout}:latest", f"docker://{image}")
    return image


class Kubelet(Engine):
    name = "pod"
    programs = ["kubelet"]

    @staticmethod
    def configuration(system):
        """What containerd needs for it."""
        registries = os.path.join(system.top, "registries")
        place = os.path.join(registries, system.registry)
        os.makedirs(place)
        with open(os.path.join(place, "hosts.toml"), "w") as file:
            file.write(f'server = "http://{system.registry}"\n[host."http://{system.registry}"]\n'
                       '  capabilities = ["pull", "resolve"]\n')
        return CRI.format(snapshotter=system.snapshotter, pause=push_pause(), registries=registries,
                          networks=os.path.join(system.top, "networks"))

    def __init__(self, system):
        super().__init__(system, os.path.join(system.top, "k"))
        self.mounted = []

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        ctr = lambda *arguments: self.system.node.try_ctr("--namespace", "k8s.io", *arguments)
        for name in ctr("tasks", "ls", "--quiet").stdout.decode().split():
            ctr("tasks", "rm", "--force", name)
        while self.mounted:
            place = self.mounted.pop()
            node.LIBC.umount2(place.encode(), 2)  # MNT_DETACH
        node.remove(self.top)

    def mount(self, over, *options):
        bench.run("mount", *options, over)
        self.mounted.append(over)

    def keep_off_the_machine(self):
        place = lambda name: os.path.join(self.top, name)
        for number, (name, value) in enumerate(TUNABLES.items()):
            file = place(f"tunables/{number}")
            with open(file, "w") as written:
                written.write(value)
            if os.path.exists(f"/proc/sys/{name}"):
                self.mount(f"/proc/sys/{name}", "--bind", file)
        layers = f"lowerdir=/var/lib,upperdir={place('upper')},workdir={place('work')}"
        self.mount("/var/lib", "-t", "overlay", "-o", layers, "kubelet")
        self.mount("/var/log", "-t", "tmpfs", "kubelet")

    def start(self):
        place = lambda name: os.path.join(self.top, name)
        for name in ("manifests", "root", "logs", "tunables", "upper", "work"):
            os.makedirs(place(name))
        self.keep_off_the_machine()
        socket = f"unix://{self.system.node.environment['CONTAINERD_ADDRESS']}"
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.system.namespace}",
            "containerRuntimeEndpoint": socket,
            "staticPodPath": place("manifests"),
            "podLogsDir": place("logs"),
            "volumePluginDir": place("plugins"),
            "readOnlyPort": PORT,
            "evictionHard": {"nodefs.available": "1Mi", "nodefs.inodesFree": "1"},
        }
        with open(place("config.json"), "w") as file:
            json.dump(settings, file)
        with open(place("log"), "w") as log:
            self.process = subprocess.Popen(
                ["kubelet", "--config", place("config.json"), "--root-dir", place("root"), "--cert-dir", place("pki"),
                 "--hostname-override=node", "--v=2"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        try:
            # A pod of nothing but the image that pods have of their own: then the kubelet and CRI are at work, and have that one.
            node.wait_until("the kubelet answers", lambda: self.known() is not None, self.process)
            self.put("warm-up", {"name": "waits", "image": push_pause()})
            node.wait_until("a first pod runs", lambda: self.phase("warm-up") == "Running", self.process)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; its log: {self.last_words()}") from error

    def known(self):
        """The pods that it knows, or `None` if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/pods", timeout=node.PATIENCE_S) as answer:
                return json.load(answer)["items"] or []
        except (OSError, urllib.error.URLError):
            return None

    def phase(self, name):
        found = [pod for pod in self.known() or [] if pod["metadata"]["name"] == f"{name}-node"]
        return found[0]["status"].get("phase") if found else None

    def put(self, name, container):
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"{self.system.namespace}-{name}"},
            "spec": {"hostNetwork": True, "terminationGracePeriodSeconds": 1,
                     "containers": [{**container, "imagePullPolicy": "IfNotPresent"}]},
        }
        # By its name at once: half a manifest is none.
        new = os.path.join(self.top, f"{name}.json")
        with open(new, "w") as file:
            json.dump(pod, file)
        os.rename(new, os.path.join(self.top, "manifests", f"{name}.json"))

    def begin(self, subject, reference, name):
        """Puts a manifest where the kubelet looks for some; no process is to be waited for."""
        command = {"command": subject.arguments} if subject.arguments else {}
        self.put(name, {"name": "task", "image": reference, **command})

    def end(self, name):
        os.unlink(os.path.join(self.top, "manifests", f"{name}.json"))
        node.wait_until("the pod is gone", lambda: self.phase(name) is None, self.process)

    def pids(self):
        return [self.process.pid]

    def last_words(self):
        return node.tail(os.path.join(self.top, "log"))
