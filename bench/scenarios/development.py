"""The development cycle of Slacker (figure 20): a file is edited, the image is pushed, and pulled and run by a host that runs
the version before.

Two hosts: that of the developer, who has made the version before for the same system, and the one that runs it. What each needs
is made again for each edit: `xebec index --push` reads the new layer only, since the indexes of the others are there; the
converters of eStargz and SOCI that are here take the whole image each time. A recording is not made for each edit.
"""

import os
import time

import bench
import cost
import published
import starting
from scenarios import base
from scenarios.edited import Edited


class Development(base.Scenario):
    """edit one file, push, pull and run where the version before has run"""

    name = "development"
    networks = "1000 100"
    figures = [
        ("cycle_ms", "cycle", "ms", 1), ("push_ms", "= push", "", 1), ("publish_ms", "+ index or convert", "", 1),
        ("pull_ms", "+ pull", "", 1), ("start_ms", "+ start", "", 1), ("sent_bytes", "pushed", "kB", 1e3),
        ("rx_bytes", "pulled", "kB", 1e3),
    ]

    def __init__(self, systems):
        super().__init__(systems)
        self.directory = os.path.join(bench.SCRATCH, "versions")
        self.edits = 0

    def unfit(self, system):
        return "nobody records a service at each edit; its starts are those of Xebec" if system.is_recorded else None

    def missing(self, subject):
        return "it ends by itself, and its edited file cannot be looked at" if subject.task.ends else None

    def edit(self, subject):
        """A version that is no other one's, so that no registry and no host has it."""
        self.edits += 1
        return Edited(subject, f"edit{time.time_ns()}-{self.edits}", self.directory)

    def push(self, developer, version):
        """Gives the reference to pull, and how many milliseconds the push took and what the system needs besides: by its own
        count, where it has one, since a converter's containerd is started and removed for it here, which no developer does."""
        began = time.perf_counter()
        plain = f"{bench.REGISTRY}/{version.repository}:{version.tag}"
        bench.run("skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{version.layout}:latest", f"docker://{plain}",
                  timeout=published.PATIENCE_S)
        pushed = time.perf_counter()
        made = developer.publish_next(version, plain)
        passed_ms = (time.perf_counter() - pushed) * 1e3
        return made["reference"], (pushed - began) * 1e3, made.get("convert_ms", passed_ms)

    def prepare(self, system, subject):
        """The version before, by the developer's host."""
        developer = type(system)(os.path.join(bench.SCRATCH, "developer", system.snapshotter), system.namespace)
        version = self.edit(subject)
        return developer, version, self.push(developer, version)[0]

    def measure(self, system, subject, made, group):
        developer, before, reference = made
        edited = self.edit(subject)
        with system.running() as node:
            starting.cold(system, before, reference, "before", self.patience_s(before))
            node.end("before")
            starting.settle()
            os.sync()
            counters, step = starting.LINK.counters(), starting.meter(system)
            reference, push_ms, publish_ms = self.push(developer, edited)
            sent = starting.LINK.counters()["tx_bytes"] - counters["tx_bytes"]
            publishing = step.read()
            found = starting.pull_and_run(system, edited, reference, "after", self.patience_s(edited))
            if not edited.shows(node, "after"):
                raise RuntimeError(f"{edited.edited_file} is not as it was edited")
            found["disk_bytes"] = cost.disk_bytes(system.top) + cost.disk_bytes(os.environ["XEBEC_ROOT"])
        found |= {
            "push_ms": push_ms, "publish_ms": publish_ms, "sent_bytes": sent,
            "publish_client_cpu_ms": publishing["client_cpu_ms"], "publish_requests": publishing["requests"],
        }
        found["cycle_ms"] = found["push_ms"] + found["publish_ms"] + found["ready_ms"]
        return {None: found}
