"""What notebooks show, read as HTML by the standard library, and what a text of somebody else would do there."""

from __future__ import annotations

import re
from html.parser import HTMLParser

HOSTILE = (
    """</td><script>alert('1')</script><img src=x onerror="alert(2)">&amp;\x1b[2J\n' "quoted" """
)
TAGS = set(
    ["div", "small", "b", "table", "tr", "td", "th", "img", "details", "summary", "ul", "li"]
)
ATTRIBUTES = {"style", "src", "alt", "width"}


class Shown(HTMLParser):
    """A card's texts: those that are always seen, and those behind a fold.

    Attributes:
      seen, folded: texts between tags, in their order.
      alt: of pictures.
    """

    def __init__(self, html: str):
        super().__init__()
        self.seen: list[str] = []
        self.folded: list[str] = []
        self.alt: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        given = dict(attrs)
        assert {*given} <= ATTRIBUTES, given
        # It takes the page's colours, so that it can be read on a light and on a dark one.
        for colour in re.findall(r"(?:color|background):([^;]*)", given.get("style", "")):
            assert colour in ("inherit", "none")
        if tag == "img":
            assert given["src"].startswith("data:image/png;base64,")
            self.alt.append(given["alt"])
        else:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        hidden = "details" in self._open and self._open[-1] != "summary"
        (self.folded if hidden else self.seen).append(data)

    @property
    def text(self) -> str:
        """All that is always seen."""
        return " | ".join(self.seen)
