"""Figures as SVG, each as wide as a telephone's screen: pages put as many beside one another as there is room.

Colours are classes of report.css, which has them for light and for dark pages: those of Okabe and Ito, which colour-blind people
can tell apart. Each system has a shape and dashes as well, and bars bear their system's name.
"""

import math
import re

from . import results
from .markup import element, number, picture

WIDTH = 380
ROW = 21
LETTER, BOLD = 6.1, 7.3  # widths of a letter of labels, and of values beside bars, roughly
# Of each system: its shape (points of a path around 0, 0), and its line's dashes.
SHAPES = [
    "M-4 -4H4V4H-4Z",  # a square
    "M0 -5L5 4H-5Z",  # a triangle
    "M0 5L5 -4H-5Z",
    "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",  # a diamond
    "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1 -5 0ZM-2 0A2 2 0 1 0 2 0A2 2 0 1 0 -2 0Z",  # a ring
    "M-1.7 -5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",  # a cross
    "M-5 -5H5L-5 5H5Z",  # an hourglass
    "M-4.5 0A4.5 4.5 0 1 1 4.5 0A4.5 4.5 0 1 1 -4.5 0Z",  # a disc
    "M0 -6L1.5 -2H5.7L2.3 0.6L3.5 4.9L0 2.3L-3.5 4.9L-2.3 0.6L-5.7 -2H-1.5Z",  # a star
]
DASHES = ["1 3", "8 3", "4 2", "8 2 2 2", "2 2", "6 2 1 2 1 2", "10 2", None, None]
STEPS = [0, -5, 5, -8, 8]  # up or down, of marks in one place
OTHERS = 3  # classes for systems that this list does not know


def index(system, systems):
    """Of the class, shape and dashes of a system; `systems`: all of the report, in order."""
    if system in results.SYSTEMS:
        return results.SYSTEMS.index(system)
    unknown = [name for name in systems if name not in results.SYSTEMS]
    return len(results.SYSTEMS) + unknown.index(system) % OTHERS


def kind(at):
    return f"s{at}"


def mark(at, x, y, title=None, size=1):
    moved = f"translate({number(x)} {number(y)})" + (f" scale({size})" if size != 1 else "")
    attributes = {"class": f"mark {kind(at)}", "d": SHAPES[at % len(SHAPES)], "transform": moved}
    return element("path", attributes, element("title", None, title) if title else None)


def label(x, y, text, anchor="start", style="label"):
    return element("text", {"x": number(x), "y": number(y), "class": style, "text-anchor": anchor}, text)


def rule(x1, y1, x2, y2, style="grid"):
    return element("line", {"x1": number(x1), "y1": number(y1), "x2": number(x2), "y2": number(y2), "class": style})


def cut(text, room):
    """A text that fits, or its beginning."""
    most = int(room / LETTER)
    return text if len(text) <= most else text[: most - 1] + "…"


def shown(text, room):
    """The part of a label that fits, and all of it as a tooltip."""
    short = cut(text, room)
    return (short, None if short == text else element("title", None, text))


def swatch(at):
    """For a legend: a system's line and shape."""
    line = element("line", {"x1": 1, "y1": 7, "x2": 27, "y2": 7, "class": f"line {kind(at)}", "stroke-dasharray": dashes(at)})
    return element("svg", {"viewBox": "0 0 28 14", "class": "swatch", "aria-hidden": "true"}, line, mark(at, 14, 7))


def dashes(at):
    return DASHES[at % len(DASHES)]


# --- scales ----------------------------------------------------------------------------------------------------------


class Linear:
    """From 0 to at least `highest`, with some four round values."""

    def __init__(self, highest, low, high):
        self.low, self.high = low, high
        rough = (highest or 1) / 4
        power = 10 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
        self.most = max(step, step * math.ceil((highest or 1) / step * 0.999))
        self.ticks = [step * at for at in range(round(self.most / step) + 1)]

    def __call__(self, value):
        return self.low + (self.high - self.low) * min(value / self.most, 1.02)


