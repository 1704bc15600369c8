"""DP-SGD in federated learning: its limits, schedules of clip norm and noise, what is seen of it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from noise import check_noise
from small import (
    assert_close,
    gradient,
    one_round,
    records,
    regression,
    released,
    squared,
    start,
    vector,
)

from fedpriv import (
    LocalSteps,
    dp_sgd,
    dynamic,
    everyone,
    gaussian,
    mechanism,
    per_example,
    poisson,
    with_replacement,
)
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.clipping import per_level
from fedpriv.mechanisms.noise import isotropic
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@tiers.every("bounding", ["gaussian", "per_level"])
def test_dp_sgd_without_clip_and_noise_is_its_optimiser(bounding):
    """DP-Adam and DP-AdaGrad on full batches: optax by itself on the client's mean gradient, by hand."""
    federation = regression([6])
    used, optimizer = gaussian(math.inf, 0), optax.adam(0.1)
    if bounding == "per_level":
        used = mechanism(per_level(4), isotropic(), clip_norm=math.inf, noise_multiplier=0)
        optimizer = optax.adagrad(0.1)
    local = LocalSteps(per_example(squared), everyone(6), 7, lambda t: optimizer, used)
    algorithm = dp_sgd(local, sampler=everyone(1))
    state = algorithm.init(start(), federation)
    after, _ = one_round(algorithm)(jax.random.key(0), state, federation)

    y = jnp.asarray(vector(start()), jnp.float32)
    carried, update = optimizer.init(y), jax.jit(optimizer.update)
    for _ in range(7):
        slope = gradient(np.asarray(y, np.float64), *records(federation, 0))
        updates, carried = update(jnp.asarray(slope, jnp.float32), carried, y)
        y = y + updates
    assert_close(flatten(after.params), y, 1e-5)


@pytest.mark.slow
def test_noise_falls_with_the_schedule():
    """C_t sigma_t / L of one client that is at rest, in the first and in the last piece of a schedule."""
    federation = regression([6])
    falling = dynamic(gaussian(1e-6, 3e6), rounds=4, clip_decay=4.0, noise_decay=9.0, parts=2)
    local = LocalSteps(per_example(squared), everyone(6), 1, lambda t: optax.sgd(1.0), falling)
    algorithm = dp_sgd(local, sampler=everyone(1))
    state = algorithm.init(start(), federation)

    run = one_round(algorithm)

    def moved(t):
        def move(key):
            after, _ = run(key, state._replace(round=jnp.int32(t)), federation)
            return flatten(state.params) - flatten(after.params)

        return move

    check_noise(moved(0), 3 / 6, draws=2000)
    check_noise(moved(3), 3 / 6 / 2 / 3, draws=2000)  # halfway: sqrt(4) and sqrt(9)


def test_a_schedule_is_composed_piece_by_piece():
    drawn = poisson(600, 0.1, 120)

    def seen(used, rounds):
        local = LocalSteps(per_example(squared), drawn, 5, lambda t: optax.sgd(0.1), used)
        return released(dp_sgd(local, sampler=everyone(3)), rounds, records=600)["server"]

    falling = dynamic(gaussian(1.0, 2.0), rounds=10, noise_decay=4.0, parts=2)
    assert seen(falling, 10) == [*seen(gaussian(1.0, 2.0), 5), *seen(gaussian(1.0, 1.0), 5)]
    assert seen(falling, 7) == [*seen(gaussian(1.0, 2.0), 5), *seen(gaussian(1.0, 1.0), 2)]
    assert len(seen(gaussian(1.0, 2.0), 10)) == 1


def test_a_record_that_is_drawn_again_and_again():
    """With replacement one record may fill a whole lot: it moves the sum by as many clip norms as it is drawn."""
    made = LocalSteps(
        per_example(squared),
        with_replacement(np.ones(2), 10),
        1,
        lambda t: optax.sgd(0.1),
        gaussian(1.0, 20.0),
    )
    for (seen,) in released(dp_sgd(made, sampler=everyone(1)), 1, records=2).values():
        assert plays_of(seen).multiplier == 20.0
        assert plays_of(seen).drawn == made.records.accounting


def test_only_a_step_that_the_cohort_takes_together_is_hidden_by_all_of_its_noise():
    """Whatever the optimiser; a record that a message shows through its client's own noise has no more than that."""

    def multipliers(optimizer, together, unit="record"):
        local = LocalSteps(
            per_example(squared), everyone(6), 1, lambda t: optimizer, gaussian(1.0, 1.0), unit
        )
        algorithm = dp_sgd(local, sampler=everyone(16), together=together)
        return [plays_of(seen).multiplier for (seen,) in released(algorithm, 1, records=6).values()]

    own = [1.0, 1.0, 1.0]
    summed = [4.0, 1.0, 4.0]  # third party, server, behind secagg
    for optimizer in (optax.sgd(0.1, 0.9, nesterov=True), optax.adam(0.1)):
        assert multipliers(optimizer, together=True) == summed
        assert multipliers(optimizer, together=False) == own
    assert multipliers(optax.sgd(0.1), together=True, unit="client") == [x / 6 for x in own]
