"""The report: one HTML file with its style and figures in it, which asks for nothing else."""

import os
import statistics

from . import charts, figures, results, tables
from .markup import element, html

STYLE = os.path.join(os.path.dirname(__file__), "report.css")
STAGES = [("pull", "stage0"), ("create", "stage1"), ("start until ready", "stage2")]
PARTS = {
    "client_cpu_ms": "stage1", "containerd_cpu_ms": "stage0", "daemon_cpu_ms": "stage2", "container_cpu_ms": "stage4",
    "registry_cpu_ms": "stage3",
}


def page(files, title="Container starts, compared"):
    """The document, as text. `files`: results, each of which gets a part of its own."""
    with open(STYLE, encoding="utf-8") as file:
        style = file.read()
    systems = sorted({name for found in files for name in found.systems}, key=results.system_order)
    parts = [Part(found, systems, f"file{at}") for at, found in enumerate(files, 1)]
    bodies = [part.made() for part in parts]
    head = element(
        "head", None, element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", None, title), element("style", None, style),
    )
    contents = [
        element("li", None, element("a", {"href": f"#{part.name}"}, part.found.title), element("ol", None, [
            element("li", None, element("a", {"href": f"#{name}"}, text)) for name, text in part.contents
        ])) for part in parts
    ]
    body = element(
        "body", None,
        element("header", None, element("h1", None, title), [part.lead() for part in parts]),
        element("nav", {"aria-label": "Contents"}, element("ul", None, contents)),
        element("main", None, bodies),
        element("footer", None, "Made by bench/report.py. docs/bench-report.md says how to read it."),
    )
    return html(element("html", {"lang": "en"}, head, body))


def paragraph(text):
    return element("p", None, text)


