"""Prints a table of what each series adds to the store, of the output of dedup-measure.

    dedup_growth.py OUTPUT

A line for each `so far` line: the series, MB of layers that it has and no series before it, plain MB of these, plain MB of them that were new, MB that
packs and recipes grew by, and the share of the layers that this is.
"""

import sys


def rows(lines):
    """The series, and by how much each figure grew."""
    before = [0] * 5
    for line in lines:
        if line.startswith("so far "):
            name, *figures = line.split()[2:]
            now = [int(figure) for figure in figures]
            yield name, [after - earlier for after, earlier in zip(now, before)]
            before = now


def main(path):
    print(f"{'series':12} {'layers':>8} {'plain':>8} {'new':>8} {'kept':>8} {'share':>6}")
    with open(path) as output:
        for name, (pushed, plain, new, packs, recipes) in rows(output):
            megabytes = " ".join(f"{figure / 1e6:8.1f}" for figure in (pushed, plain, new, packs + recipes))
            print(f"{name:12} {megabytes} {(packs + recipes) / max(pushed, 1):6.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
