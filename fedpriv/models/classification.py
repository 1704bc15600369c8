"""What a classifier's logits are worth: cross-entropy, and metrics that classes of unequal size do not distort."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.core.trees import widened
from fedpriv.core.types import Example, Key, Params, PyTree
from fedpriv.models.example_checks import check_leaves, class_of
from fedpriv.models.score import Score

Apply: TypeAlias = Callable[[Params, PyTree], PyTree]
"""(params, x) -> outputs, for ONE input x."""

cross_entropy = optax.softmax_cross_entropy_with_integer_labels
BINS = 4_096  # of differences of logits, see `bin_of`
_SCALE, _FURTHEST = 0.03, 30.0


def judged(
    apply: Apply, inputs: str, params: Params, example: Example, *key: Key
) -> tuple[jax.Array, jax.Array]:
    """The logits of ONE example, f32[classes] whatever the network computes in, and the class that is right, i32[].

    Raises:
      ValueError: the example lacks one of these, or `apply` does not give logits.
    """
    check_leaves(example, inputs, "label")
    z: Any = apply(params, example[inputs], *key)
    shape = getattr(z, "shape", None)
    if shape is None or len(shape) != 1:
        what = f"a {type(z).__name__}" if shape is None else f"{z.dtype}{list(shape)}"
        raise ValueError(f"apply: it gives {what} for one input; return logits [classes]")
    z = widened(z)
    return z, class_of(example["label"], z)


def classification_score(apply: Apply, classes: Count, inputs: str = "image") -> Score:
    """The score of a classifier: loss, accuracy, balanced accuracy and, for two classes, AUC.

    ::

        model = model._replace(score=fp.models.classification_score(model.apply, classes=2))

    `balanced_accuracy` is the mean of the classes' recalls; as in scikit-learn, classes without an example are left
    out. `auc` is the area under the ROC curve of class 1, and NaN where there is only one class. It comes from the
    numbers of examples of each class in 4,096 bins of the difference of the two logits; a bin is 0.0001 wide where they
    are equal, and 0.4 % of a difference above 0.1. A pair of examples in one bin counts as a tie, 1/2, so the area is
    exact but for half of the share of such pairs at most.

    Args:
      apply: (params, x) -> logits f32[classes], for ONE input. Give a single logit z as `jnp.stack([0.0, z])`.
      classes: how many there are, 2 or more.
      inputs: name of the input in an example, beside "label": i32[].

    Raises:
      ValueError: `apply` is not a function, or fewer than two classes; when called, another number of logits.
    """
    require(callable(apply), "apply", apply, "give a function, (params, x) -> logits")
    classes = checked("classes", classes, Count)
    require(classes > 1, "classes", classes, "give 2 or more")

    def score(params: Params, example: Example) -> dict[str, jax.Array]:
        z, label = judged(apply, inputs, params, example)
        remedy = f"apply gives {len(z)} logits; give their number"
        require(len(z) == classes, "classes", classes, remedy)
        correct = (jnp.argmax(z) == label).astype(jnp.float32)
        of_class = jax.nn.one_hot(label, classes)

        def counted(where: jax.Array) -> jax.Array:
            """NaN for logits that are, which no class and no bin is right for."""
            return jnp.where(jnp.isnan(z).any(), jnp.nan, where)

        found = {
            "accuracy": correct,
            "loss": cross_entropy(z, label),
            "examples_of_class": of_class,
            "right_of_class": counted(correct * of_class),
        }
        if classes == 2:
            here = jnp.arange(BINS) == bin_of(z[1] - z[0])
            found["histogram"] = counted(of_class[:, None] * here)
        return found

    derived: dict[str, Any] = {"balanced_accuracy": _balanced_accuracy}
    if classes == 2:
        derived["auc"] = lambda means: _area(*means["histogram"])
    counts = dict.fromkeys(derived, _rarest)
    return Score(score, derived, counts=counts, smooth=tuple(derived))


def bin_of(difference: jax.Array) -> jax.Array:
    """i32[...] in 0..BINS - 1, of differences of logits f32[...]: equally spaced near 0, by ratio further out."""
    furthest = jnp.arcsinh(_FURTHEST / _SCALE)
    place = (jnp.arcsinh(difference / _SCALE) / furthest + 1) / 2
    return jnp.clip(jnp.nan_to_num(place) * BINS, 0, BINS - 1).astype(jnp.int32)


def _area(without: jax.Array, having: jax.Array) -> jax.Array:
    """The share of pairs in which the positive example is further up, from each class's f32[bins]; ties are 1/2."""
    below = jnp.cumsum(without) - without / 2
    return jnp.sum(having * below) / (jnp.sum(having) * jnp.sum(without))


def _balanced_accuracy(means: Mapping[str, jax.Array]) -> jax.Array:
    examples = means["examples_of_class"]
    recalls = means["right_of_class"] / jnp.where(examples > 0, examples, 1.0)
    return jnp.sum(recalls) / jnp.sum(examples > 0)


def _rarest(means: Mapping[str, jax.Array]) -> jax.Array:
    """The share of the examples behind recalls, or pairs, that are all right: as if each class were the rarest."""
    examples = means["examples_of_class"]
    there = examples > 0
    return jnp.sum(there) * jnp.min(examples, where=there, initial=1.0)
