"""What each system needs of each image, made once and kept in the registry's directory, which lasts."""

import hashlib
import json
import os
import shutil
import time

import bench

# Of the registry's own, below its directory.
REPOSITORIES = "storage/docker/registry/v2/repositories"
EMPTY = "empty"
# No push takes longer.
PATIENCE_S = 1800


def push(subject, repository):
    """An image as it is; gives the reference."""
    image = f"{bench.REGISTRY}/{repository}:{subject.tag}"
    bench.run("skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{subject.layout}:latest", f"docker://{image}",
              timeout=PATIENCE_S)
    return image


class Published:
    """By system, its version and the image: what `System.publish` gave; by image: how long a push took."""

    def __init__(self):
        self.top = os.path.dirname(bench.REGISTRY_LOG)
        self.path = os.path.join(self.top, "published.json")
        try:
            with open(self.path) as file:
                self.known = json.load(file)
        except FileNotFoundError:
            self.known = {}

    def once(self, key, make):
        if key not in self.known:
            self.known[key] = make()
            with open(self.path + ".new", "w") as file:
                json.dump(self.known, file, indent=1)
            os.rename(self.path + ".new", self.path)
        return self.known[key]

    def of(self, system, subject):
        # The recording, or the list of opened files, depends on how the image is run, too.
        how = hashlib.sha256(json.dumps([subject.arguments, vars(subject.task)]).encode()).hexdigest()[:12]
        key = f"{system.name} {system.version()}, {subject} {subject.digest} {how}"
        return self.once(key, lambda: system.publish(subject, push(subject, subject.repository)))

    def push_ms(self, subject):
        """Of the plain image, into a repository that has nothing. Not by skopeo, which remembers where it has seen a layer, and
        has the registry take it from there."""

        def make():
            shutil.rmtree(os.path.join(self.top, REPOSITORIES, EMPTY), ignore_errors=True)
            began = time.perf_counter()
            bench.run("crane", "push", "--insecure", subject.layout, f"{bench.REGISTRY}/{EMPTY}/{subject.repository}:latest",
                      timeout=PATIENCE_S)
            return (time.perf_counter() - began) * 1e3

        return self.once(f"push, {subject} {subject.digest}", make)
