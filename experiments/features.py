"""Preprocessing of flat features as DP-SCAFFOLD's experiments do it; none of it is private.

M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278, Section 5 (standardised, unit norm) and Appendix D.1 (PCA).
"""

from __future__ import annotations

import numpy as np

from fedpriv.core.optional_imports import of_package


def standardised(x: np.ndarray, train: np.ndarray) -> np.ndarray:
    """x [..., d] less the mean and over the standard deviation of the rows `train` [n, d]; constant features become 0.

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
    """Rows of x [..., d] scaled to l2 norm 1; a row of zeros stays."""
    norms = np.linalg.norm(x, axis=-1, keepdims=True)
    return x / np.where(norms > 0, norms, 1.0)
