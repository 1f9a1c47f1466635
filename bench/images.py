"""Makes the two images that no package manager makes, as OCI layouts.

`big`: one gzip layer with one file of 10^9 bytes. Its content is that of real layers, one after another until there
is enough, so that it compresses as programs do.

`many`: 100,000 small files in 30 gzip layers, some dozens in a directory, as packages bring them.

Both are the same every time (for the same real layers) and are kept in the cache between runs.

Usage: images.py big DIRECTORY LAYER.tar.gz...
       images.py many DIRECTORY
"""

import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import tarfile

BIG_SIZE = 10**9
MANY_FILES = 100_000
MANY_LAYERS = 30
PART = 1 << 20
TIME = 1_700_000_000
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Layout:
    """An OCI layout directory that is being written."""

    def __init__(self, directory):
        self.directory = directory
        self.blobs = os.path.join(directory, "blobs", "sha256")
        os.makedirs(self.blobs)

    def add(self, content):
        digest = hashlib.sha256(content).hexdigest()
        with open(os.path.join(self.blobs, digest), "wb") as file:
            file.write(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def add_layer(self, plain_chunks):
        """Compresses as `gzip -6n`; returns (descriptor, diff ID)."""
        path = os.path.join(self.blobs, "incoming")
        plain = hashlib.sha256()
        with open(path, "wb") as file:
            compressor = subprocess.Popen(["gzip", "-6n"], stdin=subprocess.PIPE, stdout=file)
            for chunk in plain_chunks:
                plain.update(chunk)
                compressor.stdin.write(chunk)
            compressor.stdin.close()
            if compressor.wait() != 0:
                raise RuntimeError("gzip failed")
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.path.getsize(path)
        os.rename(path, os.path.join(self.blobs, digest))
        media_type = "application/vnd.oci.image.layer.v1.tar+gzip"
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}, f"sha256:{plain.hexdigest()}"

    def finish(self, layers, runs=None):
        """`runs`: what the image says of its containers."""
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": runs or {},
            "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in layers]},
        }
        self.write(config, {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json"},
            "layers": [descriptor for descriptor, _ in layers],
        })

    def write(self, config, manifest):
        """The configuration, the manifest, into which its digest is put, and what names them."""
        manifest = {**manifest, "config": {**manifest["config"], **self.add(json.dumps(config).encode())}}
        entry = {"mediaType": MANIFEST, **self.add(json.dumps(manifest).encode())}
        entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
        index = {"schemaVersion": 2, "manifests": [entry]}
        for name, value in (("index.json", index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
            with open(os.path.join(self.directory, name), "w") as file:
                json.dump(value, file)


def header(name, size=None):
    """A tar header: of a file if there is a size, else of a directory."""
    info = tarfile.TarInfo(name)
    info.mtime = TIME
    info.mode = 0o755 if size is None else 0o644
    info.type = tarfile.DIRTYPE if size is None else tarfile.REGTYPE
    info.size = size or 0
    return info.tobuf(tarfile.GNU_FORMAT)


def padding(size):
    return bytes(-size % 512)


END = bytes(1024)


def real_content(layers, size):
    """`size` bytes of the plain contents of `layers`, over and over."""
    while True:
        for layer in layers:
            with gzip.open(layer) as plain:
                while part := plain.read(min(PART, size)):
                    size -= len(part)
                    yield part
        if size == 0:
            return


def big(directory, layers):
    os.makedirs(directory)
    layout = Layout(os.path.join(directory, "oci"))
    os.makedirs(os.path.join(directory, "tree"))

    def plain():
        yield header("big.bin", BIG_SIZE)
        with open(os.path.join(directory, "tree", "big.bin"), "wb") as copy:
            for part in real_content(layers, BIG_SIZE):
                copy.write(part)
                yield part
        yield padding(BIG_SIZE) + END

    layout.finish([layout.add_layer(plain())])


def many_layer(number):
    """Names and sizes as `crates/format/examples/bench_view.rs` makes them; contents short, to keep the image small."""
    numbers = random.Random(number)
    left, seen = 0, set()
    for file in range(MANY_FILES // MANY_LAYERS + (number < MANY_FILES % MANY_LAYERS)):
        if left == 0:
            left = numbers.randint(1, 60)
            parents = ["usr", "lib", "python3", "dist-packages", f"package{numbers.randrange(500):03}"]
            parents.append(f"part{numbers.randrange(9)}")
            folder = "/".join(parents)
            for depth in range(1, len(parents) + 1):
                path = "/".join(parents[:depth])
                if path not in seen:
                    seen.add(path)
                    yield header(path + "/")
        left -= 1
        content = numbers.randbytes(numbers.randint(1, 200)).hex().encode()
        name = f"{folder}/module_{numbers.randrange(1 << 24):x}_{number}_{file}.py"
        yield header(name, len(content)) + content + padding(len(content))
    yield END


def many(directory):
    os.makedirs(directory)
    layout = Layout(os.path.join(directory, "oci"))
    layout.finish([layout.add_layer(many_layer(number)) for number in range(MANY_LAYERS)])


if __name__ == "__main__":
    kind, directory, *layers = sys.argv[1:]
    big(directory, layers) if kind == "big" else many(directory)
