"""What BENCH_RATES and BENCH_SYSTEMS mean."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for name in ("XEBEC_BIN", "BENCH_PROGRAMS", "BENCH_IMAGES", "XEBEC_BUILD", "REGISTRY", "REGISTRY_LOG", "BENCH_SCRATCH"):
    os.environ.setdefault(name, "")

import network
import systems

NAMES = ["overlayfs", "stargz", "stargz, optimised", "Xebec", "Xebec, runtime image"]


class Networks(unittest.TestCase):
    def test_rates_and_round_trips(self):
        wanted = {
            "0": (None, 0, "unlimited"), "100": (100, 0, "100 Mbit/s"), "10ms": (None, 10, "round trip 10 ms"),
            "2.5ms": (None, 2.5, "round trip 2.5 ms"), "20+10ms": (20, 10, "20 Mbit/s, round trip 10 ms"),
        }
        for text, (mbit, round_trip, name) in wanted.items():
            with self.subTest(text):
                net = network.Network(text)
                self.assertEqual((net.mbit, net.round_trip, str(net)), (mbit, round_trip, name))

    def test_what_is_none_is_an_error(self):
        for text in ("fast", "ms", "10s", "1+2+3ms"):
            with self.subTest(text), self.assertRaises(ValueError):
                network.Network(text)

    def test_what_bytes_take_at_least(self):
        self.assertAlmostEqual(network.Network("100+10ms").least_ms(1_000_000, 3), 80 + 30)
        self.assertEqual(network.Network("0").least_ms(1_000_000, 3), 0)


    def test_what_goes_at_once(self):
        """Two milliseconds' worth, but no less than a few packets."""
        bursts = {mbit: network.bucket(mbit)[4] for mbit in (1000, 100, 20, 1)}
        self.assertEqual(bursts, {1000: "250000b", 100: "25000b", 20: "16384b", 1: "16384b"})


class Systems(unittest.TestCase):
    def test_each_is_the_first_once(self):
        self.assertEqual([systems.in_turn(["a", "b", "c"], number) for number in range(4)],
                         [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]])
        self.assertEqual(systems.in_turn([], 1), [])

    def test_all_of_them_if_none_is_named(self):
        self.assertEqual(systems.asked(NAMES, ""), NAMES)

    def test_a_whole_name_is_that_one(self):
        self.assertEqual(systems.asked(NAMES, "Xebec, overlayfs"), ["overlayfs", "Xebec"])

    def test_a_part_is_all_that_have_it(self):
        self.assertEqual(systems.asked(NAMES, "optimised,Xe"), ["stargz, optimised", "Xebec", "Xebec, runtime image"])

    def test_what_means_nothing_is_nothing(self):
        self.assertEqual(systems.asked(NAMES, "docker"), [])

    def test_names_of_systems_are_their_own(self):
        names = [kind.name for kind in systems.ALL]
        self.assertEqual(len(set(names)), len(names))


if __name__ == "__main__":
    unittest.main()
