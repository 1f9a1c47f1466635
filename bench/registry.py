"""xebec-registry beside CNCF distribution, on one machine and disk, in turn: pulls, pushes, manifests, memory, a large store, two
nodes with PostgreSQL and S3 beside one node, and layers whose files are kept once beside intact ones (deduplication.py). Called by scripts/bench.sh
(`make bench-registry`); tests/gotools/registryload asks.

Environment: XEBEC_REGISTRY_BIN, BENCH_GOTOOLS, BENCH_SCRATCH; BENCH_RUNS (5), BENCH_SECONDS (4) of each measurement by time,
BENCH_ONLY (of "alone memory indexing deduplication large nodes"), BENCH_TAGS (100000), BENCH_REPOSITORIES (10000), BENCH_BLOBS (20000),
BENCH_LAYERS (of deduplication), BENCH_JSON, BENCH_MARKDOWN.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import threading
import time

import deduplication
import registries
import registry_table
import results_file
from asking import INDEX, MANIFEST, SMALL, ask, load, push_blob, pushed

RUNS = int(os.environ.get("BENCH_RUNS", "5"))
SECONDS = os.environ.get("BENCH_SECONDS", "4")
ONLY = os.environ.get("BENCH_ONLY", "alone memory indexing deduplication large nodes").split()
TAGS = int(os.environ.get("BENCH_TAGS", "100000"))
REPOSITORIES = int(os.environ.get("BENCH_REPOSITORIES", "10000"))
BLOBS = int(os.environ.get("BENCH_BLOBS", "20000"))
LOOSE = 100
SCRATCH = os.environ["BENCH_SCRATCH"]
LAYER, PULLED_BY_CROWD = 100 << 20, 32 << 20
ACCEPT = f"Accept: {MANIFEST}, {INDEX}"


# --- measuring -------------------------------------------------------------------------------------------------------


def push_image(address):
    """An image with eight layers, and a large blob; returns what they are asked for by."""
    described = lambda content, kind: {"mediaType": kind, "digest": push_blob(address, "bench", content), "size": len(content)}
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": described(b"{}", "application/vnd.oci.image.config.v1+json"),
        "layers": [described(b"layer %d" % number, "application/vnd.oci.image.layer.v1.tar") for number in range(8)],
    }).encode()
    ask(address, "PUT", "/v2/bench/manifests/latest", manifest, {"Content-Type": MANIFEST})
    return {
        "manifest": f"/v2/bench/manifests/sha256:{hashlib.sha256(manifest).hexdigest()}",
        "tag": "/v2/bench/manifests/latest",
        "layer": "/v2/bench/blobs/" + push_blob(address, "bench", random_bytes(1, LAYER)),
        "crowd": "/v2/bench/blobs/" + push_blob(address, "bench", random_bytes(2, PULLED_BY_CROWD)),
        "small": "/v2/bench/blobs/" + push_blob(address, "bench", random_bytes(3, SMALL)),
    }


def random_bytes(seed, size):
    """The same for each registry."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


def pulled(registry, clients, path):
    before = registry.cpu_s()
    found = load("get", "-clients", clients, "-seconds", SECONDS, "-path", path, *registry.addresses)
    gigabytes = found["bytes"] / 1e9
    return {
        "mb_per_s": found["bytes"] / 1e6 / found["seconds"],
        "server_cpu_s_per_gb": (registry.cpu_s() - before) / gigabytes,
        "client_cpu_s_per_gb": found["own_cpu_s"] / gigabytes,
    }


def asked(registry, clients, path, seconds=SECONDS):
    before = registry.cpu_s()
    found = load("get", "-clients", clients, "-seconds", seconds, "-header", ACCEPT, "-path", path, *registry.addresses)
    return {
        "p50_ms": found["ms"]["p50"], "p99_ms": found["ms"]["p99"], "highest_ms": found["ms"]["highest"],
        "per_s": found["requests"] / found["seconds"],
        "server_cpu_us": (registry.cpu_s() - before) / found["requests"] * 1e6,
        "client_cpu_us": found["own_cpu_s"] / found["requests"] * 1e6,
    }


