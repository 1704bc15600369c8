"""Folds of the training records: a part that is held out and evaluated on, so that the test records stay unseen."""

from __future__ import annotations

import numpy as np

from fedpriv.data.datasets import Dataset

Fold = tuple[int, int]  # (k, n): the k-th of n parts, from 1


def without_fold(data: Dataset, fold: Fold | None) -> Dataset:
    """The data whose test records are a fold of the training records, which are trained without it.

    The folds of n are parts that do not overlap. Every client gives each fold its share of its records, in their order;
    where there are no natural clients, a fold is a part of all records, in an order that is drawn once. A client of one
    record keeps it in every fold, so that all folds have the same clients.

    Raises:
      ValueError: the fold is empty.
    """
    if fold is None:
        return data
    total = len(next(iter(data.train.values())))
    if data.keys is None:
        groups = [np.random.default_rng(0).permutation(total)]
    else:
        own = (np.flatnonzero(data.keys == key) for key in np.unique(data.keys))
        groups = [rows for rows in own if len(rows) > 1]
    held = np.concatenate([np.arange(0), *(rows[held_out(len(rows), fold)] for rows in groups)])
    if not len(held):
        raise ValueError(f"fold: part {fold[0]} of {fold[1]} holds no record; use fewer parts")
    kept = np.setdiff1d(np.arange(total), held)
    return data._replace(
        train={k: v[kept] for k, v in data.train.items()},
        test={k: v[held] for k, v in data.train.items()},
        keys=None if data.keys is None else data.keys[kept],
    )


def held_out(total: int, fold: Fold) -> slice:
    """Which of so many records a fold holds out."""
    k, n = fold
    return slice(total * (k - 1) // n, total * k // n)
