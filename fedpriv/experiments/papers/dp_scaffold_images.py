"""Images for DP-SCAFFOLD's experiments: gamma%-similar clients, each split for itself, as unit-norm features.

M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278, Section 5 (standardised, unit norm) and Appendix D.1 (PCA). None
of this preprocessing is private.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fedpriv as fp
from fedpriv.core.arguments import Percent
from fedpriv.core.optional_imports import of_package
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config.fields import Seed32, check_each
from fedpriv.experiments.papers.dp_scaffold import DPScaffold


@dataclass(frozen=True)
class Images(DPScaffold):
    """DP-SCAFFOLD and its baselines on gamma%-similar images."""

    gamma: float = 0.0
    """Percentage of a client's images that is i.i.d.; the others are sorted by label."""
    data_seed: int = 0
    """Seed of partition and split, which all seeds of the run share."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Percent, gamma=self.gamma)
        if self.authors.record_ranges:
            raise ValueError(
                "authors.record_ranges: the authors' code scales synthetic data so; leave it out"
            )
        check_each(Seed32, data_seed=self.data_seed)


def clients_of(settings: Images, pool: Dataset, components: int | None = None) -> Dataset:
    """M clients of R images out of the training images of `pool`, a fifth of each client's for testing.

    Pixels are standardised by the training records, projected on their principal components if `components` are given,
    and every record is scaled to unit l2 norm (paper, Section 5 and Appendix D.1).

    Raises:
      ValueError: the pool is too small.
    """
    rng = np.random.default_rng(settings.data_seed)
    label = pool.train["label"]
    wanted = settings.clients * settings.records
    if wanted > len(label):
        raise ValueError(
            f"records: {settings.clients} clients of {settings.records} need {wanted} images, {pool.name} has "
            f"{len(label)}; choose fewer"
        )
    chosen = rng.permutation(len(label))[:wanted]
    rows = np.stack(fp.partition.similar(rng, label, settings.clients, settings.gamma, rows=chosen))
    train, test = np.split(rows, [settings.records - settings.records // 5], axis=1)
    pixels = pool.train["image"].reshape(len(label), -1).astype(np.float32) / 255
    x = standardised(pixels, pixels[train.ravel()])
    if components is not None:
        x = projected(x, x[train.ravel()], components, settings.data_seed)
    x = unit_norm(x).astype(np.float32)[..., None, None]

    def part(rows: np.ndarray) -> dict[str, np.ndarray]:
        return {"image": x[rows.ravel()], "label": label[rows.ravel()]}

    keys = np.repeat(np.arange(settings.clients), train.shape[1])
    return Dataset(pool.name, part(train), part(test), pool.num_classes, keys)


def standardised(x: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Images x [..., d] less the mean and over the standard deviation of rows `train` [n, d]; constants become 0.

    The statistics depend on every training record; no certificate covers them.
    """
    deviation = train.std(0)
    return (x - train.mean(0)) / np.where(deviation > 0, deviation, 1.0)


def projected(x: np.ndarray, train: np.ndarray, components: int, seed: int = 0) -> np.ndarray:
    """x [n, d] on the first principal components of `train` (scikit-learn's PCA), f64[n, components].

    The paper applies PCA to all samples without differential privacy and says so; nor does a certificate cover it.

    Raises:
      ValueError: components is not between 1 and the smaller of rows and features.
      ModuleNotFoundError: scikit-learn is not installed.
    """
    with of_package("scikit-learn"):
        from sklearn.decomposition import PCA

    if not 1 <= components <= min(train.shape):
        raise ValueError(f"components: {components} is not between 1 and {min(train.shape)}")
    solver = PCA(components, svd_solver="randomized", random_state=seed)
    return solver.fit(train).transform(x)


def unit_norm(x: np.ndarray) -> np.ndarray:
    """Features of images, rows of x [..., d], scaled to l2 norm 1; a row of zeros stays."""
    norms = np.linalg.norm(x, axis=-1, keepdims=True)
    return x / np.where(norms > 0, norms, 1.0)
