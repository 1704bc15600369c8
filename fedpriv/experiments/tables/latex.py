"""A table of results for a paper in LaTeX, which needs the package booktabs alone."""

from __future__ import annotations

import re
import unicodedata

from fedpriv.core.terminal_text import printable
from fedpriv.experiments.base.formats import ABSENT
from fedpriv.experiments.tables.grid import Grid

TEX = {c: f"\\{c}" for c in "_%&#${}"}
TEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
TEX |= {
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "∞": r"$\infty$",
}
TEX |= {"[": "{[}", "*": "{*}"}  # at the start of a line booktabs would take them for its own
NO_GREEK = ("OMICRON", "FINAL SIGMA")  # LaTeX has no command for them
_POWER = re.compile(r"(?<![\w.])(-?[\d.]+)e([+-]\d+)")
_MINUS = re.compile(r"(?<![\w.{])-(?=\d)")
_LETTER = re.compile(r" \{\[\}([a-z]+)\]")


def escaped(text: str) -> str:
    """Text as LaTeX prints it, on one line."""
    return "".join(_escaped(c) for c in printable(re.sub(r"\s+", " ", text)))


def _escaped(c: str) -> str:
    kind, _, letter = unicodedata.name(c, "").partition(" LETTER ")
    if kind == "GREEK SMALL" and letter not in NO_GREEK:
        return rf"$\{'var' * (letter == 'EPSILON')}{letter.lower()}$"
    return TEX.get(c, c)


def numbers(text: str) -> str:
    """Escaped text, its powers of ten and minus signs as in formulas."""
    powers = _POWER.sub(lambda x: rf"${x[1]} \times 10^{{{int(x[2])}}}$", escaped(text))
    return _MINUS.sub("$-$", powers)


def latex(table: Grid) -> str:
    """A letter at each epsilon leads to what it means, in the caption."""
    body = [" & ".join(_cell(table, i, cell) for i, cell in enumerate(row)) for row in table.rows]
    head = [escaped(_capital(name)) for name in table.head]
    texts = table.keys + 1  # and the algorithm
    parts = [r"% \usepackage{booktabs}", r"\begin{table}[t]", r"\centering"]
    parts += [rf"\caption{{{_caption(table)}}}"]
    parts += [r"\begin{tabular}{" + "l" * texts + "r" * (len(head) - texts) + "}"]
    parts += [r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
    parts += [line + r" \\" for line in body]
    return "\n".join([*parts, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _capital(text: str) -> str:
    return text if text[:1] == "ε" else text[:1].upper() + text[1:]


def _cell(table: Grid, column: int, text: str) -> str:
    if column <= table.keys:
        return escaped(text)
    if text == ABSENT:
        return "--"
    said = numbers(text)
    return _LETTER.sub(r"\\textsuperscript{\1}", said) if table.head[column][0] == "ε" else said


def _caption(table: Grid) -> str:
    first, *others = [numbers(_capital(note)) + "." for note in table.notes] or [""]
    meant = "; ".join(
        rf"\textsuperscript{{{letter}}}\,{numbers(what)}" for what, letter in table.letters.items()
    )
    return " ".join([first, *[meant + "."][: len(table.letters)], *others])
