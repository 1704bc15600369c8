"""Elements of HTML and SVG; all text is escaped when they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

Content: TypeAlias = "str | Element | Iterable[Content] | None"

_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def element(tag: str, *content: Content, **attributes: object) -> Element:
    """An element; `class_` is class, `stroke_width` is stroke-width, an attribute that is None is left out."""
    given = {
        name.rstrip("_").replace("_", "-"): clean(str(value))
        for name, value in attributes.items()
        if value is not None
    }
    made = Element(tag, given)
    _append(made, content)
    return made


def _append(parent: Element, content: Content) -> None:
    if content is None:
        return
    if isinstance(content, Element):
        parent.append(content)
    elif isinstance(content, str):
        last = parent[-1] if len(parent) else None
        if last is None:
            parent.text = (parent.text or "") + clean(content)
        else:
            last.tail = (last.tail or "") + clean(content)
    else:
        for part in content:
            _append(parent, part)


def clean(text: str) -> str:
    """Without the characters that a page may not have."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def table(caption: str, head: Sequence[Content], rows: Iterable[Sequence[Content]]) -> Element:
    """A table whose rows are headed by their first cell; one that is too wide scrolls by itself."""
    body = [
        element("tr", element("th", first, scope="row"), [element("td", cell) for cell in cells])
        for first, *cells in rows
    ]
    made = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", [element("th", h, scope="col") for h in head])),
        element("tbody", body),
    )
    return element("div", made, class_="scroll", role="region", tabindex=0, aria_label=caption)


def words(text: str, class_: str = "") -> Element:
    """Text of any length for a cell: it may be broken where it has no blank, which numbers may not."""
    return element("span", text, class_=f"free {class_}".strip())


def listing(items: Iterable[Content], class_: str | None = None) -> Element | None:
    made = element("ul", [element("li", item) for item in items], class_=class_)
    return made if len(made) else None


def folded(heading: str, *content: Content) -> Element:
    return element("details", element("summary", heading), *content)


def written(*elements: Element | None) -> str:
    found = (e for e in elements if e is not None)
    return "\n".join(ElementTree.tostring(e, encoding="unicode", method="html") for e in found)
