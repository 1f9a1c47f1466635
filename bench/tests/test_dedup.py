"""The series whose layers are kept once, and the table of what each adds."""

import unittest

import dedup_growth
import dedup_series


class Series(unittest.TestCase):
    def test_parts_of_one_name_are_the_same(self):
        for made in (dedup_series.few(), dedup_series.many()):
            parts = {}
            for version in made:
                for part in version.parts:
                    self.assertEqual(parts.setdefault(part.name, part), part)

    def test_versions_are_in_their_order_and_newer_ones_on_updates(self):
        for _, kind, what, _, versions in dedup_series.MANY.values():
            numbers = [tuple(map(int, version.split("."))) for version in versions.split()]
            self.assertEqual(numbers, sorted(set(numbers)))
        states = {}
        for version in dedup_series.many():
            if version.series in dedup_series.MANY:
                states.setdefault(version.series, []).append(version.parts[0].state)
        for series, of_series in states.items():
            self.assertEqual(of_series, sorted(of_series), series)
            self.assertEqual(set(of_series), {"12", "12-updated"}, series)

    def test_a_version_lies_on_the_language_of_its_state(self):
        for version in dedup_series.many():
            self.assertTrue(version.parts[0].name == f"base-{version.parts[0].state}")
            self.assertEqual({part.state for part in version.parts}, {version.parts[0].state}, version)


class Growth(unittest.TestCase):
    def test_figures_are_what_each_series_adds(self):
        lines = ["base.gz  1.0", "so far debian 100 300 300 60 1", "so far tomcat 180 500 310 70 2"]
        self.assertEqual(list(dedup_growth.rows(lines)), [("debian", [100, 300, 300, 60, 1]), ("tomcat", [80, 200, 10, 10, 1])])


if __name__ == "__main__":
    unittest.main()
