"""What changed between two results files of `make bench-hello` or of a scenario, beyond noise."""

import argparse
import dataclasses
import json
import os
import sys

from reporting import figures, noise, results

EXAMPLES = """\
The rule, and what it cannot show, is described in docs/bench-report.md.

status: 0 nothing is worse beyond noise, 1 something is, 2 the command or a file is wrong

examples:
  python3 bench/compare.py before.json after.json
  python3 bench/compare.py --system Xebec before.json after.json           # only systems with this in their names
  python3 bench/compare.py --beside overlayfs before.json after.json       # another hour, or another machine
  python3 bench/compare.py --json before.json after.json | jq '.worse[].where'
  make bench-compare A=before.json B=after.json
"""

# Of the rows that one file alone has, so many are named.
NAMED = 4


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="compare.py", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", metavar="BEFORE", help="a results file")
    parser.add_argument("after", metavar="AFTER", help="another one of the same benchmark")
    parser.add_argument("--json", action="store_true", help="print all that was compared, as JSON")
    parser.add_argument(
        "--system", action="append", default=[], metavar="PART", help="only systems with this in their names; may be repeated"
    )
    parser.add_argument("--beside", metavar="SYSTEM", help="compare multiples of this system's figures in the same file")
    parser.add_argument(
        "--least", type=percent, default=noise.LEAST, metavar="PERCENT",
        help=f"changes of less do not count ({noise.LEAST * 100:.0f})",
    )
    return parser.parse_args(arguments)


def percent(text):
    value = float(text)
    if not 0 <= value < 1000:
        raise ValueError(text)
    return value / 100


def others(before, after):
    """What else is not the same: [(what, before, after)]."""
    found = []
    for kind in ("machine", "versions"):
        one, other = getattr(before, kind), getattr(after, kind)
        found += [
            (f"{kind}: {name}", one.get(name), other.get(name))
            for name in sorted(set(one) | set(other)) if one.get(name) != other.get(name)
        ]
    if before.settings != after.settings:
        found.append(("settings", "; ".join(before.settings) or None, "; ".join(after.settings) or None))
    return found


def line(one, beside):
    """One difference for people; of several rows there are no medians."""
    low, high = one.interval()
    values = ""
    if one.rows == 1 and not beside:
        values = f"{figures.written(one.name, one.before)} -> {figures.written(one.name, one.after)}, "
    where = one.where if one.rows == 1 else f"over {one.rows} rows"
    return f"  {one.system:21} {where:28} {figures.label(one.name)}: {values}{one.ratio:.2f} times ({low:.2f} to {high:.2f})"


def print_text(found, beside, least):
    for what, one, other in others(found.before, found.after):
        print(f"{what} was {one}, is {other}")
    for side, rows in found.missing.items():
        named = ["/".join(str(part) for part in row.key if part != "") for row in rows]
        if named:
            more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
            print(f"only {side}: {len(named)} rows, {'; '.join(named[:NAMED])}{more}")
    for verdict in ("worse", "better", "changed"):
        if differences := sorted(found.found(verdict), key=lambda one: (one.rows == 1, one.system, one.where)):
            print(f"\n{verdict}, beyond noise" + (f", beside {beside}" if beside else "") + ":")
            for one in differences:
                print(line(one, beside))
    print(f"\n{len(found.differences)} figures of {found.rows} rows compared, {before_after(found)} runs", end="; ")
    print(f"beyond noise: {', '.join(f'{len(found.found(verdict))} {verdict}' for verdict in ('worse', 'better', 'changed'))}")
    print(
        f"not decided: {len(found.undecided)} have no run in the other's range and are not beyond noise, or by less than"
        f" {least * 100:.0f} %; by chance alone {found.expected:.0f} would have none"
    )
    if found.alone:
        print(f"not compared: {found.alone} figures of a single run, which says nothing of noise")


def before_after(found):
    return " and ".join(dict.fromkeys((found.before.counts, found.after.counts)))


def as_json(found, beside, least):
    def plain(one):
        low, high = one.interval()
        kept = {name: value for name, value in dataclasses.asdict(one).items() if value is not None}
        return {**kept, "low": low, "high": high}

    verdicts = {verdict: [plain(one) for one in found.found(verdict)] for verdict in ("worse", "better", "changed")}
    return {
        "format": 1, "before": found.before.path, "after": found.after.path, "beside": beside, "least": least,
        "rows": found.rows, "compared": len(found.differences), **verdicts,
        "undecided": [plain(one) for one in found.undecided], "undecided_by_chance": found.expected,
        "of_a_single_run": found.alone,
        "other": [{"what": what, "before": one, "after": other} for what, one, other in others(found.before, found.after)],
        "missing": {side: [list(row.key) for row in rows] for side, rows in found.missing.items()},
    }


def main(arguments=None):
    asked = options(arguments)
    try:
        before, after = results.load(asked.before), results.load(asked.after)
        if before.what != after.what:
            raise results.Bad(f"{asked.before} is of {before.what}, {asked.after} of {after.what}")
        for found in (before, after):
            if asked.beside and asked.beside not in found.systems:
                raise results.Bad(f"{found.path}: nothing of {asked.beside} in it; its systems: {', '.join(found.systems)}")
        found = noise.Comparison(before, after, asked.system, asked.beside, asked.least)
        if not found.differences:
            raise results.Bad(f"{asked.before} and {asked.after} have no row in common with two runs or more in both")
    except results.Bad as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps(as_json(found, asked.beside, asked.least), indent=1))
    else:
        print_text(found, asked.beside, asked.least)
    return 1 if found.found("worse") else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
