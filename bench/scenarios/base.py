"""What a scenario is, and how one is measured: all systems in turn, and again, each on hosts of its own that are new.

A scenario says what one system does once (`measure`); everything else is here: which rows are there already, what is skipped
and why, that a failure is that of one row, and what is printed.
"""

import os
import statistics
import subprocess
import traceback

import network
import starting
import stored
import systems as all_systems
from published import Published
from results_file import Results
from subject import Subject

SMALL = os.environ.get("SMALL") == "1"
RUNS = min(int(os.environ.get("BENCH_RUNS", 1 if SMALL else 3)), 9)
# The errors with which starts fail; of any other the origin is said.
FAILURES = (RuntimeError, OSError, subprocess.SubprocessError)


class Scenario:
    """One object for one run of the benchmark."""

    name = None
    # As in BENCH_RATES, which takes their place.
    networks = "100"
    # The figures that are printed of a row: name, label, unit, and how much of the figure that is. The first one is compared with
    # overlayfs's.
    figures = []
    # The meaning of `x`, if the scenario has a variable.
    variable = None
    # With what rows can be compared only if they have the same.
    settings = {}
    # On which it is being measured.
    net = None

    def __init__(self, systems):
        self.systems = systems
        self.published = Published()

    def missing(self, subject):
        """Why an image cannot be measured, or `None`."""
        return None

    def unfit(self, system):
        """Why a system is left out, or `None`."""
        return None

    def variables(self):
        """The values of `x`, as groups of those that one measurement gives."""
        return [[None]]

    def versions(self, subject):
        """All that are measured of an image, oldest first, if a host gets several."""
        return [subject]

    def at(self, subject, x):
        """What a row is of."""
        return subject

    def patience_s(self, subject):
        """How long a pull or a start may take."""
        return starting.patience_s(subject, self.net)

    def prepare(self, system, subject):
        """What `measure` needs of an image, on an unlimited network: a reference."""
        reference = self.published.of(system, subject)["reference"]
        stored.warm([reference])
        return reference

    def measure(self, system, subject, made, group):
        """Once, from a new host on: figures by `x`. `made`: what `prepare` gave."""
        raise NotImplementedError


