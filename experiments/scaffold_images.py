"""Images for DP-SCAFFOLD's experiments: gamma%-similar clients, each split for itself, as unit-norm features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fedpriv as fp
from experiments.dp_scaffold import DPScaffold
from experiments.features import projected, standardised, unit_norm
from fedpriv.data.datasets import Dataset


@dataclass(frozen=True)
class Images(DPScaffold):
    """DP-SCAFFOLD and its baselines on gamma%-similar images."""

    gamma: float = 0.0
    """Percentage of a client's images that is i.i.d.; the others are sorted by label."""
    data_seed: int = 0
    """Of partition and split, which all seeds share."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma <= 100:
            raise ValueError(f"gamma: {self.gamma} is not a percentage")
        if not 0 <= self.data_seed < 2**32:
            raise ValueError(f"data_seed: {self.data_seed} is not in [0, 2^32)")


def clients_of(config: Images, pool: Dataset, components: int | None = None) -> Dataset:
    """M clients of R records out of the training images of `pool`, a fifth of each client's for testing.

    Pixels are standardised by the training records, projected on their principal components if `components` are given,
    and every record is scaled to unit l2 norm (paper, Section 5 and Appendix D.1).

    Raises:
      ValueError: the pool is too small.
    """
    rng = np.random.default_rng(config.data_seed)
    label = pool.train["label"]
    wanted = config.clients * config.records
    if wanted > len(label):
        raise ValueError(
            f"records: {config.clients} clients of {config.records} need {wanted} images, {pool.name} has "
            f"{len(label)}; choose fewer"
        )
    chosen = rng.permutation(len(label))[:wanted]
    own = fp.partition.similar(rng, label, config.clients, config.gamma, rows=chosen)
    rows = np.stack([rng.permutation(part) for part in own])
    train, test = np.split(rows, [config.training_records], axis=1)
    pixels = pool.train["image"].reshape(len(label), -1).astype(np.float32) / 255
    x = standardised(pixels, pixels[train.ravel()])
    if components is not None:
        x = projected(x, x[train.ravel()], components, config.data_seed)
    x = unit_norm(x).astype(np.float32)[..., None, None]

    def part(rows: np.ndarray) -> dict[str, np.ndarray]:
        return {"image": x[rows.ravel()], "label": label[rows.ravel()]}

    keys = np.repeat(np.arange(config.clients), train.shape[1])
    return Dataset(pool.name, part(train), part(test), pool.num_classes, keys)
