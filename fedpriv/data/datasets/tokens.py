"""Texts of any length as rows of tokens of one length, for `Federation.from_arrays` and `fp.models.next_token`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require, shown
from fedpriv.data.client_ids import rows_of_each
from fedpriv.data.datasets.arrow_columns import values_of
from fedpriv.data.datasets.importers import Arrays
from fedpriv.data.person_ids import DOCUMENT
from fedpriv.data.validation import on_host


class Piece(NamedTuple):
    """What of a text stands in one row.

    Attributes:
        text: number of the text.
        start: of its first token.
        size: how many tokens are read, and as many predicted: each one's next.
    """

    text: int
    start: int
    size: int


def from_tokens(
    texts: Iterable[ArrayLike],
    clients: Sequence[Any] | ArrayLike | None = None,
    *,
    length: Count,
    vocabulary: Count,
    packed: bool = False,
) -> Arrays:
    """Lists of token ids, of any length, as rows of `length` tokens, each with the one that follows it.

    Every token of a text but its first is predicted once. A text with more than `length` + 1 tokens has several rows,
    of which each is read without those before it; one with fewer than two tokens has none.

    Args:
        texts: ids of each text, such as the column `split["input_ids"]` of a tokenised data set.
        clients: the client of each text; None leaves the leaf `client` out, as for test texts.
        length: public, and best chosen without a look at clients' texts.
        vocabulary: number of tokens, such as `len(tokenizer)`; up to 2^31 - 1.
        packed: whether a row may hold several texts of one client, longest first where they fit best. That avoids most
            padding, and a row is then no text: a federation of such rows is refused where records are protected.

    Returns:
        Leaves `text` and `label` (i32[N, length], filled with 0), `mask` (bool[N, length], which of them count) and
        `client`. Of packed rows `segment` (i32[N, length]: which text of the row, from 1; 0: padding), of others
        `document` (i32[N], number of the text), by which certificates are of whole texts: `from_arrays(...,
        person="document")`.

    Raises:
        ValueError: ids that are no integers in [0, vocabulary); a client without a text of two tokens or more; a client
            that is missing, or another number of clients than of texts.
    """
    length, vocabulary = checked("length", length, Count), checked("vocabulary", vocabulary, Count)
    packed = checked("packed", packed, bool)
    ids = _ids(texts, vocabulary)
    column, own = None, [np.arange(len(ids))]
    if clients is not None:
        column = on_host("clients", clients)
        fits = column.shape == (len(ids),)
        require(fits, "clients", clients, f"give a list of {len(ids)}, one for each text")
        own = rows_of_each("clients", column, np.arange(len(ids)))
    of_clients = [_pieces(ids, each, length) for each in own]
    for each, pieces in zip(own, of_clients, strict=True):
        if not pieces:
            whose = "texts" if column is None else f"clients: {shown(column[each[:1]].tolist()[0])}"
            raise ValueError(f"{whose}: no text has two tokens or more; leave such a client out")
    if packed:
        rows = [row for pieces in of_clients for row in best_fit(pieces, length)]
    else:
        rows = [[piece] for piece in sorted(piece for pieces in of_clients for piece in pieces)]
    data, segment = _filled(ids, rows, length)
    first = np.array([row[0].text for row in rows], np.int32)
    data |= {"segment": segment} if packed else {DOCUMENT: first}
    return data if column is None else data | {"client": column[first]}


def _ids(texts: Iterable[ArrayLike], vocabulary: int) -> list[np.ndarray]:
    """The ids of each text, i32[n]."""
    listed = isinstance(texts, Iterable) and not isinstance(texts, str | bytes | Mapping)
    listed = listed and getattr(texts, "ndim", 1) > 0
    require(listed, "texts", texts, "give a list with the token ids of each text")
    found = []
    for i, text in enumerate(values_of(texts)):
        array = _array(f"texts[{i}]", text)
        wrong = (array < 0) | (array >= vocabulary)
        if wrong.any():
            token = array[wrong][0]
            raise ValueError(f"texts[{i}]: token {token}; give ids from 0 to {vocabulary - 1}")
        found.append(array.astype(np.int32))
    return found


def _array(name: str, text: ArrayLike) -> np.ndarray:
    remedy = "give its token ids, a list of whole numbers, as a tokenizer makes them"
    try:
        array = np.asarray(text)
    except ValueError:  # lists of unequal length
        array = np.zeros(())
    require(array.ndim == 1, name, text, remedy)
    require(array.dtype.kind in "iu" or not array.size, name, text, remedy)
    return array if array.size else np.zeros(0, np.int32)


def _pieces(ids: list[np.ndarray], texts: np.ndarray, length: int) -> list[Piece]:
    """Of one client's texts."""
    return [
        Piece(i, start, min(length, len(ids[i]) - 1 - start))
        for i in texts.tolist()
        for start in range(0, len(ids[i]) - 1, length)
    ]


def best_fit(pieces: Sequence[Piece], length: int) -> list[list[Piece]]:
    """Rows of pieces of at most `length` tokens in all: longest first, each where it leaves the least room."""
    rows: list[list[Piece]] = []
    room: list[tuple[int, int]] = []  # (that is left, row), in order
    for piece in sorted(pieces, key=lambda piece: -piece.size):
        place = bisect_left(room, (piece.size, -1))
        left, row = room.pop(place) if place < len(room) else (length, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(piece)
        insort(room, (left - piece.size, row))
    return rows


def _filled(
    ids: list[np.ndarray], rows: Sequence[Sequence[Piece]], length: int
) -> tuple[Arrays, np.ndarray]:
    """The leaves `text`, `label` and `mask`; and which piece of its row each token is of, from 1."""
    text, label, segment = np.zeros((3, len(rows), length), np.int32)
    for r, row in enumerate(rows):
        at = 0
        for s, (i, start, size) in enumerate(row):
            own = ids[i][start : start + size + 1]
            here = np.s_[r, at : at + size]
            text[here], label[here], segment[here] = own[:-1], own[1:], s + 1
            at += size
    return {"text": text, "label": label, "mask": segment > 0}, segment
