"""What results say, as tables of text: the Markdown and the page show the same ones, and the figures the same numbers."""

import dataclasses
import html
import re
import statistics

from . import figures, results

# Columns of starts after the ratios, where any row has them.
MORE = [
    "warm_ms", "second_ms", "rx_bytes", "requests", "host_cpu_ms", "container_cpu_ms", "registry_cpu_ms", "disk_bytes",
    "host_cache_bytes", "cache_bytes", "anonymous_bytes", "daemon_anonymous_bytes", "read_bytes", "amplification",
    "update_ms", "update_bytes",
]
# Scenarios have figures of their own, and what starts cost, of which these are drawn as well.
OWN = ("ready_ms", "warm_ms", "second_ms", "update_ms", "rx_bytes", "update_bytes")
PROCESSOR = [*figures.HOST, "container_cpu_ms", "registry_cpu_ms"]


class Strong(str):
    """A cell that is the best of its kind."""


@dataclasses.dataclass
class Table:
    columns: list  # texts
    rows: list  # of as many texts
    words: int  # so many columns at the left are words, the others numbers

    def markdown(self):
        line = lambda cells: "| " + " | ".join(cells) + " |"
        rule = ["---"] * self.words + ["---:"] * (len(self.columns) - self.words)
        cell = lambda text: f"**{plain(text)}**" if isinstance(text, Strong) else plain(text)
        return "\n".join([line(map(plain, self.columns)), line(rule), *(line(map(cell, row)) for row in self.rows)])


def plain(text):
    """As Markdown that shows this text."""
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", html.escape(" ".join(str(text).split()), quote=False))


def ordered(found):
    return sorted(found.rows, key=lambda row: (
        results.category_order(row.category), row.image, row.version, results.network_order(row.network),
        (0, row.x, "") if not isinstance(row.x, str) else (1, 0, row.x), results.system_order(row.system),
    ))


# --- ratios ----------------------------------------------------------------------------------------------------------


def speedup(row, other, name="ready_ms"):
    """How many times as good as another row, by medians; `None` if either has no such figure, or 0."""
    if other is None:
        return None
    mine, theirs = figures.middle(row, name), figures.middle(other, name)
    if not mine or not theirs:
        return None
    return mine / theirs if figures.better_is_more(name) else theirs / mine


def over_base(found, row, name="ready_ms"):
    return speedup(row, found.row(row, results.BASE), name)


def over_peers(found, row):
    """Over the fastest of the others that are not ours."""
    peers = [found.row(row, system) for system in found.systems if not system.startswith(results.OURS) and system != row.system]
    peers = [peer for peer in peers if peer]
    return speedup(row, min(peers, key=lambda peer: figures.middle(peer, "ready_ms"), default=None))


def overall(found, rows):
    """Geometric mean of speed-ups over overlayfs, and of how many."""
    ratios = [ratio for ratio in (over_base(found, row) for row in rows) if ratio]
    return figures.geometric_mean(ratios), len(ratios)


# --- starts ----------------------------------------------------------------------------------------------------------


def starts(found):
    """All rows."""
    more = [name for name in MORE if any(figures.values(row, name) for row in found.rows)]
    parts = [name for name in ("pull_ms", "create_ms", "start_ms") if any(row.values(name) for row in found.rows)]
    uneven = len({len(row.runs) for row in found.rows}) > 1
    least = {}
    for row in found.rows:
        place = (row.image, row.version, row.network)
        least[place] = min(least.get(place, float("inf")), figures.middle(row, "ready_ms"))
    rows = []
    for row in ordered(found):
        ready = figures.spread("ready_ms", row.values("ready_ms"))
        best = figures.middle(row, "ready_ms") == least[(row.image, row.version, row.network)]
        rows.append([
            row.label, row.network, row.system, *([str(len(row.runs))] if uneven else []), Strong(ready) if best else ready,
            *(figures.written(name, figures.middle(row, name)) for name in parts),
            figures.times(over_base(found, row)), figures.times(over_peers(found, row)),
            *(figures.spread(name, figures.values(row, name)) for name in more),
        ])
    named = lambda names: [figures.label(name) for name in names]
    columns = [
        "image", "network", "system", *(["runs"] if uneven else []), "ready", *named(parts), "over overlayfs", "over best peer",
        *named(more),
    ]
    return Table(columns, rows, 3)


