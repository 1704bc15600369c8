"""Whether the model can take the examples: it is traced with one, and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.types import Example, Params
from fedpriv.data.validation import check_lengths, name_of
from fedpriv.engine.training_loop import ScoreFn
from fedpriv.models.example_checks import ExampleError
from fedpriv.models.score import Score


def check_examples(score: ScoreFn, params: Params, test: Example, train: Example | None) -> None:
    """Traces `score` with a test example, whose label is the one furthest out of all.

    That label has its value in the trace, so that a model may refuse it, as `models.classifier` does. Of a streamed
    federation (`train` is None) only the test examples are looked at.

    Args:
      score, test: as `simulate`.
      params: shapes of the model.
      train: the federation's examples, leaves [N, ...].

    Raises:
      ValueError: leaves of different length or of strings, or what the model refuses, in one line; and whatever `score`
        itself raises.
    """
    try:
        check_lengths(test)
    except ValueError as error:
        raise ValueError(f"test: {error}") from None
    for path, leaf in jax.tree_util.tree_leaves_with_path(test):
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU":
            raise ValueError(
                f"test: {name_of(path)} has data type {leaf.dtype}; give numbers, or leave it out"
            )
    tested, trained = _furthest(test), _furthest(train)
    try:
        _trace(score, params, test, tested)
    except ExampleError as error:
        raise ValueError(f"test: {error}") from None
    except (TypeError, ValueError):
        if train is not None:
            _check_shapes(test, train)
        raise
    if trained is not None and tested is not None and _distance(trained) > _distance(tested):
        try:
            _trace(score, params, test, trained)
        except ExampleError as error:
            raise ValueError(f"federation: {error}") from None


def _trace(score: ScoreFn, params: Params, test: Example, label: Any) -> None:
    scored = Score.of(score)
    known = {} if label is None else {"label": jnp.asarray(label)}
    looked = replace(
        scored, function=lambda p, x: scored.function(p, {**x, **known} if known else x)
    )
    looked.names(params, test)


def _check_shapes(test: Example, train: Example) -> None:
    """Raises ValueError: the test examples have other shapes than those that are trained on."""
    theirs = dict(jax.tree_util.tree_leaves_with_path(train))
    for path, leaf in jax.tree_util.tree_leaves_with_path(test):
        ours, other = np.shape(leaf)[1:], np.shape(theirs.get(path, leaf))[1:]
        if ours != other:
            raise ValueError(
                f"test: {name_of(path)} has the shape {list(ours)} for one example, but the federation's has "
                f"{list(other)}; give both the same"
            ) from None


def _furthest(examples: Example | None) -> np.ndarray | None:
    """The label (integers [...]) that holds the least number below 0, or else the greatest; None if there is none."""
    if not isinstance(examples, Mapping) or "label" not in examples:
        return None
    label = np.asarray(examples["label"])
    if not label.size or not np.issubdtype(label.dtype, np.integer):
        return None
    at = label.argmin() if label.min() < 0 else label.argmax()
    found: np.ndarray = label[np.unravel_index(at, label.shape)[0]]
    return found


def _distance(label: np.ndarray) -> tuple[int, int]:
    """Sorts labels below 0 after the others, each by how far out they are."""
    return -min(int(label.min()), 0), int(label.max())
