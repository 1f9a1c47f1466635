"""Whether figures of two results files differ by more than runs of one file do.

The rule. Figures are compared by their logarithms, since noise is in proportion. A difference of means has the error that the
runs of both sides give it (Welch, 1947), and Student's t with as many degrees of freedom as those runs allow (Satterthwaite,
1946): with two times three runs between 2 and 4. The same over several rows: the mean of their differences, whose error falls
with the number of rows, and whose degrees of freedom grow. Many figures are asked at once, so their probabilities are judged
together (Holm, 1979): if nothing differs, there is an alarm in no more than `ALARMS` of all comparisons of two files. A
difference counts if it is larger than `LEAST`, too, and, where it is of one row, if no run of one side is in the range of the
other.

What it cannot show: with three runs, a change of one row that is not several times as large as the spread of the runs; with
five, some 20 % where runs vary by 3 %. And what no test of runs can: whether the hour was another one (what else the machine
did, its clock, its neighbours). Two files of one program taken hours apart can differ by a third; `beside` takes out what
is the same for all systems.
"""

import dataclasses
import itertools
import math
import statistics

from . import figures, results

# How often files that differ by noise only may be said to differ.
ALARMS = 0.05
# A smaller difference is of no interest, or of the machine's mood.
LEAST = 0.05
# Of starts; of scenarios, all figures are compared.
STARTS = ["ready_ms", "warm_ms", "second_ms", "rx_bytes", "requests", "host_cpu_ms", "disk_bytes", "update_ms"]
# How exact a figure is at best: processor time is counted in ticks of 10 ms, disk in blocks. The second is a part of the value.
RESOLUTION = [("_cpu_ms", 10), ("_ms", 1), ("_s", 1e-3), ("_bytes", 4096), ("", 1)]
PART = 1e-3


# --- Student's t -----------------------------------------------------------------------------------------------------


def fraction(a, b, x):
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    found = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            found *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return found


def beta(a, b, x):
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * fraction(a, b, x) / a if x < (a + 1) / (a + b + 2) else 1 - front * fraction(b, a, 1 - x) / b


