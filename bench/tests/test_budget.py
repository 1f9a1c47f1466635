"""What a benchmark may still begin."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import budget


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Spending(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()

    def spend(self, one, kind, seconds):
        with one.spending(kind):
            self.clock.now += seconds

    def test_without_a_limit_all_is_allowed(self):
        one = budget.Budget(float("inf"), clock=self.clock)
        self.spend(one, "slow", 1e9)
        self.assertTrue(one.allows("slow"))

    def test_what_would_take_longer_than_is_left_is_not_begun(self):
        one = budget.Budget(100, clock=self.clock)
        self.spend(one, "slow", 30)
        self.spend(one, "fast", 5)
        self.spend(one, "slow", 20)
        self.assertEqual(one.left(), 45)
        self.assertTrue(one.allows("slow"))
        self.clock.now += 20
        self.assertFalse(one.allows("slow"))
        self.assertTrue(one.allows("fast"))
        self.assertTrue(one.allows("never seen"))
        self.clock.now += 25
        self.assertFalse(one.allows("never seen"))

    def test_what_was_spent_before_counts(self):
        self.assertEqual(budget.Budget(100, 60, self.clock).left(), 40)
        self.assertFalse(budget.Budget(100, 100, self.clock).allows("anything"))

    def test_what_fails_has_taken_its_time(self):
        one = budget.Budget(100, clock=self.clock)
        with self.assertRaises(RuntimeError):
            with one.spending("slow"):
                self.clock.now += 60
                raise RuntimeError
        self.assertFalse(one.allows("slow"))


if __name__ == "__main__":
    unittest.main()
