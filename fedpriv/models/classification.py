"""What a classifier's logits are worth: cross-entropy, and metrics that classes of unequal size do not distort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.arguments import Annotated, Range, checked, require
from fedpriv.core.types import Example, Key, Params
from fedpriv.models.example_checks import check_leaves, class_of
from fedpriv.models.score import Score

if TYPE_CHECKING:
    from fedpriv.models.networks import Apply

cross_entropy = optax.softmax_cross_entropy_with_integer_labels
BINS = 2_048
_STEEP, _FAR = 100.0, 30.0


def judged(
    apply: Apply, inputs: str, params: Params, example: Example, *key: Key
) -> tuple[jax.Array, jax.Array]:
    """The logits f32[classes] of ONE example, and the class that is right, i32[].

    Raises:
      ValueError: the example lacks one of these, or `apply` does not give logits.
    """
    check_leaves(example, inputs, "label")
    z: Any = apply(params, example[inputs], *key)
    shape = getattr(z, "shape", None)
    if shape is None or len(shape) != 1:
        what = f"a {type(z).__name__}" if shape is None else f"{z.dtype}{list(shape)}"
        raise ValueError(f"apply: it gives {what} for one input; return logits [classes]")
    return z, class_of(example["label"], z)