def two_sided(t, freedom):
    """How probable so large a `t` is, in either direction."""
    return beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(probability, freedom):
    """The `t` that is exceeded, in either direction, with this probability."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > probability:
        high *= 2
    for _ in range(80):
        between = (low + high) / 2
        low, high = (between, high) if two_sided(between, freedom) > probability else (low, between)
    return high


# --- differences -----------------------------------------------------------------------------------------------------


def resolution(name):
    return next(exact for suffix, exact in RESOLUTION if name.endswith(suffix))


def group(name, values):
    """Mean of logarithms, the square of its error, and the degrees of freedom of that."""
    least = resolution(name)
    logs = [math.log(max(value, least)) for value in values]
    middle = statistics.fmean(logs)
    # A tick at either end of what is measured: twice a twelfth of its square.
    floor = (least / math.exp(middle)) ** 2 / 6 + PART**2
    # Not by `statistics`, whose fractions are exact and ten times as slow.
    variance = sum((value - middle) ** 2 for value in logs) / (len(logs) - 1)
    return middle, max(variance, floor) / len(logs), len(logs) - 1


@dataclasses.dataclass
class Difference:
    name: str
    system: str
    where: str  # image and network, or how many rows
    rows: int
    before: float | None  # medians; of one row
    after: float | None
    ratio: float
    error: float
    freedom: float
    probability: float
    apart: bool  # no run of one side is in the range of the other
    adjusted: float = 1.0
    verdict: str = ""

    def interval(self, alarms=ALARMS):
        """Of the ratio, for this figure alone."""
        wide = self.error * quantile(alarms, self.freedom)
        return tuple(math.exp(min(math.log(self.ratio) + sign * wide, 700)) for sign in (-1, 1))


def contrast(name, pairs):
    """Ratio, its error in logarithms, degrees of freedom and probability, of [(after, before) or, beside a system,
    (after, before, its before, its after)]. A figure needs two runs on each side."""
    means, squares, uncertain = [], 0.0, 0.0
    for sides in pairs:
        mean = 0.0
        for sign, values in zip((1, -1, 1, -1), sides):
            middle, square, freedom = group(name, values)
            mean += sign * middle
            squares += square
            uncertain += square**2 / freedom
        means.append(mean)
    error, freedom = math.sqrt(squares) / len(means), squares**2 / uncertain
    difference = statistics.fmean(means)
    return math.exp(difference), error, freedom, two_sided(difference / error, freedom)


def apart(one, other):
    return max(one) < min(other) or max(other) < min(one)


def by_chance(one, other):
    """How often ranges of so many runs are apart if all are of one kind."""
    return 2 / math.comb(len(one) + len(other), len(one))


class Comparison:
    """Of two results of the same kind. `wanted`: parts of names of systems; `beside`: the system whose changes are taken out."""

    def __init__(self, before, after, wanted=(), beside=None, least=LEAST):
        self.before, self.after = before, after
        self.differences, self.expected, self.alone = [], 0.0, 0
        theirs = {row.key: row for row in after.rows}
        pairs = [(row, theirs[row.key]) for row in before.rows if row.key in theirs]
        chosen = lambda name: (not wanted or any(part in name for part in wanted)) and name != beside
        pairs = [pair for pair in pairs if chosen(pair[0].system)]
        self.rows = len(pairs)
        self.missing = {
            side: [row for row in one.rows if row.key not in {row.key for row in other.rows} and chosen(row.system)]
            for side, one, other in (("before", before, after), ("after", after, before))
        }
        by_system = {}
        for pair in pairs:
            for name in self.names(pair):
                if sides := self.sides(pair, name, beside):
                    self.one(pair[0], name, sides)
                    by_system.setdefault((pair[0].system, name), []).append(sides)
        for (system, name), all_sides in by_system.items():
            if len(all_sides) > 1:
                found = contrast(name, all_sides)
                self.differences.append(Difference(name, system, "", len(all_sides), None, None, *found, True))
        self.judge(least)

    def names(self, pair):
        if not self.before.scenario:
            return STARTS
        return sorted(set().union(*(run for row in pair for run in row.runs)) - set(results.SIGNED))

    def sides(self, pair, name, beside):
        found = [figures.values(row, name) for row in reversed(pair)]
        if beside:
            references = [results.row(pair[0], beside) for results in (self.before, self.after)]
            if not all(references):
                return None
            found += [figures.values(row, name) for row in references]
        if any(not values for values in found) or not any(map(any, found)):
            return None
        if min(map(len, found)) < 2:
            self.alone += 1
            return None
        return found

    def one(self, row, name, sides):
        after, before = sides[:2]
        if len(sides) == 4:  # what is apart are multiples of the other system's median
            scale = [statistics.median(values) or resolution(name) for values in sides[2:]]
            far = apart([value / scale[1] for value in after], [value / scale[0] for value in before])
        else:
            far = apart(after, before)
        self.expected += by_chance(before, after)
        where = ", ".join(str(part) for part in (row.label, row.network, row.x) if part != "")
        medians = statistics.median(before), statistics.median(after)
        self.differences.append(Difference(name, row.system, where, 1, *medians, *contrast(name, [sides]), far))

    def judge(self, least):
        """Holm: the smallest probability must do for all, the next for all but one, and so on."""
        ordered, reached = sorted(self.differences, key=lambda one: one.probability), 0.0
        for left, one in zip(itertools.count(len(ordered), -1), ordered):
            reached = one.adjusted = max(reached, min(1.0, one.probability * left))
            if one.apart and one.adjusted <= ALARMS and abs(math.log(one.ratio)) >= math.log1p(least):
                more = figures.better_is_more(one.name)
                one.verdict = "changed" if more is None else ("better" if more == (one.ratio > 1) else "worse")

    def found(self, verdict):
        return [one for one in self.differences if one.verdict == verdict]

    @property
    def undecided(self):
        """Of single rows: ranges apart and not within `least`, which runs as few as these do by chance."""
        return [one for one in self.differences if one.rows == 1 and one.apart and not one.verdict]
