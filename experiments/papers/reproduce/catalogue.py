"""Every table and figure of the papers, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.papers.reproduce import dp_scaffold, fed_smp, mspdq, wavelet
from experiments.papers.reproduce.item import Item
from experiments.papers.reproduce.mspdq_defence import figure_6, secret_weights

PAPERS: dict[str, Sequence[Item]] = {
    "fed_smp": fed_smp.ITEMS,
    "dp_scaffold": dp_scaffold.ITEMS,
    "wavelet": wavelet.ITEMS,
    "mspdq": mspdq.PAPER.items([*mspdq.FIGURES, figure_6(), secret_weights()]),
}