class Logarithmic:
    """Around values above zero, with ticks at 1, 2 and 5, or powers of ten if there are many."""

    def __init__(self, lowest, highest, low, high):
        self.low, self.high = low, high
        self.first, self.last = math.log10(lowest) - 0.08, math.log10(highest) + 0.08
        if self.last - self.first < 0.7:
            middle = (self.first + self.last) / 2
            self.first, self.last = middle - 0.35, middle + 0.35
        span = self.last - self.first
        factors = (1, 2, 5) if span < 1.6 else (1, 3) if span < 2.6 else (1,)
        powers = range(math.floor(self.first), math.ceil(self.last) + 1)
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        self.ticks = [tick for tick in ticks if self.first <= math.log10(tick) <= self.last]

    def __call__(self, value):
        return self.low + (self.high - self.low) * (math.log10(value) - self.first) / (self.last - self.first)


def short(text):
    """Of a round value: without zeros that say nothing."""
    return re.sub(r"(\.[0-9]*?)0+(?![0-9])", lambda found: found[1].rstrip("."), text)


def axis(scale, top, bottom, written, emphasis=None):
    """Vertical lines with their values below; values that would touch the one before are left out."""
    made, end = [], -math.inf
    for tick in scale.ticks:
        x, text = scale(tick), short(written(tick))
        made.append(rule(x, top, x, bottom, "base" if tick == emphasis else "grid"))
        half = len(text) * LETTER / 2
        if x - half > end + 4 and x + half < WIDTH + 1:
            made.append(label(x, bottom + 14, text, "middle", "tick"))
            end = x + half
    return made


# --- figures ---------------------------------------------------------------------------------------------------------


def bars(title, description, rows, written, reference=None):
    """Lying bars. `rows`: [(label, [(class, value, what it is)], (lowest, highest) or None, text at its end)]."""
    left = min(150, 10 + LETTER * max(len(name) for name, *_ in rows))
    room = 12 + BOLD * max(len(text) for *_, text in rows)
    total = lambda parts: sum(value for _, value, _ in parts)
    highest = max(max(total(parts), (ends or (0, 0))[1]) for _, parts, ends, _ in rows)
    scale = Linear(max(highest, reference or 0), left, WIDTH - room)
    scale.most = max(highest, reference or 0, 1e-9)  # bars may end where the room does
    scale.ticks = [tick for tick in scale.ticks if tick <= scale.most * 1.001]
    bottom = 4 + ROW * len(rows)
    made = [axis(scale, 0, bottom, written, reference)]
    for at, (name, parts, ends, text) in enumerate(rows):
        y, x, done = 4 + ROW * at, left, 0.0
        made.append(label(left - 6, y + 12, shown(name, left - 6), "end"))
        for style, value, what in parts:
            done += value
            width = max(scale(done) - x, 0)
            attributes = {"x": number(x), "y": number(y + 1), "width": number(width), "height": ROW - 6, "class": f"bar {style}"}
            made.append(element("rect", attributes, element("title", None, what)))
            x += width
        if ends and ends[0] != ends[1]:
            low, high, middle = scale(ends[0]), scale(ends[1]), y + 1 + (ROW - 6) / 2
            made += [rule(low, middle, high, middle, "whisker"), rule(low, middle - 3, low, middle + 3, "whisker")]
            made.append(rule(high, middle - 3, high, middle + 3, "whisker"))
            x = max(x, high)
        made.append(label(x + 5, y + 12, text, "start", "value"))
    if reference is not None:
        made.append(rule(scale(reference), 0, scale(reference), bottom, "base"))
    return picture(WIDTH, bottom + 20, title, description, made)


def cumulative(title, description, lines, written):
    """The part of images whose value is at most x. `lines`: [(index of the system, its name, [(value, image)])]."""
    everything = [value for *_, points in lines for value, _ in points]
    top, bottom, left = 8, 200, 40
    scale = Logarithmic(min(1, *everything), max(1, *everything), left, WIDTH - 12)
    made = [axis(scale, top, bottom, written, 1)]
    height = lambda part: bottom - part * (bottom - top)
    for part in (0, 0.25, 0.5, 0.75, 1):
        y = height(part)
        made += [rule(left, y, WIDTH - 12, y), label(left - 5, y + 4, f"{part:.0%}", "end", "tick")]
    for at, name, points in lines:
        points = sorted(points)
        path = f"M{number(scale(points[0][0]))} {bottom}"
        for step, (value, _) in enumerate(points):
            path += f"H{number(scale(value))}V{number(height((step + 1) / len(points)))}"
        path += f"H{WIDTH - 12}"
        made.append(element("path", {"class": f"line {kind(at)}", "d": path, "stroke-dasharray": dashes(at)}))
    for at, name, points in lines:  # above all lines
        for step, (value, image) in enumerate(sorted(points)):
            title, size = f"{name}, {image}: {written(value)}", 1 if len(points) <= 12 else 0.6
            made.append(mark(at, scale(value), height((step + 1) / len(points)), title, size))
    return picture(WIDTH, bottom + 20, title, description, made)


