"""What bench/deduplication.py has found, as Markdown: each way of having layers beside intact ones, and latencies by the way."""

import statistics

INTACT, MODES = "intact", ("preconstructed", "restored")
NETWORKS = ("unlimited", "1 Gbit/s")
ENCODERS = ("go", "pgzip", "zlib", "zstd")
# What is wanted of the ratio to intact layers: way, measure, figure: at most or at least.
WANTED = {
    ("preconstructed", "layer, unlimited", "p50_ms"): ("<=", 1.05), ("preconstructed", "layer, unlimited", "p95_ms"): ("<=", 1.05),
    ("preconstructed", "layer, 1 Gbit/s", "p50_ms"): ("<=", 1.05), ("preconstructed", "layer, 1 Gbit/s", "p95_ms"): ("<=", 1.05),
    ("restored", "layer, 1 Gbit/s", "p50_ms"): ("<=", 1.5), ("restored", "layer, 1 Gbit/s", "p95_ms"): ("<=", 2.0),
}
LAYER = [
    ("p50_ms", "ms, the median layer", 2), ("p95_ms", "ms, p95 of layers", 2), ("first_p50_ms", "ms to the first byte, the median layer", 2),
    ("server_cpu_s_per_gb", "processor s/GB", 2),
]
CROWD = [("mb_per_s", "MB/s", 0), ("p50_ms", "ms, median", 0), ("p95_ms", "ms, p95", 0), ("server_processors", "processors of the registry", 2)]
ROWS = [(f"layer, {network}", *figure) for network in NETWORKS for figure in LAYER]
ROWS += [(f"layer by {encoder}, {network}", "p50_ms", "ms, the median layer", 2) for network in NETWORKS for encoder in ENCODERS]
ROWS += [("layers, 64 clients", *figure) for figure in CROWD]
QUIET, BUSY, MOST_OF_PUSHES = "push of 20 KB, nothing to take apart", "push of 20 KB while layers are taken apart", 1.05


def values(found, measure, system, figure):
    rows = [row for row in found["rows"] if (row["measure"], row["system"]) == (measure, system)]
    return [run[figure] for row in rows for run in row["runs"] if figure in run]


def ratios(one, other):
    """Of runs in turn, each beside the one of its turn."""
    return [ours / theirs for ours, theirs in zip(one, other)]


def shown(numbers, digits):
    if not numbers:
        return "-"
    return f"{statistics.median(numbers):.{digits}f} ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})"


def verdict(wanted, ratio):
    if wanted is None:
        return ""
    sign, limit = wanted
    met = ratio <= limit if sign == "<=" else ratio >= limit
    return f"{'at most' if sign == '<=' else 'at least'} {limit}: {'met' if met else 'NOT MET'}"


def beside(found):
    lines = []
    for mode in MODES:
        for measure, figure, unit, digits in ROWS:
            intact, ours = (values(found, measure, system, figure) for system in (INTACT, mode))
            each = ratios(ours, intact)
            if not each:
                continue
            wanted = verdict(WANTED.get((mode, measure, figure)), statistics.median(each))
            lines.append(
                f"| {mode}: {measure}, {unit} | {shown(intact, digits)} | {shown(ours, digits)} | {shown(each, 2)} | {wanted} |")
    quiet, busy = (values(found, measure, "pushed", "p50_ms") for measure in (QUIET, BUSY))
    if each := ratios(busy, quiet):
        wanted = verdict(("<=", MOST_OF_PUSHES), statistics.median(each))
        lines.append(f"| {BUSY}, ms | {shown(quiet, 2)} | {shown(busy, 2)} | {shown(each, 2)} | {wanted} |")
        processors = shown(values(found, BUSY, "pushed", "server_processors"), 2)
        lines.append(f"| {BUSY}, processors of the registry | - | {processors} | - |  |")
    head = ["| | intact, or nothing to take apart | | ratio | wanted |", "| --- | --- | --- | --- | --- |"]
    return head + lines if lines else []


def by_mode(found):
    """Latencies relative to intact layers, as DupHunter's table 3 has them."""
    lines = []
    columns = [(f"layer, {network}", figure) for network in NETWORKS for figure in ("p50_ms", "p95_ms")]
    for mode in (INTACT, *MODES):
        each = [ratios(values(found, measure, mode, figure), values(found, measure, INTACT, figure)) for measure, figure in columns]
        if all(each):
            lines.append(f"| {mode} | " + " | ".join(f"{statistics.median(one):.2f}" for one in each) + " |")
    head = ["| latency by mode, relative to intact | unlimited, median | p95 | 1 Gbit/s, median | p95 |", "| --- | --- | --- | --- | --- |"]
    return head + lines if lines else []
