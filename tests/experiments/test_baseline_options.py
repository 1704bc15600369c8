"""The baselines' rows and options in Fed-SMP's configs, by what they hand to the library."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiers import every

import fedpriv as fp
from configs import quickstart
from fedpriv.algorithms.fed_opt import Moments
from fedpriv.experiments.config import Ledger
from fedpriv.experiments.papers.baselines import ROWS, Server, Weighting
from fedpriv.experiments.papers.fed_smp import Local


def steps(server: optax.GradientTransformation) -> list[float]:
    """Of three rounds, along gradients 1, -0.5 and 2."""
    state, found = server.init(jnp.float32(0)), []
    for gradient in (1.0, -0.5, 2.0):
        step, state = server.update(jnp.float32(gradient), state, jnp.float32(0))
        found.append(float(step))
    return found


FALLING = optax.exponential_decay(0.3, 1, 0.5)
SERVERS = [
    (Server(), optax.sgd(1.0)),
    (Server("momentum", momentum=0.7), optax.sgd(1.0, momentum=0.7)),
    (Server("adagrad", adaptivity=0.1), fp.fed_opt.adagrad(0.1, adaptivity=0.1)),
    (Server("adam"), fp.fed_opt.adam(0.01)),
    (Server("adam", 0.3, decay=0.5), fp.fed_opt.adam(FALLING)),
    (
        Server("yogi", momentum=0.5, second_momentum=0.9),
        fp.fed_opt.yogi(0.01, momentum=0.5, second_momentum=0.9),
    ),
]


@pytest.mark.parametrize(
    ("settings", "expected"), SERVERS, ids=lambda s: getattr(s, "optimizer", "")
)
def test_the_server_s_settings(settings, expected):
    assert steps(settings.made()) == steps(expected)


def ledger(**changes) -> Ledger:
    return quickstart.ledger(dataclasses.replace(quickstart.settings, **changes))


@pytest.mark.slow
def test_rows_name_their_optimiser_and_the_option_is_all_others():
    names = [*ROWS, *(f"dp_{row}" for row in ROWS), "dp_fed_avg", "top_k"]
    rows = ledger(algorithms=tuple(names), server=Server("momentum"))
    params = quickstart.MODEL.init(jax.random.key(0))
    for name, entry in rows.entries.items():
        state = entry.algorithm.init(params, entry.federations[0]).server
        adaptive = ROWS.get(name.removeprefix("dp_"), "momentum") != "momentum"
        assert any(isinstance(part, Moments) for part in state) == adaptive
        assert jax.tree.leaves(state)


@pytest.mark.slow
def test_private_rows_cost_what_dp_fed_avg_costs():
    rows = ledger(algorithms=("dp_fed_avg", "dp_fed_yogi", "fed_yogi"))
    cost = {name: rows.certify(name, 10).epsilon for name in rows.entries}
    assert 0 < cost["dp_fed_yogi"] == cost["dp_fed_avg"] < np.inf
    assert cost["fed_yogi"] == np.inf


@pytest.mark.slow
def test_weights_reach_the_sum():
    rows = ledger(algorithms=("dp_fed_avg", "top_k"), weighting=Weighting(12, 0.9, "clipped"))
    for name in rows.entries:
        certificate = rows.certify(name, 10, view="server_secagg")
        assert "divided by the clients' weights" in str(certificate)


def test_local_training_is_fed_prox():
    """A second step is pulled back to the start; without mu the optimiser is what it was."""

    def trained(local):
        optimizer, w = local.optimizer(jnp.int32(0)), jnp.float32(2)
        state = optimizer.init(w)
        for _ in range(2):
            step, state = optimizer.update(jnp.float32(1), state, w)
            w = w + step
        return float(w)

    plain = Local(learning_rate=0.1, momentum=0.0)
    np.testing.assert_allclose(trained(plain), 2 - 0.2, rtol=1e-6)
    pulled = dataclasses.replace(plain, proximal=3.0)
    np.testing.assert_allclose(trained(pulled), 2 - 0.2 + 0.1 * 3 * 0.1, rtol=1e-6)


@pytest.mark.slow
@every("steps", [2, None], kind=lambda steps: 0)
def test_local_batches_are_taken_in_parts(steps):
    """Three records: a part has no more than two of them."""
    seen = []

    def grad(params, batch, mask):
        seen.append(batch.shape)
        return jnp.sum(jnp.where(mask, batch, 0.0)) / jnp.maximum(jnp.sum(mask), 1)

    for micro in (2, None):
        batches = Local(epochs=1, steps=steps, batch_size=3, micro=micro).batches()
        shard = fp.Shard(jnp.arange(3.0), jnp.int32(3))
        given = {"grad": grad, "optimizer": optax.sgd(1.0), "batches": batches}
        taken = fp.train_locally(jax.random.key(0), jnp.float32(0), shard, **given)
        np.testing.assert_allclose(taken, -1.0 * (steps or 1))
        assert {*seen} == {(micro or 3,)}
        seen.clear()
