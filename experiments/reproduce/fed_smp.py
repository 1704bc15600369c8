"""Fed-SMP (Hu, Guo, Gong, arXiv:2202.07178)."""

from __future__ import annotations

from experiments.reproduce.item import Cell, Item, Training
from experiments.reproduce.reading import best_accuracy, uplink_mb


def _training(algorithm: str, **settings: object) -> Training:
    return Training("fed_smp_fashion_mnist", algorithm, settings, rounds=180, seeds=5)


TOP_K = _training("top_k", p=0.005)

ITEMS = (
    Item("fed_smp", "fig1", "An exemplary FL system"),
    Item(
        "fed_smp",
        "table1",
        "Summary of results on Fashion-MNIST dataset",
        cells=(
            Cell(
                "Fed-SMP top_k, p = 0.005", "accuracy (%)", "80.76 +- 0.27", (TOP_K,), best_accuracy
            ),
            Cell("Fed-SMP top_k, p = 0.005", "uplink per client (MB)", "0.10", (TOP_K,), uplink_mb),
        ),
    ),
)
