"""Losses that are random, such as those of networks with dropout: `loss(params, example, key)`, a key per example.

Where gradients of such a loss are taken, the keys are part of the batch, so that whatever is done to its examples
(drawing, `vmap`, a program that is read) is done to their keys, too. Losses of (params, example) get none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax

from fedpriv.core.types import Example, Key, LossFn, Params

F = TypeVar("F", bound=Callable[..., Any])


class Keyed(NamedTuple):
    """Examples and what is drawn for them.

    Attributes:
      example: one example, or leaves [B, ...].
      key: key[] or key[B].
    """

    example: Example
    key: Key


def with_keys(key: Key, examples: Example) -> Keyed:
    """Each of the examples (leaves [B, ...]) with a key of its own: a batch for gradients of a random loss."""
    count = jax.tree.leaves(examples)[0].shape[0]
    return Keyed(examples, jax.random.split(key, count))


def takes_key(fn: Callable[..., Any]) -> bool:
    """Whether a loss or an `apply` is random: its third parameter is called `key`.

    Raises:
      ValueError: a third parameter is needed that is called otherwise.
    """
    try:
        named = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin
        return False
    third = [p for p in named if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][2:3]
    if third and third[0].name != "key" and third[0].default is inspect.Parameter.empty:
        raise ValueError(
            f"{getattr(fn, '__name__', 'loss')}: its third parameter is called {third[0].name!r}; call it `key` if it "
            "is for random numbers, or leave it out"
        )
    return [p.name for p in third] == ["key"]


def of_one(loss: LossFn) -> LossFn:
    """The loss of (params, example), or of (params, `Keyed`) where it is random.

    Raises:
      ValueError: no function, such as a whole model; when called, examples without keys.
    """
    if not callable(loss):
        kind = type(loss).__name__
        known = (
            f"a {kind}; give its `loss`"
            if hasattr(loss, "loss")
            else f"{loss!r:.40} is no function"
        )
        raise ValueError(f"loss: {known}, (params, example) -> loss of one example")
    if not takes_key(loss):
        return loss

    def keyed(params: Params, given: Keyed) -> jax.Array:
        if not isinstance(given, Keyed):
            raise ValueError(
                "batch: this loss takes a key for each example; give fp.with_keys(key, batch)"
            )
        return loss(params, given.example, given.key)  # type: ignore[call-arg]

    return keyed


def needing_keys(gradients: F, needs: bool) -> F:
    """The same gradients, as those whose batch has to be `Keyed`."""
    gradients.needs_keys = needs  # type: ignore[attr-defined]
    return gradients


def needs_keys(gradients: Callable[..., Any]) -> bool:
    """Whether the batch of these gradients has to be `Keyed`."""
    return getattr(gradients, "needs_keys", False)
