"""What figures are called, how their numbers are written, and how many become one.

A figure's name ends in its unit. Every number of the tables and of the figures is written by `written` or `spread`.
"""

import math
import statistics

# Figures of `runs`, in the order of the tables. Host processor time is a sum, see `values`.
LABELS = {
    "ready_ms": "ready",
    "pull_ms": "pull",
    "create_ms": "create",
    "start_ms": "start",
    "warm_ms": "warm start",
    "second_ms": "second container",
    "rx_bytes": "received",
    "pull_bytes": "received by the pull",
    "tx_bytes": "sent",
    "rx_packets": "packets received",
    "tx_packets": "packets sent",
    "requests": "requests",
    "host_cpu_ms": "host's processor time",
    "client_cpu_ms": "client's processor time",
    "containerd_cpu_ms": "containerd's processor time",
    "daemon_cpu_ms": "daemon's processor time",
    "container_cpu_ms": "container's processor time",
    "registry_cpu_ms": "registry's processor time",
    "disk_bytes": "disk",
    "cache_bytes": "page cache",
    "anonymous_bytes": "anonymous memory",
    "read_bytes": "bytes that the service touches",
    "warm_bytes": "received by the warm start",
    "host_cache_bytes": "growth of the page cache",
    "second_cache_bytes": "second container's page cache",
    "second_anonymous_bytes": "second container's anonymous memory",
    "containerd_anonymous_bytes": "containerd's anonymous memory",
    "daemon_anonymous_bytes": "daemon's anonymous memory",
    "update_pull_ms": "update's pull",
    "update_requests": "update's requests",
    "amplification": "received of what it touches",
    "push_ms": "push",
    "convert_ms": "index or convert",
    "update_ms": "update",
    "update_bytes": "received by the update",
}
# Of scenarios.
SCENARIOS = {
    "last_ms": "until the last one is ready",
    "first_ms": "until the first one is ready",
    "middle_ms": "until the one in the middle is ready",
    "pulled_ms": "until the last pull is over",
    "filled_ms": "until it is filled",
    "objects_per_s": "objects stored",
    "trained_ms": "until it is trained",
    "run_ms": "training",
    "cycle_ms": "the whole cycle",
    "publish_ms": "index or convert",
    "sent_bytes": "sent by the push",
}
HOST = ("client_cpu_ms", "containerd_cpu_ms", "daemon_cpu_ms")
SUFFIXES = ("_ms", "_s", "_bytes", "_per_s")


def label(name):
    if found := LABELS.get(name) or SCENARIOS.get(name):
        return found
    suffix = next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), "")
    return name.removesuffix(suffix).replace("_", " ")


def better_is_more(name):
    """Whether more is better, less is, or neither (`None`)."""
    if name.endswith("_per_s"):
        return True
    return False if name.endswith(SUFFIXES) or name in LABELS else None


def values(row, name):
    """Of a row of results, or what follows from them: what the host spent in all, and bytes received for each that is needed."""
    if name == "host_cpu_ms":
        return [sum(run[part] for part in HOST) for run in row.runs if all(part in run for part in HOST)]
    if name == "amplification":
        return [run["rx_bytes"] / run["read_bytes"] for run in row.runs if run.get("read_bytes") and "rx_bytes" in run]
    return row.values(name)


def middle(row, name):
    """The median, or `None` if no run has the figure."""
    found = values(row, name)
    return statistics.median(found) if found else None


def geometric_mean(found):
    """Of numbers above zero; `None` of none."""
    found = list(found)
    return math.exp(statistics.fmean(map(math.log, found))) if found else None


# --- as text ---------------------------------------------------------------------------------------------------------


def unit(name, value):
    """What to divide by, and what that is called."""
    value = abs(value)
    if name == "amplification":
        return 1, "×"
    if name.endswith("_per_s"):
        return 1, "/s"
    if name.endswith("_bytes"):
        sizes = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
        return next(((size, called) for size, called in sizes if value >= size * 0.9995), (1, "B"))
    if name.endswith("_ms"):
        return (1e3, "s") if value >= 999.5 else (1, "ms")
    if name.endswith("_s"):
        return (1, "s") if value >= 0.9995 else (1e-3, "ms")
    return 1, ""


def digits(value, called="", whole=False):
    """Decimals for three digits, which is more than runs agree in; of milliseconds two. `whole`: there are no fractions."""
    value = abs(value)
    if called == "ms":
        return 0 if value >= 9.95 or not value else 1 if value >= 0.95 else 2
    if whole or value >= 99.95:
        return 0
    return 1 if value >= 9.995 else 2


def decimals(value, called, found):
    """Of the numbers of a figure; none if all are whole, of a unit that has no parts."""
    return digits(value, called, called in ("", "B", "/s") and all(float(one).is_integer() for one in found))


def joined(number, called):
    return f"{number}{'' if called in ('', '×') else ' '}{called}"


def written(name, value):
    """With its unit; an en dash if there is no value."""
    if value is None:
        return "–"
    divisor, called = unit(name, value)
    return joined(f"{value / divisor:,.{decimals(value / divisor, called, [value])}f}", called)


def spread(name, found):
    """The median, and the lowest and highest in its unit, unless all are written alike."""
    if not found:
        return "–"
    median = statistics.median(found)
    divisor, called = unit(name, median)
    places = decimals(median / divisor, called, [*found, median])
    low, middle, high = (f"{value / divisor:,.{places}f}" for value in (min(found), median, max(found)))
    return joined(middle, called) + ("" if low == high else f" ({low}–{high})")


def times(value):
    """A speed-up."""
    return "–" if value is None else f"{value:,.{digits(value)}f}×"
