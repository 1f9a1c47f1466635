"""What `compare.py` says of results whose differences are known, and how often it is wrong about noise."""

import copy
import json
import random
import unittest

import made_up
from reporting import noise, results


def noisy(generator, runs, sigma, outliers=0.0, factor=lambda image, system, name: 1):
    """Results of six images and four systems: times that vary in proportion, some far off; processor time in ticks."""
    rows = []
    for image in range(6):
        for system in range(4):
            base = {"ready_ms": 100 * (1 + image) * (1 + system), "warm_ms": 90 + 10 * image, "rx_bytes": 1e6 * (1 + image),
                    "client_cpu_ms": 20, "containerd_cpu_ms": 50 * (1 + image), "daemon_cpu_ms": 0}

            def value(name):
                off = generator.uniform(1.2, 2) if generator.random() < outliers else 1
                found = base[name] * factor(image, system, name) * off * generator.lognormvariate(0, sigma)
                return round(found / 10) * 10 if name == "containerd_cpu_ms" else found

            made = [{name: value(name) for name in base} for _ in range(runs)]
            rows.append(made_up.row(f"image {image}", f"system {system}", made))
    return results.Results("made up", made_up.file(rows))


def twice(content):
    return copy.deepcopy(content), copy.deepcopy(content)


class Rule(unittest.TestCase):
    def test_student(self):
        """Against tables of Student's t."""
        known = ((12.706, 1, 0.05), (4.303, 2, 0.05), (2.776, 4, 0.05), (8.610, 4, 0.001), (3.169, 10, 0.01))
        for t, freedom, probability in known:
            self.assertAlmostEqual(noise.two_sided(t, freedom), probability, delta=probability / 500)
            self.assertAlmostEqual(noise.quantile(probability, freedom), t, delta=2e-3)
        self.assertEqual(noise.two_sided(0, 3), 1)

    def test_one_difference(self):
        """Logarithms 1, 2, 3 and 5, 6, 7: a difference of 4, its error the square root of 2/3, four degrees of freedom."""
        sides = [[2.718281828**power for power in powers] for powers in ((15, 16, 17), (11, 12, 13))]
        ratio, error, freedom, probability = noise.contrast("requests", [sides])
        self.assertAlmostEqual(ratio, 2.718281828**4, places=3)
        self.assertAlmostEqual(error, (2 / 3) ** 0.5, places=4)
        self.assertAlmostEqual(freedom, 4, places=3)
        self.assertAlmostEqual(probability, 0.00805, places=4)  # t = 4.899

    def test_equal_runs_are_no_certainty(self):
        """Three times 20 ms of processor time and three times 30 are a tick."""
        *_, probability = noise.contrast("client_cpu_ms", [[[30] * 3, [20] * 3]])
        self.assertGreater(probability, 0.05)
        *_, probability = noise.contrast("requests", [[[80] * 3, [20] * 3]])
        self.assertLess(probability, 1e-4)

    def test_false_alarms(self):
        """Files that differ by noise alone, 120 of each kind, of 112 figures each: at most one in twenty may be said to differ.
        Four times the root of the variance of so few beside it; what is counted is in docs/bench-report.md."""
        for runs in (3, 5):
            for sigma, outliers in ((0.03, 0), (0.1, 0), (0.05, 0.1)):
                generator, alarms, apart, expected = random.Random(6), 0, 0, 0.0
                for _ in range(120):
                    found = noise.Comparison(noisy(generator, runs, sigma, outliers), noisy(generator, runs, sigma, outliers))
                    self.assertEqual(len(found.differences), 112)
                    alarms += any(one.verdict for one in found.differences)
                    apart += sum(one.apart for one in found.differences if one.rows == 1)
                    expected += found.expected
                most = noise.ALARMS + 4 * (0.05 * 0.95 / 120) ** 0.5
                self.assertLessEqual(alarms / 120, most, f"{runs} runs, {sigma}, {outliers}")
                # Without the rule, by ranges alone, there would be as many as chance makes.
                self.assertAlmostEqual(apart / expected, 1, delta=0.35)

    def test_what_differs_is_found(self):
        generator = random.Random(7)
        double = lambda image, system, name: 2 if (image, system, name) == (2, 1, "ready_ms") else 1
        tenth = lambda image, system, name: 1.1 if (system, name) == (1, "ready_ms") else 1
        rows, systems = 0, 0
        for _ in range(30):
            found = noise.Comparison(noisy(generator, 5, 0.05), noisy(generator, 5, 0.05, factor=double)).found("worse")
            rows += any((one.where, one.name) == ("image 2, 100 Mbit/s", "ready_ms") for one in found)
            found = noise.Comparison(noisy(generator, 3, 0.03), noisy(generator, 3, 0.03, factor=tenth)).found("worse")
            systems += any((one.rows, one.system, one.name) == (6, "system 1", "ready_ms") for one in found)
        self.assertGreaterEqual(rows, 27)
        self.assertGreaterEqual(systems, 27)


