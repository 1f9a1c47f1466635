"""Prints what scripts/demo.sh has measured: one table, and a bar for each start.

    demo.py FOLDER [WIDTH]     FOLDER has a file MBIT.START.json for each start; WIDTH of the terminal, in characters

MBIT is how fast the network was, in Mbit/s, or 0 if it was not limited. START is full, lazy, recorded or warm. The file of a full pull is written by scripts/demo.sh, the others by `xebec run --stats`;
each has `counted`, what the registry's own log says: requests and bytes.
"""

import json
import os
import sys

STARTS = {"full": "full pull", "lazy": "lazy, cold", "recorded": "recorded, cold", "warm": "lazy, warm"}
STAGES = {
    "pull": "pull every layer",
    "unpack": "unpack them",
    "resolve": "resolve: name to manifest",
    "index": "index: what is where",
    "view": "view: merge, write EROFS metadata",
    "mount": "mount",
    "create": "create the container",
    "ready": "ready: start to HTTP 200",
}
LABEL, COLUMN = 36, 15
# Parts of a character cell, in eighths.
EIGHTHS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"]


def number(value, digits=0):
    return "-" if value is None else f"{value:,.{digits}f}"


def row(label, values):
    return (f"  {label:{LABEL}}" + "".join(f"{value:>{COLUMN}}" for value in values)).rstrip()


def stages(starts):
    for name, label in STAGES.items():
        values = [start.get("stages_ms", {}).get(name) for start in starts]
        if any(value is not None for value in values):
            digits = [1 if value is not None and value < 100 else 0 for value in values]
            yield row(f"    {label}", [number(value, places) for value, places in zip(values, digits)])


def pages(start):
    """Pages that were unpacked, or that reads or a recording brought."""
    return start["touched"]["pages"] + (start.get("runtime_image") or {}).get("injected", 0)


def network_rows(name, starts, is_long):
    yield row(name, [])
    if is_long:
        yield from stages(starts)
    yield row("  ms until HTTP 200", [number(start["total_ms"]) for start in starts])
    yield row("  requests", [number(start["network"]["requests"]) for start in starts])
    yield row("  MB over the network", [number(start["network"]["bytes"] / 1e6, 2) for start in starts])
    yield row("  MB as the registry counted", [number(start["counted"]["bytes"] / 1e6, 2) for start in starts])
    if is_long:
        yield row("  4 KiB pages written, or read", [number(pages(start)) for start in starts])


def table(networks):
    """Lines of the table. The first network is told of stage by stage."""
    yield row("nginx", STARTS.values())
    yield row("-" * (LABEL - 2), ["-" * (COLUMN - 2)] * len(STARTS))
    for place, (name, starts) in enumerate(networks.items()):
        yield from network_rows(name, [starts[start] for start in STARTS], is_long=place == 0)


def bar(value, most, width):
    """A bar of at most `width` characters; what is more than nothing has at least a trace of one."""
    eighths = max(1, round(value / most * width * 8)) if most else 0
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8]


def chart(networks, width):
    """Lines of the chart: one scale for all bars."""
    most = max(start["total_ms"] for starts in networks.values() for start in starts.values())
    room = max(10, width - 46)
    yield "  Milliseconds until nginx answers"
    for name, starts in networks.items():
        for place, (start, label) in enumerate(STARTS.items()):
            value = starts[start]["total_ms"]
            yield f"  {name if place == 0 else '':18} {label:15} {bar(value, most, room)} {number(value)}"


def read(folder):
    """Starts by network; the one without a limit comes first."""
    rates = {}
    for file in os.listdir(folder):
        rate, start, *rest = file.split(".") + [""]
        if rate.isdigit() and start in STARTS and rest[:1] == ["json"]:
            with open(os.path.join(folder, file)) as text:
                rates.setdefault(int(rate), {})[start] = json.load(text)
    return {f"{rate} Mbit/s" if rate else "unlimited network": rates[rate] for rate in sorted(rates)}


def main(folder, width="80"):
    networks = read(folder)
    print("", *table(networks), "", *chart(networks, int(width)), "", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
