"""Makes the layers of some series of images with several versions, of registries of packages: what bench-dedup.sh keeps once.

    dedup_layers.py DIRECTORY COMPRESS [few|many]

Writes the tar of each layer to DIRECTORY and has `COMPRESS ENCODER LEVEL INPUT OUTPUT` make NAME.gz of it. Files that are there stay. DIRECTORY/layers
has a line for each layer of each version: series, version, file, whether it is one that was only made again, and the encoder.

dedup_series.py says which versions there are. An image is a Debian, what apt installed in it, and what another client of packages installed. Debian is there
in four states: its releases 12 and 13, each as it was released and with all updates. Of the small set, each version of a series is built at another time and
shares the Debian of its state. All else is made again, as it is where nothing keeps the layers of the build before: the same files, and other times of
directories, compiled Python and log. Of the large set, images of languages are built once for a state, as those of Docker Hub are.
"""

import compileall
import hashlib
import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from dedup_series import STATES, few, many


def mirror(path, variable):
    """Where Debian is to be had: as the environment says, or from where this host itself has its packages."""
    said = os.environ.get(variable)
    if said:
        return said
    for name in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))]:
        if os.path.isfile(name):
            with open(name) as sources:
                for word in sources.read().split():
                    if "://" in word and word.rstrip("/").endswith(path):
                        return word
    sys.exit(f"this host's apt has no source of {path}: name one by {variable}")


MIRROR = mirror("/debian", "XEBEC_DEBIAN_MIRROR")
SECURITY = mirror("/debian-security", "XEBEC_DEBIAN_SECURITY_MIRROR")
ESSENTIAL = ["?essential", "apt"]
DAY = 86400
START = 1_700_000_000
# What no image should have: lists of packages.
LEFT_OUT = ("./var/lib/apt/lists/", "./var/cache/apt/")
# Who writes layers: Docker by Go's encoder, buildah and podman by pgzip.
ENCODERS = [("go", "6"), ("pgzip", "5")]


def extracted(state, packages, to):
    """A tar of packages and what they depend on, unpacked by apt and dpkg without running anything of them."""
    if os.path.exists(to):
        return
    release, is_updated = STATES[state]
    sources = [f"deb {MIRROR} {release} main"]
    if is_updated:
        sources += [f"deb {MIRROR} {release}-updates main", f"deb {SECURITY} {release}-security main"]
    include = [f"--include={package}" for package in [*ESSENTIAL, *packages]]
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=extract", *include, release, to + ".part.tar", *sources]
    subprocess.run(command, check=True, stdout=sys.stderr)
    os.rename(to + ".part.tar", to)


def contents(tar):
    """Names of all members, and a mark that is another one if a member is."""
    marks = {}
    with tarfile.open(tar) as archive:
        for member in archive:
            if member.name.startswith(LEFT_OUT):
                continue
            body = hashlib.sha256(archive.extractfile(member).read()).digest() if member.isreg() else b""
            marks[member.name] = (member.type, member.mode, member.linkname, body)
    return marks


def upper(base, image, to, time):
    """The layer that makes an image of a base, or of nothing, built at that time."""
    below = contents(base) if base else {}
    with tarfile.open(image) as archive, tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as layer:
        marks = contents(image)
        changed = {name for name, mark in marks.items() if below.get(name) != mark}
        needed = {part for name in changed for part in parents(name)}
        for member in archive:
            if member.name in changed or (member.isdir() and member.name in needed):
                if member.isdir():
                    member.mtime = time
                layer.addfile(member, archive.extractfile(member) if member.isreg() else None)
        log = f"{time} startup archives unpack\n" + "".join(f"{time} install {name}\n" for name in sorted(changed) if name.endswith(".list"))
        add(layer, "./var/log/dpkg.log", log.encode(), time)


def parents(name):
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def add(layer, name, body, time, mode=0o644):
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(body), time, mode
    layer.addfile(member, io.BytesIO(body))


def wheels(requirements, cache, root):
    """Fills a directory with wheels and compiles the Python of them, as pip does."""
    os.makedirs(cache, exist_ok=True)
    command = [
        "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp",
        "--abi=cp311", "--abi=abi3", "--abi=none", "--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64",
        "--platform=manylinux_2_17_x86_64", "--platform=manylinux_2_27_x86_64", "--platform=any", "--dest", cache,
    ]
    subprocess.run([*command, *requirements], check=True, stdout=sys.stderr)
    wanted = [requirement.replace("-", "_").replace("==", "-").lower() + "-" for requirement in requirements]
    packages = os.path.join(root, "usr/local/lib/python3.11/dist-packages")
    os.makedirs(packages)
    for wheel in sorted(os.listdir(cache)):
        if any(wheel.lower().startswith(start) for start in wanted):
            with zipfile.ZipFile(os.path.join(cache, wheel)) as archive:
                archive.extractall(packages)


def compiled(root, time):
    """Compiles the Python of wheels that were installed at that time."""
    dated(root, time)
    compileall.compile_dir(os.path.join(root, "usr/local/lib/python3.11/dist-packages"), quiet=2, stripdir=root, prependdir="/")
    dated(root, time)