def counted(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def html_table(table, caption):
    """With the head of the row repeated for readers who do not see the table."""
    kind = lambda at: None if at < table.words else "number"
    cell = lambda text: element("strong", None, text) if isinstance(text, tables.Strong) else text
    head = element("thead", None, element("tr", None, [
        element("th", {"scope": "col", "class": kind(at)}, text) for at, text in enumerate(table.columns)
    ])) if any(table.columns) else None
    rows, before = [], None
    grouped = len({row[0] for row in table.rows}) < len(table.rows)
    for row in table.rows:
        cells = [
            element("th" if at == 0 else "td", {"scope": "row" if at == 0 else None, "class": kind(at)}, cell(text))
            for at, text in enumerate(row)
        ]
        first = grouped and before is not None and row[0] != before
        rows.append(element("tr", {"class": "first" if first else None}, cells))
        before = row[0]
    made = element("table", None, element("caption", None, caption), head, element("tbody", None, rows))
    return element("div", {"class": "wide", "tabindex": "0", "role": "region", "aria-label": caption}, made)


def legend(entries):
    """[(picture, text)]"""
    return element("ul", {"class": "legend"}, [element("li", None, picture, text) for picture, text in entries])


def box(style):
    rect = element("rect", {"x": 1, "y": 1, "width": 12, "height": 12, "class": f"bar {style}"})
    return element("svg", {"viewBox": "0 0 14 14", "class": "swatch box", "aria-hidden": "true"}, rect)


def panels(made):
    """Figures beside one another: [(heading, svg)]."""
    return element("div", {"class": "panels"}, [
        element("figure", None, element("figcaption", None, heading), svg) for heading, svg in made
    ])


class Part:
    """Of one file."""

    def __init__(self, found, systems, name):
        self.found, self.systems, self.name = found, systems, name
        self.contents = []

    def index(self, system):
        return charts.index(system, self.systems)

    def section(self, name, heading, *children):
        self.contents.append((f"{self.name}-{name}", heading))
        return element("section", {"id": f"{self.name}-{name}", "class": name}, element("h3", None, heading), children)

    def lead(self):
        """What was measured, and what was not, in a line or two."""
        found = self.found
        images = len({(row.image, row.version) for row in found.rows})
        texts = [
            f"{found.title}: {counted(images, 'image')}, {counted(len(found.networks), 'network')},"
            f" {counted(len(found.systems), 'system')}; runs of each row: {found.counts}; measured on"
            f" {' to '.join(dict.fromkeys([found.dates[0], found.dates[-1]])) if found.dates else 'a day that is not said'},"
            f" {found.machine.get('processors', '?')} × {found.machine.get('model', 'unknown processor')}, Linux"
            f" {found.machine.get('kernel', 'unknown')}."
        ]
        missing = None
        if found.skipped or found.failed:
            text = f"{len(found.skipped)} SKIPPED, {len(found.failed)} FAILED"
            missing = element("span", None, " ", element("a", {"href": f"#{self.name}-missing"}, text), ".")
        return element("p", {"class": "lead"}, *texts, missing)

    def legend(self, without=None):
        return legend([(charts.swatch(self.index(system)), system) for system in self.found.systems if system != without])

    def made(self):
        found = self.found
        inside = [element("h2", None, found.title)]
        if not found.rows:
            inside.append(paragraph("Nothing was measured."))
        elif found.scenario:
            inside += self.scenario()
        else:
            inside += self.starts()
        if found.skipped or found.failed:
            missing = html_table(tables.missing(found), "Skipped and failed, with reasons")
            inside.append(self.section("missing", "What was not measured", missing))
        about = html_table(tables.machine(found), "Machine, dates, versions")
        inside.append(self.section("about", "Machine and versions", about))
        return element("article", {"id": self.name}, inside)

    # --- starts ------------------------------------------------------------------------------------------------------

    def starts(self):
        based = any(row.system == results.BASE for row in self.found.rows)
        sections = [self.overall(), self.distribution(), self.categories()] if based else []
        sections.append(self.stages())
        sections += [self.per_image("bytes", "Bytes on the wire", "rx_bytes", BYTES), self.processor()]
        sections.append(self.per_image("warm", "Warm starts", "warm_ms", WARM))
        if made := tables.once(self.found):
            table = html_table(made, "What makes an image ready for a system")
            sections.append(self.section("once", "Made once, before any start", table))
        caption = "Medians; lowest and highest in parentheses; the fastest of its image and network is bold"
        everything = html_table(tables.starts(self.found), caption)
        means = html_table(tables.summary(self.found), "Geometric means over the images of a category")
        sections.append(self.section("all", "All figures", everything, means))
        return [section for section in sections if section is not None]

    def overall(self):
        made = []
        for network in self.found.networks:
            rows, most = [], 0
            for system in self.found.systems:
                mean, count = tables.overall(self.found, self.found.of(network, system))
                most = max(most, count)
                if mean:
                    text = figures.times(mean)
                    rows.append((system, [(charts.kind(self.index(system)), mean, f"{system}: {text}")], None, text))
            if rows:
                description = "; ".join(f"{name} {text}" for name, *_, text in rows)
                picture = charts.bars(f"Speed-up over overlayfs, {network}", description, rows, figures.times, 1)
                made.append((f"{network}: {counted(most, 'image')}", picture))
        table = html_table(tables.speedups(self.found), f"Geometric means, {OF_IMAGES}")
        return self.section("overall", "How many times as fast as overlayfs", paragraph(OVERALL), panels(made), table)

    def distribution(self):
        made = []
        for network in self.found.networks:
            lines = []
            for system in self.found.systems:
                ratios = [(tables.over_base(self.found, row), row.label) for row in self.found.of(network, system)]
                points = [(ratio, label) for ratio, label in ratios if ratio]
                if points and system != results.BASE:
                    lines.append((self.index(system), system, points))
            if lines:
                described = "; ".join(
                    f"{name} from {figures.times(min(points)[0])} to {figures.times(max(points)[0])}" for _, name, points in lines
                )
                title = f"Distribution of speed-ups, {network}"
                made.append((network, charts.cumulative(title, described, lines, figures.times)))
        if not made:
            return None
        shown = self.legend(without=results.BASE)
        return self.section("distribution", "Speed-ups, image by image", paragraph(DISTRIBUTION), shown, panels(made))

    def categories(self):
        caption = f"Geometric means of speed-ups over overlayfs, {OF_IMAGES}"
        return self.section("categories", "By category", html_table(tables.by_category(self.found), caption))

    def stages(self):
        inside = [paragraph(STAGED), legend([(box(style), name) for name, style in self.stage_names()])]
        for network in self.found.networks:
            rows = [row for row in tables.ordered(self.found) if row.network == network]
            made = []
            for label in dict.fromkeys(row.label for row in rows):
                bars = [self.staged(row) for row in rows if row.label == label]
                description = "; ".join(f"{name} {text}" for name, *_, text in bars)
                time = lambda value: figures.written("ready_ms", value) if value else "0"
                made.append((label, charts.bars(f"Stages of {label}, {network}", description, bars, time)))
            inside += [element("h4", None, network), panels(made)]
        return self.section("stages", "Stages of a start", *inside)

    def stage_names(self):
        create = any(row.values("create_ms") for row in self.found.rows)
        return STAGES if create else [STAGES[0], STAGES[2]]

    def staged(self, row):
        """The stages of the run in the middle (of the two, if there is none), whose sum is the median."""
        runs = sorted(row.runs, key=lambda run: run["ready_ms"])
        middle = runs[(len(runs) - 1) // 2 : len(runs) // 2 + 1]
        mean = lambda name: sum(run.get(name, 0) for run in middle) / len(middle)
        ready, pull = mean("ready_ms"), min(mean("pull_ms"), mean("ready_ms"))
        create = min(mean("create_ms"), ready - pull)
        values = {"pull": pull, "create": create, "start until ready": ready - pull - create}
        parts = [
            (style, values[name], f"{row.system}, {name}: {figures.written('pull_ms', values[name])}")
            for name, style in self.stage_names()
        ]
        ends = [run["ready_ms"] for run in row.runs]
        return row.system, parts, (min(ends), max(ends)), figures.written("ready_ms", figures.middle(row, "ready_ms"))

    def per_image(self, name, heading, figure, text):
        """A line for each image, with a mark for each system; nothing if nothing has the figure."""
        made = []
        for network in self.found.networks:
            rows = [row for row in tables.ordered(self.found) if row.network == network and figures.middle(row, figure)]
            lines = [
                (label, [(self.index(row.system), row.system, figures.middle(row, figure)) for row in rows if row.label == label])
                for label in dict.fromkeys(row.label for row in rows)
            ]
            if lines:
                write = lambda value: figures.written(figure, value)
                described = "; ".join(
                    f"{label}: {', '.join(f'{of} {write(value)}' for _, of, value in marks)}" for label, marks in lines
                )
                made.append((network, charts.dots(f"{heading}, {network}", described, lines, write)))
        return self.section(name, heading, paragraph(text), self.legend(), panels(made)) if made else None

    def processor(self):
        made, seen = [], []
        for network in self.found.networks:
            rows = []
            for system, _, means in tables.processor_parts(self.found, network):
                seen += [name for name, _ in means if name not in seen]
                said = lambda name, value: f"{system}, {figures.label(name)}: {figures.written(name, value)}"
                parts = [(PARTS[name], value, said(name, value)) for name, value in means]
                rows.append((system, parts, None, figures.written("_ms", sum(value for _, value in means))))
            if rows:
                described = "; ".join(f"{name} {text}" for name, *_, text in rows)
                write = lambda value: figures.written("_ms", value) if value else "0"
                made.append((network, charts.bars(f"Processor time of a start, {network}", described, rows, write)))
        if not made:
            return None
        names = [(box(PARTS[name]), figures.label(name).split("'")[0]) for name in tables.PROCESSOR if name in seen]
        table = html_table(tables.processor(self.found), "Means over the images that all systems of a network have")
        return self.section("processor", "Processor time", paragraph(SPENT), legend(names), panels(made), table)

    # --- scenarios ---------------------------------------------------------------------------------------------------

    def scenario(self):
        own, _ = tables.scenario_figures(self.found)
        rows = tables.ordered(self.found)
        places = dict.fromkeys((tables.subject(self.found, row), row.network) for row in rows)
        drawn = {name: [] for name in own}
        for name, made in drawn.items():
            for place in places:
                members = [row for row in rows if (tables.subject(self.found, row), row.network) == place and row.values(name)]
                heading = ", ".join(part for part in place if part)
                if any(figures.middle(row, name) for row in members):
                    made.append((heading, self.over(name, heading, members)))
        capital = lambda name: figures.label(name)[:1].upper() + figures.label(name)[1:]
        if len(places) == 1:
            inside = [panels([(capital(name), picture) for name, made in drawn.items() for _, picture in made])]
        else:
            inside = [
                element("div", None, element("h4", None, capital(name)), panels(made)) for name, made in drawn.items() if made
            ]
        text = SCENARIO + "".join(f" All of {', '.join(filter(None, place))}." for place in places if len(places) == 1)
        figure = self.section("figures", "Figures", paragraph(text), self.legend(), *inside)
        caption = "Medians; lowest and highest in parentheses"
        return [figure, self.section("all", "All figures", html_table(tables.scenario(self.found), caption))]

    def over(self, name, heading, rows):
        """Lines over the scenario's variable, or bars if it has none."""
        write = lambda value: figures.written(name, value) if value else "0"
        title = f"{figures.label(name)}, {heading}"
        at = lambda row: f" at {tables.place(row.x)}" if row.x != "" else ""
        described = "; ".join(f"{row.system}{at(row)} {figures.spread(name, row.values(name))}" for row in rows)
        places = list(dict.fromkeys(row.x for row in rows))
        if len(places) < 2:
            bars = []
            for row in rows:
                values, middle = row.values(name), figures.middle(row, name)
                part = (charts.kind(self.index(row.system)), middle, f"{row.system}: {figures.spread(name, values)}")
                bars.append((row.system, [part], (min(values), max(values)), figures.written(name, middle)))
            return charts.bars(title, described, bars, write)
        series = []
        for system in self.found.systems:
            members = [(row.x, row.values(name)) for row in rows if row.system == system]
            points = [(x, statistics.median(values), min(values), max(values)) for x, values in members]
            if points:
                series.append((self.index(system), system, points))
        return charts.lines(title, described, series, places, self.found.variable, write)


OF_IMAGES = "over as many images as are said if not all; the best is bold"
OVERALL = (
    "Time from the pull's beginning to the first right answer, on a host that never saw the image. Bars are geometric means of"
    " overlayfs's median over the system's, over all images of a network."
)
DISTRIBUTION = (
    "The part of all images whose speed-up over overlayfs is at most what is below; further to the right is better, and left of"
    " 1× is slower than a full pull. Each mark is an image."
)
STAGED = (
    "The run with the median time until ready, by its stages. A thin line ends at the fastest and the slowest run. Each figure"
    " has a scale of its own."
)
BYTES = "What the host received until the service was ready, headers included; medians, on logarithmic scales."
WARM = "Another container of the image after the first was removed, with everything on the host; medians, on logarithmic scales."
SPENT = (
    "Processor time until ready, by who spent it. Bars are means of the medians of those images that all systems of a network"
    " have: a system that failed for an image takes it from all."
)
SCENARIO = "Medians, with the lowest and the highest run as a thin line."
