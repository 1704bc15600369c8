"""FedAvg of a part at a time: FFA-LoRA, RoLoRA, LA-LoRA and FedSVD against loops in NumPy and optax."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import assert_close, assert_identical, classification, filled, one_round

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(3)
FEDERATION, _, LOGISTIC = classification(clients=4)
LORA = fp.models.adapters(LOGISTIC, filled(LOGISTIC.init), rank=2)
KERNEL = "params.Dense_0.kernel"
START = jax.tree.map(lambda leaf: leaf + 0.1, LORA.init(KEY))
ROUNDS = {
    "sampler": fp.fixed_size(4, 2),
    "optimizer": lambda t: optax.sgd(0.5, momentum=0.5),
    "batches": fp.epochs(2, 2),
}
ALONE = {**ROUNDS, "sampler": fp.everyone(4), "batches": fp.random_batches(3, 2)}
NOISY = fp.gaussian(0.3, 1.0)


def after(algorithm, rounds, params=START):
    """The state after each round, the first before any."""
    state = algorithm.init(params, FEDERATION)
    states = [state]
    for t in range(rounds):
        state, _ = one_round(algorithm)(jax.random.key(t), state, FEDERATION)
        states.append(state)
    return states


def moved(states):
    """For each round, the names of the factors that it changed."""
    found = []
    for before, now in pairwise(states):
        pairs = [(name, before.params[KERNEL][name], now.params[KERNEL][name]) for name in "AB"]
        found.append("".join(name for name, old, new in pairs if not np.array_equal(old, new)))
    return found


TURNS = {
    "in turn": (("B$", "A$"), "rounds", ["B", "A", "B"]),
    "by steps": (("B$", "A$"), "steps", ["AB", "AB", "AB"]),
}


@pytest.mark.slow
@tiers.every("name", TURNS)
def test_noise_and_training_reach_only_what_has_its_turn(name):
    """A server with momentum, whose velocity of the part that waits must not move it."""
    turns, by, expected = TURNS[name]
    algorithm = fp.fed_avg_alternating(
        LORA.loss,
        turns=turns,
        by=by,
        mechanism=NOISY,
        server=optax.sgd(1.0, momentum=0.9),
        **ROUNDS,
    )
    assert moved(after(algorithm, 3)) == expected


@pytest.mark.slow
def test_a_round_of_b_is_that_of_dp_fed_avg_which_has_nothing_else():
    """FFA-LoRA without noise, clipping included."""
    frozen = fp.models.frozen(LORA, START, "B$")
    given = {**ROUNDS, "mechanism": fp.gaussian(0.05, 0.0)}
    expected = after(fp.fed_avg(frozen.loss, **given), 2, frozen.init(KEY))[-1].params
    ours = after(fp.fed_avg_alternating(LORA.loss, turns=("B$",), **given), 2)[-1].params
    assert not np.allclose(ours[KERNEL]["B"], START[KERNEL]["B"])
    assert_close(LORA.merged(ours), frozen.merged(expected))


def by_hand(turn_of_step):
    """One round of everybody, three full-batch steps each by optax, with a momentum for each factor."""
    optimizer, total = optax.sgd(0.5, momentum=0.5), jax.tree.map(jnp.zeros_like, START)
    mean = lambda p, own: jax.vmap(lambda x: LORA.loss({KERNEL: p}, x))(own).mean()  # noqa: E731
    slope, updated = jax.jit(jax.grad(mean)), jax.jit(optimizer.update)
    for client in range(4):
        rows = np.asarray(FEDERATION.rows)[client][: int(FEDERATION.size[client])]
        own = jax.tree.map(lambda leaf, rows=rows: leaf[rows], FEDERATION.examples)
        theta = dict(START[KERNEL])
        states = {name: optimizer.init(theta[name]) for name in "AB"}
        for step in range(3):
            name = turn_of_step(step)
            update, states[name] = updated(slope(theta, own)[name], states[name])
            theta[name] = theta[name] + update
        change = {KERNEL: jax.tree.map(jnp.subtract, theta, START[KERNEL])}
        total = jax.tree.map(jnp.add, total, change)
    return jax.tree.map(lambda p, s: p + s / 4, START, total)


def test_local_steps_are_those_of_a_loop():
    """Batches of all records, so that which are drawn does not matter."""
    most = int(max(FEDERATION.size))
    given = {**ALONE, "batches": fp.random_batches(3, most)}
    algorithm = fp.fed_avg_alternating(LORA.loss, by="steps", **given)
    assert_close(after(algorithm, 1)[-1].params, by_hand(lambda s: "BAB"[s]))


@pytest.mark.slow
def test_a_message_is_as_long_as_the_largest_part():
    """A is [4, 2], and B [2, 3]."""
    for options, sent in (({}, 8), ({"turns": ("B$",)}, 6), ({"by": "steps"}, 14)):
        algorithm = fp.fed_avg_alternating(LORA.loss, mechanism=NOISY, **options, **ROUNDS)
        (stage,) = fp.trace_round(algorithm, START, FEDERATION).stages
        assert stage.uplink == 32 * sent, options


@pytest.mark.slow
def test_the_server_factors_anew_after_each_round():
    """FedSVD: the merged model is that of FFA-LoRA after the first round, and A's columns are orthonormal."""
    plain, factored = (
        after(fp.fed_avg_alternating(LORA.loss, turns=("B$",), after=f, **ALONE), 2)
        for f in (None, fp.models.refactored)
    )
    assert_close(LORA.merged(factored[1].params), LORA.merged(plain[1].params))
    for state in factored[1:]:
        a = state.params[KERNEL]["A"]
        assert_close(a.T @ a, np.eye(2), rtol=1e-5)
    assert_identical(plain[2].params[KERNEL]["A"], START[KERNEL]["A"])


@tiers.every("layers", [(3,), ()], lambda layers: "any")
@tiers.every("zero", [False, True])
def test_factoring_anew_keeps_the_product(layers, zero):
    """The same matrix as from NumPy's decomposition of the whole product, in double precision."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(*layers, 6, 2)).astype(np.float32)
    b = rng.normal(size=(*layers, 2, 5)).astype(np.float32) * (0.0 if zero else 1.0)
    new = fp.models.refactored({"": {"A": jnp.asarray(a), "B": jnp.asarray(b)}})[""]
    assert_close(new["A"] @ new["B"], a @ b, rtol=1e-5)
    identity = np.broadcast_to(np.eye(2), (*layers, 2, 2))
    assert_close(np.swapaxes(new["A"], -1, -2) @ new["A"], identity, rtol=1e-5)
    singular = np.linalg.svd(np.float64(a) @ np.float64(b), compute_uv=False)[..., :2]
    assert_close(np.linalg.norm(new["B"], axis=-1), singular, rtol=1e-5)


@pytest.mark.slow
def test_the_certificate_is_that_of_dp_fed_avg():
    made = {
        (by, turns): fp.fed_avg_alternating(
            LORA.loss,
            turns=turns,
            by=by,
            after=fp.models.refactored,
            mechanism=NOISY,
            **ROUNDS,
        )
        for by, turns in [("rounds", ("B$", "A$")), ("steps", ("B$", "A$"))]
    }
    expected = fp.certify(
        fp.fed_avg(LORA.loss, mechanism=NOISY, **ROUNDS), START, FEDERATION, 4, 1e-3
    )
    for algorithm in made.values():
        found = fp.certify(algorithm, START, FEDERATION, 4, 1e-3)
        assert (found.basis, found.epsilon) == ("constructed", expected.epsilon)
        assert found.assumptions == expected.assumptions