def measure_alone(registry):
    """What is compared with distribution, and one node with two."""
    with registry.running():
        places = push_image(registry.addresses[0])
        for name in ("layer", "small"):  # from memory from here on
            load("get", "-requests", 4, "-path", places[name], *registry.addresses)
        return {
            "pull of 100 MB, 1 client": pulled(registry, 1, places["layer"]),
            "pull of 100 MB, 64 clients": pulled(registry, 64, places["layer"]),
            "pull of 20 KB, 64 clients": pulled(registry, 64, places["small"]),
            "manifest by digest, 64 clients": asked(registry, 64, places["manifest"]),
            "manifest by tag, 64 clients": asked(registry, 64, places["tag"]),
            "push of 20 KB, 1 client": pushed(registry, 1, 40, SMALL),
            "push of 20 KB, 16 clients": pushed(registry, 16, 160, SMALL),
            "push of 100 MB, 1 client": pushed(registry, 1, 2, LAYER),
            "push of 100 MB in one request, 1 client": pushed(registry, 1, 1, LAYER, "-whole"),
        }


class Watch(threading.Thread):
    """The most memory that a registry takes meanwhile."""

    def __init__(self, registry):
        super().__init__(daemon=True)
        self.registry, self.most, self.ended = registry, 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.05):
            self.most = max(self.most, self.registry.pss_bytes())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def measure_memory(registry):
    with registry.running():
        places = push_image(registry.addresses[0])
        idle = registry.pss_bytes()
        with Watch(registry) as watch:
            found = load("crowd", "-pulls", 300, "-pushes", 50, "-size", 4 << 20, "-path", places["crowd"], *registry.addresses)
        return {"memory with 300 pulls and 50 pushes": {
            "mib": watch.most / 2**20, "idle_mib": idle / 2**20, "mb_per_s": found["bytes"] / 1e6 / found["seconds"],
            "push_ms": found["push_ms"]["highest"],
        }}


def layer_to_index(seed):
    """A layer that takes a second or two to index: half of it can be compressed."""
    random = random_bytes(f"index {seed}", 32 << 10)
    content = (random + bytes(32 << 10)) * 1600
    entry = tarfile.TarInfo("data")
    entry.size = len(content)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as output, tarfile.open(fileobj=output, mode="w|") as tar:
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def measure_indexing(registry):
    """Pushes beside nothing, and while layers are indexed."""
    with registry.running():
        address = registry.addresses[0]
        described = lambda content, kind: {"mediaType": kind, "digest": push_blob(address, "indexed", content), "size": len(content)}
        kind = "application/vnd.oci.image.layer.v1.tar+gzip"
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": described(b"{}", "application/vnd.oci.image.config.v1+json"),
            "layers": [described(layer_to_index(f"{time.time()} {number}"), kind) for number in range(3)],
        }).encode()
        quiet = pushed(registry, 1, 60, SMALL)
        ask(address, "PUT", "/v2/indexed/manifests/latest", manifest, {"Content-Type": MANIFEST})
        before, began = registry.cpu_s(), time.perf_counter()
        busy = pushed(registry, 1, 60, SMALL)
        # The pushes themselves take a small part of it.
        busy["server_processors"] = (registry.cpu_s() - before) / (time.perf_counter() - began)
        return {"push of 20 KB beside nothing": quiet, "push of 20 KB while layers are indexed": busy}


def fill_distribution(registry):
    """The files that its own pushes would make: that takes minutes by its API."""
    content = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
    digest = hashlib.sha256(content).hexdigest()
    top = os.path.join(registry.top, "storage/docker/registry/v2")

    def write(path, content):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)

    write(f"{top}/blobs/sha256/{digest[:2]}/{digest}/data", content)
    link = f"sha256:{digest}".encode()
    for repository in ["large", *(f"many/repository-{number:06}" for number in range(REPOSITORIES))]:
        write(f"{top}/repositories/{repository}/_manifests/revisions/sha256/{digest}/link", link)
        tags = (f"tag-{number:06}" for number in range(TAGS)) if repository == "large" else ["latest"]
        for tag in tags:
            write(f"{top}/repositories/{repository}/_manifests/tags/{tag}/current/link", link)


def fill_xebec(registry):
    began = time.perf_counter()
    with registry.running():
        load("fill", "-tags", TAGS, "-repositories", REPOSITORIES, "-blobs", BLOBS, "-clients", 64, *registry.addresses)
    print(f"{TAGS} tags and as many referrers, {REPOSITORIES} repositories, {BLOBS} blobs: by the API in"
          f" {time.perf_counter() - began:.0f} s", flush=True)
    # It looks at all that is new; what is measured is what comes after that.
    print(f"the first collection: {collected(registry)[0]:.0f} ms", flush=True)


