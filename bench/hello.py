"""HelloBench, renewed: starts of every image of the catalogue under containerd, in every system that is installed. Called by
scripts/bench.sh.

For each image and network, all systems in turn, several times: a start on a host that never saw the image, in two steps,
`ctr images pull` and `ctr run` until the task of the image is done (tasks.py); then a warm start (another container of the
image, alone), and a second container beside the first; and, if the image has several versions, a pull and a start of the
newest on a host that has the one before. docs/bench.md says what each figure is, and what is fair.

A cold start has a containerd and a daemon that were started a moment ago in empty directories; one that moves too few
bytes is an error. What fails for an image is kept as failed, and the others go on.

Environment: as for bench.py; SMALL=1 (the small images of the catalogue), BENCH_ONLY (images), BENCH_SYSTEMS (names of systems
or parts of them, separated by commas), BENCH_RATES (network.Network), BENCH_RUNS (3), BENCH_JSON (results; what it has already is
not measured again), BENCH_BUDGET (seconds, after which nothing is begun; BENCH_SPENT of them have passed), BENCH_PUBLISH=only.
"""

import os
import statistics
import subprocess
import sys
import traceback

import bench
import catalogue
import network
import starting
import stored
import systems
from budget import Budget
from published import Published
from results_file import Results
from subject import Subject

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
NETWORKS = [network.Network(text) for text in os.environ.get("BENCH_RATES", "0 1000 100 20").split()]
SECOND_NETNS = os.environ["BENCH_SECOND_NETNS"]
# A warm start that moves more is not one.
MOST_WARM_BYTES = 20_000
# The errors with which starts fail; of any other the origin is said.
FAILURES = (RuntimeError, OSError, subprocess.SubprocessError)


# --- one start -------------------------------------------------------------------------------------------------------


def start(system, subject, reference, net):
    """Cold, warm and a second container."""
    patience = starting.patience_s(subject, net)
    with system.running() as node, starting.LINK.shaped(net.mbit):
        found = starting.cold(system, subject, reference, "first", patience)
        node.end("first")
        starting.settle()
        meter = starting.meter(system)
        found["warm_ms"] = starting.run(node, subject, reference, "again", timeout_s=patience)["start_ms"]
        found["warm_bytes"] = meter.read()["rx_bytes"]
        second = starting.run(node, subject, reference, "second", SECOND_NETNS, patience)
    found["second_ms"] = second["start_ms"]
    return found | {f"second_{name}": second[name] for name in ("cache_bytes", "anonymous_bytes") if name in second}


def update(system, before, old, subject, new, net):
    """To a version from the one before (their references), which was started here and is still there."""
    patience = starting.patience_s(subject, net)
    with system.running() as node:
        starting.pull(node, old)
        starting.run(node, before, old, "before")
        node.end("before")
        starting.settle()
        with starting.LINK.shaped(net.mbit):
            found = starting.pull_and_run(system, subject, new, "updated", patience)
    if found["requests"] == 0:
        raise RuntimeError("an update asked for nothing")
    return {"update_ms": found["ready_ms"], "update_pull_ms": found["pull_ms"], "update_bytes": found["rx_bytes"],
            "update_requests": found["requests"]}


# --- the table -------------------------------------------------------------------------------------------------------


def middle(runs, name):
    return statistics.median(run[name] for run in runs)


def spread(runs, name):
    values = [run[name] for run in runs]
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def line(row, rows):
    """`rows`: of this image and network, by system."""
    runs = row["runs"]
    ready = {name: middle(found["runs"], "ready_ms") for name, found in rows.items()}
    others = [other.name for other in systems.ALL if not other.is_ours and other.name != row["system"]]
    peers = [ready[name] for name in others if name in ready]
    ratio = lambda other: f"{ready[row['system']] / other:.2f}" if other else "-"
    updated = f" update {spread(runs, 'update_ms')} ms;" if all("update_ms" in run for run in runs) else ""
    return (
        f"{row['image']:10} {row['network']:>11}  {row['system']:21} ready {spread(runs, 'ready_ms')} ms"
        f" = pull {middle(runs, 'pull_ms'):.0f} + start {middle(runs, 'start_ms'):.0f};"
        f" warm {spread(runs, 'warm_ms')}, second {spread(runs, 'second_ms')} ms;{updated}"
        f" processor ms: containerd {middle(runs, 'containerd_cpu_ms'):.0f}, daemon {middle(runs, 'daemon_cpu_ms'):.0f},"
        f" client {middle(runs, 'client_cpu_ms'):.0f}, registry {middle(runs, 'registry_cpu_ms'):.0f};"
        f" {middle(runs, 'rx_bytes') / 1e6:.2f} MB, {middle(runs, 'requests'):.0f} requests,"
        f" disk {middle(runs, 'disk_bytes') / 1e6:.1f} MB;"
        f" / overlayfs {ratio(ready.get('overlayfs'))}; / best peer {ratio(min(peers, default=None))}"
    )


# --- all of them -----------------------------------------------------------------------------------------------------


