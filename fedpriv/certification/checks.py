"""Cheap checks of an `Algorithm` before every run: they trace its round, and run nothing of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import partial_eval

from fedpriv.certification.certificate import trace_round
from fedpriv.certification.traced_round import TracedRound
from fedpriv.compression.codecs import Wire
from fedpriv.core.user_code import names_user_code
from fedpriv.rounds.algorithm import Algorithm

_KNOWN = {"uplink", "downlink", "diagnostics"}


@names_user_code
def check_launch(algorithm: Algorithm, params: Any, federation: Any) -> TracedRound:
    """The checks that `simulate` makes before the first round; they trace the round, and run nothing of it.

    Checked: the state begins with the model and round 0, keeps its shapes and types, and counts its rounds; metrics
    are complete and known; nothing private reaches state or metrics past the releases.

    Args:
      params, federation: as `trace_round`.

    Raises:
      ValueError: a check fails; says which, in one line.
      LeakError: something private gets past the releases of a round; says what, and in which line.
    """
    traced = trace_round(algorithm, params, federation)
    model = jax.eval_shape(params, jax.random.key(0)) if callable(params) else params
    same = _kinds(traced.before.params) == _kinds(model)
    require_that(same, "init: `params` is not the model that was given")
    after, metrics = traced.after
    for (path, was), became in zip(
        jax.tree.leaves_with_path(traced.before), jax.tree.leaves(after), strict=True
    ):
        require_that(
            _kind(became) == _kind(was),
            f"round: the state changes: {jax.tree_util.keystr(path)} was {_kind(was)} and became {_kind(became)}; "
            "return what `init` gave",
        )
    _check_metrics(metrics)
    _check_counter(traced)
    return traced


def require_that(holds: bool, otherwise: str) -> None:
    """Raises ValueError, in the words of `otherwise`: what is checked of a traced round does not hold."""
    if not holds:
        raise ValueError(otherwise)


def _kinds(tree: Any) -> list[str]:
    return [str(jax.tree.structure(tree)), *map(_kind, jax.tree.leaves(tree))]


def _kind(leaf: Any) -> str:
    return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"


def _check_metrics(metrics: Any) -> None:
    remedy = (
        "return the metrics of cohort.sum, or `fp.types.Wire(values, bits_per_value)` of a message"
    )
    require_that("uplink" in metrics, f"metrics: there is no 'uplink'; {remedy}")
    unknown = sorted(set(metrics) - _KNOWN, key=str)
    require_that(
        not unknown,
        f"metrics: {unknown} belong under 'diagnostics', where numbers of your own are recorded for you and never "
        "released; return metrics | {'diagnostics': metrics['diagnostics'] | {'name': value}}",
    )
    for way in {"uplink", "downlink"} & set(metrics):
        wire = metrics[way]
        require_that(isinstance(wire, Wire), f"metrics: {way!r} is not a `Wire`; {remedy}")
        integers = all(jnp.issubdtype(jnp.result_type(n), jnp.integer) for n in wire)
        require_that(integers, f"metrics: {way!r} is not of whole numbers; round them")
    for name, value in metrics.get("diagnostics", {}).items():
        require_that(np.shape(value) == (), f"metrics: diagnostic {name!r} is not a scalar")


def _check_counter(traced: TracedRound) -> None:
    """Computes the counter alone, where that takes a few equations."""
    leaves, structure = jax.tree.flatten(traced.before)
    of = traced.programs[-1]
    program, argument = of.program, len(jax.tree.leaves(of.like._replace(state=())))
    place = jax.tree.unflatten(structure, range(len(leaves))).round
    argument += place
    used = [i == place for i in range(len(program.jaxpr.outvars))]
    counter, needed = partial_eval.dce_jaxpr(program.jaxpr, used)
    if (
        len(counter.eqns) > 100
        or counter.constvars
        or counter.effects
        or sum(needed) != needed[argument]
    ):
        return  # by other means; a full check runs it
    require_that(bool(needed[argument]), "round: the state's `round` must go up by 1")
    count = jaxpr_as_fun(jax.extend.core.ClosedJaxpr(counter, ()))
    for now in (5, 10**6 + 5):
        (after,) = count(jnp.asarray(now, leaves[place].dtype))
        require_that(int(after) == now + 1, "round: the state's `round` must go up by 1")