def collected(registry):
    """How long `gc` takes, in milliseconds, and how many blobs it has deleted. It leaves nothing for a while."""
    configuration = os.path.join(registry.top, "collection.toml")
    with open(configuration, "w") as file:
        file.write('[storage]\ngrace = "0s"\n')
    root = os.path.join(registry.top, "data-0")
    began = time.perf_counter()
    done = subprocess.run(
        [os.environ["XEBEC_REGISTRY_BIN"], "gc", "--root", root, "--config", configuration], check=True, stdout=subprocess.PIPE)
    took = (time.perf_counter() - began) * 1e3
    return took, int(re.search(r"(\d+)  blobs that were condemned before", done.stdout.decode()).group(1))


def measure_collection(registry):
    """`gc` while the registry serves: with nothing to collect, and until blobs are gone that no manifest names. That is three times: a blob
    is taken from its repository, condemned, and deleted."""
    with registry.running():
        nothing, _ = collected(registry)
        load("push", "-count", LOOSE, "-size", SMALL, "-clients", 4, *registry.addresses)
        steps = [collected(registry) for _ in range(3)]
        if sum(deleted for _, deleted in steps) != LOOSE:
            raise RuntimeError(f"{LOOSE} blobs were to be collected: {steps}")
        return {
            "collection with nothing to collect": {"p50_ms": nothing},
            f"collection of {LOOSE} blobs": {"p50_ms": sum(took for took, _ in steps)},
        }


def measure_large(registry):
    subject = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}, separators=(",", ":")).encode()
    with registry.running():
        pages = {
            "first page of tags": "/v2/large/tags/list?n=1000",
            "a late page of tags": f"/v2/large/tags/list?n=1000&last=tag-{TAGS * 9 // 10:06}",
            "first page of repositories": "/v2/_catalog?n=1000",
            "a late page of repositories": f"/v2/_catalog?n=1000&last=many/repository-{REPOSITORIES * 8 // 10:06}",
        }
        if isinstance(registry, registries.Xebec):
            pages["first page of referrers"] = f"/v2/large/referrers/sha256:{hashlib.sha256(subject).hexdigest()}"
        found = {"start": {"p50_ms": registry.start_ms}}
        for name, path in pages.items():
            found[name] = asked(registry, 1, path, 1)
        return found


def measure_store(nodes):
    """The same bytes straight from the S3 server and to it, and transactions of the database that change one row."""
    put = lambda key, content: ask(nodes.s3, "PUT", nodes.signed("PUT", key), content)
    put("bench/layer", random_bytes(1, LAYER))

    def times(work, count):
        taken = []
        for number in range(count):
            began = time.perf_counter()
            work(number)
            taken.append((time.perf_counter() - began) * 1e3)
        return statistics.median(taken)

    direct = lambda clients: load(
        "get", "-clients", clients, "-seconds", SECONDS, "-path", nodes.signed("GET", "bench/layer"), nodes.s3)
    rate = lambda found: {"mb_per_s": found["bytes"] / 1e6 / found["seconds"]}
    layer = random_bytes(4, LAYER)
    script = "SET client_min_messages = error;\nCREATE TABLE IF NOT EXISTS bench (x INT);\n" + "\\timing on\n" + "INSERT INTO bench VALUES (1);\n" * 50
    said = subprocess.run(["psql", "-h", nodes.sockets, "-U", "xebec", "-d", "postgres", "-q"], input=script.encode(),
                          stdout=subprocess.PIPE, check=True).stdout.decode()
    commits = [float(line.split()[1]) for line in said.splitlines() if line.startswith("Time:")]
    return {
        "S3: get of 100 MB, 1 client": rate(direct(1)),
        "S3: get of 100 MB, 64 clients": rate(direct(64)),
        "S3: put of 20 KB": {"p50_ms": times(lambda number: put(f"bench/small-{number}", random_bytes(5, SMALL)), 40)},
        "S3: small request": {"p50_ms": times(lambda number: ask(nodes.s3, "HEAD", nodes.signed("HEAD", "bench/small-0")), 40)},
        "S3: put of 100 MB": {"p50_ms": times(lambda number: put(f"bench/large-{number}", layer), 2)},
        "PostgreSQL: a commit": {"p50_ms": statistics.median(commits)},
        "PostgreSQL: a manifest by tag, 64 clients": {"p50_ms": 64e3 / manifests_per_s(nodes)},
    }


FIND_MANIFEST = """BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT manifests.digest, media_type, content, subject, artifact_type, annotations, manifests.created, manifests.pulled
FROM repositories JOIN tags ON tags.repository = repositories.id
JOIN manifests ON manifests.repository = tags.repository AND manifests.digest = tags.digest
JOIN manifest_contents ON manifest_contents.digest = manifests.digest
WHERE repositories.name = 'bench' AND tags.name = 'latest';
COMMIT;
"""


