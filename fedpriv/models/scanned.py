"""Which parameters are of layers that are scanned: one leaf [layers, ...] in place of one for each layer."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal

from fedpriv.core.jaxprs import programs, scan_operands
from fedpriv.core.random_losses import takes_key
from fedpriv.core.types import Params
from fedpriv.models.named_leaves import named_leaves
from fedpriv.models.networks import Model

_ALIKE = ("convert_element_type", "copy", "name")
"""Operations whose result is still the leaf."""


def scanned_leaves(model: Model, params: Params) -> list[str]:
    """Paths of the leaves over whose first axis the network's program scans; none where a model was not built of one.

    Args:
      params: in shapes, or values.
    """
    if model.built is None or model.apply is None:
        return []
    keys = [jax.random.key(0)] * takes_key(model.apply)
    program, _ = jax.make_jaxpr(model.apply, return_shape=True)(params, model.built.input, *keys)
    leaves = dict(zip(program.jaxpr.invars, named_leaves(params), strict=False))
    return [*dict.fromkeys(_scanned(program.jaxpr, leaves))]


def _scanned(jaxpr: Jaxpr, leaves: dict[Any, str]) -> list[str]:
    """Of the leaves that these variables are, those that are scanned over."""
    found = []
    known = dict(leaves)
    for eqn in jaxpr.eqns:
        given = [None if isinstance(x, Literal) else known.get(x) for x in eqn.invars]
        if eqn.primitive.name in _ALIKE and given[0]:
            known[eqn.outvars[0]] = given[0]
        if eqn.primitive.name == "scan":
            consts, carried, _ = scan_operands(eqn, given)
            first = len(consts) + len(carried)
            found += [path for path in given[first:] if path]
            given[first:] = [None] * len(given[first:])  # inside, one layer's
        for inner in programs(eqn):
            if len(inner.jaxpr.invars) == len(given):
                pairs = zip(inner.jaxpr.invars, given, strict=True)
                found += _scanned(inner.jaxpr, {var: path for var, path in pairs if path})
    return found
