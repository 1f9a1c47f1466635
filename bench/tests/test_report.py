"""Tables and the page: their numbers against ones counted by hand, and against one another."""

import copy
import math
import os
import re
import tempfile
import unittest
import xml.etree.ElementTree as tree

import made_up
from reporting import charts, figures, page, results, tables

ODD = '<b>&"\'|`</b>'


def loaded(content):
    with made_up.written(content) as (path,):
        return results.load(path)


def as_xml(text):
    """The page is XML as well, but for empty elements that HTML leaves open."""
    text = text.removeprefix("<!DOCTYPE html>\n")
    return tree.fromstring(re.sub(r"<(meta)([^>]*)>", r"<\1\2/>", text))


class Numbers(unittest.TestCase):
    def test_written(self):
        for name, value, expected in (
            ("ready_ms", 0, "0 ms"), ("ready_ms", 3.14159, "3.1 ms"), ("latency_ms", 0.4123, "0.41 ms"),
            ("ready_ms", 127.6, "128 ms"), ("ready_ms", 999.4, "999 ms"), ("ready_ms", 999.6, "1.00 s"),
            ("ready_ms", 12345, "12.3 s"), ("ready_ms", 1_234_567, "1,235 s"),
            ("rx_bytes", 12, "12 B"), ("rx_bytes", 4096, "4.10 kB"), ("rx_bytes", 999_999, "1.00 MB"),
            ("rx_bytes", 7e10, "70.0 GB"),
            ("requests", 8, "8"), ("requests", 8.5, "8.50"), ("answers_per_s", 12345.6, "12,346 /s"), ("epoch_s", 0.25, "250 ms"),
            ("epoch_s", 61, "61.0 s"), ("warm_ms", None, "–"),
        ):
            self.assertEqual(figures.written(name, value), expected)

    def test_spread(self):
        self.assertEqual(figures.spread("ready_ms", [1100, 900, 1320]), "1.10 s (0.90–1.32)")
        self.assertEqual(figures.spread("ready_ms", [5, 5, 5]), "5.0 ms")
        self.assertEqual(figures.spread("rx_bytes", [100_000_001, 100_000_002]), "100 MB")
        self.assertEqual(figures.spread("requests", [7, 8]), "7.50 (7.00–8.00)")
        self.assertEqual(figures.spread("ready_ms", []), "–")

    def test_geometric_mean(self):
        self.assertAlmostEqual(figures.geometric_mean([1, 10, 100]), 10)
        self.assertAlmostEqual(figures.geometric_mean([2, 8]), 4)
        self.assertIsNone(figures.geometric_mean([]))

    def test_host_processor_time_is_a_sum(self):
        found = loaded(made_up.starts())
        self.assertEqual(figures.values(found.rows[0], "host_cpu_ms"), [142.5] * 3)
        self.assertEqual(figures.values(found.rows[0], "amplification"), [])

    def test_amplification(self):
        found = loaded(made_up.file([made_up.row("a", "s", [made_up.run(1, 1, read_bytes=read) for read in (250_000, 0)])]))
        self.assertEqual(figures.spread("amplification", figures.values(found.rows[0], "amplification")), "4.00×")


