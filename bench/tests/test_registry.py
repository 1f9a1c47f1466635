"""The benchmark of registries: what it makes of figures, its signatures, and the program that asks, tried against a small server."""

import datetime
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "bench"))

import deduplication
import layers_of_tree
import registry_table
import s3_address


def row(measure, system, *runs):
    return {"measure": measure, "system": system, "runs": list(runs)}


def found(*rows):
    machine = {"processors": 2, "model": "x", "kernel": "6"}
    return {"machine": machine, "load_before": 0.5, "runs": 1, "versions": {"distribution": "3"}, "rows": list(rows)}


class Table(unittest.TestCase):
    def test_says_what_is_met(self):
        pull, p99 = "pull of 100 MB, 1 client", "manifest by tag, 64 clients"
        memory = "memory with 300 pulls and 50 pushes"
        text = registry_table.markdown(found(
            row(pull, "distribution", {"mb_per_s": 100}, {"mb_per_s": 300}, {"mb_per_s": 200}), row(pull, "Xebec", {"mb_per_s": 190}),
            row(p99, "distribution", {"p99_ms": 9}), row(p99, "Xebec", {"p99_ms": 4}),
            row(memory, "Xebec", {"mib": 100}, {"mib": 129}),
        ))
        self.assertIn("| 200 (100 to 300) | 190 (190 to 190) | 0.95 | at least 1.0: NOT MET |", text)
        self.assertIn("| 0.44 | at most 0.5: met |", text)
        # The highest run counts, not the median.
        self.assertIn("at most 128 MiB: NOT MET", text)

    def test_takes_the_store_from_what_two_nodes_need(self):
        push = "push of 20 KB, 1 client"
        results = found(
            row(push, "Xebec, one node", {"p50_ms": 10}), row(push, "Xebec, two nodes", {"p50_ms": 20}),
            row("S3: put of 20 KB", "Xebec, two nodes", {"p50_ms": 2}), row("S3: small request", "Xebec, two nodes", {"p50_ms": 1}),
            row("PostgreSQL: a commit", "Xebec, two nodes", {"p50_ms": 1}),
        ) | {"calls_of_a_push": {"puts": 2, "others": 1, "commits": 3}}
        self.assertIn("| 8.00 | 1.20 | at most 1.3: met |", registry_table.markdown(results))


class Deduplication(unittest.TestCase):
    def test_compares_runs_of_the_same_turn(self):
        layer = "layer, 1 Gbit/s"
        text = registry_table.markdown(found(
            row(layer, "intact", {"p50_ms": 10, "p95_ms": 100}, {"p50_ms": 20, "p95_ms": 100}, {"p50_ms": 10, "p95_ms": 100}),
            row(layer, "preconstructed", {"p50_ms": 10.2, "p95_ms": 104}, {"p50_ms": 20, "p95_ms": 106}, {"p50_ms": 11, "p95_ms": 107}),
            row(layer, "restored", {"p50_ms": 14, "p95_ms": 210}, {"p50_ms": 40, "p95_ms": 220}, {"p50_ms": 13, "p95_ms": 150}),
        ))
        self.assertIn("| 11.00 (10.20 to 20.00) | 1.02 (1.00 to 1.10) | at most 1.05: met |", text)
        self.assertIn("| 106.00 (104.00 to 107.00) | 1.06 (1.04 to 1.07) | at most 1.05: NOT MET |", text)
        # The median of the ratios 1.4, 2.0 and 1.3.
        self.assertIn("| 14.00 (13.00 to 40.00) | 1.40 (1.30 to 2.00) | at most 1.5: met |", text)
        self.assertIn("| 2.10 (1.50 to 2.20) | at most 2.0: NOT MET |", text)

    def test_says_latencies_by_mode(self):
        names = [f"layer, {network}" for network in deduplication.NETWORKS]
        modes = {"intact": 10, "preconstructed": 11, "restored": 25}
        text = registry_table.markdown(found(*(
            row(name, mode, {"p50_ms": ms, "p95_ms": 2 * ms}) for name in names for mode, ms in modes.items())))
        self.assertIn("| intact | 1.00 | 1.00 | 1.00 | 1.00 |", text)
        self.assertIn("| restored | 2.50 | 2.50 | 2.50 | 2.50 |", text)

    def test_says_what_pushes_wait_for(self):
        quiet, busy = ("push of 20 KB, nothing to take apart", "push of 20 KB while layers are taken apart")
        text = registry_table.markdown(found(
            row(quiet, "pushed", {"p50_ms": 4}), row(busy, "pushed", {"p50_ms": 4.1, "server_processors": 1.1})))
        self.assertIn("| 1.02 (1.02 to 1.02) | at most 1.05: met |", text)

    def test_takes_the_least_that_95_of_100_do_not_exceed(self):
        self.assertEqual(deduplication.high(range(1, 101)), 95)
        self.assertEqual(deduplication.high([3, 1, 2]), 3)

    def test_layers_have_files_of_their_own(self):
        with tempfile.TemporaryDirectory() as top:
            for number in range(40):
                os.makedirs(os.path.join(top, str(number)))
                for name, size in [("small", 100), ("large", 5000)]:
                    with open(os.path.join(top, str(number), name), "wb") as file:
                        file.write(bytes(size))
            layers_of_tree.TREE, before = top, layers_of_tree.TREE
            try:
                rest = iter(layers_of_tree.directories())
                one, other = layers_of_tree.choose(1000, rest), layers_of_tree.choose(1000, rest)
            finally:
                layers_of_tree.TREE = before
            self.assertEqual([len(set(one)), len(set(other)), len(set(one + other))], [10, 10, 20])
            self.assertTrue(all(path.endswith("small") for path in one + other))


