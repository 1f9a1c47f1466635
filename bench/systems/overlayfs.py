"""overlayfs: the whole image is downloaded and unpacked into directories. containerd's default, and what all are compared
with.

Configuration: as it comes, but that as many layers are unpacked at once as there are processors (containerd unpacks one).
"""

import os
import shutil

import bench
from systems.base import System


class Overlayfs(System):
    name, snapshotter, is_full = "overlayfs", "overlayfs", True

    def missing(self):
        return None if shutil.which("containerd") else "containerd is not installed (make setup)"

    def version(self):
        unpigz = "unpigz" if shutil.which("unpigz") else "Go's gzip"
        return f"{bench.run('containerd', '--version').split()[2]}, {unpigz}"

    def configuration(self):
        return f"""
[plugins."io.containerd.transfer.v1.local"]
  max_concurrent_unpacks = {os.cpu_count()}
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "overlayfs"
"""
