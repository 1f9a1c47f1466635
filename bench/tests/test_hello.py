"""What starts of the whole catalogue do with what fails, and with what is there already; and what a registry keeps for them."""

import os
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for name in ("XEBEC_BIN", "BENCH_PROGRAMS", "BENCH_IMAGES", "XEBEC_BUILD", "REGISTRY", "REGISTRY_LOG", "BENCH_SCRATCH",
             "BENCH_REGISTRY_NETNS", "BENCH_SECOND_NETNS"):
    os.environ.setdefault(name, "")

import bench
import hello
import network
import published
import results_file
import starting
import subject
import tasks
from budget import Budget


def image(digest="sha256:" + "1" * 64, arguments=()):
    made = types.SimpleNamespace(name="some", versions=[""], digest=lambda _: digest, task=tasks.Task("output", "x"),
                                 category="other", arguments=list(arguments))
    return subject.Subject(made)


class Running(unittest.TestCase):
    def setUp(self):
        for target in ("builtins.print", "traceback.print_exception"):
            mock.patch(target).start()
        mock.patch.multiple(results_file, machine=dict, versions=lambda present: {}).start()
        mock.patch("hello.Published").start()
        self.addCleanup(mock.patch.stopall)
        self.system = types.SimpleNamespace(name="Xebec", is_ours=True, address=bench.REGISTRY)
        self.run = hello.Run([self.system], results_file.Results("hello", None, 3, []), Budget(1000))

    def measure(self, measure, old=()):
        addresses = mock.MagicMock()
        addresses.return_value.__enter__.return_value = "far:1"
        self.run.tell = lambda *_: None
        with mock.patch.object(self.run, "measure", measure), mock.patch("network.delayed", addresses):
            self.run.network(image(), network.Network("10ms"), {"Xebec": {}}, dict.fromkeys(old, {}), {}, {})

    def test_whatever_fails_is_one_failure_and_the_way_is_short_again(self):
        def broken(system, *_):
            self.assertEqual(system.address, "far:1")
            raise KeyError("missing")

        self.measure(broken)
        self.assertEqual((self.run.failures, self.system.address), (1, bench.REGISTRY))
        self.assertEqual([failed["why"] for failed in self.run.results.found["failed"]], ["KeyError: 'missing'"])

    def test_earlier_failures_are_not_of_this_run(self):
        self.run.results.fail("before", image="other", version="", network="", system="Xebec")
        self.assertEqual(self.run.failures, 0)

    def test_a_failure_to_make_an_image_is_kept_until_it_was_made(self):
        self.run.fail("broken", image(), self.system, what="making the image")
        self.run.budget = Budget(0)
        self.assertEqual(self.run.publish(image(), [self.system]), {})
        self.assertEqual(len(self.run.results.found["failed"]), 1)
        self.run.budget = Budget(1000)
        self.run.publish(image(), [self.system])
        self.assertEqual(self.run.results.found["failed"], [])

    def test_an_image_that_cannot_be_read_is_its_own_failure(self):
        with mock.patch("subject.Subject.size", mock.PropertyMock(side_effect=ValueError("no JSON"))):
            self.run.image(image().image)
        self.assertEqual(self.run.failures, 1)


class Settling(unittest.TestCase):
    def test_what_comes_in_the_background_is_waited_for_but_not_for_ever(self):
        for moved, looks in (([0, 90_000, 190_000, 191_000, 500_000], 4), (range(0, 10**9, 10**6), 31)):
            now, seen = [0.0], []
            moved = iter(moved)

            def counters():
                seen.append(next(moved))
                return {"rx_bytes": seen[-1]}

            def sleep(seconds):
                now[0] += seconds

            clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
            with mock.patch("starting.time", clock), mock.patch.object(starting.LINK, "counters", counters):
                starting.settle()
            self.assertEqual(len(seen), looks)


class Registry(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        mock.patch("bench.REGISTRY_LOG", os.path.join(self.folder, "log")).start()
        self.addCleanup(mock.patch.stopall)

    def test_another_image_or_way_to_run_it_is_made_anew(self):
        made = []
        system = types.SimpleNamespace(name="Xebec", version=lambda: "1", publish=lambda one, plain: made.append(one.tag) or {})
        with mock.patch("published.push"):
            for one in (image(), image(), image("sha256:" + "2" * 64), image(arguments=["x"])):
                published.Published().of(system, one)
        self.assertEqual(made, ["latest-" + "1" * 12, "latest-" + "2" * 12, "latest-" + "1" * 12])


if __name__ == "__main__":
    unittest.main()
