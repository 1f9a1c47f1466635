"""HTML and SVG as trees of elements, so that their writer escapes every text, and all is well-formed."""

import itertools
import xml.etree.ElementTree as tree

IDENTIFIERS = itertools.count(1)


def element(tag, attributes=None, *children):
    """Children are elements, texts, or lists of them; `None` is left out, as are attributes that are `None`."""
    made = tree.Element(tag, {name: str(value) for name, value in (attributes or {}).items() if value is not None})
    add(made, children)
    return made


def add(made, children):
    for child in children:
        if child is None:
            continue
        if isinstance(child, (list, tuple)):
            add(made, child)
        elif isinstance(child, tree.Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + str(child)
        else:
            made.text = (made.text or "") + str(child)


def number(value):
    """Of a coordinate: a hundredth of a pixel will do."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def picture(width, height, title, description, children):
    """An SVG that is as wide as there is room, with a name and a description for users who cannot see it."""
    at = next(IDENTIFIERS)
    attributes = {
        "viewBox": f"0 0 {number(width)} {number(height)}", "role": "img", "aria-labelledby": f"title-{at} description-{at}",
    }
    return element(
        "svg", attributes,
        element("title", {"id": f"title-{at}"}, title), element("desc", {"id": f"description-{at}"}, description), children,
    )


def html(document):
    return "<!DOCTYPE html>\n" + tree.tostring(document, encoding="unicode", method="html") + "\n"
