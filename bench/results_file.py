"""What a benchmark under containerd has found, in the file that bench/report.py and bench/compare.py read (docs/bench.md)."""

import datetime
import json
import os
import platform

import bench

FORMAT = 1
# The figures that every run of a start has; the others are not known everywhere.
FIGURES = [
    "pull_ms", "create_ms", "start_ms", "ready_ms", "warm_ms", "second_ms", "rx_bytes", "rx_packets", "tx_bytes", "tx_packets",
    "pull_bytes", "requests", "client_cpu_ms", "containerd_cpu_ms", "daemon_cpu_ms", "registry_cpu_ms", "disk_bytes",
]
# Those that cannot be nothing.
POSITIVE = ["pull_ms", "create_ms", "start_ms", "ready_ms", "warm_ms", "second_ms", "rx_bytes", "requests", "disk_bytes"]
# The members that tell a row from another one.
KEY = ("image", "version", "network", "system", "x")


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((row.split(":")[1].strip() for row in file if row.startswith("model name")), platform.machine())
    return {
        "processors": os.cpu_count(),
        "model": model,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": os.uname().release,
    }


def versions(present):
    """Of the programs that all share, and of each system."""
    tools = {
        "containerd": bench.run("containerd", "--version").split()[2],
        "runc": bench.run("runc", "--version").split("\n")[0].split()[-1],
        "registry": bench.run("registry", "--version").split()[-1],
    }
    return {**tools, **{system.name: system.version() for system in present}}


def differences(before, now):
    """In what two files were measured under other circumstances; systems that only one of them has do not count."""
    found = [name for name in ("what", "format", "machine") if before.get(name) != now[name]]
    one, other = before.get("versions", {}), now["versions"]
    return found + [f"version of {name}" for name in one if name in other and one[name] != other[name]]


def gaps(found, wanted, runs):
    """What is not whole in a file of starts: a line for each row. `wanted`: what KEY names, of each row that should be there."""
    said = []
    for key in wanted:
        rows = [row for row in found["rows"] if Results.same(row, key)]
        where = ", ".join(filter(None, key.values()))
        if len(rows) != 1 or len(rows[0]["runs"]) != runs:
            said.append(f"{where}: {len(rows)} rows, {sum(len(row['runs']) for row in rows)} runs of {runs}")
            continue
        for run in rows[0]["runs"]:
            if missing := [name for name in FIGURES if not isinstance(run.get(name), (int, float))]:
                said.append(f"{where}: no {', '.join(missing)}")
            elif nothing := [name for name in POSITIVE if run[name] <= 0]:
                said.append(f"{where}: nothing for {', '.join(nothing)}")
            elif abs(run["pull_ms"] + run["start_ms"] - run["ready_ms"]) > 0.01 or run["create_ms"] > run["start_ms"]:
                said.append(f"{where}: its stages do not make up its time")
    return said


class Results:
    """Written after every change, so that what was interrupted goes on. Without a path nothing is written."""

    def __init__(self, what, path, runs, present):
        self.path = path
        self.found = {
            "what": what, "format": FORMAT, "machine": machine(), "versions": versions(present), "date": now(), "runs": runs,
            "rows": [], "failed": [], "skipped": [],
        }
        if self.path and os.path.exists(self.path):
            with open(self.path) as file:
                self.go_on(json.load(file))

    def go_on(self, before):
        """What was measured under other circumstances is kept beside it."""
        if others := differences(before, self.found):
            self.put_aside(before.get("date", "before"), ", ".join(others))
            return
        self.found["versions"] = {**before["versions"], **self.found["versions"]}
        for name in ("date", "rows", "failed"):
            self.found[name] = before[name]
        print(f"going on with the {len(before['rows'])} rows of {self.path}", flush=True)

    def put_aside(self, date, others):
        """What the file has, of this date, is no longer of use here, but may be elsewhere."""
        aside = f"{self.path}.{date.replace(':', '')}"
        os.rename(self.path, aside)
        print(f"{self.path} was measured with other circumstances ({others}): it is {aside} now", flush=True)
        self.found |= {"date": now(), "rows": [], "failed": []}

    @staticmethod
    def same(row, key):
        return all(row.get(name, "") == key.get(name, "") for name in KEY)

    def row(self, **key):
        """A row that is there already, or `None`."""
        return next((row for row in self.found["rows"] if self.same(row, key)), None)

    def runs(self, **key):
        """How many runs a row has."""
        row = self.row(**key)
        return len(row["runs"]) if row else 0

    def forget_others(self, image, version, **digests):
        """All rows of an image that were measured with another one of the same name, whatever network and system they are of."""
        self.found["rows"] = [
            row for row in self.found["rows"]
            if (row.get("image"), row.get("version")) != (image, version)
            or all(row.get(name) == digest for name, digest in digests.items())
        ]

    def only_with(self, figure, **key):
        """Forgets the runs of a row that lack a figure."""
        if row := self.row(**key):
            row["runs"] = [run for run in row["runs"] if figure in run]
            if not row["runs"]:
                self.forget("rows", key)

    def forget(self, what, key):
        self.found[what] = [row for row in self.found[what] if not self.same(row, key)]

    def add(self, runs, **more):
        """`more`: what KEY names, and what else is to be said of the row. It takes the place of an earlier one."""
        self.forget("rows", more)
        self.forget("failed", more)
        self.found["rows"].append({**more, "date": now(), "runs": runs})
        self.write()

    def add_run(self, run, **more):
        """One run more of a row, which is begun if it is not there."""
        if row := self.row(**more):
            row["runs"].append(run)
            self.write()
        else:
            self.add([run], **more)

    def fail(self, why, **key):
        """There is no row of what has failed, not even if some runs of it have not."""
        for what in ("rows", "failed"):
            self.forget(what, key)
        self.found["failed"].append({**key, "why": str(why)})
        self.write()

    def skip(self, what, why):
        self.found["skipped"].append({"what": what, "why": why})
        self.write()

    def write(self):
        if self.path:
            with open(self.path + ".new", "w") as file:
                json.dump(self.found, file, indent=1)
            os.rename(self.path + ".new", self.path)
