"""stargz-snapshotter: images converted to eStargz, whose files are fetched when they are read (FUSE).

Configuration: its defaults, which prefetch and fetch the rest in the background. `Optimised` has the files that the service
opens within ten seconds (the default of its optimizer) in front, where they are prefetched by one request for each layer.
"""

import os
import time

import bench
from systems.base import Proxied

# How long its optimizer watches a service.
PERIOD_S = 10
# No conversion takes longer.
PATIENCE_S = 1800


class Stargz(Proxied):
    name, snapshotter, program = "stargz", "stargz", "peer-stargz"
    period = 0

    def publish(self, subject, plain):
        target = f"{bench.REGISTRY}/{subject.repository}-esgz{'-optimised' if self.period else ''}:{subject.tag}"
        arguments = subject.arguments if self.period else []
        return convert(self, plain, target, [self.program, "convert", plain, target, str(self.period), *arguments])


class Optimised(Stargz):
    name, period = "stargz, optimised", PERIOD_S


def convert(system, plain, target, *commands):
    """Pulls an image, has programs of a peer convert it in containerd's store, one after the other, and pushes what came out."""
    from systems.overlayfs import Overlayfs

    builder = Overlayfs(system.top, system.namespace)
    with builder.running() as node:
        began = time.perf_counter()
        node.ctr("images", "pull", "--plain-http", plain)
        environment = {**node.environment, "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        for command in commands:
            bench.run(*command, env=environment, timeout=PATIENCE_S)
        node.ctr("images", "push", "--plain-http", target)
        return {"reference": target, "convert_ms": (time.perf_counter() - began) * 1e3}
