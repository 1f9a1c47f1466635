"""The results of bench/registry.py as Markdown: medians, the lowest and the highest run, ratios, and whether what was wanted is so."""

import statistics

import deduplication_table

# Measure, figure, its unit, digits, and what is wanted of ours beside distribution's: at least or at most this ratio.
BESIDE = [
    ("pull of 100 MB, 1 client", "mb_per_s", "MB/s", 0, (">=", 1.0)),
    ("pull of 100 MB, 64 clients", "mb_per_s", "MB/s", 0, (">=", 1.0)),
    ("pull of 100 MB, 64 clients", "server_cpu_s_per_gb", "processor s/GB", 3, None),
    ("pull of 20 KB, 64 clients", "mb_per_s", "MB/s", 0, (">=", 1.0)),
    ("push of 20 KB, 1 client", "p50_ms", "ms", 2, ("<=", 1.1)),
    ("push of 20 KB, 16 clients", "p50_ms", "ms", 2, ("<=", 1.1)),
    ("push of 100 MB, 1 client", "p50_ms", "ms", 0, ("<=", 1.1)),
    ("push of 100 MB in one request, 1 client", "p50_ms", "ms", 0, ("<=", 1.1)),
    ("manifest by tag, 64 clients", "p50_ms", "ms, median", 2, None),
    ("manifest by tag, 64 clients", "p99_ms", "ms, p99", 2, ("<=", 0.5)),
    ("manifest by tag, 64 clients", "per_s", "/s", 0, None),
    ("manifest by digest, 64 clients", "p50_ms", "ms, median", 2, None),
    ("manifest by digest, 64 clients", "p99_ms", "ms, p99", 2, ("<=", 0.5)),
    ("manifest by digest, 64 clients", "per_s", "/s", 0, None),
    ("memory with 300 pulls and 50 pushes", "mib", "MiB", 0, ("below", 128)),
    ("memory with 300 pulls and 50 pushes", "idle_mib", "MiB before", 0, None),
    ("memory with 300 pulls and 50 pushes", "push_ms", "ms, longest push of 4 MB", 0, None),
    ("push of 20 KB beside nothing", "p50_ms", "ms", 2, None),
    ("push of 20 KB while layers are indexed", "p50_ms", "ms", 2, None),
    ("push of 20 KB while layers are indexed", "server_processors", "processors of the registry", 2, None),
    ("start", "p50_ms", "ms", 0, None),
    ("first page of tags", "p50_ms", "ms", 2, None),
    ("a late page of tags", "p50_ms", "ms", 2, None),
    ("first page of referrers", "p50_ms", "ms", 2, None),
    ("first page of repositories", "p50_ms", "ms", 2, None),
    ("a late page of repositories", "p50_ms", "ms", 2, None),
    ("collection with nothing to collect", "p50_ms", "ms", 0, None),
    ("collection of 100 blobs", "p50_ms", "ms", 0, None),
]
# Of two nodes: what the store by itself takes of it.
NODES = [
    ("pull of 100 MB, 1 client", "mb_per_s", "MB/s", "S3: get of 100 MB, 1 client"),
    ("pull of 100 MB, 64 clients", "mb_per_s", "MB/s", "S3: get of 100 MB, 64 clients"),
    ("manifest by tag, 64 clients", "p50_ms", "ms", "PostgreSQL: a manifest by tag, 64 clients"),
    ("push of 20 KB, 1 client", "p50_ms", "ms", "calls"),
    ("push of 100 MB, 1 client", "p50_ms", "ms", "S3: put of 100 MB"),
]
MOST_OF_NODES = 1.3
BYTES = 100 << 20


def values(found, measure, system, figure):
    rows = [row for row in found["rows"] if (row["measure"], row["system"]) in ((measure, system), (measure, f"{system}, large"))]
    return [run[figure] for row in rows for run in row["runs"] if figure in run]


def shown(numbers, digits):
    if not numbers:
        return "-"
    return f"{statistics.median(numbers):.{digits}f} ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})"


def verdict(wanted, ratio, ours):
    if wanted is None or ratio is None and wanted[0] != "below":
        return ""
    sign, limit = wanted
    met = {">=": lambda: ratio >= limit, "<=": lambda: ratio <= limit, "below": lambda: max(ours) <= limit}[sign]()
    text = {">=": "at least {}", "<=": "at most {}", "below": "at most {} MiB"}[sign].format(limit)
    return f"{text}: {'met' if met else 'NOT MET'}"


def beside(found):
    lines = ["| | distribution | xebec-registry | ratio | wanted |", "| --- | --- | --- | --- | --- |"]
    for measure, figure, unit, digits, wanted in BESIDE:
        theirs, ours = (values(found, measure, system, figure) for system in ("distribution", "Xebec"))
        if not ours:
            continue
        ratio = statistics.median(ours) / statistics.median(theirs) if theirs else None
        lines.append(
            f"| {measure}, {unit} | {shown(theirs, digits)} | {shown(ours, digits)} | {f'{ratio:.2f}' if ratio else '-'} |"
            f" {verdict(wanted, ratio, ours)} |")
    return lines if len(lines) > 2 else []


def milliseconds(found, measure, system, figure):
    """The median; of a throughput, for 100 MB of it."""
    numbers = values(found, measure, system, figure)
    if not numbers:
        return None
    middle = statistics.median(numbers)
    return BYTES / 1e3 / middle if figure == "mb_per_s" else middle


def of_the_store(found, store, figure):
    if store is None:
        return 0.0
    if store != "calls":
        return milliseconds(found, store, "Xebec, two nodes", figure) or 0.0
    calls = found["calls_of_a_push"] or {"puts": 0, "others": 0, "commits": 0}
    own = lambda measure: milliseconds(found, measure, "Xebec, two nodes", "p50_ms") or 0.0
    return (calls["puts"] * own("S3: put of 20 KB") + calls["others"] * own("S3: small request")
            + calls["commits"] * own("PostgreSQL: a commit"))


def nodes(found):
    lines = [
        "| | one node | two nodes | the store by itself, ms | two without it / one | wanted |", "| --- | --- | --- | --- | --- | --- |"]
    for measure, figure, unit, store in NODES:
        one, two = (values(found, measure, system, figure) for system in ("Xebec, one node", "Xebec, two nodes"))
        if not one or not two:
            continue
        own = of_the_store(found, store, figure)
        ratio = (milliseconds(found, measure, "Xebec, two nodes", figure) - own) \
            / milliseconds(found, measure, "Xebec, one node", figure)
        met = "met" if ratio <= MOST_OF_NODES else "NOT MET"
        # The machine was busier while the store was asked.
        said = f"{ratio:.2f} | at most {MOST_OF_NODES}: {met}" if ratio > 0 else "- | says nothing"
        lines.append(f"| {measure}, {unit} | {shown(one, 2)} | {shown(two, 2)} | {own:.2f} | {said} |")
    return lines if len(lines) > 2 else []


def markdown(found):
    machine = found["machine"]
    head = (
        f"{machine['processors']} processors ({machine['model']}), Linux {machine['kernel']}, load {found['load_before']:.1f} before;"
        f" {found['runs']} runs in turn: median (lowest to highest). distribution {found['versions']['distribution']}.")
    parts = [[head], beside(found), deduplication_table.beside(found), deduplication_table.by_mode(found), nodes(found)]
    if calls := found.get("calls_of_a_push"):
        parts.append([f"A push of 20 KB by two nodes: {calls['puts']:.1f} puts and {calls['others']:.1f} other requests to S3,"
                      f" {calls['commits']:.1f} transactions."])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
