"""Parts of the training records to choose settings by, so that the test records stay unseen."""

from __future__ import annotations

import numpy as np

from fedpriv.data.datasets import Dataset


def without_fold(data: Dataset, fold: int, folds: int) -> Dataset:
    """The data with one of `folds` parts of the training records held out, and in the place of the test records.

    Every client gives a part of its records, in their order; where there are no natural clients, the part is one of all
    records, in an order drawn once. A client of fewer records than folds keeps all of them but in the last fold.
    """
    if data.keys is None:
        clients = [np.random.default_rng(0).permutation(len(data.train["label"]))]
    else:
        clients = [np.flatnonzero(data.keys == key) for key in np.unique(data.keys)]
    held = np.concatenate(
        [rows[len(rows) * fold // folds : len(rows) * (fold + 1) // folds] for rows in clients]
    )
    kept = np.setdiff1d(np.concatenate(clients), held)
    return data._replace(
        train={k: v[kept] for k, v in data.train.items()},
        test={k: v[held] for k, v in data.train.items()},
        keys=None if data.keys is None else data.keys[kept],
    )