class Run:
    """Of the whole benchmark."""

    def __init__(self, present, results, budget):
        self.present, self.results, self.budget = present, results, budget
        self.published = Published()
        self.failures = 0  # now; results have those of before, too

    def say(self, text):
        print(text, flush=True)

    def fail(self, error, subject, system, network="", what=""):
        if not isinstance(error, FAILURES):
            traceback.print_exception(error)
            error = f"{type(error).__name__}: {error}"
        self.failures += 1
        self.say(f"FAILED {subject}, {network or what}, {system.name}: {error}")
        self.results.fail(f"{what}: {error}" if what else error, image=subject.name, version=subject.version, network=network,
                          system=system.name)

    def has_room(self, kind, what):
        """Whether the budget allows one more of a kind; what is left out is said once."""
        if self.budget.allows(kind):
            return True
        why = f"the budget of {self.budget.seconds:.0f} s is used up"
        if not any(skipped["what"] == what for skipped in self.results.found["skipped"]):
            self.say(f"SKIPPED {what}: {why}")
            self.results.skip(what, why)
        return False

    def publish(self, subject, present):
        """What each of the systems needs, by name; and what it took."""
        found = {}
        for system in present:
            try:
                if self.has_room("making", f"making {subject} for {system.name}"):
                    with self.budget.spending("making"):
                        found[system.name] = self.published.of(system, subject)
                    self.results.forget("failed", {"image": subject.name, "version": subject.version, "system": system.name})
            except Exception as error:  # the others go on
                self.fail(error, subject, system, what="making the image")
        return found

    def image(self, image):
        """On all networks."""
        subject = Subject(image)
        try:
            size = subject.size
            push = {"push_ms": self.published.push_ms(subject)}
            published = self.publish(subject, self.present)
            before = subject.before
            old = self.publish(before, [system for system in self.present if system.name in published]) if before else {}
            digests = [before.digest, subject.digest] if old else None
        except Exception as error:  # as above
            for system in self.present:
                self.fail(error, subject, system, what="reading or pushing the image")
            return
        self.results.forget_others(subject.name, subject.version, digest=subject.digest)
        if digests:
            self.results.forget_others(subject.name, subject.version, digests=digests)
        touched = {name: made["read_bytes"] for made in published.values() for name in ("read_bytes",) if name in made}
        made = ", ".join(f"{name} {made['convert_ms'] / 1e3:.1f} s" for name, made in published.items() if "convert_ms" in made)
        pushed = f"{size / 1e6:.1f} MB, pushed in {push['push_ms'] / 1e3:.1f} s"
        self.say(f"{subject}: {pushed}; made for {made or 'no system'}")
        if os.environ.get("BENCH_PUBLISH") == "only":
            return
        for net in NETWORKS:
            self.network(subject, net, published, old, push, touched)

    def network(self, subject, net, published, old, push, touched):
        """One image on one network: all systems in turn, several times."""
        key = {"image": subject.name, "version": subject.version, "network": str(net), "digest": subject.digest}
        # A system that could not be updated before, for want of the older version, can be now.
        for name in old:
            self.results.only_with("update_ms", **key, system=name)
        more = {"digests": [subject.before.digest, subject.digest]} if old else {}
        begun, failed, load = {}, set(), os.getloadavg()[0]
        with network.delayed(bench.REGISTRY, net.round_trip, os.environ["BENCH_REGISTRY_NETNS"]) as address:
            for number in range(RUNS):
                for system in systems.in_turn(self.present, number):
                    if system.name not in published or system.name in failed:
                        continue
                    if self.results.runs(**key, system=system.name) > number:
                        continue
                    if not self.has_room(str(net), f"{subject}, {net}"):
                        continue
                    system.address = address
                    try:
                        with self.budget.spending(str(net)):
                            run = self.measure(system, subject, published, old, net) | touched
                    except Exception as error:  # as above
                        failed.add(system.name)
                        self.fail(error, subject, system, str(net))
                        continue
                    finally:
                        system.address = bench.REGISTRY  # the longer way ends
                    once = {name: published[system.name][name] for name in ("convert_ms",) if name in published[system.name]}
                    begun[system.name] = True
                    self.results.add_run(run, **key, system=system.name, category=subject.image.category, load_before=load,
                                         once=push | once, **more)
        self.tell(key, begun)

    @staticmethod
    def measure(system, subject, published, old, net):
        reference = system.here(published[system.name]["reference"])
        stored.warm(made[system.name]["reference"] for made in (published, old) if system.name in made)
        found = start(system, subject, reference, net)
        if system.name in old:
            found |= update(system, subject.before, system.here(old[system.name]["reference"]), subject, reference, net)
        return found

    def tell(self, key, begun):
        """What was measured now."""
        rows = {system.name: self.results.row(**key, system=system.name) for system in self.present}
        rows = {name: row for name, row in rows.items() if row}
        for name in begun:
            if name in rows:
                self.say(line(rows[name], rows))
                moved = middle(rows[name]["runs"], "warm_bytes")
                if moved > MOST_WARM_BYTES:
                    self.say(f"{'':24}{name}: {moved / 1e6:.2f} MB moved during the warm start")
        if rows and not begun:
            self.say(f"{key['image']}, {key['network']}: measured before")


def images():
    only = os.environ.get("BENCH_ONLY", "").split()
    return catalogue.load(small=os.environ.get("SMALL") == "1", only=only or None)


def main():
    budget = Budget(float(os.environ.get("BENCH_BUDGET") or "inf"), float(os.environ.get("BENCH_SPENT") or 0))
    present, absent = systems.chosen()
    results = Results("hello", os.environ.get("BENCH_JSON"), RUNS, present)
    for name, reason in absent.items():
        print(f"SKIPPED {name}: {reason}", flush=True)
        results.skip(name, reason)
    print(f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before; {RUNS} runs, medians")
    for name, version in results.found["versions"].items():
        print(f"  {name}: {version}")
    run = Run(present, results, budget)
    for image in images():
        run.image(image)
    results.write()
    print(f"load {os.getloadavg()[0]:.1f} afterwards")
    return run.failures


if __name__ == "__main__":
    if failures := main():
        sys.exit(f"{failures} of the measurements failed")
