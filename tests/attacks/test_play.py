"""A pair that is played: the likelihood ratios that are drawn have the curve that is proved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers

from fedpriv.attacks.play import is_certain, play
from fedpriv.pairs.blocks import Block
from fedpriv.pairs.search import by_losses
from fedpriv.pairs.several import moved
from fedpriv.proof.pairs import NOTHING, SEEN, All, Moved, Times, Told
from fedpriv.proof.verify import deltas

DRAWS, DEVIATIONS = 40_000, 5.0  # a false alarm once in 10^6 points
SURE = Moved("gaussian", ((0.6, 1.0),))
RARE = moved("gaussian", ((0.7, 0.3), (1.4, 0.1)))
PAIRS = {
    "told": Times(Told(((0.4, Times(RARE, 2)), (0.6, NOTHING))), 2),
    "sure": Times(SURE, 4),
    "secret, of several": Times(RARE, 3),
    "cases of draws": Times(Told(((0.5, RARE), (0.3, SURE), (0.2, NOTHING))), 2),
    "two kinds": All((SURE, Times(RARE, 2))),
    "a block": Block("gaussian", 4, ((1.0, 1.5, 0),)),
}


def gaussian_ratios(key, moved, times):
    y = jax.random.normal(key) + moved
    return times * y - times**2 / 2, -times * y - times**2 / 2


def losses(pair, present):
    one = play(pair, gaussian_ratios, 1.0)
    keys = jax.random.split(jax.random.key(3), DRAWS)
    return np.asarray(jax.jit(jax.vmap(lambda k: one(k, jnp.bool_(present))))(keys), np.float64)


@tiers.every("name", PAIRS)
def test_the_curve_is_that_of_what_is_drawn(name):
    pair, at = PAIRS[name], np.array([0.0, 0.3, 1.0])
    bound = deltas(pair, at, by_losses(pair, 1e-3).witness)
    there, without = losses(pair, True), -losses(pair, False)
    drawn = [-np.expm1(np.minimum(at[:, None] - x, 0.0)) for x in (there, without)]
    means = np.array([x.mean(axis=1) for x in drawn])
    error = DEVIATIONS * np.array([x.std(axis=1) for x in drawn]) / DRAWS**0.5
    assert (means - error <= bound).all()
    assert (np.max(means + error, axis=0) >= bound * (1 - 1e-3)).all()


def test_what_is_certain():
    assert is_certain(Times(SURE, 3))
    assert not is_certain(All((SURE, RARE)))
    assert not is_certain(Told(((0.5, SURE), (0.5, NOTHING))))


@pytest.mark.parametrize(
    "pair",
    [Told(((0.5, SEEN), (0.5, RARE))), Block("gaussian", 4, ((0.5, 1.0, 0), (0.5, 2.0, 1)))],
)
def test_what_cannot_be_played(pair):
    with pytest.raises(ValueError, match=r"^sampling: [^\n]+; play another|^sampling: [^\n]+; "):
        play(pair, gaussian_ratios, 1.0)