def groups(found):
    """Rows of each category, network and system, and of all categories last, if there are several."""
    categories = sorted({row.category for row in found.rows}, key=results.category_order)
    for category in [*categories, None] if len(categories) > 1 else categories:
        for network in found.networks:
            for system in found.systems:
                if rows := [row for row in found.of(network, system) if category in (None, row.category)]:
                    yield category or "all", network, system, rows


def summary(found):
    """Geometric means by category, network and system."""
    rows = []
    for category, network, system, members in groups(found):
        ratio, _ = overall(found, members)
        peers = figures.geometric_mean(value for value in (over_peers(found, row) for row in members) if value)
        mean = lambda name: figures.geometric_mean(value for value in (figures.middle(row, name) for row in members) if value)
        costs = [figures.written(name, mean(name)) for name in ("ready_ms", "rx_bytes", "host_cpu_ms")]
        rows.append([category, network, system, str(len(members)), figures.times(ratio), figures.times(peers), *costs])
    labels = ["ready", "received", "host's processor time"]
    return Table(["category", "network", "system", "images", "over overlayfs", "over best peer", *labels], rows, 3)


def by_category(found):
    """Speed-ups over overlayfs as in `summary`, with a column for each system."""
    cells, most = {}, {}
    for category, network, system, rows in groups(found):
        cells[category, network, system] = mean, count = overall(found, rows)
        most[category] = max(count, most.get(category, 0))
    rows = []
    for category, network in dict.fromkeys((category, network) for category, network, _ in cells):
        means = [cells.get((category, network, system), (None, 0)) for system in found.systems]
        rows.append([category, network, *shown(means, most[category])])
    return Table(["category", "network", *found.systems], rows, 2)


def shown(means, most):
    """Speed-ups beside one another: the best is strong, and those of fewer than `most` images say so."""
    best = max((mean for mean, _ in means if mean), default=None)
    texts = [figures.times(mean) + (f" ({count} of {most})" if mean and count < most else "") for mean, count in means]
    return [Strong(text) if mean and mean == best else text for text, (mean, _) in zip(texts, means)]


def speedups(found):
    """Systems by networks: geometric means of speed-ups over all images."""
    cells = {
        (system, network): overall(found, found.of(network, system)) for system in found.systems for network in found.networks
    }
    most = max(count for _, count in cells.values())
    columns = [shown([cells[system, network] for system in found.systems], most) for network in found.networks]
    return Table(["over overlayfs", *found.networks], [list(row) for row in zip(found.systems, *columns)], 1)


def common(found, network):
    """Rows on a network, of the images that all systems there have: [(system, rows)]."""
    rows = [row for row in found.rows if row.network == network]
    systems = [system for system in found.systems if any(row.system == system for row in rows)]
    images = [{(row.image, row.version) for row in rows if row.system == system} for system in systems]
    shared = set.intersection(*images) if images else set()
    return [(system, [row for row in rows if row.system == system and (row.image, row.version) in shared]) for system in systems]


def processor_parts(found, network):
    """Which processes spend processor time: [(system, number of images, [(figure, mean of medians)])]."""
    made = []
    for system, rows in common(found, network):
        means = []
        for name in PROCESSOR:
            middles = [figures.middle(row, name) for row in rows]
            if middles and None not in middles:
                means.append((name, statistics.fmean(middles)))
        if means:
            made.append((system, len(rows), means))
    return made


def processor(found):
    """Systems and networks by the processes that spent processor time."""
    parts = {network: processor_parts(found, network) for network in found.networks}
    present = {name for made in parts.values() for _, _, means in made for name, _ in means}
    names = [name for name in PROCESSOR if name in present]
    rows = []
    for network, made in parts.items():
        for system, count, means in made:
            cells = [figures.written(name, dict(means).get(name)) for name in names]
            rows.append([network, system, str(count), *cells, figures.written("_ms", sum(value for _, value in means))])
    labels = [figures.label(name).removesuffix(" processor time").removesuffix("'s") for name in names]
    return Table(["network", "system", "images", *labels, "sum"], rows, 2)


