"""How values show: a line in a terminal, a card in a notebook.

A card is made of texts, all of which are escaped. It has no script, no style but its own, and takes its colours from
the page: it can be read on a light and on a dark one.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from fedpriv.core.terminal_text import printable

LONGEST_LINE = 200  # characters
DOTS = 150  # of a picture, per inch
_BOX = "display:inline-block;vertical-align:top;max-width:60em;margin:2px;padding:6px 12px;line-height:1.4;"
_BOX += "border:1px solid rgba(128,128,128,.5);border-radius:6px;text-align:left"
_LABEL = "padding:1px 1em 1px 0;opacity:.7;text-align:left;vertical-align:top;white-space:nowrap"
_VALUE = "padding:1px 0;text-align:left;vertical-align:top"
_CELL = "padding:2px .8em 2px 0;text-align:left"
_PICTURE = "display:block;max-width:100%;margin:4px 0"
_TABLE = "border-collapse:collapse;margin:4px 0;background:none;color:inherit"


class Folded(NamedTuple):
    """What a card shows when its reader opens it.

    Attributes:
      title: always seen.
      lines: an item each.
    """

    title: str
    lines: Sequence[str]


class Card(NamedTuple):
    """What a notebook shows of a value.

    Attributes:
      kind: of value.
      title: the least that has to be said of it.
      rows: (what, its value), below each other.
      table: its rows, the first of which is the head.
      picture: a PNG file, and what it shows in words.
      notes: sentences that are always seen.
      folded: what is not.
      beside: cards to its right, or below where there is no room.
    """

    kind: str
    title: str
    rows: Sequence[tuple[str, str]] = ()
    table: Sequence[Sequence[str]] = ()
    picture: tuple[bytes, str] | None = None
    notes: Sequence[str] = ()
    folded: Sequence[Folded] = ()
    beside: Sequence[Card] = ()

    def html(self) -> str:
        """The card as an element of HTML."""
        parts = [f"<div><small>{_text(self.kind)}</small> <b>{_text(self.title)}</b></div>"]
        if self.rows:
            pairs = (
                f'<tr style="background:none"><td style="{_LABEL}">{_text(name)}</td>'
                f'<td style="{_VALUE}">{_text(value)}</td></tr>'
                for name, value in self.rows
            )
            parts.append(f'<table style="{_TABLE}">{"".join(pairs)}</table>')
        if self.table:
            head, *others = (
                "".join(f'<{tag} style="{_CELL}">{_text(cell)}</{tag}>' for cell in row)
                for tag, row in zip(["th", *["td"] * len(self.table)], self.table, strict=False)
            )
            body = "".join(f'<tr style="background:none">{row}</tr>' for row in others)
            parts.append(f'<table style="{_TABLE}"><tr>{head}</tr>{body}</table>')
        if self.picture:
            png, said = self.picture
            source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
            width = int.from_bytes(png[16:20]) * 96 // DOTS  # a pixel of a page is 1/96 inch
            parts.append(
                f'<img src="{source}" alt="{_text(said)}" width="{width}" style="{_PICTURE}">'
            )
        parts += [f"<div>{_text(note)}</div>" for note in self.notes]
        for title, lines in self.folded:
            items = "".join(f"<li>{_text(line)}</li>" for line in lines)
            parts.append(
                f'<details><summary style="cursor:pointer">{_text(title)}</summary><ul>{items}</ul></details>'
            )
        own = f'<div style="{_BOX}">{"".join(parts)}</div>'
        return own + "".join(card.html() for card in self.beside)


def png_of(figure: Any) -> bytes:
    """A figure of matplotlib as the file of a card's picture, in memory."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=DOTS)
    return written.getvalue()


def in_a_line(text: str, most: int = LONGEST_LINE) -> str:
    """What a value is in a terminal: one line of at most so many characters, which does nothing to the terminal."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _text(text: str) -> str:
    """Escaped, also within quotes."""
    return escape(printable(" ".join(text.split())))
