"""nydus's processes, which its snapshotter leaves behind, and the text about its version."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for name in ("XEBEC_BIN", "BENCH_PROGRAMS", "BENCH_IMAGES", "XEBEC_BUILD", "REGISTRY", "REGISTRY_LOG", "BENCH_SCRATCH"):
    os.environ.setdefault(name, "")

from systems import nydus


def program(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)
    return path


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        named = mock.patch.dict(os.environ, {"BENCH_NYDUS": os.path.join(self.folder, "bin")})
        named.start()
        self.addCleanup(named.stop)

    def part(self, name):
        return os.path.join(self.folder, "bin", name)


class Versions(InFolder):
    def said(self, text):
        return nydus.version_of(program(self.part("nydusd"), f"printf '{text}'"))

    def test_what_a_program_says(self):
        self.assertEqual(self.said("nydusd \\rVersion: \\tv2.2.5-3-gab\\nGit Commit: \\tunknown\\n"), "2.2.5-3-gab")
        self.assertEqual(self.said("Version:     v0.15.16\\nRevision:    unknown\\n"), "0.15.16")

    def test_what_was_built_is_known_where_it_is_not_said(self):
        os.makedirs(os.path.join(self.folder, "versions"))
        with open(os.path.join(self.folder, "versions", nydus.CRATE), "w") as file:
            file.write("2.2.0 0123abcd  -\n")
        self.assertEqual(self.said("nydusd \\rVersion: \\tunknown\\n"), "2.2.0")

    def test_two_unknown_programs_differ(self):
        first, second = (self.said(f"Version: unknown\\nBuild Time: {day}\\n") for day in (1, 2))
        self.assertTrue(first.startswith("unknown ("))
        self.assertNotEqual(first, second)


class Programs(InFolder):
    def host(self, name):
        host = nydus.Nydus(os.path.join(self.folder, name), "namespace")
        os.makedirs(host.top)
        return host

    def test_the_folder_that_is_named_comes_first(self):
        self.assertNotEqual(nydus.Nydus.part("nydusd"), self.part("nydusd"))
        program(self.part("nydusd"), "")
        self.assertEqual(nydus.Nydus.part("nydusd"), self.part("nydusd"))
        self.assertEqual(nydus.Nydus.part("sh"), shutil.which("sh"))

    def test_what_is_not_there_is_named(self):
        with mock.patch.dict(os.environ, {"PATH": ""}):
            self.assertIn("containerd-nydus-grpc is not installed", nydus.Nydus("", "").missing())
            for name in nydus.Nydus.parts:
                program(self.part(name), "")
            self.assertIn("peer-nydus is not installed", nydus.Nydus("", "").missing())
            self.assertIn("peer-stargz", nydus.Optimised("", "").missing())

    def test_no_more_files_are_asked_for_than_are_allowed(self):
        program(self.part("nydusd"), 'echo "$@"')
        started = lambda limit: self.started_with(self.host(f"host{limit}"), limit)
        self.assertEqual(started(resource.RLIM_INFINITY), "fuse --id 1\n")
        self.assertEqual(started(nydus.DEFAULT_FILES), "fuse --id 1\n")
        self.assertEqual(started(20_000), "fuse --id 1 --rlimit-nofile 20000\n")

    @staticmethod
    def started_with(host, limit):
        with mock.patch("resource.getrlimit", lambda _: (1024, limit)):
            command = host.nydusd()
        return subprocess.run([command, "fuse", "--id", "1"], stdout=subprocess.PIPE, text=True, check=True).stdout

    def test_a_host_counts_and_ends_its_own(self):
        os.makedirs(os.path.dirname(self.part("nydusd")))
        shutil.copy(os.path.realpath(shutil.which("sh")), self.part("nydusd"))
        here, there = self.host("host1"), self.host("host10")
        running = {}
        for host in (here, there):
            running[host] = subprocess.Popen([self.part("nydusd"), "-c", "echo; read line", f"{host.top}/daemon/api.sock"],
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(self.end, running[host])
            # Only a program that runs has its arguments in /proc: the kernel lets Popen go on a moment earlier.
            running[host].stdout.readline()
        self.assertEqual([host.nydusds() for host in (here, there)], [[running[here].pid], [running[there].pid]])
        self.assertEqual(here.daemon_pids(), [])  # what belongs to no snapshotter is no cost of a start
        here.daemon = mock.Mock(pid=1, poll=lambda: 0)
        self.assertEqual(here.daemon_pids(), [1, running[here].pid])
        here.stop_daemon()
        self.assertIsNotNone(running[here].wait(timeout=10))
        self.assertIsNone(running[there].poll())

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


class Configuration(unittest.TestCase):
    def test_only_what_is_named_is_prefetched(self):
        plain, optimised = (kind("/top", "namespace").settings() for kind in (nydus.Nydus, nydus.Optimised))
        self.assertEqual(plain.pop("fs_prefetch"), {"enable": False})
        prefetch = optimised.pop("fs_prefetch")
        self.assertTrue(prefetch["enable"])
        self.assertFalse(prefetch["prefetch_all"])
        self.assertEqual(plain, optimised)


if __name__ == "__main__":
    unittest.main()
