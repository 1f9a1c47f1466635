"""Says what of the room that deduplication saves comes from equal files alone: how large layers would be if each had only the files that none before it has.

    dedup_shares.py DIRECTORY COMPRESS

Reads DIRECTORY/layers, as dedup_layers.py wrote it. Makes each distinct layer anew, without the bytes of files that were in it or in a layer before, and
compresses it by the encoder that the layer itself was compressed by. What is smaller then is equal files. What packs of the same files take less than these
layers is the other compression, and what pieces of contents take less than whole files is the third part. Prints a line of counts and bytes.
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile


def layers(directory):
    """The files of the distinct layers, in their order, with what each was compressed by."""
    with open(os.path.join(directory, "layers")) as lines:
        words = [line.split() for line in lines]
    return {file: encoder.split(":") for _, _, file, _, encoder in words}


class Files:
    """Files that were seen, by what is in them."""

    def __init__(self):
        self.seen = set()
        self.count = self.bytes = self.distinct_count = self.distinct_bytes = 0

    def is_new(self, body):
        digest = hashlib.sha256(body).digest()
        is_new = digest not in self.seen
        self.seen.add(digest)
        self.count += 1
        self.bytes += len(body)
        self.distinct_count += is_new
        self.distinct_bytes += len(body) * is_new
        return is_new


def without_known(layer, to, files):
    """A tar of the layer in which files that were seen are empty."""
    with gzip.open(layer) as plain, tarfile.open(fileobj=plain, mode="r|") as archive, tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as rest:
        for member in archive:
            if not member.isreg():
                rest.addfile(member)
                continue
            body = archive.extractfile(member).read()
            if body and files.is_new(body):
                rest.addfile(member, io.BytesIO(body))
            else:
                member.size = 0
                rest.addfile(member)


def main(directory, compress):
    files, pushed, rest = Files(), 0, 0
    for name, encoder in layers(directory).items():
        layer = os.path.join(directory, name)
        with tempfile.TemporaryDirectory(dir=directory) as work:
            tar, packed = os.path.join(work, "tar"), os.path.join(work, "gz")
            without_known(layer, tar, files)
            subprocess.run([compress, *encoder, tar, packed], check=True, stdout=sys.stderr)
            pushed += os.path.getsize(layer)
            rest += os.path.getsize(packed)
    print(
        f"files {files.count} of {files.bytes / 1e6:.1f} MB, distinct {files.distinct_count} of {files.distinct_bytes / 1e6:.1f} MB;"
        f" layers {pushed / 1e6:.1f} MB, without files that were there {rest / 1e6:.1f} MB: {rest / pushed:.3f}"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
