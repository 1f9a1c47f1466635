"""What changed between two results of `make bench-containerd`, beyond noise: `python3 bench/compare.py BEFORE AFTER`.

A figure has changed if no run of one is within the range of the other, which with three runs each happens by chance once in
ten times, and with five once in a hundred and twenty-six. Both are said to be of one machine, or not. The status is 1 if a
system that is ours became slower.
"""

import json
import statistics
import sys

FIGURES = [
    ("ready_ms", "ready", 1, "ms"),
    ("warm_ms", "warm", 1, "ms"),
    ("second_ms", "second", 1, "ms"),
    ("rx_bytes", "received", 1e6, "MB"),
    ("requests", "requests", 1, ""),
    ("disk_bytes", "disk", 1e6, "MB"),
]


def rows(results):
    return {(row["image"], row["network"], row["system"]): row["runs"] for row in results["rows"]}


def changed(before, after):
    """Whether two lists of values have no overlap."""
    return max(before) < min(after) or max(after) < min(before)


def main(first, second):
    results = []
    for path in (first, second):
        with open(path) as file:
            results.append(json.load(file))
    for what in ("machine", "versions"):
        one, other = (found[what] for found in results)
        for name in sorted(set(one) | set(other)):
            if one.get(name) != other.get(name):
                print(f"{what}: {name} was {one.get(name)}, is {other.get(name)}")
    before, after = map(rows, results)
    slower, count = False, 0
    for key in [key for key in before if key in after]:
        parts = []
        for name, label, unit, unit_name in FIGURES:
            one, other = ([run[name] for run in runs[key]] for runs in (before, after))
            count += 1
            if changed(one, other):
                medians = statistics.median(one), statistics.median(other)
                ratio = f" ({medians[1] / medians[0]:.2f})" if medians[0] else ""
                parts.append(f"{label} {medians[0] / unit:.4g} -> {medians[1] / unit:.4g} {unit_name}{ratio}".rstrip())
                slower |= name == "ready_ms" and key[2].startswith("Xebec") and medians[1] > medians[0]
        if parts:
            print(f"{key[0]:7} {key[1]:>11}  {key[2]:21} {'; '.join(parts)}")
    for label, keys in (("only before", before.keys() - after.keys()), ("only after", after.keys() - before.keys())):
        for key in sorted(keys):
            print(f"{label}: {', '.join(key)}")
    print(f"{count} figures compared")
    return 1 if slower else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: compare.py BEFORE AFTER")
    sys.exit(main(*sys.argv[1:]))