class Program(unittest.TestCase):
    def changed(self, change, base=None):
        before, after = twice(base or made_up.starts(5))
        for row in after["rows"]:
            change(row)
        return before, after

    def compared(self, before, after, *options):
        with made_up.written(before, after) as paths:
            return made_up.called("compare", *options, *paths)

    def test_nothing(self):
        status, output, complaints = self.compared(*self.changed(lambda row: None))
        self.assertEqual((status, complaints), (0, ""))
        self.assertIn("0 worse, 0 better, 0 changed", output)

    def slower(self, factor, system="Xebec"):
        def change(row):
            if row["system"] == system:
                for run in row["runs"]:
                    run["ready_ms"] *= factor

        return self.changed(change)

    def test_worse_and_better(self):
        status, output, _ = self.compared(*self.slower(2))
        self.assertEqual(status, 1)
        self.assertRegex(output, r"worse, beyond noise:\n  Xebec +over 6 rows +ready: 2\.00 times")
        self.assertNotIn("nydus", output)
        status, output, _ = self.compared(*self.slower(0.5))
        self.assertEqual(status, 0)
        self.assertRegex(output, r"better, beyond noise:\n  Xebec +over 6 rows +ready: 0\.50 times")

    def test_little_does_not_count(self):
        self.assertEqual(self.compared(*self.slower(1.03), "--system", "Xebec")[0], 0)
        self.assertEqual(self.compared(*self.slower(2), "--least", "150")[0], 0)

    def test_chosen_systems(self):
        self.assertEqual(self.compared(*self.slower(2, "nydus"), "--system", "Xebec")[0], 0)
        self.assertEqual(self.compared(*self.slower(2, "nydus"), "--system", "Xebec", "--system", "nyd")[0], 1)

    def test_beside(self):
        """All twice as slow: the machine. One alone: that one."""
        def all_of_them(row):
            for run in row["runs"]:
                run["ready_ms"] *= 2

        before, after = self.changed(all_of_them)
        self.assertEqual(self.compared(before, after)[0], 1)
        status, output, _ = self.compared(before, after, "--beside", "overlayfs")
        self.assertEqual(status, 0, output)
        self.assertEqual(self.compared(*self.slower(2), "--beside", "overlayfs")[0], 1)
        status, _, complaints = self.compared(before, after, "--beside", "nothing")
        self.assertEqual(status, 2)
        self.assertIn("nothing of nothing in it", complaints)

    def test_rates_are_worse_if_they_are_less(self):
        def change(row):
            for run in row["runs"]:
                run["answers_per_s"] /= 2

        status, output, _ = self.compared(*self.changed(change, made_up.scenario([1, 2, 4])))
        self.assertEqual(status, 1)
        self.assertRegex(output, r"worse, beyond noise:\n.*answers: 0\.50 times")

    def test_json(self):
        status, output, _ = self.compared(*self.slower(2), "--json")
        found = json.loads(output)
        self.assertEqual((status, found["format"], found["better"], found["missing"]), (1, 1, [], {"before": [], "after": []}))
        self.assertLess(max(one["adjusted"] for one in found["worse"]), noise.ALARMS)
        for one in found["worse"]:
            self.assertEqual((one["system"], one["name"]), ("Xebec", "ready_ms"))
            self.assertTrue(one["low"] < 2 < one["high"])

    def test_what_else_differs_is_said(self):
        before, after = twice(made_up.starts())
        after["machine"]["kernel"] = "7.0"
        del after["versions"]["Xebec"], after["rows"][0]
        _, output, _ = self.compared(before, after)
        gone = "only before: 1 rows, nginx/unlimited/overlayfs"
        for text in ("machine: kernel was 6.18, is 7.0", "versions: Xebec was 0.1, is None", gone):
            self.assertIn(text, output)

    def test_single_runs_say_nothing(self):
        status, _, complaints = self.compared(made_up.starts(1), made_up.starts(1))
        self.assertEqual(status, 2)
        self.assertIn("no row in common with two runs or more", complaints)

    def test_usage(self):
        for arguments in ((), ("one.json",), ("--least", "-1", "a", "b"), ("--least", "nan", "a", "b")):
            self.assertEqual(made_up.called("compare", *arguments)[0], 2)
        for program in ("compare", "report"):
            status, output, _ = made_up.called(program, "--help")
            self.assertEqual(status, 0)
            self.assertIn("examples:", output)


if __name__ == "__main__":
    unittest.main()
