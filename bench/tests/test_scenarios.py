"""What scenarios are made of: edited images, what fills an object store, and which files stay of a scenario that fails."""

import gzip
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for name in ("XEBEC_BIN", "BENCH_PROGRAMS", "BENCH_IMAGES", "XEBEC_BUILD", "REGISTRY", "REGISTRY_LOG", "BENCH_SCRATCH",
             "BENCH_REGISTRY_NETNS"):
    os.environ.setdefault(name, "")

import images
import scenarios
from budget import Budget
from scenarios import base, development, edited, hosts, memcached, throughput, training, update
from subject import Subject


def layer(files, headers=None):
    """The tar of some files, directories (None) and links (other names)."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as file:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.mode, info.uid, info.mtime = 0o750, 1000, 1_600_000_000
            info.pax_headers = dict(headers or {})
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.LNKTYPE, content
            else:
                info.size = len(content)
            file.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return tar.getvalue()


class Image:
    """Of the catalogue, as far as is looked at."""

    name, versions, category = "some", [""], "other"

    def __init__(self, path, layers):
        self.path = path
        layout = images.Layout(path)
        layout.finish([layout.add_layer([plain]) for plain in layers])

    def layout(self, _version):
        return self.path

    def digest(self, _version):
        return edited.descriptor(self.path)["digest"]


def entries(layout, digest):
    with tarfile.open(edited.blob(layout, digest), "r:gz") as tar:
        return {
            entry.name: (entry.type, entry.mode, entry.uid, entry.mtime, entry.linkname,
                         entry.pax_headers.get("SCHILY.xattr.user.a"),
                         tar.extractfile(entry).read() if entry.isreg() else None)
            for entry in tar
        }


class Edits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.addCleanup(edited.find.cache_clear)

    def image(self, *layers):
        return Subject(Image(os.path.join(self.folder, "image"), layers))

    def layers(self, subject):
        manifest = edited.read_json(subject.layout, subject.digest)
        config = edited.read_json(subject.layout, manifest["config"]["digest"])
        return [layer["digest"] for layer in manifest["layers"]], config["rootfs"]["diff_ids"], manifest

    def test_one_file_of_one_layer_differs(self):
        files = {"srv": None, "srv/.wh.old.py": b"", "srv/lib/deep.py": b"x\n", "srv/app.py": b"print()\n"}
        app = layer({**files, "srv/link": "srv/app.py"}, {"SCHILY.xattr.user.a": "b"})
        before = self.image(layer({"etc/a.conf": b"a"}), app, layer({"data": None}))
        after = edited.Edited(before, "mark1", os.path.join(self.folder, "made"))
        self.assertEqual(after.edited_file, "srv/app.py")
        (old, old_plain, _), (new, new_plain, manifest) = self.layers(before), self.layers(after)
        self.assertEqual([one == other for one, other in zip(old, new)], [True, False, True])
        self.assertEqual([one == other for one, other in zip(old_plain, new_plain)], [True, False, True])
        one, other = entries(before.layout, old[1]), entries(after.layout, new[1])
        self.assertEqual(list(one), list(other))
        changed = {name for name in one if one[name] != other[name]}
        self.assertEqual(changed, {"srv/app.py"})
        self.assertEqual(other["srv/app.py"][-1], b"print()\n\n# mark1\n")
        self.assertEqual(other["srv/app.py"][:-1], one["srv/app.py"][:-1])
        # The statements of manifest and configuration about the layer are true.
        with gzip.open(edited.blob(after.layout, new[1])) as file:
            self.assertEqual(images.hashlib.sha256(file.read()).hexdigest(), new_plain[1].removeprefix("sha256:"))
        self.assertEqual(os.path.getsize(edited.blob(after.layout, new[1])), manifest["layers"][1]["size"])
        self.assertEqual(after.size, sum(part["size"] for part in manifest["layers"]))

    def test_it_is_the_same_again_and_another_for_another_mark(self):
        before = self.image(layer({"a.js": b"1"}))
        made = [edited.Edited(before, mark, os.path.join(self.folder, where)).digest for mark, where in ("1x", "1y", "2x")]
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])
        self.assertNotEqual(made[0], before.digest)

    def test_an_image_without_such_a_file_is_an_error(self):
        before = self.image(layer({"bin/program": b"\x7fELF"}))
        with self.assertRaisesRegex(RuntimeError, "no layer has a file that may be edited"):
            edited.Edited(before, "mark", os.path.join(self.folder, "made"))

    def test_a_damaged_layer_is_an_error(self):
        before = self.image(layer({"a.py": b"x" * 100_000}))
        path = edited.blob(before.layout, self.layers(before)[0][0])
        os.truncate(path, os.path.getsize(path) // 2)
        with self.assertRaisesRegex(RuntimeError, "is damaged"):
            edited.Edited(before, "mark", os.path.join(self.folder, "made"))


class Server:
    """An object store that may forget an object or answer wrongly."""

    def __init__(self, kind, forget=None):
        self.kind, self.forget, self.kept = kind, forget, {}
        self.end, peer = socket.socketpair()
        self.end.settimeout(5)
        threading.Thread(target=self.serve, args=(peer.makefile("rwb"), peer), daemon=True).start()

    def serve(self, file, peer):
        while line := file.readline():
            if self.kind == "redis":
                words = []
                for _ in range(int(line[1:])):
                    size = int(file.readline()[1:])
                    words.append(file.read(size + 2)[:-2])
            else:
                words = line.split()
                if words[0] == b"set":
                    words[2:] = [file.read(int(words[4]) + 2)[:-2]]
            if words[0].lower() == b"set":
                self.kept[words[1]] = words[2]
                file.write(b"+OK\r\n" if self.kind == "redis" else b"STORED\r\n")
            elif words[1] == self.forget:
                file.write(b"$-1\r\n" if self.kind == "redis" else b"END\r\n")
            elif self.kind == "redis":
                file.write(b"$%d\r\n%b\r\n" % (len(self.kept[words[1]]), self.kept[words[1]]))
            else:
                file.write(b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (words[1], len(self.kept[words[1]]), self.kept[words[1]]))
            file.flush()
        peer.close()


class Stores(unittest.TestCase):
    def test_all_is_stored_and_looked_at_in_time(self):
        for kind in memcached.PORTS:
            with self.subTest(kind):
                server = Server(kind)
                found = memcached.fill(memcached.Store(server.end, kind), [10, 100], lambda: len(server.kept))
                self.assertEqual(found, {10: 10, 100: 100})
                self.assertEqual({len(value) for value in server.kept.values()}, {memcached.SIZE})
                self.assertEqual(len(set(server.kept.values())), 100)
                server.end.close()

    def test_what_is_forgotten_is_an_error(self):
        for kind in memcached.PORTS:
            with self.subTest(kind):
                server = Server(kind, forget=b"k00000009")
                with self.assertRaisesRegex(RuntimeError, "answered"):
                    memcached.fill(memcached.Store(server.end, kind), [10], lambda: {})
                server.end.close()


class Results(unittest.TestCase):
    def test_a_wrong_training_is_an_error(self):
        right = json.dumps(training.RIGHT).encode()
        wrong = json.dumps({**training.RIGHT, "accuracy": 0.5}).encode()
        training.check(types.SimpleNamespace(returncode=0, stdout=right, stderr=b""))
        for status, output in ((0, wrong), (1, right), (0, b""), (0, b"{}"), (0, b"[]")):
            with self.subTest(output), self.assertRaises(Exception):
                training.check(types.SimpleNamespace(returncode=status, stdout=output, stderr=b""))

    def test_what_wrk_says(self):
        text = "  Thread Stats   Avg      Stdev     Max\n    Latency   635.91us    0.89ms  12.92ms\nRequests/sec:  56012.5\n"
        web = throughput.Web(None, types.SimpleNamespace(port=80, path="/"))
        with mock.patch("bench.run", return_value=text):
            self.assertEqual(web.run(1), {"operations_per_s": 56012.5, "latency_ms": 0.63591})
        for said in (text + "  Non-2xx or 3xx responses: 3\n", "unable to connect\n"):
            with mock.patch("bench.run", return_value=said), self.assertRaises(RuntimeError):
                web.run(1)

    def test_what_redis_benchmark_says(self):
        text = '"test","rps","avg_latency_ms"\n"SET","50000.00","0.2"\n"GET","100000.00","0.1"\n'
        load = throughput.Redis(None, types.SimpleNamespace(port=6379))
        with mock.patch("bench.run", return_value=text) as asked:
            found = load.run(3)
        self.assertAlmostEqual(found["operations_per_s"], 2 / (1 / 50000 + 1 / 100000))
        # As many of each as make up the time, by the rate before.
        self.assertEqual(asked.call_args.args[asked.call_args.args.index("-n") + 1], "100000")


class Named:
    def __init__(self, name):
        self.name = name


class Fake(base.Scenario):
    """a scenario for this test"""

    name, variable, networks = "fake", "number", "0"
    figures = [("took_ms", "took", "ms", 1)]

    def __init__(self, systems, broken=()):
        self.systems, self.broken, self.measured = systems, broken, []

    def variables(self):
        return [[1, 2]]

    def prepare(self, system, subject):
        if "prepare" in self.broken:
            raise RuntimeError("cannot be made")

    def measure(self, system, subject, made, group):
        self.measured.append(system.name)
        if system.name in self.broken:
            raise ValueError("broken")
        return {x: {"took_ms": 10 * x} for x in group}


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.image = Image(os.path.join(self.folder, "image"), [layer({"a.py": b"x"})])
        self.systems = [Named("overlayfs"), Named("Xebec")]
        for target in ("builtins.print", "traceback.print_exception"):
            mock.patch(target).start()
        mock.patch("results_file.versions", lambda present: {}).start()
        mock.patch("results_file.bench.run", lambda *_: "").start()
        self.addCleanup(mock.patch.stopall)

    def run_table(self, scenario, runs=2, budget=None):
        with mock.patch("scenarios.base.RUNS", runs):
            table = base.Table(scenario, budget or Budget(1000), self.folder)
            failures = table.run([self.image])
        with open(os.path.join(self.folder, "fake.json")) as file:
            return failures, json.load(file)

    def test_systems_take_turns_and_nothing_is_measured_twice(self):
        scenario = Fake(self.systems)
        failures, found = self.run_table(scenario)
        self.assertEqual((failures, scenario.measured), (0, ["overlayfs", "Xebec", "Xebec", "overlayfs"]))
        self.assertEqual({(row["system"], row["x"], len(row["runs"])) for row in found["rows"]},
                         {(name, x, 2) for name in ("overlayfs", "Xebec") for x in (1, 2)})
        again = Fake(self.systems)
        self.assertEqual(self.run_table(again, runs=3)[0], 0)
        self.assertEqual(again.measured, ["overlayfs", "Xebec"])  # a third round
        other = Fake(self.systems)
        other.settings = {"hosts": 3}
        self.run_table(other)
        self.assertEqual(len(other.measured), 4)
        aside = [name for name in os.listdir(self.folder) if name.startswith("fake.json.")]
        self.assertEqual(len(aside), 1)
        with open(os.path.join(self.folder, aside[0])) as file:
            self.assertEqual([len(row["runs"]) for row in json.load(file)["rows"]], [3] * 4)

    def test_what_fails_is_kept_and_the_others_go_on(self):
        failures, found = self.run_table(Fake(self.systems, ["Xebec"]))
        self.assertEqual((failures, {row["system"] for row in found["rows"]}), (1, {"overlayfs"}))
        self.assertEqual({(row["system"], row["x"], row["why"]) for row in found["failed"]},
                         {("Xebec", x, "ValueError: broken") for x in (1, 2)})
        failures, found = self.run_table(Fake(self.systems))
        self.assertEqual((failures, len(found["rows"]), found["failed"]), (0, 4, []))

    def test_what_cannot_be_made_or_is_not_built_is_a_failure(self):
        self.assertEqual(self.run_table(Fake(self.systems, ["prepare"]))[0], 2)
        self.image.path += "-away"
        failures, found = self.run_table(Fake(self.systems))
        self.assertEqual((failures, found["failed"][-1]["why"]), (1, "it is not built"))
        self.image.path = self.image.path.removesuffix("-away")
        self.assertEqual(self.run_table(Fake(self.systems))[1]["failed"], [])

    def test_nothing_is_begun_after_the_budget(self):
        scenario = Fake(self.systems)
        failures, found = self.run_table(scenario, budget=Budget(0))
        self.assertEqual((failures, scenario.measured), (0, []))
        self.assertTrue(all("budget" in skipped["why"] for skipped in found["skipped"]) and found["skipped"])


    def test_all_that_the_budget_leaves_out_is_said_once(self):
        budget = mock.Mock(seconds=1, spending=Budget(1000).spending, allows=lambda kind: kind == "making")
        failures, found = self.run_table(Fake(self.systems), budget=budget)
        self.assertEqual([skipped["what"] for skipped in found["skipped"]],
                         [f"fake, some, unlimited, number 1 2, {name}" for name in ("overlayfs", "Xebec")])

    def test_making_is_no_example_of_measuring(self):
        clock = iter(range(0, 10_000, 100))
        budget = Budget(1e9, clock=lambda: next(clock))
        self.run_table(Fake(self.systems), budget=budget)
        self.assertEqual(set(budget.longest), {"making", "fake some"})

    def test_round_trips_are_refused(self):
        rates = mock.patch.dict(os.environ, BENCH_RATES="100 100+10ms")
        with rates, self.assertRaisesRegex(SystemExit, "100 Mbit/s, round trip"):
            self.run_table(Fake(self.systems))

    def test_rows_of_an_update_are_of_their_versions(self):
        with mock.patch("scenarios.base.Published"), mock.patch("bench.SCRATCH", self.folder):
            scenario = update.Update(self.systems)
        scenario.name, scenario.prepare = "fake", lambda *_: None
        scenario.measure = lambda system, subject, made, group: {x: {"ready_ms": 1, **dict.fromkeys(
            ("pull_ms", "start_ms", "rx_bytes", "disk_bytes"), 1)} for x in group}
        with mock.patch("bench.SCRATCH", self.folder), mock.patch.dict(os.environ, BENCH_RATES="0"):
            failures, found = self.run_table(scenario, runs=1)
        rows = [row for row in found["rows"] if row["system"] == "Xebec"]
        self.assertEqual([(row["x"], row["version"]) for row in rows], [(1, ""), (2, "edit1"), (3, "edit2")])
        self.assertEqual([row["digest"] for row in rows], rows[0]["digests"])
        self.assertEqual(len(set(rows[0]["digests"])), 3)


class Hosts(unittest.TestCase):
    def test_a_host_that_does_not_see_its_input_end_is_asked_to(self):
        host = hosts.Host.__new__(hosts.Host)
        program = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(); time.sleep(60)"
        host.process = subprocess.Popen([sys.executable, "-uc", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        host.process.stdout.readline()
        with mock.patch("scenarios.hosts.PATIENCE_S", 2):
            host.end()
        self.assertEqual(host.process.returncode, 7)


class Development(unittest.TestCase):
    def test_what_a_system_says_of_its_conversion_counts(self):
        version = types.SimpleNamespace(repository="some", tag="1", layout="")
        for made, least, most in (({"reference": "a", "convert_ms": 4000.0}, 4000, 4000), ({"reference": "a"}, 0, 1000)):
            developer = types.SimpleNamespace(publish_next=lambda *_: made)
            with mock.patch("bench.run"):
                reference, push_ms, publish_ms = development.Development.push(None, developer, version)
            self.assertEqual(reference, "a")
            self.assertTrue(push_ms < 1000 and least <= publish_ms <= most)


class Names(unittest.TestCase):
    def test_every_scenario_has_a_class_and_images(self):
        import catalogue
        for name in scenarios.NAMES:
            with self.subTest(name):
                self.assertEqual(scenarios.load(name).name, name)
                wanted = scenarios.images(name, small=False)
                self.assertEqual({image.name for image in catalogue.load(only=wanted)}, set(wanted))
                self.assertEqual(len(scenarios.images(name, small=True)), 1)
                self.assertEqual(scenarios.images(name, False, ["redis"]), ["redis"])


if __name__ == "__main__":
    unittest.main()