def dots(title, description, rows, written):
    """A line for each label, with a mark for each system, over a logarithmic axis; marks that would hide one another stand a bit
    above or below. `rows`: [(label, [(index, name, value)])]; what is 0 is not shown."""
    everything = [value for _, found in rows for *_, value in found if value > 0]
    left = min(120, 10 + LETTER * max(len(name) for name, _ in rows))
    scale = Logarithmic(min(everything), max(everything), left, WIDTH - 8)
    bottom = 6 + ROW * len(rows)
    made = [axis(scale, 0, bottom, written)]
    for at, (name, found) in enumerate(rows):
        y = 6 + ROW * at + ROW / 2 - 2
        made += [rule(left, y, WIDTH - 8, y), label(left - 6, y + 4, shown(name, left - 6), "end")]
        taken = []
        for which, system, value in found:
            if value > 0:
                x = scale(value)
                step = next((step for step in STEPS if all(abs(x - other) > 6 or step != used for other, used in taken)), 0)
                taken.append((x, step))
                made.append(mark(which, x, y + step, f"{system}, {name}: {written(value)}"))
    return picture(WIDTH, bottom + 20, title, description, made)


def lines(title, description, series, places, variable, written):
    """Values over a variable. `series`: [(index, name, [(x, median, lowest, highest)])]; `places`: all x, in order;
    `variable`: what they are."""
    numeric = all(isinstance(place, (int, float)) for place in places)
    wide = numeric and 0 < places[0] * 8 <= places[-1]
    top, bottom = 8, 190
    vertical = Linear(max(high for *_, points in series for *_, high in points), bottom, top)
    left = 12 + LETTER * max(len(short(written(tick))) for tick in vertical.ticks)
    right = WIDTH - 16
    if wide:
        first, last = math.log(places[0]), math.log(places[-1])
        # Doubled or ten times as many each: as far apart as the logarithms say.
        spot = lambda x: left + 10 + (right - left - 10) * (math.log(x) - first) / (last - first)
    else:
        spot = lambda x: left + 10 + (right - left - 10) * places.index(x) / max(len(places) - 1, 1)
    made, end = [], -math.inf
    for tick in vertical.ticks:
        y = vertical(tick)
        made.append(rule(left, y, right, y, "base" if tick == 0 else "grid"))
        made.append(label(left - 5, y + 4, short(written(tick)), "end", "tick"))
    for place in places:
        text = f"{place:,}" if numeric else str(place)
        half = len(text) * LETTER / 2
        x = min(max(spot(place), half), WIDTH - half)
        if x - half > end + 4:
            made.append(label(x, bottom + 15, text, "middle", "tick"))
            end = x + half
    for at, name, points in series:
        path = "M" + "L".join(f"{number(spot(x))} {number(vertical(middle))}" for x, middle, _, _ in points)
        made.append(element("path", {"class": f"line {kind(at)}", "d": path, "stroke-dasharray": dashes(at)}))
        ranges = [(spot(x), vertical(low), vertical(high)) for x, _, low, high in points if low != high]
        made += [rule(x, low, x, high, f"range {kind(at)}") for x, low, high in ranges]
    for at, name, points in series:
        made += [mark(at, spot(x), vertical(middle), f"{name}, {x}: {written(middle)}") for x, middle, _, _ in points]
    if variable:
        made.append(label((left + right) / 2, bottom + 31, variable, "middle", "tick"))
    return picture(WIDTH, bottom + (38 if variable else 22), title, description, made)
