"""A version of an image that differs by one edited file in its application's layer, as a developer's next build makes it.

The layer is the highest one that has a file of a kind that may be edited; that layer is written again, with a comment at the
end of the file, and all others stay as they are. So the new image is the same on every machine for the same mark, works as the
one before, and that it runs can be seen in the file.
"""

import copy
import functools
import gzip
import io
import json
import os
import shutil
import tarfile
import zlib

import images
from subject import Subject

# The text that ends a file of each kind without changing its meaning; kinds that are code come first.
COMMENTS = {
    ".py": "\n# {}\n", ".rb": "\n# {}\n", ".js": "\n/* {} */\n", ".mjs": "\n/* {} */\n", ".sh": "\n# {}\n",
    ".html": "\n<!-- {} -->\n", ".css": "\n/* {} */\n", ".conf": "\n# {}\n", ".cfg": "\n# {}\n", ".md": "\n{}\n",
    ".txt": "\n{}\n",
}


class Edited(Subject):
    """`mark`: what the comment says, and the version. It is made below `directory`."""

    def __init__(self, subject, mark, directory):
        super().__init__(subject.image, mark)
        self.original, self.mark = subject, mark
        self.directory = os.path.join(directory, self.repository, mark)
        shutil.rmtree(self.directory, ignore_errors=True)
        try:
            write(subject.layout, self.directory, mark)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise RuntimeError(f"a layer of {subject.layout} is damaged: {error}") from error

    @property
    def layout(self):
        return self.directory

    @property
    def digest(self):
        return descriptor(self.layout)["digest"]

    @property
    def edited_file(self):
        """Its path in the image."""
        return find(self.original.layout)[1]

    def shows(self, node, container):
        """Whether a running container has the file as it was edited."""
        rows = [row.split() for row in node.ctr("tasks", "ls").splitlines()]
        pid = next(row[1] for row in rows if row[0] == container)
        with open(f"/proc/{pid}/root/{self.edited_file}", "rb") as file:
            return file.read().endswith(comment(self.edited_file, self.mark))


def descriptor(layout):
    """Of the manifest."""
    with open(os.path.join(layout, "index.json")) as file:
        return json.load(file)["manifests"][0]


def blob(layout, digest):
    return os.path.join(layout, "blobs", *digest.split(":"))


def read_json(layout, digest):
    with open(blob(layout, digest)) as file:
        return json.load(file)


def comment(path, mark):
    return COMMENTS[os.path.splitext(path)[1]].format(mark).encode()


@functools.cache
def find(layout):
    """The place of the layer, and the file's path."""
    layers = read_json(layout, descriptor(layout)["digest"])["layers"]
    for place in reversed(range(len(layers))):
        if not layers[place]["mediaType"].endswith("+gzip"):
            continue
        with tarfile.open(blob(layout, layers[place]["digest"]), "r:gz") as tar:
            kinds = {}
            for entry in tar:
                name = os.path.basename(entry.name)
                if entry.isreg() and not name.startswith(".wh."):
                    kinds.setdefault(os.path.splitext(name)[1], []).append(entry.name)
        if kind := next((kind for kind in COMMENTS if kind in kinds), None):
            # The application's own files are less deep than the packages that it brings.
            return place, min(kinds[kind], key=lambda path: path.count("/"))
    raise RuntimeError(f"{layout}: no layer has a file that may be edited ({' '.join(COMMENTS)})")


def rewritten(path, name, mark):
    """The bytes of a layer's tar with a comment at the end of one file."""
    pipe = io.BytesIO()

    def taken():
        content = pipe.getvalue()
        pipe.seek(0)
        pipe.truncate()
        return content

    with gzip.open(path) as plain, tarfile.open(fileobj=plain, mode="r|") as old, \
            tarfile.open(fileobj=pipe, mode="w", format=tarfile.PAX_FORMAT) as new:
        for entry in old:
            if entry.issparse():
                raise RuntimeError(f"{path}: {entry.name} is sparse, which is not written again")
            content = old.extractfile(entry) if entry.isreg() else None
            if entry.name == name:
                content = io.BytesIO(content.read() + comment(name, mark))
                entry = copy.copy(entry)
                entry.size = len(content.getvalue())
                # Sizes of some writers are in an extended header, which would go on saying the old one.
                entry.pax_headers = {key: value for key, value in entry.pax_headers.items() if key != "size"}
            new.addfile(entry, content)
            yield taken()
    yield taken()


def write(original, directory, mark):
    """An OCI layout; what did not change are links to the one that it is made of."""
    place, name = find(original)
    manifest = read_json(original, descriptor(original)["digest"])
    config = read_json(original, manifest["config"]["digest"])
    layout = images.Layout(directory)
    for at, layer in enumerate(manifest["layers"]):
        if at != place:
            os.symlink(blob(original, layer["digest"]), blob(directory, layer["digest"]))
    layer = manifest["layers"][place]
    changed, config["rootfs"]["diff_ids"][place] = layout.add_layer(rewritten(blob(original, layer["digest"]), name, mark))
    manifest["layers"][place] = {**layer, **changed}
    layout.write(config, manifest)
