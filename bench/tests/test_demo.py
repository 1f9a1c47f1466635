"""The demo's table and chart."""

import json
import os
import tempfile
import unittest

import demo


def start(total, requests=1, size=1_500_000, **stages):
    return {
        "total_ms": total,
        "stages_ms": stages,
        "network": {"requests": requests, "bytes": size},
        "counted": {"requests": requests, "bytes": size + 10_000},
        "touched": {"files": 3, "pages": 4},
    }


NETWORKS = {
    "unlimited network": {
        "full": start(3880.4, pull=457, unpack=3304, ready=82),
        "lazy": start(450.4, requests=37, resolve=51.8, ready=268.8),
        "recorded": start(240.0, requests=5, resolve=51.8),
        "warm": start(46.1, size=0, resolve=1.3),
    },
    "100 Mbit/s": {name: start(total) for name, total in (("full", 9000), ("lazy", 1300), ("recorded", 300), ("warm", 46))},
}


class Table(unittest.TestCase):
    def test_each_start_has_its_column(self):
        lines = list(demo.table(NETWORKS))
        totals = [line.split() for line in lines if line.strip().startswith("ms until")]
        self.assertEqual(totals[0][-4:], ["3,880", "450", "240", "46"])
        self.assertEqual(totals[1][-4:], ["9,000", "1,300", "300", "46"])
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_what_is_not_measured_is_no_zero(self):
        [pull] = [line for line in demo.table(NETWORKS) if "pull every layer" in line]
        self.assertEqual(pull.split()[-4:], ["457", "-", "-", "-"])

    def test_a_stage_that_no_start_has_is_left_out(self):
        self.assertFalse([line for line in demo.table(NETWORKS) if "create the container" in line])

    def test_what_the_registry_counted_stands_beside(self):
        [ours, *_] = [line.split()[-4:] for line in demo.table(NETWORKS) if "over the network" in line]
        [theirs, *_] = [line.split()[-4:] for line in demo.table(NETWORKS) if "registry counted" in line]
        self.assertEqual((ours[0], theirs[0]), ("1.50", "1.51"))


class Chart(unittest.TestCase):
    def test_bars_have_one_scale(self):
        _, *lines = demo.chart(NETWORKS, 86)
        self.assertEqual(len(lines), 8)
        longest = max(line.count("█") for line in lines)
        self.assertEqual(longest, 40)
        self.assertEqual([line.count("█") for line in lines if "full" in line], [17, 40])
        self.assertTrue(all(len(line) <= 86 for line in lines), lines)

    def test_a_short_bar_is_seen(self):
        self.assertEqual(demo.bar(1, 100_000, 40), "▏")
        self.assertEqual(demo.bar(100, 100, 40), "█" * 40)


class Files(unittest.TestCase):
    def test_networks_come_in_their_order(self):
        with tempfile.TemporaryDirectory() as folder:
            for network in ("100", "0"):
                for name in demo.STARTS:
                    with open(os.path.join(folder, f"{network}.{name}.json"), "w") as file:
                        json.dump(start(1), file)
            open(os.path.join(folder, "step.log"), "w").close()
            self.assertEqual(list(demo.read(folder)), ["unlimited network", "100 Mbit/s"])


if __name__ == "__main__":
    unittest.main()
