"""What keeping each file once costs those who pull and those who push: layers that are intact, that were restored ahead into files (preconstructed),
and that are restored while they are sent, in turn, over a pair of devices without a limit and of 1 Gbit/s. bench/registry.py runs it.

All layers (bench/layers_of_tree.py) are pushed once into a store that keeps them intact, and once into one that takes them apart. A layer that is restored is
asked for once by a new process, so nothing of it is in memory but what the system has of files.

Environment: BENCH_LAYERS, a folder with the layers.
"""

import contextlib
import json
import math
import os
import re
import statistics
import subprocess
import time

import network
import registries
from asking import MANIFEST, SMALL, ask, load, push_blob, pushed

HOST, CLIENT = "10.88.0.2", "10.88.0.1"
NAMESPACE = "registry"
NETWORKS = {"unlimited": None, "1 Gbit/s": 1000}
CLIENTS = 64
# A layer that stays the same is asked for so often, and its median counts.
REPEATS = 3
# Requests of all clients together, for each layer.
FOR_EACH = 4
LAYER = "application/vnd.oci.image.layer.v1.tar"


@contextlib.contextmanager
def far():
    """A pair of devices to a network namespace in which registries run, and its end here."""
    run = lambda *command: subprocess.run(command, check=True)
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "-n", NAMESPACE, "link", "set", "lo", "up")
        run("ip", "link", "add", "xebec-client", "type", "veth", "peer", "name", "xebec-server", "netns", NAMESPACE)
        run("ip", "addr", "add", f"{CLIENT}/24", "dev", "xebec-client")
        run("ip", "-n", NAMESPACE, "addr", "add", f"{HOST}/24", "dev", "xebec-server")
        run("ip", "link", "set", "xebec-client", "up")
        run("ip", "-n", NAMESPACE, "link", "set", "xebec-server", "up")
        yield network.Link("xebec-client", "xebec-server", f"/run/netns/{NAMESPACE}")
    finally:
        run("ip", "netns", "delete", NAMESPACE)


class Layers(registries.Xebec):
    """A registry in that namespace, with a store that several of these have one after the other."""

    host = HOST

    def __init__(self, top, name, store, settings):
        self.name, self.settings = store, settings
        super().__init__(top)
        self.name = name

    def configuration(self, node):
        # What is indexed would take the processors from what is measured.
        return f"[indexing]\nenabled = false\n[deduplication]\n{self.settings}"

    def command(self, node, address):
        return ["nsenter", f"--net=/run/netns/{NAMESPACE}", *super().command(node, address)]

    def forget(self):
        """Its store stays: taking it apart takes longer than all that is measured."""

    def metric(self, name):
        """A figure of it now; nothing was counted yet where there is none."""
        content, _ = ask(self.addresses[0], "GET", "/metrics")
        found = re.search(rf"^xebec_registry_{re.escape(name)} ([0-9.e+]+)$", content.decode(), re.MULTILINE)
        return float(found.group(1)) if found else 0.0

    def apart(self):
        return self.metric('deduplicated_total{outcome="done"}')


class LayersAnew(Layers):
    """One whose store begins empty each time."""

    def forget(self):
        registries.Registry.forget(self)


def files():
    folder = os.environ["BENCH_LAYERS"]
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith((".gz", ".zst")))


def path_of(digest):
    return f"/v2/layers/blobs/{digest}"


def push_layers(registry, chosen):
    """Pushes them as one image, and returns what names each layer has by its path."""
    address, described, names = registry.addresses[0], [], {}
    for file in chosen:
        with open(file, "rb") as content:
            content = content.read()
        digest = push_blob(address, "layers", content)
        kind = LAYER + ("+zstd" if file.endswith(".zst") else "+gzip")
        described.append({"mediaType": kind, "digest": digest, "size": len(content)})
        names[path_of(digest)] = os.path.basename(file)
    config = b"{}"
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST, "layers": described,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": push_blob(address, "layers", config),
                   "size": len(config)},
    }).encode()
    ask(address, "PUT", "/v2/layers/manifests/latest", manifest, {"Content-Type": MANIFEST})
    return names


def expect_restored(registry, size):
    """Reads the manifest, and waits until all layers were restored."""
    ask(registry.addresses[0], "GET", "/v2/layers/manifests/latest", headers={"Accept": MANIFEST})
    registries.wait_until("all layers are restored ahead", lambda: registry.metric("restored_ahead_bytes") >= size)


def hurried(registry):
    """How many layers it has taken apart by now. Nothing is measured meanwhile, so its threads need not give way to others."""
    for pid in registry.pids():
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(thread), 0)
    time.sleep(0.1)
    return registry.apart()


