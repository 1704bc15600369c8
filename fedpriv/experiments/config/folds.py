"""Folds of the training records: a part that is held out and evaluated on, so that the test records stay unseen."""

from __future__ import annotations

import numpy as np

from fedpriv.data.datasets import Dataset
from fedpriv.data.held_out_persons import homes, whose_rows

Fold = tuple[int, int]  # (k, n): the k-th of n parts, from 1


def without_fold(data: Dataset, fold: Fold | None) -> Dataset:
    """The data whose test records are a fold of the training records, which are trained without it.

    The folds of n are parts that do not overlap. Every client gives each fold its share of its records, in their order;
    where there are no natural clients, a fold is a part of all records, in an order that is drawn once. A client of one
    record keeps it in every fold, so that all folds have the same clients. Where the data say whose each record is, a
    fold holds whole persons, each client's share of those that count at it (`fp.partition.hold_out`), and records of
    persons in several folds are left out.

    Raises:
      ValueError: the fold is empty, or leaves a client nothing to train on.
    """
    if fold is None:
        return data
    total = len(next(iter(data.train.values())))
    if data.persons is not None:
        held, kept = _whole_persons(data, data.persons, fold)
    else:
        held = _held(data, total, fold)
        kept = np.setdiff1d(np.arange(total), held)
    if not len(held):
        raise ValueError(f"fold: part {fold[0]} of {fold[1]} holds no record; use fewer parts")
    return data._replace(
        train={k: v[kept] for k, v in data.train.items()},
        test={k: v[held] for k, v in data.train.items()},
        keys=None if data.keys is None else data.keys[kept],
        persons=None if data.persons is None else np.asarray(data.persons)[kept],
    )


def _held(data: Dataset, total: int, fold: Fold) -> np.ndarray:
    """The rows of a fold, whoever's they are."""
    if data.keys is None:
        groups = [np.random.default_rng(0).permutation(total)]
    else:
        own = (np.flatnonzero(data.keys == key) for key in np.unique(data.keys))
        groups = [rows for rows in own if len(rows) > 1]
    return np.concatenate([np.arange(0), *(rows[held_out(len(rows), fold)] for rows in groups)])


def _whole_persons(data: Dataset, persons: np.ndarray, fold: Fold) -> tuple[np.ndarray, np.ndarray]:
    """(the rows of a fold, those to train on), of different persons."""
    owners = whose_rows(persons, np.arange(len(persons)))
    keys = np.zeros(len(persons), int) if data.keys is None else data.keys
    each, client = np.unique(keys, return_inverse=True)
    rng, out = np.random.default_rng(0), np.zeros(owners.max() + 2, bool)
    for own in map(rng.permutation, homes(owners, client.ravel(), len(each))):
        if len(own) > 1:
            out[own[held_out(len(own), fold)]] = True
    none = owners < 0
    held, kept = (np.flatnonzero((of | none).all(1)) for of in (out[owners], ~out[owners]))
    if len(lost := np.setdiff1d(each, keys[kept])):
        raise ValueError(
            f"fold: part {fold[0]} of {fold[1]} has all persons of client {lost[0]}; use more parts, or leave it out"
        )
    return held, kept


def held_out(total: int, fold: Fold) -> slice:
    """Which of so many records a fold holds out."""
    k, n = fold
    return slice(total * (k - 1) // n, total * k // n)
