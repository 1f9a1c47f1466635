"""The images of the benchmark: reads and checks `bench/catalogue/NAME.toml`, one file for each image.

docs/bench-images.md says what stands in such a file. Here is what an image is to those who start it; recipes.py makes of it
what scripts/images/build.sh builds.
"""

import dataclasses
import functools
import json
import os
import re
import tomllib

import protocols
import tasks

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(TOP, "bench", "catalogue")
RECIPES = os.path.join(TOP, "scripts", "images")
# Those of Slacker's HelloBench, in the order of tables.
CATEGORIES = ["distribution", "database", "language", "web server", "web framework", "other"]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# The form of a version: part of the name of a directory and of a tag.
VERSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]{0,40}")
# The kinds of layers, each with what pins the version of an artefact; Debian's packages have the version of its release.
PINNED = {
    "pip": re.compile(r".+==.+"),
    "npm": re.compile(r".+@\d.*"),
    "go": re.compile(r".+@v\d.*"),
    "maven": re.compile(r".+:.+:\d.*:.+"),
}
LAYERS = ["apt", "deb", *PINNED, "files", "run"]
# Layers that are unpacked somewhere say where.
PLACED = ["deb", *PINNED]


class Wrong(Exception):
    """A file of the catalogue is wrong: its name, the key and why."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """`kind` is one of LAYERS, `what` a list of packages or artefacts, a table of files, or a command."""

    kind: str
    what: list | dict | str
    to: str = "/"


@dataclasses.dataclass(frozen=True)
class Image:
    """`recipe` is a folder of scripts/images; without it the image is made of `base`, `layers` and `config`."""

    name: str
    category: str
    versions: list
    small: bool
    large: bool
    task: tasks.Task
    arguments: list
    recipe: str = ""
    base: str = ""
    layers: tuple = ()
    config: dict = dataclasses.field(default_factory=dict)

    def version(self, version=None):
        """The one meant: the newest, unless it is named."""
        if version is not None and version not in self.versions:
            raise Wrong(f"{self.name} has no version {version!r}: {', '.join(self.versions)}")
        return self.versions[-1] if version is None else version

    def built_as(self, version=None):
        """The name of its recipe, and of its layout's directory."""
        return self.recipe or "-".join(filter(None, ["bench", self.name, self.version(version)]))

    def layout(self, version=None):
        """Its OCI layout, once it is built; the tag is `latest`."""
        return os.path.join(built(), "oci", self.built_as(version))

    def digest(self, version=None):
        """Of its manifest."""
        with open(os.path.join(self.layout(version), "index.json")) as file:
            return json.load(file)["manifests"][0]["digest"]


def built():
    """Where scripts/images/build.sh puts images (scripts/env.sh)."""
    return os.environ["XEBEC_BUILD"]


# --- checking --------------------------------------------------------------------------------------------------------


