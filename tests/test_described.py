"""What gradients and audits know of a mechanism: it goes with its functions, and with nothing else."""

import copy
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import refused, squared

import fedpriv as fp
from fedpriv.core.provenance import constructed
from fedpriv.mechanisms.described import (
    Scaling,
    WorstCase,
    described,
    scaling_of,
    worst_case_of,
)
from fedpriv.mechanisms.per_example import private_mean

GAUSSIAN = fp.gaussian(0.5, 2.0)
OTHER = fp.gaussian(0.7, 1.0)
HAND = fp.Mechanism(lambda u: (u, jnp.float32(1)), lambda key, total: total, 1.0)
OF_ONE = Scaling(lambda norms: jax.tree.map(jnp.ones_like, norms))
HARDEST = WorstCase(jnp.ones, lambda u: u)
BLT = fp.noise_matrices.tree(rounds=4)


def known(used):
    return scaling_of(used), worst_case_of(used)


def has(used):
    return tuple(each is not None for each in known(used))


@pytest.mark.parametrize(
    ("used", "has_both"),
    [
        (GAUSSIAN, (True, True)),
        (fp.laplace(0.5, 2.0), (False, True)),
        (fp.joint(GAUSSIAN, OTHER), (False, True)),
        (fp.joint(GAUSSIAN, fp.unprotected()), (False, False)),
        (fp.gaussian(0.5, 0), (True, False)),
        (fp.unprotected("why"), (True, False)),
        (fp.skellam(0.5, 2.0, bits=16), (True, False)),
        (fp.correlated(GAUSSIAN, BLT), (True, False)),
        (fp.correlated(GAUSSIAN, BLT).correlation.mechanism, (True, True)),
        (fp.dynamic(GAUSSIAN, rounds=4, clip_decay=2.0).in_round(3), (True, True)),
        (fp.papers.haar_mechanism(4, clip_norm=0.5, noise_multiplier=1.0), (True, True)),
        (HAND, (False, False)),
        (fp.dynamic(GAUSSIAN, rounds=4), (False, False)),
        (None, (False, False)),
    ],
)
def test_what_is_known_of_ours(used, has_both):
    assert has(used) == has_both


def test_another_function_is_another_mechanism():
    assert known(GAUSSIAN._replace(certified_multiplier=1.0, seal=())) == known(GAUSSIAN)
    assert known(GAUSSIAN._replace(clip=HAND.clip)) == (None, None)
    assert known(GAUSSIAN._replace(perturb=HAND.perturb)) == (scaling_of(GAUSSIAN), None)
    assert known(GAUSSIAN._replace(clip=OTHER.clip)) == (scaling_of(OTHER), None)


def test_copies_are_the_same_functions():
    again = jax.tree.unflatten(jax.tree.structure(GAUSSIAN), jax.tree.leaves(GAUSSIAN))
    for other in (copy.copy(GAUSSIAN), copy.deepcopy(GAUSSIAN), again, GAUSSIAN.in_round(3)):
        assert known(other) == known(GAUSSIAN)
        assert constructed(other)


def test_what_is_said_is_known_of_that_mechanism_alone():
    before = known(GAUSSIAN)
    for given, found in (
        ({"scaling": OF_ONE}, (OF_ONE, before[1])),
        ({"worst_case": HARDEST}, (before[0], HARDEST)),
        ({}, before),
    ):
        said = described(GAUSSIAN, **given)
        assert known(said) == found
        assert not constructed(said)
        assert str(said) == str(GAUSSIAN)
        assert said[2:-1] == GAUSSIAN[2:-1]
    assert known(GAUSSIAN) == before
    assert known(described(HAND, scaling=OF_ONE, worst_case=HARDEST)) == (OF_ONE, HARDEST)
    assert known(HAND) == (None, None)


def test_said_of_it_a_scaling_bounds_records():
    """The same mean, of gradients that are not formed."""
    params = {"b": jnp.float32(0), "w": jnp.ones(3)}
    batch = {"x": jnp.arange(12.0).reshape(4, 3), "y": jnp.ones(4)}
    by_hand = fp.Mechanism(lambda u: GAUSSIAN.clip(u), lambda key, total: total, 1.0)
    said = described(by_hand, scaling=scaling_of(GAUSSIAN))

    def mean(used):
        total = private_mean(fp.per_example(squared), used, 4.0)
        return total(jax.random.key(0), params, batch, jnp.ones(4, bool))

    for a, b in zip(jax.tree.leaves(mean(by_hand)), jax.tree.leaves(mean(said)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)

    doubled = described(by_hand, scaling=OF_ONE)
    assert not np.allclose(mean(doubled)["w"], mean(said)["w"])


class WithoutHash:
    """A function that no dictionary takes."""

    __hash__ = None

    def __call__(self, *given):
        return HAND.clip(*given)


def test_functions_of_any_kind_may_be_described():
    used = HAND._replace(clip=WithoutHash(), perturb=WithoutHash())
    assert known(used) == (None, None)
    assert known(described(used, scaling=OF_ONE, worst_case=HARDEST)) == (OF_ONE, HARDEST)


def test_nothing_is_kept_that_nobody_holds():
    used = fp.gaussian(0.5, 2.0)
    left = [weakref.ref(each) for each in (used.clip, used.perturb, scaling_of(used).scales)]
    del used
    gc.collect()
    assert [each() for each in left] == [None] * 3


@pytest.mark.parametrize("old", ["scaling", "scales", "worst_case", "tensors"])
def test_a_field_that_left_says_what_to_write(old):
    what = "scaling=Scaling" if old in ("scaling", "scales") else "worst_case=WorstCase"
    says = rf"{old}: 5; a mechanism does not hold it; write .*described\(mechanism, {what}\("
    with refused(says):
        fp.Mechanism(HAND.clip, HAND.perturb, 1.0, **{old: 5})
    with refused(says):
        GAUSSIAN._replace(**{old: 5})
