"""What cannot be used of a results file is said by file and row."""

import copy
import json
import os
import unittest

import made_up
from reporting import results


class Refused(unittest.TestCase):
    def refused(self, content, *says):
        with made_up.written(content) as (path,):
            for arguments in (("report", path), ("compare", path, path)):
                status, output, complaints = made_up.called(*arguments)
                self.assertEqual(status, 2, output)
                self.assertEqual(output, "")
                for text in (os.path.basename(path), *says):
                    self.assertIn(text, complaints)
                self.assertEqual(complaints.count("\n"), 1)

    def changed(self, change, *says):
        content = copy.deepcopy(made_up.starts())
        change(content)
        self.refused(content, *says)

    def test_no_file(self):
        status, _, complaints = made_up.called("report", "/nowhere/at-all.json")
        self.assertEqual((status, complaints), (2, "report.py: /nowhere/at-all.json: No such file or directory\n"))

    def test_not_json(self):
        for text in ("", "{", "\0", "[" * 200_000):
            self.refused(text, "not JSON")
        self.refused("[]", "not an object")

    def test_not_utf8(self):
        with made_up.written("") as (path,):
            with open(path, "wb") as file:
                file.write(b'{"what": "\xff"}')
            self.assertEqual(made_up.called("report", path)[0], 2)

    def test_other_format(self):
        self.changed(lambda content: content.update(format=2), "its format is 2")
        self.changed(lambda content: content.pop("format"), "its format is null")
        self.changed(lambda content: content.update(what="weather"), '"weather"')

    def test_rows_without_runs(self):
        self.changed(lambda content: content["rows"][1].update(runs=[]), "row 2 (nginx, unlimited, EROFS snapshotter)", "no runs")
        self.changed(lambda content: content["rows"][1].pop("runs"), "row 2", "runs is not a list")
        self.changed(lambda content: content["rows"].__setitem__(3, 7), "row 4", "not an object")

    def test_numbers(self):
        for value in (float("nan"), float("inf"), -1, 1e-300, 1e300, 10**400, "3", True, [1]):
            change = lambda content: content["rows"][4]["runs"][2].update(warm_ms=value)
            says = "run 3", "warm_ms is ", json.dumps(value)[:100]
            self.changed(change, "row 5 (nginx, unlimited, Xebec, runtime image)", *says)
        self.changed(lambda content: content["rows"][0]["runs"][0].update(ready_ms=0), "row 1", "run 1: no ready_ms")
        self.changed(lambda content: content["rows"][0]["once"].update(push_ms=-4), "row 1", "once: push_ms is -4")

    def test_texts(self):
        self.changed(lambda content: content["rows"][0].pop("system"), "row 1 (nginx, unlimited)", "system is null")
        self.changed(lambda content: content["rows"][0].update(network=100), "row 1", "network is 100")
        self.changed(lambda content: content["rows"][0].update(x=[1]), "row 1", "x is [1]")
        self.changed(lambda content: content["rows"][0].update(x=float("inf")), "row 1", "x is Infinity")
        self.changed(lambda content: content.update(machine=None), "machine: not an object")
        self.changed(lambda content: content.update(failed=["all"]), "failed: not an object")

    def test_the_same_row_twice(self):
        self.changed(lambda content: content["rows"].append(content["rows"][0]), "row 31", "the same as row 1")

    def test_kinds_are_not_mixed(self):
        with made_up.written(made_up.starts(), made_up.scenario([1, 2])) as paths:
            status, _, complaints = made_up.called("compare", *paths)
            self.assertEqual(status, 2)
            self.assertIn("scenario batch", complaints)


class Read(unittest.TestCase):
    def test_a_difference_may_be_less_than_nothing(self):
        content = made_up.starts()
        content["rows"][0]["runs"][0]["host_cache_bytes"] = -237_334_528
        with made_up.written(content) as (path,):
            self.assertIn("| -237 MB |", made_up.called("report", path)[1])

    def test_what_is_not_known_is_left_out(self):
        content = made_up.starts()
        content["rows"][0]["runs"][0]["warm_ms"] = None
        del content["rows"][0]["runs"][1]["warm_ms"]
        with made_up.written(content) as (path,):
            self.assertEqual(len(results.load(path).rows[0].values("warm_ms")), 1)

    def test_committed_files(self):
        """Those from before there was a format number, too."""
        read = 0
        for name in sorted(os.listdir(made_up.RESULTS)):
            if name.endswith(".json") and not name.startswith("operations"):
                status, output, complaints = made_up.called("report", os.path.join(made_up.RESULTS, name))
                self.assertEqual((status, complaints), (0, ""), name)
                self.assertIn("| nginx |" if "containerd" in name else "|", output)
                read += 1
        self.assertGreaterEqual(read, 2)

    def test_order(self):
        networks = ["20 Mbit/s", "unlimited", "1000 Mbit/s", "100 Mbit/s", "1000 Mbit/s, round trip 10 ms"]
        expected = ["unlimited", "1000 Mbit/s", "1000 Mbit/s, round trip 10 ms", "100 Mbit/s", "20 Mbit/s"]
        self.assertEqual(sorted(networks, key=results.network_order), expected)
        systems = ["another", "Xebec", "SOCI", "overlayfs"]
        self.assertEqual(sorted(systems, key=results.system_order), ["overlayfs", "SOCI", "Xebec", "another"])


if __name__ == "__main__":
    unittest.main()
