"""The keys of a round's noises, computed: the round as it was traced, without what they do not depend on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun
from jax.interpreters import partial_eval

from fedpriv.certification.compiled import compiled
from fedpriv.certification.host_calls import PRINTS
from fedpriv.certification.information_flow import MARK
from fedpriv.certification.key_labels import is_key
from fedpriv.core.fixed_points import fixed_point
from fedpriv.core.jaxprs import equations, evaluate, is_call, programs, scan_operands
from fedpriv.core.types import Key

Keys: TypeAlias = list[tuple[jax.Array, jax.Array]]
"""(words u32[n, words of a key], bool[n]: whether the round came to the noise that is drawn from them)."""


def noise_keys(
    rounds: Sequence[ClosedJaxpr], root: Key, state: Sequence[jax.Array], times: int
) -> list[list[bytes]]:
    """For each traced round the keys of its noises, run so many times, in which one client stands for all.

    Args:
      rounds: (key, state, rounds done) -> (state, further), its leaves; each goes on with the state of the one before.
      root: from which the key of each time is folded.
      state: the first one's leaves.
    """
    with_keys = [_with_keys(program, len(state)) for program in rounds]

    def inputs(needed: frozenset[int]) -> frozenset[int]:
        """The leaves that the keys depend on, and these leaves after a round."""
        used = [_pruned(program, len(state), needed)[1] for program in with_keys]
        return needed.union(i for each in used for i in range(len(state)) if each[1 + i])

    nothing: frozenset[int] = frozenset()
    needed = fixed_point(inputs, nothing)
    leaves, keys = list(state), []
    for program in with_keys:
        small, _ = _pruned(program, len(state), needed)
        run, own = compiled(jaxpr_as_fun(small), root, *leaves, np.int32(0)), []
        for t in range(times):
            out = run(root, *leaves, np.int32(t))
            for i, leaf in zip(sorted(needed), out, strict=False):
                leaves[i] = leaf
            pairs = list(map(np.asarray, out[len(needed) :]))
            for words, drawn in zip(pairs[::2], pairs[1::2], strict=True):
                own += [key.tobytes() for key in words[drawn]]
        keys.append(own)
    return keys


def _with_keys(program: ClosedJaxpr, count: int) -> ClosedJaxpr:
    """(root key, state, rounds done) -> (the state's `count` leaves after the round, keys)."""

    def run(root: Key, *args: Any) -> tuple[list[Any], Keys]:
        out, keys = _run(program, [jax.random.fold_in(root, args[-1]), *args])
        return out[:count], keys

    return jax.make_jaxpr(run)(*program.in_avals)


def _pruned(
    program: ClosedJaxpr, count: int, needed: frozenset[int]
) -> tuple[ClosedJaxpr, list[bool]]:
    """(the program that gives back only the needed leaves of the state, and keys; the inputs that it uses)."""
    wanted = [i in needed or i >= count for i in range(len(program.jaxpr.outvars))]
    _, used = partial_eval.dce_jaxpr(program.jaxpr, wanted)
    small, _ = partial_eval.dce_jaxpr(program.jaxpr, wanted, instantiate=True)
    return ClosedJaxpr(small, program.consts), used


def _run(program: ClosedJaxpr, args: Sequence[Any]) -> tuple[list[Any], Keys]:
    """What the program gives back, and the keys of its noises."""
    keys: Keys = []

    def rule(eqn: JaxprEqn, values: list[Any]) -> Any:
        if eqn.primitive is MARK:
            if _is_release(eqn):
                keys.append((jax.random.key_data(values[-1])[None], jnp.ones(1, bool)))
            return values
        if eqn.primitive.name in PRINTS:
            return []
        called = programs(eqn)
        if not any(_is_release(e) for each in called for e, _ in equations(each.jaxpr)):
            return NotImplemented
        if eqn.primitive.name == "scan":
            out, own = _run_scan(eqn, called[0], values)
        elif eqn.primitive.name == "cond":
            out, own = _run_cond(called, values)
        else:  # a call: anywhere else a release is refused, as nobody can count it
            assert is_call(eqn)
            (body,) = called
            out, own = _run(body, values)
        keys.extend(own)
        return out

    return evaluate(program, args, rule), keys


def _is_release(eqn: JaxprEqn) -> bool:
    """Whether it marks what a mechanism has perturbed; the key of its noise comes last."""
    return eqn.primitive is MARK and len(eqn.invars) > 1 and is_key(eqn.invars[-1])


def _run_scan(eqn: JaxprEqn, body: ClosedJaxpr, values: Any) -> tuple[list[Any], Keys]:
    consts, carry, xs = scan_operands(eqn, values)

    def turn(carry: list[Any], x: list[Any]) -> tuple[list[Any], tuple[list[Any], Keys]]:
        out, keys = _run(body, [*consts, *carry, *x])
        return out[: len(carry)], (out[len(carry) :], keys)

    length, backwards = eqn.params["length"], eqn.params["reverse"]
    last, (ys, keys) = lax.scan(turn, carry, xs, length, backwards)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), keys)
    return [*last, *ys], flat


def _run_cond(branches: list[ClosedJaxpr], values: Any) -> tuple[list[Any], Keys]:
    """Of a branch that is not taken, no noise is drawn."""
    of_each = [jax.eval_shape(partial(_run, branch), values[1:])[1] for branch in branches]

    def taken(number: int, *operands: Any) -> tuple[list[Any], list[Keys]]:
        keys = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), of_each)
        out, keys[number] = _run(branches[number], operands)
        return out, keys

    each = [partial(taken, number) for number in range(len(branches))]
    out, keys = lax.switch(values[0], each, *values[1:])
    return out, [pair for own in keys for pair in own]
