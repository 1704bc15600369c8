"""Norms and sums of gradients that are never formed, against those that JAX forms, for models of every kind."""

import factored_models as models
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from every_gradient import CASES, IN
from factored_models import B

from fedpriv import gaussian, per_example
from fedpriv.mechanisms import factored_program, outer_product_gradients
from fedpriv.mechanisms.factored_program import FactoredProgram
from fedpriv.mechanisms.gradients_of_leaves import Formed
from fedpriv.mechanisms.per_example import private_mean
from fedpriv.mechanisms.recomputed_gradients import asked_twice

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def formed_from(monkeypatch, large):
    """What counts as large; None: factors pay also in models as small as these."""
    if large is None:
        monkeypatch.setattr(factored_program, "pays", lambda gradients: True)
    else:
        monkeypatch.setattr(outer_product_gradients, "_LARGE", large)


@pytest.fixture(autouse=True)
def factors_pay(monkeypatch):
    formed_from(monkeypatch, None)


def by_jax(loss, params, batch):
    return jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(params, batch)


def weights_of(params):
    """Others for each leaf, the first record's being 0."""
    leaves, tree = jax.tree.flatten(params)
    return jax.tree.unflatten(
        tree, [jnp.linspace(0.0, 1.0, B) * (1 + i) for i in range(len(leaves))]
    )


def check(loss, params, batch, close):
    """Each within a share of the tensor's largest number."""
    weights = weights_of(params)

    def parts(params, batch):
        g = per_example(loss)(params, batch)
        return g.norms, g.weighted(weights), g.each()

    each = jax.tree.map(lambda g: np.asarray(g, np.float64), by_jax(loss, params, batch))
    norms = jax.tree.map(lambda g: np.linalg.norm(g.reshape(B, -1), axis=1), each)
    total = jax.tree.map(lambda w, g: np.tensordot(w, g, 1), weights, each)
    found = jax.jit(parts)(params, batch)
    for one, other in zip(*map(jax.tree.leaves, (found, (norms, total, each))), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=close * np.abs(other).max())


@tiers.every("name", CASES)
def test_norms_sums_and_gradients_are_those_of_vmap(name, monkeypatch):
    case = CASES[name]
    with monkeypatch.context() as patch:
        patch.setattr(factored_program, "pays", outer_product_gradients.pays)
        formed_from(patch, case.large)
        program = FactoredProgram(*case[1:4])
        found = zip(sorted(case.params), program.gradients(), strict=True)
        assert [k for k, g in found if not isinstance(g, Formed)] == sorted(case.factored)
        assert any(program._last) == (case.kind == "formed last")
        check(*case[1:4], case.close)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tied, scan, remat", "over time, remat"])
def test_short_floats_are_added_up_in_float32(name):
    """What is left are the roundings of the losses themselves, 2^-9 of every number."""
    _, loss, params, batch, *_ = CASES[name]
    check(models.in_bfloat16(loss), params, batch, 0.02)


@pytest.mark.slow
def test_a_transformer_of_flax():
    loss, params = models.transformer(True)
    check(loss, params, IN, 2e-4)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    for (path, _), g in zip(leaves, FactoredProgram(loss, params, IN).gradients(), strict=True):
        assert isinstance(g, Formed) != (path[-1].key in ("kernel", "embedding"))


@pytest.mark.slow
def test_clients_side_by_side():
    """Each with parameters of its own, and a base that all share."""
    _, loss, params, batch, *_ = CASES["tied, scan, remat"]
    base = params["layers"]
    several = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), {"table": params["table"]})

    def of_client(part):
        def with_base(p, e):
            return loss({**p, "layers": base, "biases": params["biases"]}, e)

        g = per_example(with_base)(part, batch)
        return g.norms["table"], g.weighted(g.norms)["table"]

    together = jax.jit(jax.vmap(of_client))(several)
    for client in range(2):
        alone = jax.jit(of_client)(jax.tree.map(lambda p, c=client: p[c], several))
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one[client], other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_record_that_is_masked_out_does_not_count():
    """Though its gradient is no number."""
    _, loss, params, batch, *_ = CASES["over time, remat"]

    def broken(p, e):
        return loss(p, e) * e["factor"]

    poisoned = {**batch, "factor": jnp.ones(B).at[2].set(jnp.nan)}
    clean = {**batch, "factor": jnp.ones(B)}
    mean = jax.jit(private_mean(per_example(broken), gaussian(0.5, 0.0), B))
    mask = jnp.arange(B) != 2
    one, other = (mean(jax.random.key(0), params, b, mask) for b in (poisoned, clean))
    for left, right in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(one))


@pytest.mark.slow
def test_a_single_record():
    _, loss, params, batch, *_ = CASES["tied, scan, remat"]
    one = jax.tree.map(lambda x: x[:1], batch)
    mean = jax.jit(private_mean(per_example(loss), gaussian(1e6, 0.0), 1))
    found = mean(jax.random.key(0), params, one, jnp.ones(1, bool))
    expected = jax.tree.map(lambda g: g[0], by_jax(loss, params, one))
    for left, right in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_a_gradient_that_is_longer_the_second_time_counts_no_longer():
    """As if rounding had halved the first norms: the sum moves by what they say."""
    _, loss, params, batch, *_ = CASES["scan"]
    program = FactoredProgram(loss, params, batch)

    class Halved:
        args, formed = program.args, program.formed

        def ask(self, asked, args, before=None):
            halved = before and [jax.tree.map(lambda n: n / 2, norms) for norms in before]
            return program.ask(asked, args, halved)

    ones = [jnp.ones(B)] * len(params)
    whole, half = (
        jax.jit(lambda p=p: asked_twice(p).weighted(ones))() for p in (program, Halved())
    )
    for one, other in zip(half, whole, strict=True):
        np.testing.assert_allclose(one, other / 2, rtol=1e-3, atol=1e-5)
