"""The hidden stream: what comes from it has a key of its own, and no round can ask for one twice.

Each statistical test refuses a sound stream with probability 1e-6; seeds are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    SIGMA,
    State,
    starting,
    two_sums,
)
from scipy import stats
from small import FALSE_ALARM, assert_normal

import fedpriv as fp
from fedpriv.core.random_streams import DROPOUT, NOISE, RECORDS
from fedpriv.core.trees import flatten
from fedpriv.proof.stream import (
    NoiseStream,
    participation_key,
    public_key,
    root_of,
    round_of,
    schedule_key,
)
from fedpriv.rounds.client_stream import ClientStream
from fedpriv.rounds.samplers import Opening

pytestmark = pytest.mark.usefixtures("quick_to_compile")

EVERYONE = fp.everyone(CLIENTS)


REPEATED = {
    "fold_in(k, i - i % 2)": lambda k: [jax.random.fold_in(k, i - i % 2) for i in range(2)],
    "split(k, K - 1)[i]": lambda k: [jax.random.split(k, 1)[i] for i in range(2)],
    "the same key": lambda k: [k, k],
    "a constant": lambda k: [jax.random.key(0), jax.random.key(0)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REPEATED)
def test_sums_of_one_key_have_noise_of_their_own(name):
    algorithm = two_sums(REPEATED[name])
    assert np.isfinite(fp.certify(algorithm, PARAMS, FEDERATION, 1, 1e-3).epsilon)
    found = jax.jit(
        lambda root: fp.one_round(algorithm)(root, State(PARAMS, jnp.int32(0)), FEDERATION)
    )
    moves = [
        flatten(jax.tree.map(jnp.subtract, found(jax.random.key(i))[0].params, PARAMS))
        for i in range(40)
    ]
    assert_normal(np.array(moves), CLIP * SIGMA / np.sqrt(2))


def test_a_clip_norm_computed_in_a_round_bounds_what_float32_sees():
    def message(key, shard, state):
        return jnp.full(1000, 5e-20)

    tiny = GAUSSIAN.at(jnp.float32(1e-25), SIGMA)
    bounded, _ = jax.jit(lambda u: GAUSSIAN.at(jnp.float32(1e-25), SIGMA).clip(u))(
        message(None, None, None)
    )
    assert float(tiny.clip_norm) >= 1e-12 * (1 - 1e-6)
    assert np.linalg.norm(np.asarray(bounded, np.float64)) <= float(tiny.clip_norm) * (1 + 1e-4)


def branches():
    """All keys of some rounds, those that are drawn from and those that they descend from."""
    fold, keys = jax.random.fold_in, []
    for seed in (0, 1):
        root = root_of(jax.random.key(seed))
        keys += [root, *(schedule_key(root, part) for part in (0, 1))]
        for t in (0, 1, 2):
            calls = NoiseStream(round_of(root, t))
            keys += [round_of(root, t), public_key(root, t), participation_key(root, t)]
            for _ in range(3):
                call = calls.begin("")
                keys += [call, fold(call, NOISE)]
                for i in range(3):
                    stream = ClientStream(fold(call, i))
                    keys += [fold(call, i), stream.own_noise_key, *of_steps(stream)]
    return keys


def of_steps(stream):
    """A private mean, a loop of two steps of two private means each, and another mean."""

    def mean():
        key = stream.begin("")
        return [key, *(jax.random.fold_in(key, number) for number in (RECORDS, NOISE, DROPOUT))]

    keys, loop = mean(), stream.begin("")
    for k in range(2):
        with stream.turns(jax.random.fold_in(loop, k), 2):
            keys += [jax.random.fold_in(loop, k), *mean(), *mean()]
    return [*keys, loop, *mean()]


def test_no_two_branches_share_a_key():
    words = np.stack([np.asarray(jax.random.key_data(key)) for key in branches()])
    assert len(np.unique(words, axis=0)) == len(words)


def noises(seeds, rounds):
    """f32[seeds, rounds, calls, clients, steps, d] of private means, and f32[seeds, rounds, calls, d] of sums."""
    step_noise = fp.gaussian(1.0, 1.0)
    nothing = fp.per_example(lambda params, example: 0.0 * params["w"].sum())
    d, steps = 3, 2

    def round(key, state, cohort):
        def client(key, shard):
            def step(k, carry):
                mean = shard.private_mean(
                    nothing, {"w": jnp.zeros(d)}, records=fp.everyone(3), mechanism=step_noise
                )
                return carry.at[k].set(mean["w"])

            found = shard.private_steps(step, jnp.zeros((steps, d)), steps=steps)
            return jnp.zeros((CLIENTS, steps, d)).at[shard.client_id].set(found)

        of_clients_, of_sums = [], []
        for _ in range(2):
            total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
            of_clients_.append(total)
            zeros = lambda key, shard: {"a": jnp.zeros(d), "b": jnp.zeros(d)}  # noqa: E731
            of_sums.append(cohort.sum(zeros, key, mechanism=step_noise).total)
        both = jnp.stack(of_clients_), jax.tree.map(lambda *x: jnp.stack(x), *of_sums)
        return State(state.params, state.round + 1, both), metrics

    like = (
        jnp.zeros((2, CLIENTS, steps, d)),
        {"a": jnp.zeros((2, d)), "b": jnp.zeros((2, d))},
    )
    sampler = Opening(EVERYONE, 1, EVERYONE)
    algorithm = fp.Algorithm(starting(like), round, sampler, unit="record")

    def once(which):
        seed, t = jnp.divmod(which, rounds)
        state = State(PARAMS, t, like)
        (_, _, (mean, total)), _ = fp.one_round(algorithm)(jax.random.key(seed), state, FEDERATION)
        return 3 * mean, jnp.concatenate([total["a"], total["b"]], 1)  # the sum of three records

    every = jnp.arange(seeds * rounds)
    return jax.tree.map(np.asarray, jax.jit(lambda: jax.lax.map(once, every))())


def test_noises_are_independent_and_as_loud_as_declared():
    """Of seeds, rounds, both parts of an `Opening`, calls, clients, steps and leaves: by their correlations."""
    means, sums = noises(seeds=100, rounds=3)
    assert_normal(means, 1.0)
    assert_normal(sums, 1.0)
    count = len(means)
    rows = np.concatenate([means.reshape(count, -1), sums.reshape(count, -1)], 1)
    # Every two of them, over seeds and rounds; then of one round and the next, and of one seed and the next.
    for later in (0, 1, 3):
        one, other = rows[: count - later], rows[later:]
        n, z = count - later, lambda x: (x - x.mean(0)) / x.std(0)
        r = z(one).T @ z(other) / n
        r = r[np.triu_indices(len(r), 1)] if later == 0 else r.ravel()
        t = stats.t.isf(FALSE_ALARM / 2 / r.size, n - 2)  # exact for normals
        assert np.abs(r).max() < t / np.sqrt(n - 2 + t**2) < 0.5


def test_the_public_keys_of_a_run_are_of_the_default_generator():
    def of(make):
        return jax.eval_shape(make).dtype

    usual = of(lambda: jax.random.key(0))
    for name in ("threefry2x32", "rbg", "unsafe_rbg"):
        with jax.default_prng_impl(name):
            root = root_of(jax.random.key(0))
            assert of(lambda root=root: public_key(root, 1)) == of(lambda: jax.random.key(0))
            assert root.dtype == usual