def high(numbers):
    """The least number that 95 % of them do not exceed."""
    return sorted(numbers)[math.ceil(0.95 * len(numbers)) - 1]


class Measured:
    """The three ways of having layers, and the layers."""

    def __init__(self, top, link):
        self.link = link
        self.intact = Layers(top, "intact", "layers-intact", "enabled = false\n")
        self.preconstructed = Layers(top, "preconstructed", "layers-apart", "enabled = true\n")
        self.restored = Layers(top, "restored", "layers-apart", 'enabled = true\nahead = "0"\n')
        self.pushed = LayersAnew(top, "pushed", "layers-pushed", 'enabled = true\nahead = "0"\n')
        self.all = [self.intact, self.preconstructed, self.restored]
        self.names, self.size = {}, 0

    def prepare(self):
        """Pushes all layers into both stores, and waits until they are taken apart."""
        chosen = files()
        self.size = sum(map(os.path.getsize, chosen))
        with self.intact.running():
            push_layers(self.intact, chosen)
        with self.restored.running():
            self.names = push_layers(self.restored, chosen)
            registries.wait_until("all layers are taken apart", lambda: hurried(self.restored) >= len(chosen), seconds=1800)

    def begin(self, registry):
        if registry is self.preconstructed:
            expect_restored(registry, self.size)

    def times(self, registry):
        """Of each layer, how long it took to the first byte and to the last."""
        requests = 1 if registry is self.restored else REPEATS
        found = load("each", "-requests", requests, "-path", ",".join(self.names), *registry.addresses)
        seen = {}
        for one in found["each"]:
            seen.setdefault(one["path"], []).append((one["first_ms"], one["ms"]))
        middle = lambda answers, which: statistics.median(answer[which] for answer in answers)
        return {path: (middle(answers, 0), middle(answers, 1)) for path, answers in seen.items()}

    def pulls(self, registry):
        """Latencies over each network."""
        rows = {}
        for name, mbit in NETWORKS.items():
            with registry.running():
                self.begin(registry)
                before = registry.cpu_s()
                with self.link.shaped(mbit):
                    seen = self.times(registry)
                spent = registry.cpu_s() - before
            sent = self.size * (1 if registry is self.restored else REPEATS)
            rows[f"layer, {name}"] = {**latencies(seen.values()), "server_cpu_s_per_gb": spent / sent * 1e9}
            for encoder in sorted({file.split("-")[0] for file in self.names.values()}):
                of_encoder = [times for path, times in seen.items() if self.names[path].startswith(encoder + "-")]
                rows[f"layer by {encoder}, {name}"] = {"p50_ms": statistics.median(whole for _, whole in of_encoder)}
        return rows

    def crowd(self, registry):
        """Many clients that want all layers."""
        with registry.running():
            self.begin(registry)
            before = registry.cpu_s()
            found = load(
                "get", "-clients", CLIENTS, "-requests", FOR_EACH * len(self.names), "-path", ",".join(self.names), *registry.addresses)
            return {f"layers, {CLIENTS} clients": {
                "mb_per_s": found["bytes"] / 1e6 / found["seconds"], "p50_ms": found["ms"]["p50"], "p95_ms": found["ms"]["p95"],
                "server_processors": (registry.cpu_s() - before) / found["seconds"],
            }}

    def pushes(self, registry):
        """Pushes beside nothing, and while large layers are taken apart."""
        push = lambda: pushed(registry, 1, 60, SMALL)
        with registry.running():
            quiet = push()
            large = sorted(files(), key=os.path.getsize)[-8:]
            push_layers(registry, large)
            before, began = registry.cpu_s(), time.perf_counter()
            busy = push()
            busy["server_processors"] = (registry.cpu_s() - before) / (time.perf_counter() - began)
            if registry.apart() >= len(large):
                raise RuntimeError("all layers were taken apart before all pushes were acknowledged")
            return {"push of 20 KB, nothing to take apart": quiet, "push of 20 KB while layers are taken apart": busy}


def latencies(times):
    first, whole = zip(*times)
    return {"p50_ms": statistics.median(whole), "p95_ms": high(whole), "first_p50_ms": statistics.median(first), "first_p95_ms": high(first)}


def run(found, top):
    """Everything, for `found` of bench/registry.py."""
    with far() as link:
        measured = Measured(top, link)
        measured.prepare()
        found.in_turn(measured.all, measured.pulls)
        found.in_turn(measured.all, measured.crowd)
        found.in_turn([measured.pushed], measured.pushes)
