"""What a classifier asks of an example: refused in one line when it is traced, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.types import Example


class ExampleError(ValueError):
    """A model cannot take an example; the message says why, in one line."""


def check_leaves(example: Example, *names: str) -> None:
    """Raises ExampleError: not a dict with leaves of these names."""
    listed = ", ".join(f'"{name}"' for name in names)
    if not isinstance(example, Mapping):
        raise ExampleError(
            f"example: {_kind(example)}; this model reads {listed}; give the arrays in such a dict"
        )
    for name in names:
        if name not in example:
            raise ExampleError(
                f'example: there is no "{name}", only {sorted(example)}; this model reads {listed}; name the arrays '
                "accordingly"
            )


def _kind(value: Any) -> str:
    array = hasattr(value, "dtype")
    return f"{value.dtype}{list(value.shape)}" if array else f"a {type(value).__name__}"


def class_of(label: Any, logits: jax.Array) -> Any:
    """The label of one example as integers, i[...] for logits [..., classes]; the same, if it is.

    Its value is looked at where it is known when the model is traced; of others nothing can be said.

    Raises:
      ExampleError: it is of another type or shape, or outside [0, classes), where the loss is NaN or, below 0, that of
        another class.
    """
    if not hasattr(label, "dtype"):
        label = np.asarray(label)
    given = f"{label.dtype}{list(label.shape)}"
    if not jnp.issubdtype(label.dtype, np.number) and label.dtype != bool:
        raise ExampleError(
            f"label: {given} for an example; give every class a number, as np.unique(labels, "
            "return_inverse=True)[1] does, or every character, by fp.datasets.encode_text"
        )
    wanted = logits.shape[:-1]
    if label.shape == logits.shape:
        raise ExampleError(
            f"label: {given} for an example, one-hot for {logits.shape[-1]} classes; give labels.argmax(-1)"
        )
    if label.shape != wanted:
        remedy = f"give {list(wanted)}"
        if not wanted:
            remedy = "give one number" + ", as labels.reshape(-1) does" * (label.size == 1)
        raise ExampleError(f"label: {given} for an example; {remedy}")
    if label.dtype == bool:
        return label.astype(jnp.int32)
    if not jnp.issubdtype(label.dtype, jnp.integer):
        raise ExampleError(
            f"label: {given} for an example, not an integer; give labels.astype(int), or num_classes to the federation"
        )
    _check_value(label, logits.shape[-1])
    return label


def _check_value(label: Any, outputs: int) -> None:
    if isinstance(label, jax.core.Tracer):
        return
    for value in np.ravel(label):
        if not 0 <= value < outputs:
            token = np.ndim(label) and value < 0
            raise ExampleError(
                f"label: {value} is outside [0, {outputs}), as the model has {outputs} outputs; correct the labels, "
                "or the model's number of classes"
                + ", or leave such tokens out by `mask`"
                * bool(token)
            )


_BRIGHT = 100  # more than scaled or standardised pixels have without any below 0


def check_pixels(name: str, image: Any) -> None:
    """An image for a network that divides bytes by 255 and takes other numbers as they are.

    Values are looked at where they are known when the model is traced.

    Raises:
      ExampleError: integers of another type than uint8, or floats that are not scaled.
    """
    if not hasattr(image, "dtype"):
        image = np.asarray(image)
    remedy = "only bytes are divided by 255; give astype(np.uint8) of 0 to 255, or floats of 0 to 1"
    if jnp.issubdtype(image.dtype, jnp.integer) and image.dtype != jnp.uint8:
        raise ExampleError(f"{name}: {image.dtype}{list(image.shape)}, but {remedy}")
    known = not isinstance(image, jax.core.Tracer) and image.size
    if known and jnp.issubdtype(image.dtype, jnp.floating):
        values = np.asarray(image)
        least, most = float(values.min()), float(values.max())
        if least >= 0 and most > _BRIGHT:
            raise ExampleError(f"{name}: {image.dtype} of {least:g} to {most:g}, but {remedy}")


def check_type(name: str, image: Any, made_for: np.dtype[Any]) -> None:
    """An image for a network that takes numbers as they are.

    Raises:
      ExampleError: bytes, of 0 to 255, for a network that was made for floats, of 0 to 1 more often than not.
    """
    if jnp.result_type(image) == jnp.uint8 and jnp.issubdtype(made_for, jnp.floating):
        raise ExampleError(
            f"{name}: uint8{list(np.shape(image))}, but the model was made for {made_for}, and only networks of "
            "fp.models divide bytes by 255; give image / np.float32(255), or make the model with an input of np.uint8 "
            "if it is to take them as they are"
        )


def wrong_input(name: str, x: Any, made_for: tuple[int, ...]) -> ExampleError:
    """The error of an example's input that a network cannot take."""
    shape = list(np.shape(x))
    return ExampleError(
        f"{name}: its shape is {shape}, but the model was made for {list(made_for)}; give such inputs, or make the "
        f"model for {shape}"
    )