class Table:
    """A table of a file, whose keys are taken one by one; one that nobody took is an error."""

    def __init__(self, where, content):
        self.where, self.content = where, dict(content)

    def wrong(self, key, why):
        return Wrong(f"{self.where}: {key}: {why}")

    def take(self, key, kind, default=None):
        """`default` of None: it must be there."""
        if key not in self.content:
            if default is None:
                raise self.wrong(key, "is missing")
            return default
        value = self.content.pop(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(key, f"must be of type {kind.__name__}, not {type(value).__name__}")
        return value

    def texts(self, key, default=None):
        """A list of texts that are not empty."""
        values = self.take(key, list, default)
        if not all(isinstance(value, str) and value for value in values):
            raise self.wrong(key, "must be a list of texts")
        return values

    def table(self, key, default=None):
        """A table of texts."""
        values = self.take(key, dict, default)
        if not all(isinstance(value, str) for value in values.values()):
            raise self.wrong(key, "must be a table of texts")
        return values

    def chosen(self, key, choices):
        value = self.take(key, str)
        if value not in choices:
            raise self.wrong(key, f"{value!r} is none of: {', '.join(choices)}")
        return value

    def end(self):
        for key in self.content:
            raise self.wrong(key, "is not known here")


def read_task(where, content):
    table = Table(f"{where}: task", content)
    kind = table.chosen("kind", tasks.KINDS)
    if kind == "answer":
        protocol = table.chosen("protocol", list(protocols.ASK))
        port = table.take("port", int)
        if not 1 <= port < 65536:
            raise table.wrong("port", f"{port} is no port")
        # Of the others, the answer is known by the protocol.
        text = table.take("text", str) if protocol == "http" else None
        path = table.take("path", str, "/") if protocol == "http" else "/"
        task = tasks.Task(kind, text, protocol, port, path, table.take("log", str, "") or None)
    else:
        text = table.take("text", str)
        task = tasks.Task(kind, text)
    if task.text == "":
        raise table.wrong("text", "is empty: anything would do")
    table.end()
    return task


def read_layer(where, content):
    table = Table(where, content)
    kinds = [kind for kind in LAYERS if kind in content]
    if len(kinds) != 1:
        raise Wrong(f"{where}: a layer is one of {', '.join(LAYERS)}; this is {', '.join(kinds) or 'none'}")
    kind = kinds[0]
    what = table.take(kind, str) if kind == "run" else table.table(kind) if kind == "files" else table.texts(kind)
    if not what:
        raise table.wrong(kind, "is empty")
    for item in what if kind in PINNED else []:
        if not PINNED[kind].fullmatch(item.replace("{version}", "0")):
            raise table.wrong(kind, f"{item!r} has no version")
    for path in what if kind == "files" else []:
        if not path.startswith("/") or ".." in path.split("/"):
            raise table.wrong(kind, f"{path!r} is no absolute path")
    to = table.take("to", str) if kind in PLACED else "/"
    if not to.startswith("/"):
        raise table.wrong("to", f"{to!r} is no absolute path")
    table.end()
    return Layer(kind, what, to)


def read(path):
    """One file."""
    where = os.path.basename(path)
    name = where.removesuffix(".toml")
    try:
        with open(path, "rb") as file:
            table = Table(where, tomllib.load(file))
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"{where}: {error}") from error
    if not NAME.fullmatch(name):
        raise Wrong(f"{where}: a name has small letters, digits and single hyphens")
    versions = table.texts("versions", [""]) if "versions" in table.content else [""]
    if not versions or len(set(versions)) < len(versions):
        raise table.wrong("versions", "is empty, or has one twice")
    for version in filter(None, versions):
        if not VERSION.fullmatch(version):
            raise table.wrong("versions", f"{version!r} has letters that no tag may have")
    fields = {
        "name": name,
        "category": table.chosen("category", CATEGORIES),
        "versions": versions,
        "small": table.take("small", bool, False),
        "large": table.take("large", bool, False),
        "task": read_task(where, table.take("task", dict)),
        "arguments": table.texts("arguments", []),
    }
    if "recipe" in table.content:
        fields["recipe"] = table.take("recipe", str)
        if not os.path.isdir(os.path.join(RECIPES, fields["recipe"])):
            raise table.wrong("recipe", f"there is no scripts/images/{fields['recipe']}")
        if versions != [""]:
            raise table.wrong("versions", "a recipe has but one")
    else:
        fields["base"] = table.take("base", str)
        layers = table.take("layer", list)
        fields["layers"] = tuple(read_layer(f"{where}: layer {at}", layer) for at, layer in enumerate(layers, 1))
        if not layers:
            raise table.wrong("layer", "is empty")
        # {version} in a layer of an image without versions would stay as it is, and versions that no layer mentions be alike.
        if ("{version}" in str(fields["layers"])) != (versions != [""]):
            raise table.wrong("versions", "are what {version} stands for in layers: both, or neither")
        fields["config"] = read_config(table)
    table.end()
    return Image(**fields)


def read_config(table):
    """What the image says of how it is run."""
    config = {
        "env": table.table("env", {}),
        "user": table.take("user", str, ""),
        "workdir": table.take("workdir", str, ""),
        "volumes": table.texts("volumes", []),
        "entrypoint": table.texts("entrypoint", []),
        "command": table.texts("command", []),
    }
    if not config["entrypoint"] and not config["command"]:
        raise table.wrong("command", "is missing, and so is entrypoint")
    return config


# --- loading ---------------------------------------------------------------------------------------------------------


def check_all(images):
    """What one file cannot tell."""
    by_name = {image.name: image for image in images}
    names = {}
    for image in images:
        for version in image.versions:
            other = names.setdefault(image.built_as(version), image)
            if other is not image:
                raise Wrong(f"{image.name}.toml: would be built as {image.built_as(version)}, as {other.name}.toml is")
        if not image.base or image.base == "scratch":
            continue
        seen, base = [image.name], image.base
        while base in by_name:
            if base in seen:
                raise Wrong(f"{image.name}.toml: base: {' is based on '.join([*seen, base])}")
            if by_name[base].versions != [""]:
                raise Wrong(f"{image.name}.toml: base: {base} has several versions")
            seen.append(base)
            base = by_name[base].base
        if base and base != "scratch" and not os.path.isdir(os.path.join(RECIPES, base)):
            raise Wrong(f"{image.name}.toml: base: {base!r} is in neither the catalogue nor scripts/images")


@functools.cache
def everything(folder=FOLDER):
    """All images, by category and name."""
    files = sorted(entry for entry in os.listdir(folder) if entry.endswith(".toml"))
    images = [read(os.path.join(folder, entry)) for entry in files]
    check_all(images)
    return sorted(images, key=lambda image: (CATEGORIES.index(image.category), image.name))


def load(small=False, only=None, large=False, folder=FOLDER):
    """`small`: the subset of six; `only`: names; `large` ones are only in if that is said, or if they are named."""
    images = everything(folder)
    if only:
        for name in only:
            if name not in [image.name for image in images]:
                raise Wrong(f"{name!r} is not in the catalogue: {', '.join(image.name for image in images)}")
        return [image for image in images if image.name in only]
    return [image for image in images if (image.small or not small) and (large or not image.large)]
