"""stargz-snapshotter: images converted to eStargz, whose files are fetched when they are read (FUSE).

Configuration: its defaults, which prefetch and fetch the rest in the background. `Optimised` has the files that the service
opens within ten seconds (the default of its optimizer) in front, where they are prefetched by one request for each layer.
"""

import os

import bench
from systems.base import Proxied

# How long its optimizer watches a service.
PERIOD_S = 10


class Stargz(Proxied):
    name, snapshotter, program = "stargz", "stargz", "peer-stargz"
    period = 0

    def publish(self, service, plain):
        return convert(self, plain, f"{bench.REGISTRY}/{service.image}-esgz{'-optimised' if self.period else ''}:latest",
                       [self.program, "convert"], [str(self.period)])


class Optimised(Stargz):
    name, period = "stargz, optimised", PERIOD_S


def convert(system, plain, target, command, more):
    """Pulls an image, has a peer's program convert it in containerd's store, and pushes what came out."""
    from systems.overlayfs import Overlayfs

    builder = Overlayfs(system.top, system.namespace)
    with builder.running() as node:
        node.ctr("images", "pull", "--plain-http", plain)
        bench.run(*command, plain, target, *more, env={**node.environment, "TMPDIR": os.environ.get("TMPDIR", "/tmp")})
        node.ctr("images", "push", "--plain-http", target)
    return target
