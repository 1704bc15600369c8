"""Named tuples that check their fields: whenever one is made, and not where JAX only carries its leaves about."""

import copy
import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpriv as fp
from fedpriv.core.provenance import constructed
from fedpriv.mechanisms.described import described, scaling_of, worst_case_of

SAMPLER = fp.everyone(3)


def test_a_bundle_prints_in_a_line_who_made_it():
    local = fp.LocalSteps(
        fp.per_example(lambda p, e: p), SAMPLER, 1, lambda t: None, fp.gaussian(1.0, 1.0)
    )
    for made, by in (
        (SAMPLER, "Sampler(draw=everyone,"),
        (fp.gaussian(0.5, 2.0), "Mechanism(clip=Clip, perturb=AddNoise, certified_multiplier=2.0,"),
        (fp.qsgd(8), "Codec(code=qsgd, lossy=True)"),
        (fp.clipping.flat(), "Clipping("),
        (fp.noise.isotropic(), "Noise(draw=isotropic"),
        (fp.papers.splitting.uniform(0.5), "Splitting(draw=uniform"),
        (fp.types.Wire(3), "Wire(values=3)"),
        (fp.types.Wire(jnp.arange(3), 1), "Wire(values=int32[3], bits_per_value=1)"),
        (local, "LocalSteps(gradients=RecordGradients,"),
        (fp.unprotected(), "Mechanism("),
    ):
        printed = repr(made)
        assert printed.startswith(by)
        assert "\n" not in printed
        assert " at 0x" not in printed
        assert "seal" not in printed


def test_numbers_become_pythons():
    made = fp.Opening(SAMPLER, np.int64(2), then=SAMPLER)
    assert type(made.rounds) is int
    assert made == fp.Opening(SAMPLER, 2, SAMPLER)
    assert list(inspect.signature(fp.Opening).parameters) == ["first", "rounds", "then"]


def test_what_is_proved_stays_proved():
    """A seal holds the very fields that it was made of."""
    made = fp.mechanism(
        fp.clipping.flat(),
        fp.noise.isotropic(),
        clip_norm=np.float32(0.5),
        noise_multiplier=np.int64(2),
    )
    assert constructed(made)
    assert constructed(fp.poisson(np.int64(20), np.float32(0.5)))
    assert not constructed(made._replace(certified_multiplier=3.0))
    louder = scaling_of(fp.gaussian(50.0, 1.0))
    assert not constructed(described(made, scaling=louder))
    hardest = worst_case_of(made)._replace(tensors=2)
    assert not constructed(described(made, worst_case=hardest))


def test_a_tree_holds_anything():
    wire = fp.types.Wire(5, 8)
    doubled = jax.jit(lambda w: jax.tree.map(lambda n: 2 * n, w))(wire)
    assert isinstance(doubled, fp.types.Wire)
    assert doubled.bits() == 160
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.int32, wire))
    assert shapes.values.dtype == jnp.int32
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(wire)]
    assert paths == [".values", ".bits_per_value", ".overhead"]


def test_copies_are_the_same():
    wire = fp.types.Wire(5, 8)
    assert pickle.loads(pickle.dumps(wire)) == copy.deepcopy(wire) == wire


def test_a_class_of_ones_own_keeps_its_name():
    class Warm(fp.Opening):
        pass

    made = Warm(SAMPLER, 2, SAMPLER)._replace(rounds=3)
    assert type(made) is Warm
    with pytest.raises(ValueError, match=r"rounds: 2\.5"):
        Warm(SAMPLER, 2.5, SAMPLER)
