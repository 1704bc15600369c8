"""What a run begins with: the federation, the root of all keys and the state of each seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.certification.initial_state import unreadable
from fedpriv.core.types import Key, Params, PyTree, State
from fedpriv.data.federation import Federation, stack
from fedpriv.data.streaming import StreamedFederation
from fedpriv.engine.compiled_rounds import of_seed
from fedpriv.engine.prefetch import one_per_seed
from fedpriv.engine.secret_seeds import roots_of
from fedpriv.proof.stream import THREEFRY, public_key
from fedpriv.rounds.algorithm import Algorithm


def per_seed(federation: Any, seeds: int) -> Federation | list[StreamedFederation]:
    """The federation of each seed: those in memory together, see `stack`.

    Raises:
      ValueError: not one for each seed; as `stack` and `one_per_seed`.
    """
    if isinstance(federation, Federation | StreamedFederation):
        federation = [federation] * seeds
    if len(federation) != seeds:
        raise ValueError(
            f"federation: {len(federation)} given for {seeds} seeds; give one, or one per seed"
        )
    if any(isinstance(f, StreamedFederation) for f in federation):
        return one_per_seed(federation)
    return stack(federation)


def held(federations: Federation | list[StreamedFederation], s: int) -> Any:
    """That of one seed, with the arrays that stay on the host."""
    return of_seed(federations, s) if isinstance(federations, Federation) else federations[s]


def roots_of_seeds(seeds: Sequence[int], secret_seed: int | None) -> Key:
    """Key[seeds], from which all keys of a run come."""
    given = seeds if secret_seed is None else [secret_seed]
    with jax.enable_x64(True):  # or the higher 32 bits of a seed would be lost
        key = partial(jax.random.key, impl=THREEFRY)
        keys = jax.jit(jax.vmap(key))(np.asarray(given, np.int64))
    return keys if secret_seed is None else roots_of(keys[0], seeds)


def initial_states(
    algorithm: Algorithm, params: Any, federation: Federation | list[StreamedFederation], roots: Key
) -> State:
    """The states before the first round, leaves [seeds, ...]."""
    first = of_seed(federation, 0)
    models = (
        [params(public_key(root, 0)) for root in roots]
        if callable(params)
        else [params] * len(roots)
    )
    begin, private = unreadable(algorithm, first)

    # One program, so that what is kept for each client is there once: per-client state may fill the memory.
    @jax.jit
    def initial(models: list[Params], private: dict[str, PyTree]) -> State:
        return lax.map(lambda model: begin(model, private), stacked(models))

    return initial(models, private)


def of_each_seed(tree: PyTree, seeds: int) -> PyTree:
    """The same for each, leaves [seeds, ...]."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds, *leaf.shape)), tree)


@jax.jit
def stacked(trees: list[PyTree]) -> PyTree:
    """With a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
