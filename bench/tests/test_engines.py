"""Starts by engines: what is no cold start, and what does not come to be ready."""

import os
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for name in ("XEBEC_BIN", "BENCH_PROGRAMS", "BENCH_IMAGES", "XEBEC_BUILD", "REGISTRY", "REGISTRY_LOG", "BENCH_SCRATCH",
             "BENCH_NAMESPACE", "BENCH_SECOND_NETNS", "BENCH_REGISTRY_NETNS", "BENCH_REGISTRY_PID"):
    os.environ.setdefault(name, "")

import engines


def subject(answers):
    return mock.Mock(size=10_000_000, task=mock.Mock(answers=mock.Mock(side_effect=answers)))


class Engines(unittest.TestCase):
    def test_what_moved_says_whether_it_was_cold_and_lazy(self):
        cases = [
            (True, 9_900_000, True), (True, 5_000_000, False), (False, 1_000_000, True), (False, 50_000, False),
            (False, 9_900_000, False),
        ]
        for is_full, moved, is_right in cases:
            with self.subTest(is_full=is_full, moved=moved):
                system = mock.Mock(is_full=is_full, is_lazy=lambda _, full=is_full: not full)
                prove = lambda: engines.prove_cold(system, subject([]), {"rx_bytes": moved, "requests": 3})
                if is_right:
                    prove()
                else:
                    self.assertRaises(RuntimeError, prove)

    def test_a_start_is_over_when_the_task_is_done(self):
        engine = mock.Mock(begin=lambda *_: None)
        self.assertLess(engines.run(engine, subject([False, True]), "reference", "name", 5), 5_000)

    def test_a_command_that_fails_is_said(self):
        fails = lambda *_: subprocess.Popen(["sh", "-c", "echo no such image >&2; exit 3"], stderr=subprocess.PIPE)
        engine = mock.Mock(begin=fails, last_words=lambda: "")
        never = mock.Mock(task=mock.Mock(answers=lambda: False))
        with self.assertRaisesRegex(RuntimeError, "no such image"):
            engines.run(engine, never, "reference", "name", 5)

    def test_nobody_waits_for_ever(self):
        engine = mock.Mock(begin=lambda *_: None, last_words=lambda: "its log")
        never = mock.Mock(task=mock.Mock(answers=lambda: False))
        with self.assertRaisesRegex(RuntimeError, "its log"):
            engines.run(engine, never, "reference", "name", 0.05)


if __name__ == "__main__":
    unittest.main()
