"""What a classifier asks of an example: refused in one line when it is traced, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedpriv.core.types import Example


class ExampleError(ValueError):
    """A model cannot take an example; the message says why, in one line."""


def check_leaves(example: Example, inputs: str) -> None:
    """Raises ExampleError: not a dict with the leaves `inputs` and "label"."""
    if not isinstance(example, Mapping):
        raise ExampleError(
            f'example: a {type(example).__name__}; this model reads {{"{inputs}": ..., "label": ...}}, '
            "so give the arrays in such a dict"
        )
    for name in (inputs, "label"):
        if name not in example:
            raise ExampleError(
                f'example: there is no "{name}", only {sorted(example)}; this model reads "{inputs}" and "label", '
                "so name the arrays like that"
            )


def check_label(label: Any, outputs: int) -> None:
    """A label whose value is known when the model is traced; of others nothing can be said.

    Raises:
      ExampleError: it is outside [0, outputs), where the loss is NaN or, below 0, that of another class.
    """
    if isinstance(label, jax.core.Tracer):
        return
    for value in np.ravel(label):
        if not 0 <= value < outputs:
            raise ExampleError(
                f"label: {value} is outside [0, {outputs}), as the model has {outputs} outputs; correct the labels, or "
                "make a model of so many classes"
            )


def wrong_input(name: str, x: Any, made_for: tuple[int, ...]) -> ExampleError:
    """Of an input that a network cannot take."""
    shape = list(np.shape(x))
    return ExampleError(
        f"{name}: its shape is {shape}, but the model was made for {list(made_for)}; give such inputs, or make the "
        f"model for {shape}"
    )