def once(found):
    """What makes an image ready for a system; `None` if nothing was."""
    names = sorted({name for row in found.rows for name in row.once}, key=lambda name: (name not in figures.LABELS, name))
    seen, rows = set(), []
    for row in ordered(found):
        if row.once and (row.image, row.version, row.system) not in seen:
            seen.add((row.image, row.version, row.system))
            rows.append([row.label, row.system, *(figures.written(name, row.once.get(name)) for name in names)])
    return Table(["image", "system", *map(figures.label, names)], rows, 2) if rows else None


# --- scenarios -------------------------------------------------------------------------------------------------------


def is_own(name):
    """Whether a figure is what a scenario is about: it has a unit, and is not what any start costs."""
    if name in figures.LABELS:
        return name in OWN
    return name.endswith(figures.SUFFIXES) and not name.endswith("_cpu_ms")


def scenario_figures(found):
    """(its own, what it cost and says besides), in the order of the file."""
    names = list(dict.fromkeys(name for row in found.rows for run in row.runs for name in run))
    return [name for name in names if is_own(name)], [name for name in names if not is_own(name)]


def subject(found, row):
    """What lines over a variable are drawn of: the variable may be the image's version."""
    return row.image if found.variable == "version" else row.label


def scenario(found):
    own, costs = scenario_figures(found)
    variable = any(row.x != "" for row in found.rows)
    compared = any(row.system == results.BASE for row in found.rows)
    columns = ["image", "network", *([found.variable or "of"] if variable else []), "system"]
    words = len(columns)
    for name in own:
        columns += [figures.label(name), "over overlayfs"] if compared else [figures.label(name)]
    columns += map(figures.label, costs)
    rows = []
    for row in ordered(found):
        cells = [row.label, row.network, *([place(row.x)] if variable else []), row.system]
        for name in own:
            cells.append(figures.spread(name, row.values(name)))
            if compared:
                cells.append(figures.times(over_base(found, row, name)))
        rows.append(cells + [figures.spread(name, row.values(name)) for name in costs])
    return Table(columns, rows, words)


def place(x):
    return x if isinstance(x, str) else f"{x:,}"


# --- what else must be said ------------------------------------------------------------------------------------------


def missing(found):
    """What was not measured, and why."""
    rows = []
    for state, entries in (("SKIPPED", found.skipped), ("FAILED", found.failed)):
        for entry in entries:
            parts = ("what", "system", "image", "version", "network", "x")
            what = ", ".join(str(entry[part]) for part in parts if entry.get(part) not in (None, ""))
            rows.append([state, what or "–", str(entry.get("why") or "no reason is given")])
    return Table(["", "what", "why"], rows, 3)


def machine(found):
    """Of what and when a file is."""
    known = dict(found.machine)
    rows = []
    if "processors" in known or "model" in known:
        rows.append(["processors", f"{known.pop('processors', '?')} × {known.pop('model', 'unknown')}"])
    if results.is_figure(known.get("memory_bytes")):
        rows.append(["memory", figures.written("_bytes", known.pop("memory_bytes"))])
    rows += [[name.replace("_", " "), str(value)] for name, value in known.items()]
    rows.append(["measured on", ", ".join(found.dates) or "not said"])
    rows.append(["runs of each row", found.counts])
    if loads := [row.load for row in found.rows if row.load is not None]:
        rows.append(["load before rows", f"{min(loads):.1f} to {max(loads):.1f}, median {statistics.median(loads):.1f}"])
    rows += [["settings", settings] for settings in found.settings]
    if found.note:
        rows.append(["note", found.note])
    rows.append(["file", found.path.rsplit("/", 1)[-1]])
    rows += [[f"version of {name}", str(version)] for name, version in found.versions.items() if version]
    return Table(["", ""], rows, 2)


def markdown(found):
    """Everything of one file."""
    parts = [f"## {found.title}", machine(found).markdown()]
    if found.rows and found.scenario:
        parts.append(scenario(found).markdown())
    elif found.rows:
        parts.append("Medians; lowest and highest in parentheses. Bold: the fastest of its image and network.")
        parts.append(starts(found).markdown())
        parts += ["Geometric means.", summary(found).markdown()]
        if made := once(found):
            parts += ["Made once, before any start.", made.markdown()]
    else:
        parts.append("Nothing was measured.")
    if found.skipped or found.failed:
        parts.append(missing(found).markdown())
    return "\n\n".join(parts)
