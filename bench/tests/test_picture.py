"""The README's picture is made of the results that it names."""

import os
import unittest

import picture
from reporting import results

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RESULTS = os.path.join(TOP, "bench", "results", "hello-2026-11-22.json")


class Picture(unittest.TestCase):
    def test_it_is_up_to_date(self):
        self.assertEqual(picture.main(["--check", RESULTS, os.path.join(TOP, "docs", "starts.svg")]), 0)

    def test_every_system_has_a_bar_on_each_network(self):
        found = results.load(RESULTS)
        drawn = picture.picture(found)
        systems = [system for system in found.systems if system != results.BASE]
        self.assertEqual(drawn.count("<rect"), len(systems) * len(found.networks))
        for system in systems:
            self.assertIn(f">{system}<", drawn)

    def test_an_old_one_is_noticed(self):
        stale = os.path.join(TOP, "README.md")
        self.assertEqual(picture.main(["--check", RESULTS, stale]), 1)


if __name__ == "__main__":
    unittest.main()
