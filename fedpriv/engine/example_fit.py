"""Whether the model can take the examples: it is traced with one, and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.types import Example, Params
from fedpriv.core.user_functions import asked
from fedpriv.data.federation import Federation
from fedpriv.data.labels import labels_like, mask_of, that_count
from fedpriv.data.streaming import StreamedFederation
from fedpriv.data.validation import check_lengths, converted, leaves_of, name_of
from fedpriv.engine.compiled_rounds import ScoreFn
from fedpriv.models.example_checks import ExampleError
from fedpriv.models.score import Score
from fedpriv.proof.operations import check_operations


def examples_of_test(test: Any, federation: Any) -> Example:
    """The test examples as arrays [n, ...], their labels of integers where a federation's are.

    Args:
      test, federation: as `simulate`.

    Raises:
      ValueError: no rows, leaves of different length or that hold no numbers, or values that are not finite.
    """
    try:
        test = leaves_of(test)
        if not check_lengths(test):
            raise ValueError("examples: there are no rows; give at least one")
        jax.tree_util.tree_map_with_path(converted, test)
    except ValueError as error:
        raise ValueError(f"test: {error}") from None
    first = federation[0] if isinstance(federation, list | tuple) else federation
    return labels_like(test, first)


def rows_trained_on(federation: Federation | StreamedFederation) -> np.ndarray:
    """What test examples are compared with: the rows of a federation that its clients train on, i64[...]."""
    if isinstance(federation, Federation):
        return federation.client_rows.on_host().rows
    order = federation.order
    return np.arange(federation.offsets[-1]) if order is None else order


def check_examples(score: ScoreFn, params: Params, test: Example, train: Example | None) -> None:
    """Traces `score` with a test example, whose label and image of floats are those furthest out of all.

    These have their values in the trace, so that a model may refuse them, as `models.classifier` does. Of a streamed
    federation (`train` is None) only the test examples are looked at.

    Args:
      score, test: as `simulate`.
      params: shapes of the model.
      train: the federation's examples, leaves [N, ...].

    Raises:
      ValueError: what the model refuses, in one line; and whatever `score` itself raises.
    """
    tested, trained = _furthest(test), _furthest(train)
    try:
        _trace(score, params, test, tested)
    except ExampleError as error:
        raise ValueError(f"test: {error}") from None
    except (TypeError, ValueError):
        if train is not None:
            _check_shapes(test, train)
        raise
    named = test if isinstance(test, Mapping) else {}
    shapes = {name: np.shape(leaf)[1:] for name, leaf in named.items()}
    alike = {n: row for n, row in trained.items() if shapes.get(n) == row.shape}
    if any(_distance(n, row) > _distance(n, tested.get(n)) for n, row in alike.items()):
        try:
            _trace(score, params, test, alike)
        except ExampleError as error:
            raise ValueError(f"federation: {error}") from None


def _trace(score: ScoreFn, params: Params, test: Example, furthest: dict[str, np.ndarray]) -> None:
    scored = Score.of(score)
    known = jax.tree.map(jnp.asarray, furthest)

    def function(params: Params, example: Example) -> dict[str, jax.Array]:
        example = {**example, **known} if known else example
        return asked("score", scored.function, "(params, example)", params, example)

    replace(scored, function=function).names(params, test)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), test)
    check_operations(jax.make_jaxpr(function)(params, one), "score")


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


def _furthest(examples: Example | None) -> dict[str, np.ndarray]:
    """Of labels (integers) and images of floats the rows [...] with the least number below 0, else the greatest.

    Of labels that a mask leaves out, 0; the mask of that row comes with them.
    """
    found: dict[str, np.ndarray] = {}
    named: Mapping[str, Any] = examples if isinstance(examples, Mapping) else {}
    for name, leaf in named.items():
        image = name == "image" or np.ndim(leaf) == 4
        kind = jnp.integer if name == "label" else jnp.floating if image else None
        if kind and hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, kind) and leaf.size:
            mask = mask_of(named) if name == "label" else None
            values = np.asarray(that_count(np.asarray(leaf), mask))
            at = values.argmin() if values.min() < 0 else values.argmax()
            row = np.unravel_index(at, values.shape)[0]
            found[name] = values[row]
            if mask is not None:
                found["mask"] = np.asarray(mask)[row]
    return found


def _distance(name: str, row: np.ndarray | None) -> tuple[float, float]:
    """How far out a label or an image is: labels below 0 further than all others."""
    if row is None:
        return 0.0, -np.inf
    return (-min(float(row.min()), 0.0) if name == "label" else 0.0), float(row.max())
