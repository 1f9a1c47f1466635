"""The results file of a benchmark, when it goes on, and what counts as whole."""

import json
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for name in ("XEBEC_BIN", "BENCH_PROGRAMS", "BENCH_IMAGES", "XEBEC_BUILD", "REGISTRY", "REGISTRY_LOG", "BENCH_SCRATCH"):
    os.environ.setdefault(name, "")

import results_file

KEY = {"image": "nginx", "version": "", "network": "unlimited", "system": "overlayfs"}
RUN = {name: 1 for name in results_file.FIGURES} | {"pull_ms": 100.5, "start_ms": 50.25, "ready_ms": 150.75, "create_ms": 20}


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "results.json")
        self.versions = {"containerd": "2", "overlayfs": "2", "Xebec": "1"}
        mock.patch("builtins.print").start()
        self.addCleanup(mock.patch.stopall)

    def results(self, runs=3, **machine):
        patches = mock.patch.multiple(
            results_file, machine=lambda: {"kernel": "6.14"} | machine, versions=lambda present: dict(self.versions)
        )
        with patches:
            return results_file.Results("hello", self.path, runs, [])

    def written(self):
        with open(self.path) as file:
            return json.load(file)

    def test_runs_are_kept_one_by_one_and_gone_on_with(self):
        first = self.results()
        first.add_run(RUN, **KEY, digest="sha256:1", category="web server")
        self.assertEqual(len(self.written()["rows"][0]["runs"]), 1)
        second = self.results()
        self.assertEqual(second.runs(**KEY, digest="sha256:1"), 1)
        second.add_run(RUN, **KEY, digest="sha256:1", category="web server")
        found = self.written()
        self.assertEqual([len(row["runs"]) for row in found["rows"]], [2])
        self.assertEqual(found["rows"][0]["category"], "web server")

    def test_another_image_of_the_name_is_measured_again(self):
        self.results().add_run(RUN, **KEY, digest="sha256:1")
        self.results().add_run(RUN, **KEY | {"network": "no longer asked for"}, digest="sha256:1")
        again = self.results()
        again.forget_others("redis", "", digest="sha256:2")
        self.assertEqual(again.runs(**KEY), 1)
        again.forget_others("nginx", "", digest="sha256:2")
        self.assertEqual(again.found["rows"], [])
        again.add_run(RUN, **KEY, digest="sha256:2")
        self.assertEqual([row["digest"] for row in self.written()["rows"]], ["sha256:2"])

    def test_another_version_before_is_measured_again(self):
        results = self.results()
        results.add_run(RUN, **KEY, digest="sha256:2", digests=["sha256:1", "sha256:2"])
        results.forget_others("nginx", "", digest="sha256:2", digests=["sha256:1", "sha256:2"])
        self.assertEqual(results.runs(**KEY), 1)
        results.forget_others("nginx", "", digest="sha256:2", digests=["sha256:0", "sha256:2"])
        self.assertEqual(results.runs(**KEY), 0)

    def test_runs_that_lack_a_figure_are_not_done(self):
        results = self.results()
        results.add_run(RUN, **KEY)
        results.add_run(RUN | {"update_ms": 1}, **KEY)
        results.only_with("update_ms", **KEY)
        self.assertEqual(results.runs(**KEY), 1)
        results.only_with("other_ms", **KEY)
        self.assertIsNone(results.row(**KEY))

    def test_rows_differ_by_each_part_of_their_key(self):
        results = self.results()
        keys = [KEY | {name: "other"} for name in KEY] + [KEY | {"x": 4}, KEY]
        for key in keys:
            results.add_run(RUN, **key)
        self.assertEqual(len(self.written()["rows"]), len(keys))

    def test_what_failed_has_no_row_until_it_is_measured(self):
        results = self.results()
        results.add_run(RUN, **KEY)
        results.fail(RuntimeError("no answer"), **KEY)
        results.fail(RuntimeError("no answer again"), **KEY)
        self.assertEqual(self.written()["rows"], [])
        self.assertEqual([failed["why"] for failed in self.written()["failed"]], ["no answer again"])
        again = self.results()
        self.assertEqual(len(again.found["failed"]), 1)
        again.add_run(RUN, **KEY)
        self.assertEqual(self.written()["failed"], [])

    def test_another_version_or_machine_begins_anew_and_keeps_the_old_beside_it(self):
        self.results().add_run(RUN, **KEY)
        self.versions["Xebec"] = "2"
        self.assertEqual(self.results().found["rows"], [])
        aside = [name for name in os.listdir(os.path.dirname(self.path)) if name.startswith("results.json.")]
        self.assertEqual(len(aside), 1)
        with open(os.path.join(os.path.dirname(self.path), aside[0])) as file:
            self.assertEqual(len(json.load(file)["rows"]), 1)
        self.results().add_run(RUN, **KEY)
        self.assertEqual(self.results(kernel="6.15").found["rows"], [])

    def test_systems_that_come_or_are_not_asked_for_now_change_nothing(self):
        self.results().add_run(RUN, **KEY)
        del self.versions["Xebec"]
        self.versions["stargz"] = "0.18"
        again = self.results(runs=5)
        self.assertEqual(len(again.found["rows"]), 1)
        self.assertEqual(again.found["versions"], {"containerd": "2", "overlayfs": "2", "Xebec": "1", "stargz": "0.18"})

    def test_what_was_left_out_is_said_anew(self):
        self.results().skip("nydus", "it is not installed")
        self.assertEqual(self.results().found["skipped"], [])


class Whole(unittest.TestCase):
    def gaps(self, runs, wanted=1):
        return results_file.gaps({"rows": [{**KEY, "runs": runs}] if runs else []}, [KEY], wanted)

    def test_a_whole_file_has_no_gaps(self):
        self.assertEqual(self.gaps([RUN, RUN], 2), [])

    def test_a_row_or_run_that_is_missing_is_said(self):
        self.assertEqual(self.gaps([]), ["nginx, unlimited, overlayfs: 0 rows, 0 runs of 1"])
        self.assertEqual(self.gaps([RUN], 2), ["nginx, unlimited, overlayfs: 1 rows, 1 runs of 2"])

    def test_each_figure_is_asked_for(self):
        for name in results_file.FIGURES:
            with self.subTest(name):
                self.assertIn(name, self.gaps([{key: value for key, value in RUN.items() if key != name}])[0])
        for name in results_file.POSITIVE:
            with self.subTest(name):
                self.assertIn(name, self.gaps([RUN | {name: 0}])[0])

    def test_stages_make_up_the_time(self):
        self.assertEqual(len(self.gaps([RUN | {"ready_ms": 151}])), 1)
        self.assertEqual(len(self.gaps([RUN | {"create_ms": 51}])), 1)


if __name__ == "__main__":
    unittest.main()