class Tables(unittest.TestCase):
    def setUp(self):
        self.found = loaded(made_up.file([
            made_up.row("nginx", "overlayfs", [made_up.run(ms, 100) for ms in (800, 900, 1900)]),  # 1000
            made_up.row("nginx", "nydus", [made_up.run(ms, 100) for ms in (300, 400, 500)]),  # 500
            made_up.row("nginx", "Xebec", [made_up.run(ms, 100) for ms in (150, 100, 140, 160)]),  # 245
            made_up.row("gcc", "overlayfs", [made_up.run(ms, 1000) for ms in (8000, 7000, 9000)]),  # 9000
            made_up.row("gcc", "Xebec", [made_up.run(900, 100)]),  # 1000
        ]))

    def test_medians_and_ratios(self):
        table = tables.starts(self.found)
        rows = {(row[0], row[2]): dict(zip(table.columns, row)) for row in table.rows}
        mine = rows["nginx", "Xebec"]
        self.assertEqual(mine["ready"], "245 ms (200–260)")
        self.assertEqual(mine["over overlayfs"], "4.08×")  # 1000 / 245
        self.assertEqual(mine["over best peer"], "2.04×")  # 500 / 245
        self.assertEqual(mine["runs"], "4")
        self.assertIsInstance(mine["ready"], tables.Strong)
        self.assertEqual(rows["nginx", "nydus"]["over best peer"], "2.00×")  # over overlayfs: not over itself, not over ours
        self.assertEqual(rows["nginx", "overlayfs"]["over best peer"], "0.50×")
        self.assertEqual(rows["nginx", "overlayfs"]["ready"], "1.00 s (0.90–2.00)")
        self.assertNotIsInstance(rows["nginx", "overlayfs"]["ready"], tables.Strong)

    def test_summary(self):
        rows = {(row[0], row[2]): row for row in tables.summary(self.found).rows}
        mean = math.sqrt(1000 / 245 * 9)
        self.assertEqual(rows["all", "Xebec"][3:5], ["2", f"{mean:.2f}×"])
        self.assertEqual(rows["all", "Xebec"][6], f"{math.sqrt(245 * 1000):.0f} ms")
        self.assertEqual(rows["language", "Xebec"][4], "9.00×")
        self.assertNotIn(("language", "nydus"), rows)

    def test_an_overall_mean_of_fewer_images_says_so(self):
        rows = {row[0]: row[1] for row in tables.speedups(self.found).rows}
        self.assertEqual(rows["nydus"], "2.00× (1 of 2)")
        self.assertEqual(rows["Xebec"], "6.06×")

    def test_processor_time_is_of_images_that_all_have(self):
        self.assertEqual([count for _, count, _ in tables.processor_parts(self.found, "100 Mbit/s")], [1, 1, 1])

    def test_markdown(self):
        text = tables.markdown(self.found)
        self.assertIn("**245 ms (200–260)**", text)
        for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in table.strip().split("\n")}), 1)
        self.assertEqual(tables.plain("a|b <c>\n*d*"), "a\\|b &lt;c&gt; \\*d\\*")

    def test_versions_of_an_image_are_one_line(self):
        content = made_up.scenario([1, 2, 3], "update")
        for row in content["rows"]:
            row["version"] = f"1.{row['x']}"
        for variable, lines in (("version", {"redis"}), ("containers", {"redis 1.1", "redis 1.2", "redis 1.3"})):
            found = loaded({**content, "variable": variable})
            self.assertEqual({tables.subject(found, row) for row in found.rows}, lines)

    def test_rates_are_better_if_they_are_more(self):
        table = tables.scenario(loaded(made_up.scenario([""])))
        rows = {row[2]: row for row in table.rows}
        self.assertEqual(table.columns[3:7], ["all ready", "over overlayfs", "answers", "over overlayfs"])
        self.assertEqual(rows["Xebec"][3:7], ["101 ms (100–102)", "4.96×", "45,000 /s", "5.00×"])

    def test_what_was_not_measured_is_said(self):
        found = loaded(made_up.file([], failed=[{"image": "gcc", "network": "unlimited", "system": "SOCI", "why": "it broke"}],
                                    skipped=[{"what": "nydus", "why": "not installed"}]))
        text = tables.markdown(found)
        self.assertIn("| SKIPPED | nydus | not installed |", text)
        self.assertIn("| FAILED | SOCI, gcc, unlimited | it broke |", text)
        self.assertIn("it broke", page.page([found]))