def archives(coordinates, repository, to):
    """Unpacks archives of Maven, without their outermost directory. A jar stays as it is, unless it has an archive of programs."""
    keys = ("groupId", "artifactId", "version", "type", "classifier")
    items = ""
    for coordinate in coordinates:
        said = "".join(f"<{key}>{value}</{key}>" for key, value in zip(keys, coordinate.split(":")))
        items += f"<artifactItem>{said}</artifactItem>"
    plugin = "<groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>"
    with tempfile.TemporaryDirectory() as work:
        project = os.path.join(work, "pom.xml")
        with open(project, "w") as file:
            file.write(
                "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>"
                f"<build><plugins><plugin>{plugin}<configuration><artifactItems>{items}</artifactItems>"
                f"<outputDirectory>{work}/archives</outputDirectory></configuration></plugin></plugins></build></project>"
            )
        command = ["mvn", "--quiet", "--batch-mode", f"-Dmaven.repo.local={repository}", "-f", project, "dependency:copy"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        for name in sorted(os.listdir(f"{work}/archives")):
            unpacked(os.path.join(work, "archives", name), to)


def unpacked(archive, to):
    os.makedirs(to, exist_ok=True)
    tar = ["tar", "--extract", "--no-same-owner", "--directory", to, "--file"]
    if archive.endswith(".tar.gz"):
        subprocess.run([*tar, archive, "--strip-components=1"], check=True)
    elif archive.endswith(".zip"):
        with tempfile.TemporaryDirectory(dir=os.path.dirname(archive)) as work:
            subprocess.run(["unzip", "-q", archive, "-d", work], check=True)
            [inner] = os.listdir(work)
            subprocess.run(["cp", "--archive", f"{work}/{inner}/.", to], check=True)
    elif inner := [name for name in zipfile.ZipFile(archive).namelist() if name.endswith(".txz")]:
        with tempfile.TemporaryDirectory(dir=os.path.dirname(archive)) as work:
            subprocess.run([*tar, zipfile.ZipFile(archive).extract(inner[0], work)], check=True)
    else:
        shutil.copy2(archive, to)


def toolchain(module, modules, to):
    """A module of Go, as its client has it."""
    environment = {**os.environ, "GOMODCACHE": modules}
    command = ["go", "mod", "download", "-modcacherw", "-json", module]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    os.makedirs(os.path.dirname(to))
    shutil.copytree(json.loads(said.stdout)["Dir"], to)
    shutil.rmtree(modules)


def application(package, cache, to):
    """A program of npm in a directory of its own, with what it depends on as it is today."""
    client = ["npm", "--silent", "--cache", cache]
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([*client, "pack", package], check=True, cwd=work, stdout=sys.stderr)
        [archive] = os.listdir(work)
        os.rename(os.path.join(work, archive), os.path.join(work, "package.tar.gz"))
        unpacked(os.path.join(work, "package.tar.gz"), to)
    options = ["--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--prefer-offline", "--legacy-peer-deps"]
    subprocess.run([*client, "install", *options], check=True, cwd=to, stdout=sys.stderr)


def dated(root, time):
    for at, _, files in os.walk(root):
        for name in files:
            os.utime(os.path.join(at, name), (time, time), follow_symlinks=False)


def packed_tree(root, to, time):
    """The layer of a tree, the directories of which were made at that time."""
    with tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as layer:
        for at, directories, files in os.walk(root):
            directories.sort()
            for name in sorted(directories) + sorted(files):
                path = os.path.join(at, name)
                member = layer.gettarinfo(path, os.path.relpath(path, root))
                member.uid = member.gid = 0
                member.uname = member.gname = "root"
                if member.isdir():
                    member.mtime = time
                if member.isreg():
                    with open(path, "rb") as file:
                        layer.addfile(member, file)
                else:
                    layer.addfile(member)


def encoder(part):
    """Half of the series is compressed by the one, half by the other."""
    return ENCODERS[len(part.series) % 2]


class Layers:
    def __init__(self, directory, compress):
        self.directory, self.compress = directory, compress
        os.makedirs(directory, exist_ok=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def layer(self, part):
        """The file of a part, made if need be."""
        name = part.name + ".gz"
        if not os.path.exists(self.path(name)):
            time = START + DAY * (7 * part.number + len(part.series))
            tar = self.path(part.name + ".tar")
            if part.kind in ("base", "apt"):
                self.system(part, tar, time)
            else:
                self.tree(part, tar, time)
            subprocess.run([self.compress, *encoder(part), tar, self.path(name + ".part")], check=True, stdout=sys.stderr)
            os.rename(self.path(name + ".part"), self.path(name))
            os.remove(tar)
        return name

    def system(self, part, tar, time):
        """The layer of a Debian, or of packages over it."""
        base = self.path(f"base-{part.state}.image")
        extracted(part.state, [], base)
        if part.kind == "base":
            return upper(None, base, tar, time)
        image = self.path(f"{'-'.join(part.what)}-{part.state}.image")
        extracted(part.state, part.what, image)
        upper(base, image, tar, time)

    def tree(self, part, tar, time):
        """The layer of an application."""
        with tempfile.TemporaryDirectory(dir=self.directory) as work:
            root, to = os.path.join(work, "root"), os.path.join(work, "root", part.to)
            if part.kind == "pip":
                wheels(part.what, self.path("wheels"), root)
                compiled(root, time)
            elif part.kind == "maven":
                archives(part.what, self.path("maven"), to)
            elif part.kind == "go":
                toolchain(*part.what, os.path.join(work, "modules"), to)
            else:
                application(*part.what, self.path("npm"), to)
                dated(root, time)
            packed_tree(root, tar, time)

    def all(self, versions):
        lines = []
        for version in versions:
            for part in version.parts:
                kind = "again" if part.is_again else "new"
                lines.append(f"{version.series} {version.number} {self.layer(part)} {kind} {':'.join(encoder(part))}\n")
            print(f"dedup_layers: {version.series} {version.number}", file=sys.stderr, flush=True)
        with open(self.path("layers"), "w") as file:
            file.writelines(lines)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["few"], ["many"]):
        raise SystemExit(__doc__)
    Layers(sys.argv[1], sys.argv[2]).all(many() if sys.argv[3:] == ["many"] else few())
