"""What a round releases, read off its program; and that nothing else leaves the clients.

The round is traced with a cohort in which one client stands for all. Marks in the program say where private data come
from and where a mechanism has perturbed them. Labels of private data are followed (`information_flow`); one that
reaches the state or the metrics past all releases is a leak.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from fedpriv.certification import keys
from fedpriv.certification.host_calls import lines_that_print
from fedpriv.certification.information_flow import MARK, NONE, as_compiled, follow, where
from fedpriv.certification.leaks import Rules, leak
from fedpriv.certification.marked_cohort import Watched
from fedpriv.certification.privacy_labels import (
    Held,
    Holding,
    LeakError,
    Note,
    Notes,
    noisy,
    of,
)
from fedpriv.core.trees import same_structure
from fedpriv.core.types import Key, Metrics, State
from fedpriv.core.user_functions import line_of
from fedpriv.models.example_checks import ExampleError
from fedpriv.privacy.sampling import Everyone, Poisson, WithReplacement
from fedpriv.rounds.algorithm import Algorithm, after_round
from fedpriv.rounds.samplers import Sampler

_OF_CLIENTS = {
    "sum": "a client's message",
    "mean": "a private mean",
    "store": "what a client keeps for itself",
}


class Stage(NamedTuple):
    """What a round with one sampler releases.

    Attributes:
      sums, means: the cohort's sums, and the private means of a client's records.
      alone: whether a noisy mean shows nowhere but in the cohort's sum, which is a fixed multiple of all of them.
      program: the traced round, (key, state, rounds done) -> (state, metrics), its leaves.
      prints: lines that print something of a round.
    """

    sums: tuple[Note, ...]
    means: tuple[Note, ...]
    alone: bool
    program: ClosedJaxpr
    prints: tuple[str, ...]


def program_of(
    algorithm: Algorithm, sampler: Sampler, holding: Holding, state: State
) -> tuple[ClosedJaxpr, Any, Notes]:
    """(the traced round, shapes of (state, metrics), what its marks stand for).

    Args:
      state: shapes.

    Raises:
      ValueError: calls of the cohort under jax.vmap; records that the model cannot take; and whatever the round itself
        raises.
    """
    notes: Notes = []

    def run(key: Key, state: State, t: jax.Array) -> tuple[State, Metrics]:
        after, metrics = after_round(algorithm, key, state, Watched(t, holding, sampler, notes))
        if not same_structure(after, state):
            remedy = f"{line_of(algorithm.round)}; give back what `init` gave"
            raise ValueError(f"round: the state changes its structure{remedy}")
        return after, metrics

    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        with as_compiled():
            traced, out = jax.make_jaxpr(run, return_shape=True)(key, state, jnp.int32(0))
    except ExampleError as error:
        raise ValueError(f"federation: {error}") from None
    except NotImplementedError as error:
        if MARK.name not in str(error):
            raise
        raise ValueError(
            "round: it calls the cohort, or a private mean, under jax.vmap, where releases cannot be counted; call "
            "them in a loop"
        ) from error
    return traced, out, notes


def look(
    algorithm: Algorithm, sampler: Sampler, holding: Holding, state: State, held: Any = None
) -> tuple[Stage, Any, Any]:
    """(the releases of `algorithm.round` with cohorts of `sampler`, shapes of (state, metrics), what clients keep).

    Args:
      state: shapes.

    Raises:
      LeakError: something private reaches the state, or the metrics outside `diagnostics`, in another way.
      ValueError: calls of the host; as `program_of`.
    """
    traced, out, notes = program_of(algorithm, sampler, holding, state)
    printing = lines_that_print(traced.jaxpr)
    rules = Rules(notes, algorithm.unit, _secret(notes, sampler, algorithm.unit))
    leaves = jax.tree_util.tree_leaves_with_path(out)
    states = len(jax.tree.leaves(state))
    leaves_in = traced.jaxpr.invars[1 : 1 + states]
    held, before = held or list(map(keys.of_constant, leaves_in)), None
    while held != before:  # what clients keep comes back in the next round
        for note in notes:
            note.times = 0
        given = [frozenset({keys.ROUNDS_KEY}), *held, NONE]
        found = follow(traced.jaxpr, given, rules)
        held, before = [h | of(Held, x) for h, x in zip(held, found, strict=False)], held
    for (path, _), labels, var in zip(leaves, found, traced.jaxpr.outvars, strict=True):
        name = _name(path)
        if rules.private(labels) | of(Held, labels) | of(keys.KeyLabel, labels):
            name += "".join(f" ({where(e)})" for e in traced.jaxpr.eqns if var in e.outvars)
        rules.keep_keys(name, labels)
        if path[0].idx == 1 and getattr(path[1], "key", None) == "diagnostics":
            continue
        theirs = path[0].idx == 0 and getattr(path[1], "name", "") not in ("params", "round")
        leaked = rules.private(labels) | (NONE if theirs else of(Held, labels))
        if leaked:
            raise LeakError(leak(name, leaked))
        rules.keep_random(name, labels, reserved=True)
    for note in notes:
        if note.kind in _OF_CLIENTS:
            name = f"{_OF_CLIENTS[note.kind]} ({note.line})"
            rules.keep_random(name, note.found, reserved=False)
    sums = tuple(n for n in notes if n.kind == "sum" and n.times)
    means = tuple(n for n in notes if n.kind == "mean" and n.times)
    return Stage(sums, means, rules.alone(sums, means), traced, printing), out, held


def _secret(notes: Notes, sampler: Sampler, unit: str) -> bool:
    """Whether the certificate counts on nobody's knowing who takes part."""
    drawn = sampler.accounting
    if unit == "record" or isinstance(drawn, Everyone | WithReplacement):
        return False
    sums = [n for n in notes if n.kind == "sum" and noisy(n)]
    return any(not (n.local and isinstance(drawn, Poisson)) for n in sums)


def _name(path: Any) -> str:
    root = ("state", "metrics")[path[0].idx]
    return root + jax.tree_util.keystr(path[1:])
