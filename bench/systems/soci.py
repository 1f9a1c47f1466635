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


class Soci(Proxied):
    name, snapshotter, program = "SOCI", "soci", "peer-soci"

    @property
    def registry(self):
        return f"localhost:{bench.REGISTRY.rpartition(':')[2]}"

    def publish(self, service, plain):
        # What it has made for an image it takes for being in containerd, of which there is another for the next image.
        scratch = tempfile.mkdtemp(dir=bench.SCRATCH)
        return convert(self, plain, f"{self.registry}/{service.image}-soci:latest", [self.program, "convert", scratch], [])
