"""What the registry has of an image, as files of the machine that it runs on. They are read before a start, so that the registry
sends them from memory: its disk is not measured, and the first client would pay for those that pull the same layers.
"""

import os
import re

import bench
from published import REPOSITORIES

BLOBS = os.path.join(os.path.dirname(REPOSITORIES), "blobs")


def text(*path):
    """Of a small file, or nothing if there is none."""
    try:
        with open(os.path.join(*path)) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def files(top, reference):
    """Paths of all blobs of an image: its manifests, what they name, and what refers to one by the tag of its digest. `top`: the
    registry's directory."""
    repository, _, tag = reference.partition("/")[2].rpartition(":")
    manifests = os.path.join(top, REPOSITORIES, repository, "_manifests")
    tagged = lambda name: text(manifests, "tags", name, "current", "link")
    waiting, found = [tagged(tag)], {}
    if not waiting[0]:
        raise RuntimeError(f"{reference} is not in the registry")
    while waiting:
        digest = waiting.pop()
        algorithm, _, name = digest.partition(":")
        path = os.path.join(top, BLOBS, algorithm, name[:2], name, "data")
        # Digests in annotations may be of another repository, and not here.
        if not digest or digest in found or not os.path.exists(path):
            continue
        found[digest] = path
        if os.path.exists(os.path.join(manifests, "revisions", algorithm, name)):
            waiting += [tagged(f"{algorithm}-{name}"), *re.findall(r'"(sha256:[0-9a-f]{64})"', text(path))]
    return list(found.values())


def warm(references):
    for path in {path for reference in references for path in files(os.path.dirname(bench.REGISTRY_LOG), reference)}:
        bench.read_through(path)