def manifests_per_s(nodes):
    """What the database does by itself, asked by as many connections as two nodes have."""
    script = os.path.join(SCRATCH, "manifest.sql")
    with open(script, "w") as file:
        file.write(FIND_MANIFEST)
    said = subprocess.run(
        ["pgbench", "-h", nodes.sockets, "-U", "xebec", "-n", "-M", "prepared", "-c", "32", "-T", SECONDS, "-f", script, "postgres"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    return float(re.search(r"tps = ([0-9.]+)", said).group(1))


def count_calls(nodes):
    """What is put to the S3 server, other requests to it, and transactions, for one push of a small blob. Those of the start count, too:
    what a connection has done is known to others when it has ended."""
    count = 60
    before = nodes.asked()
    with nodes.running():
        load("push", "-count", count, "-size", SMALL, *nodes.addresses)
    after = nodes.asked()
    return [(late - early) / count for early, late in zip(before, after)]


# --- all of it -------------------------------------------------------------------------------------------------------


class Found:
    """Every value of every run."""

    def __init__(self):
        self.rows, self.calls = {}, None

    def run(self, registry, measure):
        if measure not in (measure_large, measure_collection):
            registry.forget()
        try:
            seen = measure(registry)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; {registry.name} complains: {registry.complaints()}") from error
        for what, values in seen.items():
            self.rows.setdefault((what, registry.name), []).append(values)
        self.keep()

    def in_turn(self, present, measure):
        for number in range(RUNS):
            for registry in present if number % 2 == 0 else reversed(present):
                self.run(registry, measure)
                print(f"run {number + 1} of {RUNS}: {registry.name}: {measure.__name__}", flush=True)

    def keep(self):
        """Writes what there is by now, so that a benchmark that is broken off leaves it."""
        found = {
            "what": "registry", "format": results_file.FORMAT, "machine": results_file.machine(), "date": results_file.now(),
            "versions": {"distribution": version("registry", "--version"), "Xebec": version(os.environ["XEBEC_REGISTRY_BIN"], "--version")},
            "load_before": LOAD_BEFORE, "runs": RUNS, "calls_of_a_push": self.calls,
            "rows": [{"measure": what, "system": system, "runs": runs} for (what, system), runs in self.rows.items()],
        }
        if path := os.environ.get("BENCH_JSON"):
            with open(path, "w") as file:
                json.dump(found, file, indent=1)
        return found

    def show(self):
        table = registry_table.markdown(self.keep())
        print(table)
        if path := os.environ.get("BENCH_MARKDOWN"):
            with open(path, "w") as file:
                file.write(table)


LOAD_BEFORE = os.getloadavg()[0]


def version(*command):
    if not shutil.which(command[0]):
        return "not installed"
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode().split()[-1]


def nodes_too(found, one):
    """One node and two, in turn, and what stands behind the two by itself."""
    if not (shutil.which("versitygw") and shutil.which("pgbench") and os.path.isdir("/usr/lib/postgresql")):
        print("SKIPPED two nodes: versitygw or PostgreSQL is not installed (make setup-bench)", flush=True)
        return
    nodes = registries.XebecNodes(SCRATCH)
    try:
        nodes.begin()
        # The store by itself in the same turn, so that a busy machine is as busy for it.
        for _ in range(RUNS):
            found.run(one, measure_alone)
            found.run(nodes, measure_alone)
            found.run(nodes, measure_store)
        found.calls = dict(zip(("puts", "others", "commits"), count_calls(nodes)))
    finally:
        nodes.end()


def main():
    found = Found()
    with contextlib.suppress(KeyboardInterrupt):  # the table is of what there is
        one = registries.Xebec(SCRATCH)
        both = [registries.Distribution(SCRATCH), one]
        if "alone" in ONLY:
            found.in_turn(both, measure_alone)
        if "memory" in ONLY:
            found.in_turn(both, measure_memory)
        if "indexing" in ONLY:
            found.in_turn([one], measure_indexing)
        if "deduplication" in ONLY:
            deduplication.run(found, SCRATCH)
        if "large" in ONLY:
            large = [registries.DistributionFull(SCRATCH), registries.XebecFull(SCRATCH)]
            fill_distribution(large[0])
            fill_xebec(large[1])
            found.in_turn(large, measure_large)
            found.in_turn(large[1:], measure_collection)
        if "nodes" in ONLY:
            nodes_too(found, registries.XebecOne(SCRATCH))
    found.show()


if __name__ == "__main__":
    sys.exit(main())
