"""Which unit a certificate is of, as far as that is public and certificates differ by it."""

from __future__ import annotations

from typing import Any, NamedTuple


class UnitKind(NamedTuple):
    """All units alike: those of which a certificate is the same.

    Attributes:
      size: number of records of the client, where that is public; None: of the smallest client, whose records are drawn
        most often.
      group: its public group; "": there are none.
      held: what of a person, for each client that holds something; (): the unit is no person.
    """

    size: int | None = None
    group: str = ""
    held: tuple[Any, ...] = ()


ANY = UnitKind()
"""Where all units are alike, or the costliest of them by size."""
