"""Draws of a pair with a mechanism's own noise: the log-likelihood ratio of what a view sees of all draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.attacks.integer_scores import Ratios
from fedpriv.core.complaints import require
from fedpriv.core.types import Key
from fedpriv.pairs.blocks import Block
from fedpriv.proof.pairs import NOTHING, All, Moved, Pair, Times, Told, fold

Played: TypeAlias = Callable[[Key, jax.Array], jax.Array]
"""(key, present) -> log-likelihood ratio of being there, f32[]."""


class _Laws(NamedTuple):
    """Of told cases, of each the law of a secret move; padded.

    Attributes:
      chances: f64[cases].
      far: f64[cases, k], in moves of the mechanism's own; 0: not moved.
      law: f64[cases, k], the chance of each.
      replaced: whether the noise is moved the other way without the unit.
    """

    chances: np.ndarray
    far: np.ndarray
    law: np.ndarray
    replaced: bool


def play(pair: Pair, ratios: Ratios, unit: float) -> Played:
    """Plays a pair, of which no case is seen.

    Args:
      ratios: of the noise; a unit in its worst direction moves it by 1.
      unit: how far that is, in standard deviations, as of the pair.

    Raises:
      ValueError: no noise hides a unit in some case; a block of several cases.
    """
    if pair == NOTHING:
        return lambda key, present: jnp.zeros(())
    if (laws := _laws(pair, unit)) is not None:
        return _of_draw(laws, ratios)
    if isinstance(pair, Block):
        return _of_block(pair, ratios, unit)
    if isinstance(pair, Times):
        return _of_times(play(pair.of, ratios, unit), pair.n)
    if isinstance(pair, All):
        each = [play(one, ratios, unit) for one in pair.of]

        def all_of_them(key: Key, present: jax.Array) -> jax.Array:
            keys = jax.random.split(key, len(each))
            return sum((one(k, present) for one, k in zip(each, keys, strict=True)), jnp.zeros(()))

        return all_of_them
    assert isinstance(pair, Told)
    chances, cases = zip(*pair.cases, strict=True)
    each = [play(case, ratios, unit) for case in cases]

    def of_a_case(key: Key, present: jax.Array) -> jax.Array:
        which_key, own_key = jax.random.split(key)
        which = jax.random.choice(which_key, len(chances), p=jnp.asarray(chances))
        return lax.switch(which, each, own_key, present)

    return of_a_case


def is_certain(pair: Pair) -> bool:
    """Whether nothing but the noise is random."""

    def leaf(draw: Pair) -> bool:
        return isinstance(draw, Moved) and draw.is_sure

    def mixed_of(cases: list[tuple[float, bool]]) -> bool:
        return len(cases) == 1 and cases[0][1]

    return fold(pair, leaf, mixed_of, lambda certain, _: certain, all)


def _laws(pair: Pair, unit: float) -> _Laws | None:
    """None where something is composed, or secret over rounds."""
    cases = _flat(pair)
    draws = [case for _, case in cases]
    if not all(isinstance(draw, Moved) or draw == NOTHING for draw in draws):
        return None
    laws = [draw.law if isinstance(draw, Moved) else () for draw in draws]
    finite = all(math.isfinite(d) for law in laws for d, _ in law)
    require(finite, "sampling", pair, "no noise hides a unit in some of its cases; play another")
    replaced = any(isinstance(draw, Moved) and draw.replaced for draw in draws)
    far, chances = np.zeros((2, len(laws), 1 + max(map(len, laws))))
    for i, law in enumerate(laws):
        for j, (d, p) in enumerate(law):
            far[i, j], chances[i, j] = d / unit / (2 if replaced else 1), p
        chances[i, -1] = max(0.0, 1 - chances[i].sum())
    return _Laws(np.array([chance for chance, _ in cases]), far, chances, replaced)


def _flat(pair: Pair) -> list[tuple[float, Pair]]:
    """The cases of told cases, too."""
    if not isinstance(pair, Told):
        return [(1.0, pair)]
    return [(chance * c, case) for chance, each in pair.cases for c, case in _flat(each)]


def _of_draw(laws: _Laws, ratios: Ratios) -> Played:
    cases, far = jnp.asarray(laws.chances, jnp.float32), jnp.asarray(laws.far, jnp.float32)
    chances = jnp.asarray(laws.law, jnp.float32)

    def draw(key: Key, present: jax.Array) -> jax.Array:
        noise_key, own_key, case_key = jax.random.split(key, 3)
        case = jax.random.choice(case_key, len(cases), p=cases)
        own, law = far[case], chances[case]
        moved = own[jax.random.choice(own_key, len(law), p=law)]
        sign = jnp.where(present, 1.0, -1.0 if laws.replaced else 0.0)
        ratio, other = jax.vmap(lambda times: ratios(noise_key, moved * sign, times))(own)
        total = jax.nn.logsumexp(jnp.log(law) + ratio)
        return total - jax.nn.logsumexp(jnp.log(law) + other) if laws.replaced else total

    return draw


def _of_block(block: Block, ratios: Ratios, unit: float) -> Played:
    ((_, far, seen), *others) = block.cases
    single = not others and not seen
    require(single, "sampling", block, "a block is played without cuts; play another")

    def rounds(key: Key, present: jax.Array) -> jax.Array:
        noise_key, own_key = jax.random.split(key)
        every = jnp.arange(block.rounds)
        own = jax.random.randint(own_key, (), 0, block.rounds)

        def of_round(t: jax.Array) -> jax.Array:
            moved = far / unit * present * (t == own)
            return ratios(jax.random.fold_in(noise_key, t), moved, jnp.float32(far / unit))[0]

        return jax.nn.logsumexp(lax.map(of_round, every)) - jnp.log(block.rounds)

    return rounds


def _of_times(once: Played, n: int) -> Played:
    def all_of_them(key: Key, present: jax.Array) -> jax.Array:
        def add(total: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            return total + once(jax.random.fold_in(key, t), present), None

        return lax.scan(add, jnp.zeros(()), jnp.arange(n))[0]

    return all_of_them


def mixed(ratio: jax.Array, rate: jax.Array | float) -> jax.Array:
    """Of a mechanism's log ratios L, those of draws at the rate q: log(1 - q + q e^L)."""
    if isinstance(rate, float) and rate >= 1:
        return ratio
    return jnp.logaddexp(jnp.log1p(-rate), jnp.log(rate) + ratio)
