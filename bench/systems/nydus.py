"""nydus, version 2: images converted to RAFS version 6, whose chunks are fetched when they are read (FUSE).

Its parts are nydusd and nydus-image, its snapshotter (containerd-nydus-grpc) with all of its settings as they are without a
configuration file (a nydusd for each image, "fusedev"), and the converter of nydusify, with what that asks for when it is told
nothing (zstd, chunks of 1 MiB).

Configuration of nydusd: that of nydus-snapshotter (misc/snapshotter/nydusd-config.fusedev.json), but for the registry's plain
HTTP and for prefetching, of which nydus's docs/containerd-env-setup.md says to leave it out where it is not needed. By default
all of the image is prefetched as fast as it comes, in requests of 2 MiB, which what the service reads has to share the network
with. `Optimised` is what nydus-snapshotter's docs/optimize_nydus_image.md describes: the files that the service opens are named
in the image, lie in front of its blobs and are prefetched, and nothing else is ("prefetch_all", on by default, is off).
Its own recorder is called by CRI only; that of stargz does the same here, by fanotify as well. docs/bench.md has the figures that
these choices were made by.
"""

import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import tempfile

import bench
import processes
from systems.base import Proxied
from systems.stargz import PERIOD_S, convert

# The time that nydusd gets to take its mount down, which is a moment's work.
PATIENCE_S = 10
MIB = 1 << 20
# The limit of open files that nydusd sets.
DEFAULT_FILES = 1_000_000
# The crate of nydusd and nydus-image (scripts/peers.sh).
CRATE = "nydus-rs"


class Nydus(Proxied):
    name, snapshotter, program = "nydus", "nydus", "peer-nydus"
    parts = ("containerd-nydus-grpc", "nydusd", "nydus-image")
    # The settings of prefetching, if there is any.
    prefetch = {"enable": False}

    @staticmethod
    def part(name):
        """Path of one of its programs: from the folder BENCH_NYDUS, or built by `make bench-peers`."""
        folder = os.environ.get("BENCH_NYDUS")
        return shutil.which(name, path=f"{folder}:{os.environ['PATH']}" if folder else None)

    def missing(self):
        for name in self.parts:
            if not self.part(name):
                return f"{name} is not installed (make bench-peers, or set BENCH_NYDUS to a folder with nydus's programs)"
        return super().missing()

    def version(self):
        converter = bench.run(self.program, "version").strip().lstrip("v")
        # The first two are of one build, but in a folder of the user's.
        found = {name: version_of(self.part(name)) for name in ("nydusd", "nydus-image", "containerd-nydus-grpc")}
        return ", ".join([*(f"{name} {version}" for name, version in found.items()), f"converter {converter}"])

    def publish(self, subject, plain):
        target = f"{bench.REGISTRY}/{subject.repository}-nydus:{subject.tag}"
        return convert(self, plain, target, [self.program, "convert", plain, target, self.part("nydus-image")])

    def settings(self):
        """nydusd's."""
        return {
            "device": {
                "backend": {"type": "registry", "config": {
                    "scheme": "http", "timeout": 5, "connect_timeout": 5, "retry_limit": 2,
                }},
                "cache": {"type": "blobcache"},
            },
            "mode": "direct", "digest_validate": False, "iostats_files": False, "enable_xattr": True, "amplify_io": MIB,
            "fs_prefetch": self.prefetch,
        }

    def command(self, root):
        settings = os.path.join(self.top, "nydusd.json")
        with open(settings, "w") as file:
            json.dump(self.settings(), file)
        return [
            self.part(self.parts[0]), "--root", root, "--address", self.socket, "--nydusd-config", settings,
            "--nydusd", self.nydusd(), "--nydus-image", self.part("nydus-image"), "--log-to-stdout",
        ]

    def nydusd(self):
        """The program, or a script that starts it with fewer files: it ends if it may not raise their limit to its default,
        which its snapshotter cannot be told to change."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if limit == resource.RLIM_INFINITY or limit >= DEFAULT_FILES:
            return self.part("nydusd")
        path = os.path.join(self.top, "nydusd")
        with open(path, "w") as file:
            file.write(f'#!/bin/sh\nexec {shlex.quote(self.part("nydusd"))} "$@" --rlimit-nofile {limit}\n')
        os.chmod(path, 0o755)
        return path

    def stop_daemon(self):
        """The snapshotter leaves a nydusd of each image behind, so that containers can go on without it."""
        super().stop_daemon()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.nydusds():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            if processes.holds(lambda: not self.nydusds(), PATIENCE_S):
                return

    def nydusds(self):
        """Of this host, whose directory stands in their arguments; others may run beside it."""
        of_all = {pid: arguments(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
        # The given path may lead to any program.
        return [pid for pid, words in of_all.items() if is_nydusd(words) and belongs(words, self.top)]

    def daemon_pids(self):
        return super().daemon_pids() + (self.nydusds() if self.daemon else [])


class Optimised(Nydus):
    name, prefetch = "nydus, optimised", {"enable": True, "threads_count": 8, "merging_size": MIB, "prefetch_all": False}
    recorder = "peer-stargz"

    def missing(self):
        if not shutil.which(self.recorder):
            return f"{self.recorder}, which tells what a service opens, is not installed (make bench-peers)"
        return super().missing()

    def publish(self, subject, plain):
        target = f"{bench.REGISTRY}/{subject.repository}-nydus-optimised:{subject.tag}"
        with tempfile.TemporaryDirectory(dir=bench.SCRATCH) as scratch:
            files = os.path.join(scratch, "files")
            return convert(
                self, plain, target,
                [self.recorder, "record", plain, files, str(PERIOD_S), *subject.arguments],
                [self.program, "convert", plain, target, self.part("nydus-image"), files],
            )


def version_of(program):
    """What it says; what `make bench-peers` knows, since a program that was built of a crate says nothing; or what it is."""
    said = re.search(r"\bVersion:\s*v?(\S+)", bench.run(program, "--version"))
    if said and said[1] != "unknown":
        return said[1]
    try:
        with open(os.path.join(os.path.dirname(program), "..", "versions", CRATE)) as file:
            return file.read().split()[0]
    except (OSError, IndexError):
        with open(program, "rb") as file:
            return f"unknown ({hashlib.file_digest(file, 'sha256').hexdigest()[:12]})"


def arguments(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().split("\0")
    except OSError:
        return []


def is_nydusd(arguments):
    """Also one that is run by a shell or a loader."""
    return any(os.path.basename(argument) == "nydusd" for argument in arguments[:4])


def belongs(arguments, top):
    """Whether one of a program's arguments is below a directory."""
    return any(argument.startswith(top + "/") for argument in arguments)
