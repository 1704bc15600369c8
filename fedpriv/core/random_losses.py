"""Losses that are random, such as those of networks with dropout: `loss(params, example, key)`, a key per example.

Where gradients of such a loss are taken, the keys are part of the batch, so that whatever is done to its examples
(drawing, `vmap`, a program that is read) is done to their keys, too. Losses of (params, example) get none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.core.complaints import shown
from fedpriv.core.leaves import sizes
from fedpriv.core.loss_values import check_loss
from fedpriv.core.types import Example, Key, LossFn, Params
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import takes


class Keyed(NamedTuple):
    """Examples and what is drawn for them, a key each.

    Attributes:
      example: one example, or leaves [B, ...].
      key: key[] or key[B].
    """

    example: Example
    key: Key

    def __repr__(self) -> str:
        """Without a record."""
        return f"Keyed({sizes(self.example)})"


def with_keys(key: Key, examples: Example) -> Keyed:
    """Gives each of the examples (leaves [B, ...]) its own key: a batch for the gradients of a random loss."""
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
            f"{getattr(fn, '__name__', 'loss')}: its third parameter is called {third[0].name!r}; call it `key` if "
            "it is for random numbers, else leave it out"
        )
    return [p.name for p in third] == ["key"]


def of_one(loss: LossFn, *, apart: bool = False) -> LossFn:
    """The loss of (params, example), or of (params, `Keyed`) where it is random.

    It is checked when it is first called with examples of some shape; that costs one more trace.

    Args:
      apart: whether the loss of an example must not depend on others beside it, as `check_loss`.

    Raises:
      ValueError: no function, such as a whole model, or one of other parameters; when called, examples without keys, or
        a loss that is no number, see `check_loss`.
    """
    if not callable(loss):
        kind = type(loss).__name__
        known = (
            f"a {kind}; give its `loss`"
            if hasattr(loss, "loss")
            else f"{shown(loss)} is no function"
        )
        raise ValueError(f"loss: {known}, (params, example) -> loss of one example")
    random, traced = takes_key(loss), set()
    _check_parameters(loss, random)

    def plain(params: Params, batch: Example | Keyed) -> jax.Array:
        if not random:
            return loss(params, batch)
        if not isinstance(batch, Keyed):
            raise ValueError(
                "batch: this loss takes a key for each example; give fp.with_keys(key, batch)"
            )
        return loss(params, batch.example, batch.key)  # type: ignore[call-arg]

    def one(params: Params, batch: Example | Keyed) -> jax.Array:
        if (seen := _SEEN.get()) is not None and all(known is not loss for known in seen):
            seen.append(loss)
        if (shapes := _shapes(params, batch)) not in traced:
            check_loss(plain, params, batch, apart=apart)
            traced.add(shapes)
        return plain(params, batch)

    return one


def without_key(loss: LossFn) -> LossFn:
    """The loss of (params, example), a random one without its key, so that nothing is dropped; checked as `of_one`."""
    of_one(loss)
    return of_one(lambda params, example: loss(params, example))


def _check_parameters(loss: LossFn, random: bool) -> None:
    try:
        taken = inspect.signature(loss)
    except ValueError:  # written in C
        return
    key = taken.parameters.get("key")
    unused = key is not None and key.kind is key.KEYWORD_ONLY and key.default is None
    if unused or not takes(loss, *[None] * (3 if random else 2)):
        raise ValueError(
            f"loss: its parameters are {taken}; give one of (params, example), or of (params, example, key) if it is "
            "random"
        )


def _shapes(*trees: Any) -> tuple:
    leaves, tree = jax.tree.flatten(trees)
    return tree, *((jnp.shape(x), jnp.result_type(x)) for x in leaves)


_SEEN: ContextVar[list[LossFn] | None] = ContextVar("seen", default=None)


@contextmanager
def seen_losses() -> Iterator[list[LossFn]]:
    """The losses, random or not, that are traced in this block, as they were given."""
    losses: list[LossFn] = []
    token = _SEEN.set(losses)
    try:
        yield losses
    finally:
        _SEEN.reset(token)


class GradientFunction:
    """A function that gives gradients, and says what batch it takes.

    Its function cannot be changed, neither by `dataclasses.replace` nor by `functools.update_wrapper`: its class may
    stand for a proof.

    Args:
      fn: (params, batch, ...) -> gradients.
      needs_keys: whether the batch has to be `Keyed`.
    """

    __slots__ = ("__weakref__", "_fn", "_needs_keys")

    def __init__(self, fn: Callable[..., Any], needs_keys: bool = False):
        self._fn, self._needs_keys = fn, needs_keys

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._fn)

    @property
    def needs_keys(self) -> bool:
        """Whether the batch has to be `Keyed`."""
        return self._needs_keys

    @names_user_code
    def __call__(self, *args: Any, **named: Any) -> Any:
        """What the function gives."""
        return self._fn(*args, **named)


def needs_keys(gradients: Callable[..., Any]) -> bool:
    """Whether the batch of these gradients has to be `Keyed`; `functools.wraps` passes that on to a wrapper."""
    return getattr(inspect.unwrap(gradients), "needs_keys", False)
