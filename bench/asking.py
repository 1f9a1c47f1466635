"""Asks registries, by a connection of this program or by tests/gotools/registryload. A request that fails fails the benchmark.

Environment: BENCH_GOTOOLS.
"""

import hashlib
import http.client
import json
import os
import subprocess
import urllib.parse

LOAD = os.path.join(os.environ.get("BENCH_GOTOOLS", ""), "registryload")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
SMALL = 20 << 10


def load(*arguments):
    """What registryload has seen."""
    done = subprocess.run([LOAD, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = json.loads(done.stdout) if done.stdout else {"failed": 1, "why": done.stderr.decode()}
    if done.returncode != 0 or found["failed"]:
        raise RuntimeError(f"registryload {' '.join(map(str, arguments))}: {found}")
    return found


def ask(address, method, path, body=b"", headers=None):
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:500]}")
    location = urllib.parse.urlsplit(answer.getheader("Location") or "")
    return content, location.path + ("?" + location.query if location.query else "")


def push_blob(address, repository, content):
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    _, place = ask(address, "POST", f"/v2/{repository}/blobs/uploads/")
    separator = "&" if "?" in place else "?"
    ask(address, "PUT", f"{place}{separator}digest={digest}", content, {"Content-Type": "application/octet-stream"})
    return digest


def pushed(registry, clients, count, size, *options):
    """How long so many pushes of new blobs took."""
    os.sync()
    found = load("push", "-clients", clients, "-count", count, "-size", size, *options, *registry.addresses)
    return {"p50_ms": found["ms"]["p50"], "p99_ms": found["ms"]["p99"], "per_s": found["requests"] / found["seconds"]}
