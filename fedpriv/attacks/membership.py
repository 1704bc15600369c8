"""Membership inference by the loss: records that a model was trained on tend to lose less than others.

S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha, "Privacy Risk in Machine Learning: Analyzing the Connection to
Overfitting", CSF 2018, arXiv:1709.01604; judged by the true positive rate at low false positive rates, as N. Carlini et
al., "Membership Inference Attacks From First Principles", IEEE S&P 2022, arXiv:2112.03570, ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import lax

from fedpriv.core.arguments import Count, Rate, checked
from fedpriv.core.array_arguments import as_numbers, check_numbers
from fedpriv.core.complaints import require
from fedpriv.core.optional_imports import of_package
from fedpriv.core.parameters import check_params
from fedpriv.core.random_losses import without_key
from fedpriv.core.types import Example, LossFn, Params
from fedpriv.core.user_code import names_user_code


class Membership(NamedTuple):
    """How well losses tell members from others.

    Attributes:
      auc: area under the receiver's operating characteristic; 0.5 is a coin's.
      tpr: of members, the fraction found, for each of `fprs`.
      fprs: of others, the fractions taken for members.
    """

    auc: float
    tpr: tuple[float, ...]
    fprs: tuple[float, ...]


@names_user_code
def losses(
    loss: LossFn, params: Params, examples: Example, *, batch_size: Count = 250
) -> np.ndarray:
    """For membership inference, f32[n]: the loss of every example (leaves [n, ...]).

    Raises:
      ValueError: a batch size below 1, or a loss or parameters that `fedpriv.mean_grad` refuses.
    """
    jax.tree.map(lambda leaf: check_numbers("examples", leaf), examples)
    leaves = jax.tree.leaves(examples)
    rows = bool(leaves) and all(np.ndim(leaf) for leaf in leaves)
    require(rows, "examples", examples, "give leaves [n, ...]")
    batch_size = checked("batch_size", batch_size, Count)
    check_params(params)
    of_one = without_key(loss)
    one = jax.jit(lambda x: lax.map(lambda e: of_one(params, e), x, batch_size=batch_size))
    return np.asarray(one(examples))


def infer_membership(
    members: np.ndarray, others: np.ndarray, fprs: Sequence[Rate] = (0.01, 0.001)
) -> Membership:
    """Says "member" where the loss is below a threshold, for all thresholds.

    Args:
      members, others: f32[n], losses of records that were trained on, and of others of the same distribution.

    Raises:
      ValueError: too few others for the least of `fprs`.
      ModuleNotFoundError: scikit-learn is not installed.
    """
    members, others = as_numbers("members", members, 1), as_numbers("others", others, 1)
    for name, given in (("members", members), ("others", others)):
        usable = given.size > 0 and bool(np.isfinite(given).all())
        require(usable, name, given, "give losses that are finite, one at least")
    fprs = checked("fprs", fprs, Sequence[Rate])
    require(len(fprs) > 0, "fprs", fprs, "give at least one false positive rate")
    with of_package("scikit-learn"):
        from sklearn.metrics import roc_auc_score, roc_curve

    if len(others) * min(fprs) < 1:
        raise ValueError(
            f"others: {len(others)} records cannot show a false positive rate of {min(fprs):g}; give "
            f"{round(1 / min(fprs))} or more"
        )
    scores = -np.concatenate([members, others])
    labels = np.repeat([1, 0], [len(members), len(others)])
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    tpr = tuple(_at(fpr, false, true) for fpr in fprs)
    return Membership(float(roc_auc_score(labels, scores)), tpr, tuple(fprs))


def _at(fpr: float, false: np.ndarray, true: np.ndarray) -> float:
    """The true positive rate there, of equal losses (many are 0) a random part."""
    i = int(np.searchsorted(false, fpr, side="right")) - 1
    if i + 1 == len(false):
        return float(true[i])
    part = (fpr - false[i]) / (false[i + 1] - false[i])
    return float(true[i] + part * (true[i + 1] - true[i]))