class Page(unittest.TestCase):
    def setUp(self):
        scenarios = ([1, 2, 4, 32], "batch"), ([""], "throughput"), (["1.0", "1.1"], "update")
        self.files = [loaded(made_up.starts()), *(loaded(made_up.scenario(*scenario)) for scenario in scenarios)]
        self.text = page.page(self.files)
        self.document = as_xml(self.text)

    def test_it_needs_nothing_else(self):
        for tag in ("script", "link", "img", "iframe", "object"):
            self.assertEqual(self.document.findall(f".//{tag}"), [])
        self.assertNotRegex(self.text, r"url\(|@import|https?://")
        for made in self.document.iter("a"):
            self.assertTrue(made.get("href").startswith("#"))

    def test_links_and_names_lead_somewhere(self):
        names = [made.get("id") for made in self.document.iter() if made.get("id")]
        self.assertEqual(len(names), len(set(names)))
        for made in self.document.iter("a"):
            self.assertIn(made.get("href")[1:], names)
        pictures = [made for made in self.document.iter("svg") if made.get("role") == "img"]
        self.assertGreater(len(pictures), 15)
        for picture in pictures:
            self.assertEqual([picture[0].tag, picture[1].tag], ["title", "desc"])
            self.assertTrue(picture[0].text and picture[1].text)
            self.assertEqual(picture.get("aria-labelledby"), f"{picture[0].get('id')} {picture[1].get('id')}")

    def test_coordinates_are_numbers_within_the_picture(self):
        for picture in (made for made in self.document.iter("svg") if made.get("role") == "img"):
            width, height = map(float, picture.get("viewBox").split()[2:])
            for made in picture.iter():
                for name in ("x", "x1", "x2", "y", "y1", "y2"):
                    if value := made.get(name):
                        most = width if "x" in name else height
                        self.assertTrue(-1 <= float(value) <= most + 1, f"{made.tag} {name} {value}")
                if made.tag == "rect":
                    self.assertGreaterEqual(float(made.get("width")), 0)
                    self.assertLessEqual(float(made.get("x")) + float(made.get("width")), width)
                if made.get("transform"):
                    x, y = map(float, re.match(r"translate\((\S+) (\S+)\)", made.get("transform")).groups())
                    self.assertTrue(-1 <= x <= width + 1 and -1 <= y <= height + 1)

    def cells(self, name):
        """Texts of the tables of a section."""
        section = next(made for made in self.document.iter("section") if made.get("id") == name)
        return {"".join(cell.itertext()) for kind in ("td", "th") for cell in section.iter(kind)}, section

    def test_figures_have_the_numbers_of_the_table(self):
        cells, _ = self.cells("file1-all")
        medians = {re.sub(r" \(.*", "", cell) for cell in cells}
        stages, bytes_, warm = (self.cells(f"file1-{name}")[1] for name in ("stages", "bytes", "warm"))
        values = [made.text for made in stages.iter("text") if made.get("class") == "value"]
        self.assertEqual(len(values), len(self.files[0].rows))
        self.assertLessEqual(set(values), medians)
        for section in (bytes_, warm):
            titles = [made.text for mark in section.iter("path") for made in mark.iter("title")]
            self.assertEqual(len(titles), len(self.files[0].rows))
            self.assertLessEqual({title.rsplit(": ", 1)[1] for title in titles}, medians)
        _, distribution = self.cells("file1-distribution")
        titles = [made.text for mark in distribution.iter("path") for made in mark.iter("title")]
        self.assertEqual(len(titles), 24)  # three images, two networks, four systems that are not overlayfs
        self.assertLessEqual({title.rsplit(": ", 1)[1] for title in titles}, cells)
        for name in ("overall", "processor"):
            cells, section = self.cells(f"file1-{name}")
            values = {made.text for made in section.iter("text") if made.get("class") == "value"}
            self.assertLessEqual(values, cells)
        for number in (2, 3, 4):
            medians = {re.sub(r" \(.*", "", cell) for cell in self.cells(f"file{number}-all")[0]}
            _, section = self.cells(f"file{number}-figures")
            marks = {made.text.rsplit(": ", 1)[1] for mark in section.iter("path") for made in mark.iter("title")}
            marks |= {made.text for made in section.iter("text") if made.get("class") == "value"}
            self.assertGreater(len(marks), 4)
            self.assertLessEqual(marks, medians)

    def test_bars_are_as_long_as_their_values(self):
        rows = [("a", [("s0", 10, "x")], None, "10"), ("b", [("s0", 20, "x"), ("s1", 20, "x")], (30, 50), "40")]
        made = charts.bars("t", "d", rows, str)
        widths = [float(rect.get("width")) for rect in made.iter("rect")]
        self.assertAlmostEqual(widths[1], 2 * widths[0], delta=0.02)
        self.assertAlmostEqual(widths[2], 2 * widths[0], delta=0.02)

    def test_distribution_has_as_much_at_the_left_as_is_less(self):
        made = charts.cumulative("t", "d", [(0, "a", [(1.0, "x"), (2.0, "y"), (4.0, "z"), (8.0, "w")])], str)
        moved = [mark.get("transform") for mark in made.iter("path") if mark.get("transform")]
        spots = [tuple(map(float, re.findall(r"-?[0-9.]+", text))) for text in moved]
        self.assertEqual([round((200 - y) / 192, 3) for _, y in spots], [0.25, 0.5, 0.75, 1])
        steps = [spots[at + 1][0] - spots[at][0] for at in range(3)]
        self.assertAlmostEqual(steps[0], steps[1], delta=0.02)
        self.assertAlmostEqual(steps[1], steps[2], delta=0.02)

    def test_stages_are_those_of_the_run_in_the_middle(self):
        found = loaded(made_up.file([
            made_up.row("nginx", "nydus", [made_up.run(*times) for times in ((100, 40), (200, 80), (300, 8), (10, 20))]),
        ]))
        _, parts, ends, text = page.Part(found, found.systems, "f").staged(found.rows[0])
        self.assertEqual([value for _, value, _ in parts], [150, 15, 45])  # of (100, 40) and (200, 80)
        self.assertEqual((ends, text), ((30, 308), "210 ms"))

    def test_odd_names_are_texts(self):
        content = copy.deepcopy(made_up.starts())
        for row in content["rows"]:
            row["image"] += ODD
            row["network"] += ODD
            row["system"] = row["system"] if row["system"] == "overlayfs" else row["system"] + ODD
        content["skipped"] = [{"what": ODD, "why": ODD}]
        content["note"] = content["machine"]["model"] = content["versions"]["Xebec"] = ODD
        strange = copy.deepcopy(made_up.scenario([1, 2], ODD))
        text = page.page([loaded(content), loaded(strange)], ODD)
        self.assertNotIn("<b>", text)
        found = "".join(as_xml(text).itertext())
        self.assertGreater(found.count(ODD), 30)

    def test_few_and_extreme_values(self):
        """One image, one run, one system; a system that is unknown; zeros; a million to one."""
        for content in (
            made_up.file([made_up.row("a", "overlayfs", [{"ready_ms": 1e-3}])]),
            made_up.file([made_up.row("a", "mine", [made_up.run(1, 1, received=0)])]),
            made_up.file([made_up.row("a", "overlayfs", [made_up.run(1e7, 1)]), made_up.row("a", "mine", [made_up.run(1, 1)])]),
            made_up.file([made_up.row("a" * 90, "b" * 90, [made_up.run(1, 5)])]),
            made_up.file([made_up.row("a", "s", [{"some_bytes": 0}], x=x) for x in (0, 5)], "scenario s"),
            made_up.file([made_up.row("a", "s", [{"some": 3}])], "scenario s"),
        ):
            as_xml(page.page([loaded(content)]))

    def test_the_program_writes_it(self):
        with made_up.written(made_up.starts()) as (path,), tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "new", "report.html")
            status, output, complaints = made_up.called("report", "--html", target, path)
            self.assertEqual((status, complaints), (0, f"\n{target} written\n"))
            self.assertIn("| nginx | unlimited | overlayfs |", output)
            with open(target, encoding="utf-8") as file:
                self.assertIn("How many times as fast as overlayfs", file.read())
            status, _, complaints = made_up.called("report", "--html", os.path.join(target, "under-a-file.html"), path)
            self.assertEqual(status, 2)
            self.assertNotIn("Traceback", complaints)


if __name__ == "__main__":
    unittest.main()
