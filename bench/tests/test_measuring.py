"""What starts are measured with: counters, the files of the registry, recordings, and that nothing is left of what fails."""

import json
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for name in ("XEBEC_BIN", "BENCH_PROGRAMS", "BENCH_IMAGES", "XEBEC_BUILD", "REGISTRY", "REGISTRY_LOG", "BENCH_SCRATCH"):
    os.environ.setdefault(name, "")

import bench
import cost
import runner
import services
import stored
import tasks
from systems import xebec


class Forgotten(unittest.TestCase):
    def test_networks_go_before_their_records(self):
        done = []
        def told(*arguments):
            done.append(" ".join(arguments))
            return '[{"name": "bridge"}, {"name": "shop"}]' if "ls" in arguments else ""
        with mock.patch.object(bench, "xebec", told), mock.patch.object(bench, "forget", lambda: done.append("forget")):
            runner.forget()
        self.assertEqual(done, ["network ls --json", "network rm bridge", "network rm shop", "forget"])


class Counted(unittest.TestCase):
    def test_only_the_page_cache_may_shrink(self):
        link, cached = mock.Mock(), mock.Mock(side_effect=[9000, 4000])
        link.counters.side_effect = [{"rx_bytes": 5}, {"rx_bytes": 12}]
        spent = mock.Mock(side_effect=[30.0, 10.0])
        with tempfile.NamedTemporaryFile() as log, mock.patch.object(bench, "REGISTRY_LOG", log.name), \
                mock.patch.object(cost, "host_cache_bytes", cached), mock.patch.object(cost, "processor_ms", spent):
            found = cost.Meter(link, {"daemon": lambda: [1]}).read()
        self.assertEqual((found["host_cache_bytes"], found["rx_bytes"], found["daemon_cpu_ms"]), (-5000, 7, 0))


class Stored(unittest.TestCase):
    """A registry's directory, written by hand."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name

    def write(self, path, content):
        path = os.path.join(self.top, "storage/docker/registry/v2", path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(content)

    def blob(self, letter, content="", revision=False, tag=None):
        name = letter * 64
        self.write(f"blobs/sha256/{letter * 2}/{name}/data", content)
        for place in ["revisions/sha256/" + name] * revision + [f"tags/{tag}/current"] * bool(tag):
            self.write(f"repositories/some/image/_manifests/{place}/link", f"sha256:{name}")

    def found(self, reference):
        return sorted(os.path.basename(os.path.dirname(path))[0] for path in stored.files(self.top, reference))

    def test_all_that_is_pulled(self):
        named = lambda *letters: json.dumps([f"sha256:{letter * 64}" for letter in letters])
        # Of "9", which is nowhere, an annotation speaks.
        self.blob("a", named("b", "c", "9"), revision=True, tag="1.0")
        self.blob("b")
        self.blob("c", named("f"))  # a layer, whatever is in it
        self.blob("d", named("e"), revision=True, tag="sha256-" + "a" * 64)
        self.blob("e", named("a", "8"), revision=True)
        self.blob("8")
        self.blob("f", revision=True, tag="2.0")
        self.assertEqual(self.found("10.88.0.2:5000/some/image:1.0"), ["8", "a", "b", "c", "d", "e"])
        self.assertEqual(self.found("localhost:4000/some/image:2.0"), ["f"])

    def test_what_is_not_there(self):
        with self.assertRaisesRegex(RuntimeError, "r/some/image:3.0 is not in the registry"):
            self.found("r/some/image:3.0")


class Recorded(unittest.TestCase):
    TASK = tasks.Task("output", "hello")

    def record(self, script):
        """What is made of the words of a program in place of Xebec."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program")
            with open(program, "w") as file:
                file.write(f"#!/bin/sh\n{script}\n")
            os.chmod(program, 0o755)
            with mock.patch.multiple(bench, XEBEC=program, SCRATCH=folder), mock.patch.object(services, "TIMEOUT", 10):
                return services.record(self.TASK, "image")

    def test_more_than_a_pipe_holds(self):
        said = "head -c 300000 /dev/zero | tr '\\0' x; printf '{\\n\"pages\": 3}'"
        self.assertEqual(self.record(said), {"pages": 3})

    def test_who_says_something_else(self):
        with self.assertRaisesRegex(RuntimeError, "recording image: .*hello"):
            self.record("echo hello")


class Published(unittest.TestCase):
    def test_nothing_is_left_of_what_fails(self):
        subject = mock.Mock(repository="some", tag="1.0")
        fails = mock.Mock(side_effect=RuntimeError("xebec index failed"))
        with mock.patch.multiple(bench, run=mock.DEFAULT, xebec=fails, forget=mock.DEFAULT) as mocks, \
                mock.patch.object(services, "fresh_host"), mock.patch.object(xebec.Lazy, "program_digest", lambda *_: "0"):
            with self.assertRaises(RuntimeError):
                xebec.Lazy("/nowhere", "namespace").publish(subject, "plain")
        mocks["forget"].assert_called_once_with()


if __name__ == "__main__":
    unittest.main()
