"""Makes layers of this machine's own programs, in sizes that lie as far apart as those of images' layers do, by the encoders of the tools that push them.

    layers_of_tree.py DIRECTORY COMPRESS

Has `COMPRESS ENCODER LEVEL INPUT OUTPUT` (bench/recompress) write DIRECTORY/NAME for each layer. Files that are there stay. No two layers have a directory in
common, so nothing that is read for one is in memory for the next.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile

TREE = "/usr"
# Megabytes without compression.
SIZES = (0.25, 2, 10, 24, 64)
# Who writes them: Docker and BuildKit; buildah, podman and skopeo; Java (jib) and Python (Bazel); zstd as BuildKit and buildah do. `None` is Python's own zlib.
ENCODERS = {"go": ("go", "6"), "pgzip": ("pgzip", "5"), "zlib": None, "zstd": ("zstd", "2")}
SUFFIX = {"zstd": "zst"}


def layers():
    """Names of all layers, each with its encoder and its bytes without compression."""
    for size in SIZES:
        for encoder in ENCODERS:
            yield f"{encoder}-{size:g}.{SUFFIX.get(encoder, 'gz')}", encoder, int(size * 1e6)


def directories():
    """Directories with the files that each has itself, in an order that has nothing to do with their names: neighbours are alike."""
    found = [(at, sorted(files)) for at, _, files in os.walk(TREE) if files]
    return sorted(found, key=lambda one: hashlib.sha256(one[0].encode()).digest())


def choose(size, rest):
    """Files of some directories that have that many bytes together, about. One that has more than a quarter of it alone is left out."""
    chosen, total = [], 0
    for at, files in rest:
        for name in files:
            path = os.path.join(at, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            length = os.path.getsize(path)
            if length <= size / 4 and total + length <= size:
                chosen.append(path)
                total += length
        if total >= 0.95 * size:
            return chosen
    sys.exit(f"{TREE} has too few files for these layers")


def write(path, encoder, files, compress):
    plain = path + ".tar"
    with tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as layer:
        for file in files:
            layer.add(file, file.lstrip("/"), recursive=False)
    if ENCODERS[encoder]:
        subprocess.run([compress, *ENCODERS[encoder], plain, path + ".part"], check=True)
    else:
        with open(path + ".part", "wb") as file, gzip.GzipFile("", "wb", 6, file, 0) as output, open(plain, "rb") as content:
            shutil.copyfileobj(content, output, 1 << 20)
    os.rename(path + ".part", path)
    os.remove(plain)


def main():
    to, compress = sys.argv[1:]
    os.makedirs(to, exist_ok=True)
    rest = iter(directories())
    for name, encoder, size in layers():
        files = choose(size, rest)
        path = os.path.join(to, name)
        if not os.path.exists(path):
            write(path, encoder, files, compress)


if __name__ == "__main__":
    main()