class Table:
    """Measures one scenario."""

    def __init__(self, scenario, budget, directory):
        self.scenario, self.budget = scenario, budget
        path = os.path.join(directory, f"{scenario.name}.json")
        os.makedirs(directory, exist_ok=True)
        self.results = Results(f"scenario {scenario.name}", path, RUNS, scenario.systems)
        if scenario.variable:
            self.results.found["variable"] = scenario.variable
        if any(row["settings"] != scenario.settings for row in self.results.found["rows"]):
            self.results.put_aside(self.results.found["date"], "settings")
        self.failures = 0

    def key(self, subject, net, system, x):
        version = self.scenario.at(subject, x)
        key = {"image": version.name, "version": version.version, "digest": version.digest,
               "network": str(net), "system": system.name}
        return key if x is None else {**key, "x": x}

    def skip(self, what, why):
        print(f"SKIPPED {what}: {why}", flush=True)
        self.results.skip(what, why)

    def fail(self, error, keys):
        """Of one thing that was done for several rows."""
        if not isinstance(error, (*FAILURES, str)):
            traceback.print_exception(error)
            error = f"{type(error).__name__}: {error}"
        for key in keys:
            self.results.fail(error, **key)
        where = ", ".join(str(keys[0][name]) for name in ("image", "version", "network", "system") if keys[0].get(name))
        print(f"FAILED {self.scenario.name}, {where}{self.of([key.get('x') for key in keys])}: {error}", flush=True)
        self.failures += 1

    def run(self, images):
        """`images`: of the catalogue."""
        scenario = self.scenario
        networks = [network.Network(text) for text in os.environ.get("BENCH_RATES", scenario.networks).split()]
        if far := [str(net) for net in networks if net.round_trip]:
            raise SystemExit(f"BENCH_RATES: scenarios have no round trips ({'; '.join(far)}), only rates")
        print(f"\n{scenario.name}: {scenario.__doc__.splitlines()[0]}", flush=True)
        fit = []
        for system in scenario.systems:
            if reason := scenario.unfit(system):
                self.skip(f"{scenario.name}, {system.name}", reason)
            else:
                fit.append(system)
        for subject in map(Subject, images):
            itself = {"image": subject.name, "version": subject.version}
            self.results.forget("failed", itself)
            if not os.path.exists(subject.layout):
                self.fail("it is not built", [itself])
            elif reason := scenario.missing(subject):
                self.skip(f"{scenario.name}, {subject}", reason)
            else:
                try:
                    digests = self.digests(subject)
                except Exception as error:  # the others go on, and the status says in the end that one has failed
                    self.fail(error, [itself])
                    continue
                for version in scenario.versions(subject):
                    self.results.forget_others(version.name, version.version, digest=version.digest, **digests)
                self.image(subject, fit, networks)
        return self.failures

    def digests(self, subject):
        """What a row says of all versions that a host got, if there are several."""
        versions = self.scenario.versions(subject)
        return {"digests": [version.digest for version in versions]} if len(versions) > 1 else {}

    def image(self, subject, fit, networks):
        """All rows of an image; it is made only if one of them is wanted."""
        cells = [(net, group) for net in networks for group in self.scenario.variables()]
        wanted = [(*cell, system) for cell in cells for system in fit if self.have(subject, *cell, system) < RUNS]
        made = {}
        for system in [system for system in fit if any(system in lack for lack in wanted)]:
            try:
                if self.may("making", subject, "making it", system.name):
                    with self.budget.spending("making"):
                        made[system] = self.scenario.prepare(system, subject)
            except Exception as error:  # as above
                lacking = [(net, x) for net, group, other in wanted if other is system for x in group]
                self.fail(error, [self.key(subject, net, system, x) for net, x in lacking])
        for cell in cells:
            self.cell(subject, *cell, made)
            self.show(subject, *cell)

    def have(self, subject, net, group, system):
        """How many runs there are of all values of a group."""
        return min(self.results.runs(**self.key(subject, net, system, x)) for x in group)

    def may(self, kind, subject, *where):
        """Whether there is time for one more of a kind; if not, that is said."""
        what = ", ".join([self.scenario.name, str(subject), *where])
        if not (allowed := self.budget.allows(kind)):
            self.skip(what, f"the budget of {self.budget.seconds:.0f} s is used up")
        return allowed

    def of(self, group):
        values = [str(x) for x in group if x is not None]
        return f", {self.scenario.variable} {' '.join(values)}" if values else ""

    def cell(self, subject, net, group, made):
        """One image on one network: what it lacks of runs."""
        load, done_with, kind = os.getloadavg()[0], set(), f"{self.scenario.name} {subject}"
        self.scenario.net = net
        for number in range(RUNS):
            for system in all_systems.in_turn(list(made), number):
                if system in done_with or self.have(subject, net, group, system) > number:
                    continue
                if not self.may(kind, subject, f"{net}{self.of(group)}", system.name):
                    done_with.add(system)
                    continue
                keys = [self.key(subject, net, system, x) for x in group]
                try:
                    with self.budget.spending(kind), starting.LINK.shaped(net.mbit):
                        found = self.scenario.measure(system, subject, made[system], group)
                except Exception as error:  # as above
                    done_with.add(system)
                    self.fail(error, keys)
                    continue
                for key, x in zip(keys, group):
                    self.results.add_run(found[x], **key, category=subject.image.category, settings=self.scenario.settings,
                                         load_before=load, **self.digests(subject))

    def show(self, subject, net, group):
        """The rows that there are."""
        for x in group:
            rows = {system.name: self.results.row(**self.key(subject, net, system, x)) for system in self.scenario.systems}
            runs = {name: row["runs"] for name, row in rows.items() if row}
            for name in runs:
                print(self.line(f"{str(self.scenario.at(subject, x)):12} {str(net):>11}{self.of([x])}", name, runs), flush=True)

    def line(self, where, name, runs):
        """`runs`: of all systems."""
        parts = [f"{label} {spread(runs[name], figure, of)} {unit}".rstrip() for figure, label, unit, of in self.scenario.figures]
        if name != "overlayfs" and "overlayfs" in runs:
            parts.append(f"/ overlayfs {ratio(runs[name], runs['overlayfs'], self.scenario.figures[0][0])}")
        return f"{where}  {name:21} {', '.join(parts)}"


def spread(runs, name, of=1):
    values = [run[name] / of for run in runs]
    digits = 0 if statistics.median(values) >= 100 else 1
    middle, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({low}-{high})"


def ratio(runs, others, name):
    """Of runs that were made one after the other, in pairs: the middle one, the lowest and the highest."""
    values = sorted(run[name] / other[name] for run, other in zip(runs, others))
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({values[0]:.2f}-{values[-1]:.2f})"
