"""Texts that are no rows of tokens."""

import functools

import numpy as np

from fedpriv.data.datasets import from_tokens
from refused.row import Refusal

# what is refused, texts, clients, field, value
TEXTS = [
    ("a token below 0", [[0, 1], [3, -1]], None, "texts[1]:", "-1"),
    ("a token beyond the vocabulary", [[0, 10, 1]], None, "texts[0]:", "10"),
    ("a token beyond 32 bits", [np.array([2**32, 1])], None, "texts[0]:", "4294967296"),
    ("half a token", [[0, 0.5]], None, "texts[0]:", "whole numbers"),
    ("a text that is text", ["a text"], None, "texts[0]:", "'a text'"),
    ("a text within a text", [[[0, 1]]], None, "texts[0]:", ""),
    ("texts of unequal length within a text", [[[0], [0, 1]]], None, "texts[0]:", ""),
    ("text", "a text", None, "texts:", "'a text'"),
    ("a number", 3, None, "texts:", "3"),
    ("texts of a token", [[1], []], None, "texts:", ""),
    ("no text", [], None, "texts:", ""),
    ("a client without tokens", [[0, 1], [1], []], ["a", "b", "b"], "clients:", "'b'"),
    ("a client too few", [[0, 1], [1, 2]], ["a"], "clients:", "2"),
    ("no client", [[0, 1], [1, 2]], ["a", None], "clients:", "None"),
]
ROWS = [
    Refusal(
        name,
        functools.partial(from_tokens, texts, clients, length=4, vocabulary=10),
        field,
        value,
    )
    for name, texts, clients, field, value in TEXTS
]
