"""A mechanism from outside comes in by the door of `fedpriv.proof.bound`; the plain ones are made there alone."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import refused, regression, sgd, squared, start

import fedpriv as fp
from fedpriv.core.provenance import constructed
from fedpriv.proof import bound

PLAIN = {"gaussian": fp.gaussian, "laplace": fp.laplace}
UPDATE = {"b": np.float32(3), "w": np.arange(4, dtype=np.float32)}


class ClipEach:
    """Clips to |u_i| <= 1 / 2 in each of four coordinates: to l2 norm 1."""

    def __call__(self, update):
        bounded = jax.tree.map(lambda u: jnp.clip(u, -0.5, 0.5), update)
        return bounded, jnp.sqrt(sum(jnp.sum(u**2) for u in jax.tree.leaves(update)))


class Noisy:
    """Adds N(0, 4) to each coordinate."""

    def __call__(self, key, total):
        leaves, tree = jax.tree.flatten(total)
        keys = jax.random.split(key, len(leaves))
        drawn = [2 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(tree, [x + z for x, z in zip(leaves, drawn, strict=True)])


TOY = bound.Mechanism(ClipEach(), Noisy(), 2.0)


def certificate_of(mechanism):
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(3),
        optimizer=sgd,
        batches=fp.full_batch(),
        mechanism=mechanism,
    )
    federation, params = regression([2] * 3), start()
    return fp.certify(algorithm, params, federation, rounds=2, delta=1e-5)


def test_a_mechanism_from_outside_is_certified_by_its_word():
    toy, plain = certificate_of(TOY), certificate_of(fp.gaussian(1.0, 2.0))
    assert toy.epsilon == plain.epsilon
    assert (toy.basis, plain.basis) == ("declared", "constructed")
    assert type(TOY.clip).__module__ == type(TOY.perturb).__module__ == __name__


@pytest.mark.parametrize("name", PLAIN)
def test_plain_mechanisms_are_those_of_the_proof(name):
    """Whatever a sealed field is changed to, the seal is broken."""
    used = PLAIN[name](0.5, 2.0)
    assert constructed(used)
    assert (type(used.clip), type(used.perturb)) == (bound.Clip, bound.AddNoise)
    assert used.perturb.clip is used.clip
    for field, other in (
        ("clip", TOY.clip),
        ("perturb", bound.AddNoise(used.clip, 1.0)),
        ("certified_multiplier", 3.0),
        ("correlation", object()),
    ):
        assert not constructed(used._replace(**{field: other}))
    assert not constructed(bound.Mechanism(*used[:-1]))


def test_the_general_mechanism_is_the_same_program():
    given = {"clip_norm": 0.5, "noise_multiplier": 2.0}
    general = fp.mechanism(fp.clipping.flat(), fp.noise.isotropic(), **given)
    plain = fp.gaussian(**given)
    key = jax.random.key(0)
    for one, other, inputs in (
        (general.clip, plain.clip, (UPDATE,)),
        (general.perturb, plain.perturb, (key, UPDATE)),
    ):
        assert str(jax.make_jaxpr(one)(*inputs)) == str(jax.make_jaxpr(other)(*inputs))
    assert general.certified_multiplier == plain.certified_multiplier == 2.0


@pytest.mark.parametrize(
    ("clip_norm", "multiplier"),
    [
        *((math.nan, 1.0), (-1.0, 1.0), (0.0, 0.0), (math.inf, 1.0), (1.0, math.inf)),
        *((1.0, 1e-37), (1e-10, 1e-30), (1e10, 1e30)),
    ],
)
@pytest.mark.parametrize("make", [bound.gaussian, bound.laplace])
def test_the_proof_refuses_what_it_does_not_hold_for(make, clip_norm, multiplier):
    with refused("clip_norm"):
        make(clip_norm, multiplier)


def test_what_is_silent_hides_nothing():
    used = bound.gaussian(1.0, 0.0)
    assert used.certified_multiplier == 0
    assert used.reason
    assert used.perturb(jax.random.key(0), UPDATE) is UPDATE


@pytest.mark.parametrize("multiplier", [-1.0, math.nan, np.float32(-2)])
@pytest.mark.parametrize("make", [bound.gaussian, bound.laplace])
def test_noise_is_not_less_than_none(make, multiplier):
    with refused("noise_multiplier: .*give one from 0 on"):
        make(1.0, multiplier)
