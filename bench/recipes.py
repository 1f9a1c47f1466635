"""Makes of an image of the catalogue what scripts/images/build.sh builds: a folder with a Containerfile, what it needs, its
files, and a script that fetches its artefacts.

So that two builds of the same packages give the same layers, a step leaves no lists, caches and logs, and files that it
changed get one fixed time; those that packages bring keep theirs, which Python's compiled files depend on. How an image was
made is all in its folder, so its hash changes when anything of it does.
"""

import json
import os
import shlex
import shutil

import catalogue

# Of everything that has no time of its own: the first of 2024.
TIME = 1704067200
# After a step that writes to the whole system; `began` is when it did. Mounted files (proc, resolv.conf) are not the image's.
APT = """RUN began=$(date +%s) \\
    && apt-get update \\
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {packages} \\
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/cache/ldconfig/* \\
        /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/alternatives.log /var/log/dpkg.log /var/log/apt/* \\
    && {settle}
"""
RUN = """RUN began=$(date +%s) \\
    && {{ {command}; }} \\
    && {settle}
"""
MOUNTED = ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv"]
SETTLE = (
    f"find / -xdev \\( {' -o '.join(f'-path {path}' for path in MOUNTED)} \\) -prune \\\n"
    f"        -o -newermt @$began -exec touch --no-dereference --date=@{TIME} {{}} +"
)
# Packages without what installing them does, for images in which nothing could.
DEB = f"""FROM localhost/xebec-test/debian AS packages{{number}}
RUN apt-get update && mkdir /packages && cd /packages && apt-get download {{packages}} \\
    && for package in *.deb; do dpkg-deb --extract $package {{to}}; done \\
    && find /tree -exec touch --no-dereference --date=@{TIME} {{{{}}}} +
"""
# The Python of Debian 12; wheels are fetched for it whatever Python is here.
PIP = "pip3 install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --no-compile --only-binary=:all:" \
    " --python-version 3.11 --implementation cp --platform manylinux2014_x86_64 --target {to} {items}"


def base_of(image):
    """The name of the recipe that it is based on: an image of the catalogue, or a folder of scripts/images."""
    found = [other for other in catalogue.everything() if other.name == image.base]
    return found[0].built_as() if found else image.base


def needed(image):
    """The images of the catalogue that it is based on, lowest first; their recipes are to be written, too."""
    found = [other for other in catalogue.everything() if other.name == image.base]
    return [*needed(found[0]), *found] if found else []


def fetching(layer, tree):
    """The lines of shell that fill the tree of a layer of artefacts."""
    to = shlex.quote(tree + layer.to.rstrip("/"))
    items = " ".join(map(shlex.quote, layer.what))
    yield f"mkdir -p {to}"
    if layer.kind == "pip":
        yield PIP.format(to=to, items=items)
        yield f"rm -rf {to}/bin"
    elif layer.kind == "npm":
        yield f"npm install --silent --no-audit --no-fund --no-save --no-package-lock --ignore-scripts --prefix {to} {items}"
        # It lists what it did there, with the address that it was fetched from.
        yield f"rm -f {to}/node_modules/.package-lock.json"
    elif layer.kind == "go":
        for item in layer.what:
            download = f"GOMODCACHE=$PWD/modules go mod download -modcacherw -json {shlex.quote(item)}"
            yield f"module=$({download} | jq --raw-output .Dir)"
            yield f"mv \"$module\"/* {to}/"
        # Modules have no modes; these are the programs of a toolchain.
        yield f"find {to} -type f \\( -path '*/bin/*' -o -path '*/pkg/tool/*' \\) -exec chmod +x {{}} +"
        yield "rm -rf modules"
    elif layer.kind == "maven":
        for item in layer.what:
            yield f"mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy" \
                f" -Dartifact={shlex.quote(item)} -DoutputDirectory=\"$PWD/archives\""
        yield f"for archive in archives/*.tar.gz; do tar -xzf \"$archive\" --strip-components=1 --no-same-owner -C {to}; done"
        # Some archives are for one user only.
        yield f"chmod -R a+rX {to}"
        yield "rm -rf archives"


def with_version(value, version):
    """`value` (text, list or table) with the version where {version} stands."""
    if isinstance(value, dict):
        return {with_version(key, version): with_version(item, version) for key, item in value.items()}
    if isinstance(value, list):
        return [with_version(item, version) for item in value]
    return value.replace("{version}", version) if version else value


class Recipe:
    """The files of a recipe, by path."""

    def __init__(self, image, version):
        self.image, self.files, self.prepare = image, {}, []
        base = base_of(image)
        self.lines = [f"FROM {base if base == 'scratch' else f'localhost/xebec-test/{base}'}"]
        self.files["needs"] = ("debian" if base == "scratch" else base) + "\n"
        for number, layer in enumerate(image.layers, 1):
            self.add(f"tree/{number}", catalogue.Layer(layer.kind, with_version(layer.what, version), layer.to))
        self.configure(with_version(image.config, version))
        self.files["Containerfile"] = "\n".join(self.lines) + "\n"
        # Directories are copied with their times.
        self.prepare.append(f"[ ! -d tree ] || find tree -exec touch --no-dereference --date=@{TIME} {{}} +")
        self.files["prepare"] = "\n".join(["#!/usr/bin/env bash", "set -euo pipefail", *self.prepare]) + "\n"

    def add(self, tree, layer):
        if layer.kind == "apt":
            self.lines.append(APT.format(packages=" ".join(map(shlex.quote, layer.what)), settle=SETTLE))
            return
        if layer.kind == "run":
            self.lines.append(RUN.format(command=layer.what.strip(), settle=SETTLE))
            return
        if layer.kind == "deb":
            number, to = tree.removeprefix("tree/"), shlex.quote("/tree" + layer.to.rstrip("/"))
            self.lines.insert(0, DEB.format(number=number, packages=" ".join(map(shlex.quote, layer.what)), to=to))
            self.lines.append(f"COPY --from=packages{number} /tree/ /\n")
            return
        if layer.kind == "files":
            for path, text in layer.what.items():
                # A text of several lines begins after its quotes.
                self.files[tree + path] = text.removeprefix("\n")
        else:
            self.prepare += fetching(layer, tree)
        self.lines.append(f"COPY {tree}/ /\n")

    def configure(self, config):
        self.lines += [f"ENV {name}={json.dumps(value)}" for name, value in config["env"].items()]
        if config["volumes"]:
            self.lines.append(f"VOLUME {json.dumps(config['volumes'])}")
        if config["workdir"]:
            self.lines.append(f"WORKDIR {config['workdir']}")
        if config["user"]:
            self.lines.append(f"USER {config['user']}")
        for name, word in (("entrypoint", "ENTRYPOINT"), ("command", "CMD")):
            if config[name]:
                self.lines.append(f"{word} {json.dumps(config[name])}")

    def write(self, folder):
        """Anew: what an earlier catalogue wrote there is gone."""
        if os.path.exists(folder):
            shutil.rmtree(folder)
        for path, text in self.files.items():
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w") as file:
                file.write(text)
            if text.startswith("#!"):
                os.chmod(target, 0o755)


def write(image, version, folder):
    """Its recipe and those of what it is based on, in `folder` by the names that they are built as."""
    for one, its_version in [*((base, base.version()) for base in needed(image)), (image, version)]:
        if not one.recipe:
            Recipe(one, its_version).write(os.path.join(folder, one.built_as(its_version)))
