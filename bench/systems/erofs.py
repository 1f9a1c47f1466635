"""containerd's EROFS snapshotter: the whole image is downloaded, and each layer becomes an EROFS image.

Configuration: containerd's docs/snapshotters/erofs.md: the EROFS differ before the walking one, and the options that it
names for mkfs.erofs 1.8.2 and newer. Not fs-verity, which costs time and protects what nobody else protects here. As for
overlayfs, as many layers are unpacked at once as there are processors.
"""

import os
import re
import shutil
import subprocess

from systems.base import System

# The first with --tar, which the differ needs, and the first for which --sort=none is recommended.
OLDEST, WITH_SORT = (1, 7), (1, 8, 2)


class Erofs(System):
    name, snapshotter, is_full = "EROFS snapshotter", "erofs", True

    def environment(self):
        """BENCH_EROFS_UTILS: a folder with a newer mkfs.erofs than the distribution's, instead of what scripts/peers.sh took."""
        folder = os.environ.get("BENCH_EROFS_UTILS") or os.path.join(os.environ["XEBEC_TOOLS"], "erofs-utils", "bin")
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def mkfs(self):
        """Version of mkfs.erofs, or `None`."""
        program = shutil.which("mkfs.erofs", path=self.environment()["PATH"])
        if not program:
            return None
        said = subprocess.run([program, "-V"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
        found = re.search(r"\d+(\.\d+)+", said)
        return tuple(map(int, found[0].split("."))) if found else None

    def missing(self):
        mkfs = self.mkfs()
        if not mkfs:
            return "mkfs.erofs is not installed (erofs-utils)"
        if mkfs < OLDEST:
            found, wanted = (".".join(map(str, version)) for version in (mkfs, OLDEST))
            return f"mkfs.erofs is {found}, and the differ needs {wanted} (make bench-peers, or set BENCH_EROFS_UTILS)"
        return None

    def version(self):
        return f"mkfs.erofs {'.'.join(map(str, self.mkfs()))}"

    def configuration(self):
        options = '"-T0", "--mkfs-time", "--sort=none"' if self.mkfs() >= WITH_SORT else ""
        return f"""
[plugins."io.containerd.service.v1.diff-service"]
  default = ["erofs", "walking"]
[plugins."io.containerd.differ.v1.erofs"]
  mkfs_options = [{options}]
[plugins."io.containerd.transfer.v1.local"]
  max_concurrent_unpacks = {os.cpu_count()}
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "erofs"
  differ = "erofs"
"""
