"""Which classes are given for the examples: integers, or what is one of them without a doubt."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.complaints import shown
from fedpriv.core.types import PyTree
from fedpriv.data.validation import array_of, converted, on_host

NAME = "examples['label']"
_NAMES = (
    "give every class a number, as np.unique(labels, return_inverse=True)[1] does (digits by astype(int)), or "
    "every character, by fp.datasets.encode_text"
)


def stored(examples: PyTree, num_classes: int | None) -> PyTree:
    """The leaves [n, ...] in at most 32 bits; the leaf `label` as integers, if `num_classes` is given.

    Raises:
      ValueError: no leaf `label`, or one of no such classes; as `converted`.
    """
    if num_classes is not None:
        if not isinstance(examples, Mapping) or "label" not in examples:
            raise ValueError(
                f'num_classes: {num_classes}, but examples has no leaf "label"; name the labels "label", or leave '
                "num_classes out"
            )
        labels = _classes(examples["label"], num_classes, mask_of(examples))
        if labels is not examples["label"]:
            examples = {**examples, "label": labels}
    return jax.tree_util.tree_map_with_path(converted, examples)


def mask_of(examples: Mapping[str, Any]) -> Any:
    """The leaf `mask` that says which labels of sequences, [n, length], count; None if there is none of their shape."""
    label: Any = examples.get("label")
    mask: Any = examples.get("mask")
    fits = mask is not None and np.ndim(label) > 1 and np.shape(mask) == np.shape(label)
    return mask if fits else None


def that_count(labels: Any, mask: Any) -> Any:
    """Labels, 0 where a mask of their shape leaves one out, whatever stands there, such as -100.

    Of NumPy where both are known, so that they still are when a model is traced; the same array without such a mask.
    """
    if mask is None or np.shape(mask) != np.shape(labels):
        return labels
    known = not any(isinstance(each, jax.core.Tracer) for each in (labels, mask))
    return (np if known else jnp).where(mask, labels, 0)


def _classes(labels: Any, num_classes: int, mask: Any) -> Any:
    """Integers in [0, num_classes), of any shape; others where a mask leaves them out."""
    if not hasattr(labels, "dtype"):
        raise ValueError(f"{NAME}: {shown(labels)} is not an array; give integers, [total, ...]")
    _check_not_one_hot(labels, num_classes)
    labels = class_numbers(NAME, labels)
    numbers = np.asarray(that_count(np.asarray(labels), mask))
    wrong = (numbers < 0) | (numbers >= num_classes)
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        token = numbers.ndim > 1 and numbers[where] < 0
        remedy = ", or leave such tokens out by a leaf mask = labels >= 0" if token else ""
        raise ValueError(
            f"{NAME}: {numbers[where]} in row {where[0]}, outside [0, {num_classes}); correct the labels or "
            f"num_classes{remedy}"
        )
    return labels


def _check_not_one_hot(labels: Any, num_classes: int) -> None:
    """Of other types than integers, which may be classes of a sequence."""
    array = on_host(NAME, labels)
    numbers = array.dtype.kind == "b" or jnp.issubdtype(array.dtype, jnp.floating)
    if array.ndim < 2 or array.shape[-1] != num_classes or not array.size or not numbers:
        return
    if np.isin(array, [0, 1]).all() and (array.sum(-1) == 1).all():
        raise ValueError(f"{NAME}: one-hot rows of {shown(array)}; give labels.argmax(-1)")


def class_numbers(name: str, labels: ArrayLike) -> Any:
    """Labels of any shape as integers; the same array, if they are. Booleans are 0 and 1, whole floats their integers.

    Raises:
      ValueError: strings, missing values, fractions, and all that is no number.
    """
    array = array_of(name, labels)
    if _integers(array):
        return array
    array = on_host(name, array)
    if array.dtype == object and not array.size:  # of any type
        return np.zeros(array.shape, np.int32)
    if array.dtype.kind in "USOT":
        raise ValueError(f"{name}: {_no_number(array)}")
    if array.dtype.kind == "b":
        return array.astype(np.int32)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name}: its data type is {array.dtype}; give integers")
    return _whole(name, array)


def _integers(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.integer)) and array.dtype.kind != "m"


def _no_number(array: np.ndarray) -> str:
    """The first value of objects or strings that is no number, and what to do about it."""
    if array.dtype.kind in "UST":
        return f"strings ({array.dtype}); {_NAMES}"
    width = max(1, array.size // max(1, len(array)))
    for i, value in enumerate(array.flat):
        if isinstance(value, str | bytes):
            return f"strings such as {shown(value)}; {_NAMES}"
        if not isinstance(value, int | float | np.number | np.bool_) or value != value:
            number = isinstance(value, Number) and value == value
            remedy = "give integers, as astype(int) does" if number else "remove or repair that row"
            return f"{shown(value)} in row {i // width}; {remedy}"
    return "integers of more than 32 bits; give such from 0"


def _whole(name: str, floats: np.ndarray) -> np.ndarray:
    values = floats.astype(np.float64)
    wrong = ~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**31))
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        remedy = "remove or repair that row"
        if np.isfinite(values[where]):
            remedy = "give whole numbers, or leave num_classes out for a regression"
        raise ValueError(f"{name}: {values[where]} in row {where[0]}; {remedy}")
    return values.astype(np.int32)


def labels_like(test: PyTree, federation: Any) -> PyTree:
    """Test examples whose leaf `label` is of integers, where a federation's is and it can be."""
    each = (test, federation.examples)
    found: list[Any] = [x.get("label") if isinstance(x, Mapping) else None for x in each]
    ours, theirs = found
    if not hasattr(ours, "dtype") or not hasattr(theirs, "dtype"):
        return test
    if not _integers(theirs) and getattr(federation, "num_classes", None) is None:
        return test
    try:
        labels = class_numbers(NAME, ours)
    except ValueError:  # the model says what it cannot take
        return test
    return test if labels is ours else {**test, "label": labels}
