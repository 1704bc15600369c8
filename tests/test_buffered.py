"""Asynchronous rounds: what they compute, and what is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from buffered_runs import FREE, GAUSSIAN, LATE, TRAINING, K, certified, fed_buff, old
from correlated_runs import (
    CLIP,
    FEDERATION,
    ROUNDS,
    SIGMA,
    N,
    run,
)
from small import (
    assert_close,
    gradient,
    records,
    refused,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.proof.stream import participation_key, root_of, schedule_key
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import cohort_drawn


def by_numpy(algorithm, staleness, rounds=ROUNDS, seed=0, server=0.7, clip=CLIP):
    """f64[rounds + 1, d]: the models of a run without noise, each answer computed from the list of all models."""
    sampler, root = algorithm.sampler, root_of(jax.random.key(seed))
    memory, models = sampler.first_memory(), [vector(start())]

    @jax.jit
    def draw(t, memory):
        keys = participation_key(root, t), schedule_key(root, 0)
        return cohort_drawn(sampler, *keys, t, memory)

    for t in range(rounds):
        drawn, memory = draw(jnp.int32(t), memory)
        total = np.zeros(4)
        for i, there, d in zip(
            *map(np.asarray, (drawn.ids, drawn.mask, drawn.answer.delay)), strict=True
        ):
            if there:
                given = max(t - d, 0)
                step = -0.1 * 0.9**given * gradient(models[given], *records(FEDERATION, i))
                total += staleness(d) * step * min(1, clip / np.linalg.norm(step))
        models.append(models[-1] + server * total / sampler.expected_size)
    return np.array(models)


WHO = {
    "free": (FREE, None),
    "blocks": (fp.shuffled_blocks(N, 4), 5),
}


@pytest.mark.usefixtures("quick_to_compile")
class TestTraining:
    @tiers.every("name", WHO)
    def test_as_numpy_computes_it(self, name):
        """Weights that go above 1, a clip that some answers meet."""
        sampler, most_late = WHO[name]
        algorithm = fed_buff(
            sampler,
            staleness=lambda d: 3 * old(d),
            most_late=most_late,
            mechanism=fp.gaussian(0.05, 0.0),
            server=optax.sgd(0.7),
        )
        told = by_numpy(algorithm, lambda d: 3 * old(d), clip=0.05)
        ended = run(algorithm, every=ROUNDS, strategy=fp.Strategy()).state_of(0)
        assert_close(vector(ended.params), told[-1], 1e-4)
        rows = (most_late or 3) + 1
        for back in range(rows):
            kept = jax.tree.map(lambda leaf: leaf[(ROUNDS - back) % rows], ended.models)  # noqa: B023
            assert_close(vector(kept), told[ROUNDS - back], 1e-4)

    @pytest.mark.slow
    def test_parts_of_ones_own(self):
        """Whatever the client does with the model, and the server with the mean."""

        def client_update(key, params, shard):
            step = jax.tree.map(
                jnp.negative, fp.mean_grad(squared)(params, shard.examples, shard.mask)
            )
            return fp.Sent(step, diagnostics={"delay": jnp.float32(shard.delay)})

        def server_step(state, mean):
            params = jax.tree.map(lambda p, m: p + 0.1 * m, state.params, mean)
            return fp.ModelState(params, state.round + 1)

        made = fp.buffered(
            client_update,
            server_step,
            sampler=FREE,
            delay=fp.delays.constant(2),
            mechanism=GAUSSIAN,
        )
        history = run(made)
        assert all(e.diagnostics["delay"] == 2.0 for e in history.evaluations)


def weighted_by(factor, sampler=None):
    """Rounds of one's own whose mean counts `factor(cohort, diagnostics, what clients sent of their delays)`."""
    drawn = fed_buff(FREE if sampler is None else sampler).sampler

    def round(key, state, cohort):
        def client(key, shard):
            step = fp.mean_grad(squared)(state.params, shard.examples, shard.mask)
            return fp.Sent((step, shard.delay * 1.0), {"late": shard.delay * 1.0})

        mechanism = fp.joint(GAUSSIAN, fp.gaussian(3.0, SIGMA))
        (total, late), metrics, _ = cohort.sum(client, key, mechanism=mechanism)
        weight = factor(cohort, metrics["diagnostics"], late / K)
        params = jax.tree.map(lambda p, s: p - weight * s / K, state.params, total)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, drawn)


class TestPlantedFaults:
    @pytest.mark.parametrize(
        ("factor", "sampler", "said"),
        [
            (lambda c, seen, sent: 1 / (1 + seen["late"]), FREE, "depends on a client's data"),
            (
                lambda c, seen, sent: 1 / (1 + c.size),
                fp.poisson(N, 0.3),
                "depends on who takes part",
            ),
        ],
        ids=["the mean of true delays", "how many answer in secret"],
    )
    def test_a_weight_by_delays_that_were_not_public(self, factor, sampler, said):
        with refused(said, fp.LeakError):
            certified(weighted_by(factor, sampler))

    def test_a_delay_that_is_released_first(self):
        """As a number of each message, clipped and perturbed: that is sound."""
        found = certified(weighted_by(lambda c, seen, sent: 1 / (1 + jnp.maximum(sent, 0))))
        assert math.isfinite(found.epsilon)

    def test_a_delay_in_a_message_that_nothing_hides(self):
        def client_update(key, params, shard):
            return jax.tree.map(lambda p: p + shard.delay, params)

        made = fp.buffered(
            client_update,
            lambda state, mean: state._replace(params=mean, round=state.round + 1),
            sampler=FREE,
            delay=LATE,
        )
        assert certified(made).epsilon == math.inf

    @pytest.mark.parametrize("name", ["weight", "delay"])
    def test_a_weight_or_delay_that_follows_records(self, name):
        """Of a sampler made by hand: refused, whatever its draw looks at."""
        who, y = fp.fixed_size(N, K), FEDERATION.examples["y"]

        def draw(key):
            drawn = who.draw(key)
            return drawn._replace(answer=Answer(**{name: jax.nn.sigmoid(y[drawn.ids])}))

        by_hand = who._replace(draw=draw, seal=())
        made = fp.fed_avg(squared, sampler=by_hand, mechanism=GAUSSIAN, **TRAINING)
        with refused(f"draw: answer: .*{name}.*made by hand, it could follow the data"):
            certified(made)
