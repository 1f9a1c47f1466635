"""Versions of an image, one after the other, on one host, as Gear measures them (V.E.2): what is alike should be neither
fetched nor stored again.

The container of the version before is ended first, and its image stays. An image that has one version in the catalogue gets two
more by edits of one file, which its rows say ("edited").
"""

import os

import bench
import cost
import starting
from scenarios import base
from scenarios.edited import Edited
from subject import Subject

VERSIONS = 3


class Update(base.Scenario):
    """three versions one after the other on one host"""

    name, variable = "update", "version"
    figures = [
        ("ready_ms", "ready", "ms", 1), ("pull_ms", "= pull", "", 1), ("start_ms", "+ start", "", 1),
        ("rx_bytes", "received", "MB", 1e6), ("disk_bytes", "disk", "MB", 1e6),
    ]

    def __init__(self, systems):
        super().__init__(systems)
        self.known = {}

    def variables(self):
        return [list(range(1, VERSIONS + 1))]

    def versions(self, subject):
        if subject.name not in self.known:
            self.known[subject.name] = self.make(subject)
        return self.known[subject.name]

    def at(self, subject, x):
        return self.versions(subject)[x - 1]

    def make(self, subject):
        image = subject.image
        if len(image.versions) >= VERSIONS:
            return [Subject(image, version) for version in image.versions[-VERSIONS:]]
        directory = os.path.join(bench.SCRATCH, "versions")
        return [subject, *(Edited(subject, f"edit{number}", directory) for number in range(1, VERSIONS))]

    def prepare(self, system, subject):
        return [(version, super(Update, self).prepare(system, version)) for version in self.versions(subject)]

    def measure(self, system, subject, made, group):
        found = {}
        with system.running() as node:
            for x, (version, reference) in zip(group, made):
                name = f"version{x}"
                if x == 1:
                    found[x] = starting.cold(system, version, reference, name, self.patience_s(version))
                else:
                    starting.settle()
                    found[x] = starting.pull_and_run(system, version, reference, name, self.patience_s(version))
                    if found[x]["rx_bytes"] == 0:
                        raise RuntimeError(f"version {x} moved nothing: it was there before")
                found[x]["disk_bytes"] = cost.disk_bytes(system.top) + cost.disk_bytes(os.environ["XEBEC_ROOT"])
                if isinstance(version, Edited) and not version.shows(node, name):
                    raise RuntimeError(f"version {x}: {version.edited_file} is not as it was edited")
                node.end(name)
        return found
