"""Logistic data with controlled heterogeneity, "synthetic(alpha, beta)".

T. Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020; here as M. Noble, A. Bellet and
A. Dieuleveut, arXiv:2111.09278, Appendix D.2, generate it, with 40 features instead of 60 and all clients of one size.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from fedpriv.core.arguments import Count, NonNegative, Seed, checked
from fedpriv.core.complaints import require
from fedpriv.data.datasets.dataset import Dataset

FEATURES, CLASSES, FLIPPED = 40, 10, 0.05
MOST = 1e12  # of a variance, whose squares are summed
FlipTo: TypeAlias = Literal["another", "any"]


def synthetic(
    alpha: NonNegative,
    beta: NonNegative,
    *,
    clients: Count = 100,
    records: Count = 5000,
    seed: Seed = 0,
    preprocess: bool = True,
    flip_to: FlipTo = "another",
) -> Dataset:
    """Records of `clients` clients, the first four fifths of each for training.

    For client i: u_i ~ N(0, alpha) per entry of the model, W_i ~ N(u_i, 1), b_i likewise; B_i ~ N(0, beta) per feature,
    v_i ~ N(B_i, 1), x ~ N(v_i, diag(j^-1.2)); the label is the most likely class of softmax(W_i^T x + b_i), changed
    with probability 0.05. alpha and beta are variances. As an argmax has no scale, alpha does not change the
    distribution of the data.

    Args:
      alpha: heterogeneity of the clients' models.
      beta: heterogeneity of their features.
      clients: M.
      records: R, the records of each client, train and test together.
      seed: seed of `numpy.random.default_rng`.
      preprocess: standardise each feature over all clients' training records, then scale every record to unit l2 norm,
        as the paper does; without privacy.
      flip_to: what a changed label becomes, uniformly: "another" class, or "any", as in the authors' code.

    Returns:
      {"image": f32[N, 40, 1, 1], "label": i32[N]} for train and test. `keys` is the client of each training record;
      test records also have {"client": i32[N]}.

    Raises:
      ValueError: a variance below 0 or above 1e12, a negative seed, no client, or fewer than 5 records.
    """
    alpha, beta = checked("alpha", alpha, NonNegative), checked("beta", beta, NonNegative)
    for name, variance in (("alpha", alpha), ("beta", beta)):
        require(variance <= MOST, name, variance, f"give at most {MOST:g}")
    clients, records = checked("clients", clients, Count), checked("records", records, Count)
    require(records >= 5, "records", records, "give at least 5, of which one is for testing")
    seed, preprocess = checked("seed", seed, Seed), checked("preprocess", preprocess, bool)
    require(seed >= 0, "seed", seed, "give 0 or more")
    flip_to = checked("flip_to", flip_to, FlipTo)
    rng = np.random.default_rng(seed)
    made = [_client(rng, alpha, beta, records, flip_to == "any") for _ in range(clients)]
    x, label = (np.stack(parts) for parts in zip(*made, strict=True))
    held = records // 5
    train, test = slice(None, records - held), slice(records - held, None)
    if preprocess:
        x = _preprocessed(x, x[:, train].reshape(-1, FEATURES))
    client = np.broadcast_to(np.arange(clients, dtype=np.int32)[:, None], label.shape)

    def flat(part: slice) -> dict[str, np.ndarray]:
        images = x[:, part].reshape(-1, FEATURES, 1, 1).astype(np.float32)
        return {"image": images, "label": label[:, part].reshape(-1)}

    tested = flat(test) | {"client": client[:, test].reshape(-1)}
    return Dataset("synthetic", flat(train), tested, CLASSES, client[:, train].reshape(-1))


def _client(
    rng: np.random.Generator, alpha: float, beta: float, records: int, any_label: bool
) -> tuple[np.ndarray, np.ndarray]:
    """f64[records, 40], i32[records]."""
    w = rng.normal(rng.normal(0, alpha**0.5, (FEATURES, CLASSES)), 1.0)
    b = rng.normal(rng.normal(0, alpha**0.5, CLASSES), 1.0)
    v = rng.normal(rng.normal(0, beta**0.5, FEATURES), 1.0)
    x = rng.normal(v, np.arange(1, FEATURES + 1) ** -0.6, (records, FEATURES))  # a deviation
    label = np.argmax(x @ w + b, axis=1)
    changed = rng.random(records) < FLIPPED
    other = (label + rng.integers(0 if any_label else 1, CLASSES, records)) % CLASSES
    return x, np.where(changed, other, label).astype(np.int32)


def _preprocessed(x: np.ndarray, train: np.ndarray) -> np.ndarray:
    x = (x - train.mean(0)) / train.std(0)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
