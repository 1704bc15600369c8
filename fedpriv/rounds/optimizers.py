"""An optimiser of optax, as clients and the server train with it: by gradients alone, and what it trains is the model.

Every optimiser that comes in passes `check_optimizer`, before a model is known, and is used by way of `ready`, which
looks at it again with the model that it is given. Both trace its update, and compute nothing.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedpriv.core.complaints import require
from fedpriv.core.parameters import check_params
from fedpriv.core.types import Params
from fedpriv.core.user_code import last_of_user
from fedpriv.core.user_functions import takes

LOSS = ("value", "grad", "value_fn")
"""What a search of a minimum gives beside a gradient: the loss, its gradient, and the function itself."""

_ALONE = "give one that follows gradients alone, such as optax.adam(0.01)"
_REFUSED = {
    optax.contrib.ScheduleFreeState: "optax.contrib.schedule_free trains other parameters than those to evaluate; give "
    "one whose parameters are the model, such as optax.adam(0.01)",
    optax.LookaheadState: "optax.lookahead trains a pair of models; give its fast optimiser alone",
    optax.contrib.SAMState: "optax.contrib.sam leaves the model at a perturbed point between its steps; give its outer "
    "optimiser, and the perturbed gradient as `grad`",
    optax.contrib.DifferentiallyPrivateAggregateState: "optax.contrib.dpsgd asks for the gradients of single records; "
    "give its inner optimiser, and a mechanism, as to fp.dp_sgd",
    optax.contrib.HutchinsonState: f"optax.contrib.sophia asks for obj_fn beside a gradient; {_ALONE}",
}
"""States of the optimisers that do not say by the parameters of `update` what they ask for, or train another model."""
_MISSING = re.compile(r"(\S+)\(\) missing \d+ required keyword-only arguments?: (.*)")
_ANY_MODEL = {
    "w": jax.ShapeDtypeStruct((2, 3), jnp.float32),
    "b": jax.ShapeDtypeStruct((3,), jnp.float32),
}


def check_optimizer(
    name: str, optimizer: optax.GradientTransformation, given: Collection[str] = ()
) -> None:
    """Raises ValueError: no optimiser of optax, or none of gradients alone, or one that trains another model.

    Args:
      name: of the argument.
      given: what its update is given beside, such as `LOSS`, by a search that itself keeps the best point.
    """
    if isinstance(optimizer, optax.MultiSteps):
        raise ValueError(f"{name}: an optax.MultiSteps; give its gradient_transformation()")
    fits = isinstance(optimizer, optax.GradientTransformation)
    require(fits, name, optimizer, "give an optimiser, such as optax.sgd(0.1), schedules within")
    try:
        said = _unfit(optimizer, _ANY_MODEL, given)
    except Exception:  # as of one for the parameters of a certain model, which `ready` will know
        return
    if said:
        raise ValueError(f"{name}: {said}")


def check_schedule(name: str, schedule: Callable[[jax.Array], Any]) -> None:
    """Raises ValueError: no function of the round, or one whose optimiser `check_optimizer` refuses."""
    module = getattr(schedule, "__module__", None) or ""
    # optax's own functions would take the round for a learning rate.
    fits = takes(schedule, 0) and not module.startswith("optax.")
    require(fits, name, schedule, "give a function of the round, such as lambda t: optax.sgd(0.1)")
    refused: list[str] = []

    def at(t: jax.Array) -> None:
        try:
            with jax.numpy_dtype_promotion("standard"):
                optimizer = schedule(t)
        except Exception:  # the user's own, whose line is shown where a round is traced
            return
        try:
            check_optimizer(name, optimizer)
        except ValueError as error:
            refused.append(str(error))

    jax.eval_shape(at, jax.ShapeDtypeStruct((), jnp.int32))
    if refused:
        raise ValueError(refused[0])


def ready(
    name: str, optimizer: optax.GradientTransformation, given: Collection[str] = ()
) -> optax.GradientTransformation:
    """The optimiser as it is used: its `init` refuses a model that it cannot train.

    Its arithmetic is its own business, also where JAX_NUMPY_DTYPE_PROMOTION is strict.

    Args:
      name, given: as `check_optimizer`.

    Raises:
      ValueError: as `check_optimizer`; from `init`, an optimiser for another model, in one line.
    """
    check_optimizer(name, optimizer, given)
    optimizer = _promoting(optimizer)

    def init(params: Params) -> optax.OptState:
        try:
            said = _unfit(optimizer, params, given)
        except Exception as error:
            if last_of_user(error):
                raise
            check_params(params)
            why = f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
            said = f"{_maker(error)} cannot train this model ({why}); give an optimiser that can"
        if said:
            raise ValueError(f"{name}: {said}") from None
        return optimizer.init(params)

    return optimizer._replace(init=init)


def _promoting(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    if jax.config.jax_numpy_dtype_promotion != "strict":  # type: ignore[attr-defined]
        return optimizer

    def freely(fn: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            with jax.numpy_dtype_promotion("standard"):
                return fn(*args, **kwargs)

        return called

    return optimizer._replace(init=freely(optimizer.init), update=freely(optimizer.update))


def _unfit(
    optimizer: optax.GradientTransformation, params: Params, given: Collection[str]
) -> str | None:
    """Why it cannot train a model by gradients and what is `given`, with a remedy; None where it can.

    Raises:
      Exception: the optimiser's own, for a reason that is not known here.
    """
    kinds = () if given else tuple(_REFUSED)
    state = jax.eval_shape(optimizer.init, params)
    for node in jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, kinds)):
        if isinstance(node, kinds):
            return _REFUSED[type(node)]
    stands_for = {"value": np.float32(0), "grad": params, "value_fn": lambda params: jnp.zeros(())}
    extra = {name: stands_for[name] for name in given}
    update = optax.with_extra_args_support(optimizer).update
    try:
        updates, after = jax.eval_shape(partial(update, **extra), params, state, params)
    except TypeError as error:
        missing = _MISSING.match(str(error))
        if not missing:
            raise
        maker, asked = missing[1].partition(".<locals>")[0], re.findall("'(.*?)'", missing[2])
        return f"{maker} asks for {', '.join(asked)} beside a gradient; {_ALONE}"
    if _shapes(updates) != _shapes(params):
        return f"its updates are not in the shapes of the model; {_ALONE}"
    if _shapes(after) != _shapes(state):  # types may be weak, which a loop settles by itself
        return f"its state after a step is not like the one before; {_ALONE}"
    return None


def _maker(error: BaseException) -> str:
    """The function of optax whose part of an optimiser raised it, such as "masked"."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [code.co_qualname for code in codes if "optax" in code.co_filename]
    return names[-1].partition(".<locals>")[0] if names else "it"


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
