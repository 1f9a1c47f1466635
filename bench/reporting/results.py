"""Reads results files and checks all of what is used of them later, so that what is wrong is said here, by file and row.

The format is described in bench/results/README.md. Files from before there was a format number are read, too.
"""

import json
import re

FORMAT = 1
EARLIER = "starts under containerd"
HELLO = "hello"
SCENARIO = "scenario "
BASE = "overlayfs"
# The order in which systems are shown; others follow by name. A system whose name begins with `OURS` is no peer.
SYSTEMS = [
    "overlayfs", "EROFS snapshotter", "stargz", "stargz, optimised", "SOCI", "nydus", "nydus, optimised",
    "Xebec", "Xebec, runtime image",
]
OURS = "Xebec"
CATEGORIES = ["distribution", "database", "language", "web server", "web framework", "other"]
# Of the images of files that name none.
EARLIER_CATEGORIES = {"nginx": "web server", "redis": "database", "python": "language", "node": "language"}
# Nothing that is measured is less or more; ratios of such numbers can be computed with.
LEAST, MOST = 1e-9, 1e18
# Figures that may be less than nothing, since they are differences.
SIGNED = ("host_cache_bytes",)


class Bad(Exception):
    """A file cannot be used: the message says which, where in it, and why."""


class Row:
    """What one system did with one image on one network, some times."""

    def __init__(self, found, where):
        self.where = where
        self.image, self.version = text(found, "image", where, ""), text(found, "version", where, "")
        self.network, self.system = text(found, "network", where, ""), text(found, "system", where)
        self.category = text(found, "category", where, EARLIER_CATEGORIES.get(self.image, "other"))
        self.x = found.get("x", "")
        if not isinstance(self.x, str) and not (is_number(self.x) and abs(self.x) <= MOST):
            raise Bad(f"{where}: x is {json.dumps(self.x)[:100]}, neither a number nor a text")
        self.runs = [numbers(run, f"{where}: run {1 + at}") for at, run in enumerate(listed(found, "runs", where))]
        if not self.runs:
            raise Bad(f"{where}: no runs")
        self.once = numbers(found.get("once") or {}, f"{where}: once")
        self.settings = mapping_of(found.get("settings") or {}, f"{where}: settings")
        self.load = numbers({"load_before": found.get("load_before")}, where).get("load_before")

    @property
    def label(self):
        return f"{self.image} {self.version}".strip()

    @property
    def key(self):
        return (self.image, self.version, self.network, self.system, self.x)

    def values(self, name):
        """Of the runs that have this figure."""
        return [run[name] for run in self.runs if name in run]


class Results:
    def __init__(self, path, found):
        self.path = path
        self.what = text(found, "what", path)
        self.scenario = self.what.removeprefix(SCENARIO) if self.what.startswith(SCENARIO) else ""
        self.machine, self.versions = mapping(found, "machine", path), mapping(found, "versions", path)
        self.note, self.variable = text(found, "note", path, ""), text(found, "variable", path, "")
        self.rows = [Row(*placed(row, path, 1 + at)) for at, row in enumerate(listed(found, "rows", path))]
        self.failed = [mapping_of(entry, f"{path}: failed") for entry in listed(found, "failed", path, [])]
        self.skipped = [mapping_of(entry, f"{path}: skipped") for entry in listed(found, "skipped", path, [])]
        dates = [row["date"] for row in found["rows"] if isinstance(row.get("date"), str)]
        self.dates = sorted({date[:10] for date in [*dates, text(found, "date", path, "")] if date})
        seen = {}
        for row in self.rows:
            if row.key in seen:
                raise Bad(f"{row.where}: the same as {seen[row.key].where.removeprefix(path + ': ')}")
            seen[row.key] = row
            if not self.scenario:
                for at, run in enumerate(row.runs):
                    if not run.get("ready_ms"):
                        raise Bad(f"{row.where}: run {1 + at}: no ready_ms, or 0")

    @property
    def title(self):
        return f"Scenario: {self.scenario}" if self.scenario else "Starts"

    @property
    def systems(self):
        return sorted({row.system for row in self.rows}, key=system_order)

    @property
    def networks(self):
        return sorted({row.network for row in self.rows}, key=network_order)

    def row(self, like, system):
        """Of the same image and network as another."""
        wanted = (like.image, like.version, like.network, system, like.x)
        return next((row for row in self.rows if row.key == wanted), None)

    def of(self, network, system):
        """The rows of a system on a network."""
        return [row for row in self.rows if (row.network, row.system) == (network, system)]

    @property
    def settings(self):
        """What else was chosen, of a scenario: texts, one if it was the same for all rows."""
        found = [", ".join(f"{name} {value}" for name, value in row.settings.items()) for row in self.rows]
        return sorted({text for text in found if text})

    @property
    def counts(self):
        """How many runs rows have: "3", or "3 to 5"."""
        counts = {len(row.runs) for row in self.rows} or {0}
        return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def system_order(name):
    return (SYSTEMS.index(name) if name in SYSTEMS else len(SYSTEMS), name)


def category_order(name):
    return (CATEGORIES.index(name) if name in CATEGORIES else len(CATEGORIES), name)


def network_order(name):
    """Fastest first; "unlimited" before all that begin with a number."""
    found = re.match(r"([0-9.]+) ?([KMG]?)bit", name)
    if not found:
        return (0, 0, name)
    return (1, -float(found[1]) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[found[2]], name)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise Bad(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Bad(f"{path}: not JSON: {error}") from error
    mapping_of(found, path)
    if found.get("what") == EARLIER and "format" not in found:
        found = {**found, "what": HELLO, "format": FORMAT}
    if found.get("format") != FORMAT:
        raise Bad(f"{path}: its format is {json.dumps(found.get('format'))}, and {FORMAT} is what can be read")
    if found.get("what") != HELLO and not str(found.get("what")).startswith(SCENARIO):
        raise Bad(f"{path}: it is of {json.dumps(found.get('what'))}, neither of starts (\"{HELLO}\") nor of a scenario")
    return Results(path, found)


# --- one value -------------------------------------------------------------------------------------------------------


def placed(row, path, number):
    """With where it is, for people."""
    where = f"{path}: row {number}"
    names = [mapping_of(row, where).get(name) for name in ("image", "version", "network", "system", "x")]
    return row, f"{where} ({', '.join(str(name) for name in names if name not in (None, ''))})"


def text(found, name, where, otherwise=None):
    value = found.get(name, otherwise)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str) or not (value or otherwise == ""):
        raise Bad(f"{where}: {name} is {json.dumps(value)[:100]}, not a text")
    return value


def mapping_of(value, where):
    if not isinstance(value, dict):
        raise Bad(f"{where}: not an object")
    return value


def mapping(found, name, where):
    return mapping_of(found.get(name), f"{where}: {name}")


def listed(found, name, where, otherwise=None):
    value = found.get(name, otherwise)
    if not isinstance(value, list):
        raise Bad(f"{where}: {name} is not a list")
    return value


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_figure(value):
    return is_number(value) and (value == 0 or LEAST <= value <= MOST)


def numbers(found, where):
    """Without what is null, which was not measured."""
    for name, value in mapping_of(found, where).items():
        if value is not None and not is_figure(-value if name in SIGNED and is_number(value) and value < 0 else value):
            raise Bad(f"{where}: {name} is {json.dumps(value)[:100]}, neither 0 nor a number of {LEAST:g} to {MOST:g}")
    return {name: value for name, value in found.items() if value is not None}
