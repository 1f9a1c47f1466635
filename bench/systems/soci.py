"""soci-snapshotter: plain layers, read by an index of access points that is bound to the image (version 2 of SOCI; FUSE).

Configuration: its defaults, which fetch the rest in the background. Layers under 10 MiB have no index and are downloaded.
It fetches indexes by TLS from all registries but "localhost", so that is what the registry is called for it; the name leads
to the same address (scripts/bench.sh). It asks by TLS even there for layers without an index, which containerd downloads
when that has failed; it is told to fail at once.
"""

import tempfile

import bench
from systems.base import Proxied
from systems.stargz import convert


# The size of the smallest layers that get an index.
SMALLEST = 10 << 20


class Soci(Proxied):
    name, snapshotter, program = "SOCI", "soci", "peer-soci"

    @property
    def registry(self):
        return f"localhost:{self.address.rpartition(':')[2]}"

    def is_lazy(self, subject):
        return sum(size for size in subject.layers if size >= SMALLEST) > subject.size / 4

    def publish(self, subject, plain):
        # It takes the index that it has made for an image for being in containerd; for the next image there is another containerd.
        scratch = tempfile.mkdtemp(dir=bench.SCRATCH)
        target = f"{self.registry}/{subject.repository}-soci:{subject.tag}"
        return convert(self, plain, target, [self.program, "convert", scratch, plain, target])