class Address(unittest.TestCase):
    def test_is_signed_as_amazon_shows_it(self):
        # The example in Amazon's description of signatures in the query.
        when = datetime.datetime(2013, 5, 24, tzinfo=datetime.timezone.utc)
        path = s3_address.signed(
            "GET", "examplebucket.s3.amazonaws.com", "/test.txt", "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", when, lasting_s=86400)
        self.assertTrue(path.endswith("aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"), path)


class Handler(http.server.BaseHTTPRequestHandler):
    """Of a registry as much as a client needs that looks at no body."""

    protocol_version = "HTTP/1.1"
    bodies, manifests = [], []

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def do_GET(self):
        self.answer(200 if self.path == "/blob" else 404, b"x" * 100_000)

    def do_POST(self):
        self.answer(202, Location="http://elsewhere/upload?state=1")

    def do_PATCH(self):
        self.bodies.append(self.body())
        self.answer(202, Location="/upload?state=2")

    def do_PUT(self):
        body = self.body()
        if "/manifests/" in self.path:
            self.manifests.append((self.path, json.loads(body)))
            return self.answer(201)
        wanted = self.path.split("digest=sha256:")[1]
        is_right = self.path.startswith("/upload?state=2&") and hashlib.sha256(self.bodies[-1]).hexdigest() == wanted
        self.answer(201 if is_right and not body else 400)


@unittest.skipUnless(shutil.which("go"), "Go is not installed")
class Load(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run(
            ["go", "build", "-C", os.path.join(TOP, "tests/gotools"), "-o", cls.folder.name + "/", "./registryload"], check=True,
            env={**os.environ, "CGO_ENABLED": "0"})
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()
        cls.folder.cleanup()

    def load(self, *arguments):
        address = f"127.0.0.1:{self.server.server_address[1]}"
        done = subprocess.run([os.path.join(self.folder.name, "registryload"), *arguments, address], stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def test_counts_what_comes(self):
        seen = self.load("get", "-clients", "3", "-requests", "20", "-path", "/blob")
        self.assertEqual((seen["requests"], seen["bytes"], seen["failed"]), (20, 2_000_000, 0))
        self.assertLessEqual(seen["ms"]["p50"], seen["ms"]["p99"])

    def test_takes_paths_in_turn(self):
        seen = self.load("each", "-requests", "2", "-path", "/blob,/blob")
        self.assertEqual([(one["path"], one["bytes"]) for one in seen["each"]], [("/blob", 100_000)] * 4)
        self.assertTrue(all(0 < one["first_ms"] <= one["ms"] for one in seen["each"]))
        seen = self.load("get", "-requests", "4", "-path", "/blob,/nothing")
        self.assertEqual((seen["failed"], seen["requests"]), (2, 2))

    def test_says_what_fails(self):
        seen = self.load("get", "-requests", "2", "-path", "/nothing")
        self.assertEqual((seen["requests"], seen["failed"], seen["why"]), (0, 2, "status 404"))

    def test_pushes_what_it_says(self):
        seen = self.load("push", "-count", "2", "-size", "5000")
        self.assertEqual((seen["requests"], seen["failed"]), (2, 0))

    def test_pulls_until_all_is_pushed(self):
        seen = self.load("crowd", "-pulls", "3", "-pushes", "1", "-size", "5000", "-path", "/blob")
        self.assertEqual(seen["failed"], 0)
        self.assertGreaterEqual(seen["requests"], 4)

    def test_fills_images(self):
        Handler.manifests.clear()
        seen = self.load("fill", "-tags", "1", "-blobs", "52")
        self.assertEqual((seen["failed"], seen["why"] if seen["failed"] else ""), (0, ""))
        images = [content for path, content in Handler.manifests if "/many/image-" in path]
        self.assertEqual([1 + len(image["layers"]) for image in images], [50, 2])
        digests = {one["digest"] for image in images for one in [image["config"], *image["layers"]]}
        self.assertEqual(len(digests), 52)

    def test_fills_a_repository(self):
        Handler.manifests.clear()
        self.load("fill", "-tags", "5", "-each", "2", "-repositories", "2", "-clients", "2")
        tags = sorted(path.count("tag-") for path, _ in Handler.manifests if "/large/" in path)
        self.assertEqual((len(Handler.manifests), tags), (6, [0, 1, 2, 2]))
        subjects = {content["subject"]["digest"] for _, content in Handler.manifests if "subject" in content}
        self.assertEqual(len(subjects), 1)


if __name__ == "__main__":
    unittest.main()
