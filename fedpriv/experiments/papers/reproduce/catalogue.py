"""Every table and figure of the papers, in their order, as fedpriv/experiments/papers/PAPER.json lists them."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.experiments.papers.reproduce import dp_scaffold, fed_smp, mspdq, mspdq_defence, wavelet
from fedpriv.experiments.papers.reproduce.item import Item

PAPERS: dict[str, Sequence[Item]] = {
    "fed_smp": fed_smp.PAPER.items(fed_smp.KINDS),
    "dp_scaffold": dp_scaffold.PAPER.items(dp_scaffold.KINDS),
    "wavelet": wavelet.PAPER.items(wavelet.KINDS),
    "mspdq": mspdq.PAPER.items(mspdq.KINDS | mspdq_defence.KINDS),
}
