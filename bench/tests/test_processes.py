"""Processes that do not end by themselves, and what does not come."""

import subprocess
import sys
import time
import unittest

import processes


def started(code):
    process = subprocess.Popen([sys.executable, "-c", code + "; print(flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


class Ending(unittest.TestCase):
    def test_one_that_listens_is_not_killed(self):
        with started("import time") as process:
            processes.end(process)
        self.assertEqual(process.returncode, -15)

    def test_one_that_does_not_listen_is_killed(self):
        with started("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)") as process:
            processes.end(process, seconds=0.2)
        self.assertEqual(process.returncode, -9)


class Waiting(unittest.TestCase):
    def test_no_longer_than_told_or_than_the_process_runs(self):
        self.assertTrue(processes.holds(lambda: True, 0))
        self.assertFalse(processes.holds(lambda: False, 0.05))
        with started("import time") as process:
            processes.end(process)
        began = time.monotonic()
        self.assertFalse(processes.holds(lambda: False, 60, process))
        self.assertLess(time.monotonic() - began, 30)
