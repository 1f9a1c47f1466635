"""Draws the picture of the README: how many times as fast as overlayfs each system starts images, a bar for each, by network.

    picture.py RESULTS.json PICTURE.svg            writes the picture
    picture.py --check RESULTS.json PICTURE.svg    fails unless the picture is what would be written

The figures are those of the report's table "over overlayfs" (docs/bench-report.md): geometric means, over all images, of
overlayfs's median time until a start is ready, over the system's. The picture needs nothing else, and follows a dark screen.
"""

import itertools
import sys
import xml.etree.ElementTree as tree

from reporting import charts, figures, markup, results, tables
from reporting.markup import element, number

WIDTH, LABELS, ROW, HEAD = 760, 170, 22, 34
VALUE = 60  # room for a value at the end of its bar
STYLE = """
text { font: 13px system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: #1b2430; }
.head { font-weight: 600; } .peer { fill: #8a94a3; } .ours { fill: #d55e00; }
@media (prefers-color-scheme: dark) { text { fill: #e8edf4; } .ours { fill: #f0762a; } }
"""


def means(found, network):
    """[(system, geometric mean of speed-ups)], of all systems but the one that is compared with."""
    made = [(system, *tables.overall(found, found.of(network, system))) for system in found.systems]
    return [(system, mean, count) for system, mean, count in made if mean and system != results.BASE]


def bar(system, mean, scale, y):
    width = max(1, scale * mean)
    style = "ours" if system.startswith(results.OURS) else "peer"
    return [
        charts.label(LABELS - 8, y + 15, system, "end", None),
        element("rect", {"x": LABELS, "y": y + 3, "width": number(width), "height": ROW - 6, "class": style}),
        charts.label(LABELS + width + 6, y + 15, figures.times(mean), "start", None),
    ]


def picture(found):
    by_network = [(network, means(found, network)) for network in found.networks]
    scale = (WIDTH - LABELS - VALUE) / max(mean for _, rows in by_network for _, mean, _ in rows)
    y, made, told = 4, [element("style", None, STYLE)], []
    for network, rows in by_network:
        counts = {count for *_, count in rows}
        images = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(counts.pop())
        made.append(charts.label(0, y + 18, f"{network}: cold starts of {images} images, times as fast as a full pull (overlayfs)", style="head"))
        y += HEAD
        for system, mean, _ in rows:
            made.append(bar(system, mean, scale, y))
            told.append(f"{system} at {network}: {figures.times(mean)}")
            y += ROW
        y += 8
    # The same numbers each time.
    markup.IDENTIFIERS = itertools.count(1)
    drawn = markup.picture(WIDTH, y, "How many times as fast as a full pull images start", "; ".join(told), made)
    drawn.set("xmlns", "http://www.w3.org/2000/svg")
    return tree.tostring(drawn, encoding="unicode") + "\n"


def main(arguments):
    is_check = arguments[:1] == ["--check"]
    source, target = arguments[is_check:]
    text = picture(results.load(source))
    if not is_check:
        with open(target, "w") as file:
            file.write(text)
        return 0
    with open(target) as file:
        if file.read() == text:
            return 0
    print(f"{target} is not what bench/picture.py makes of {source}: make picture", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
