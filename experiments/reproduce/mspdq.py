"""MSP-FL and MSPDQ-FL (Wang, Cao, Jin and Chow): every figure; the paper has no table."""

from __future__ import annotations

from experiments.reproduce.item import Item
from experiments.reproduce.mspdq_curves import figure_2, figure_3, figure_5, figure_7
from experiments.reproduce.mspdq_defence import figure_6
from experiments.reproduce.mspdq_uploads import figure_4

ITEMS = (
    Item("mspdq", "fig1", "Illustration of MSP-FL"),
    figure_2(),
    figure_3(),
    figure_4(),
    figure_5(),
    figure_6(),
    figure_7(),
)
