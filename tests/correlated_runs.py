"""Short algorithms with correlated noise that the tests share, matrices, and independent answers for them."""

from functools import cache, partial
from itertools import combinations, pairwise

import jax
import jax.numpy as jnp
import numpy as np
from drawn_rounds import draws_of
from scipy import optimize, stats
from small import (
    regression,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.mechanisms.noise_matrices import BufferedToeplitz

N, SIZE, ROUNDS, CLIP, SIGMA = 12, 4, 9, 0.5, 0.8
FEDERATION = regression([3] * N)
MATRICES = {
    "tree": lambda: fp.noise_matrices.tree(ROUNDS),
    "banded": lambda: fp.noise_matrices.banded(ROUNDS, 3),
    "banded_toeplitz": lambda: fp.noise_matrices.banded_toeplitz(ROUNDS, 3),
    "banded_inverse": lambda: fp.noise_matrices.banded_inverse(ROUNDS, 3),
    "blt": lambda: BufferedToeplitz(
        ROUNDS, (0.9, 0.5), (0.3, 0.2)
    ),  # not optimised: that takes long
}


@cache
def matrix_of(name):
    return MATRICES[name]()


def silent(key, shard):
    """A client that sends nothing, so that the noise alone moves the model."""
    return jax.tree.map(jnp.zeros_like, start())


def gradient_of(params, key, shard):
    return fp.mean_grad(squared)(params, shard.examples, shard.mask)


def descent(mechanism, sampler, client=None):
    """theta <- theta - (noisy sum) / (expected size): as short as an algorithm can be."""

    def round(key, state, cohort):
        send = client or partial(gradient_of, state.params)
        total, metrics, _ = cohort.sum(send, key, mechanism=mechanism)
        step = jax.tree.map(lambda s: s / cohort.expected_size, total)
        params = jax.tree.map(jnp.subtract, state.params, step)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, sampler)


def correlated(matrix, clip=CLIP, sigma=SIGMA):
    return fp.correlated(fp.gaussian(clip, sigma), matrix)


def run(algorithm, **options):
    given = {"rounds": ROUNDS, "every": 1, "score": lambda p, e: {"loss": squared(p, e)}}
    test = jax.tree.map(lambda leaf: leaf[:5], FEDERATION.examples)
    federation = options.pop("federation", FEDERATION)
    return fp.simulate(algorithm, start(), federation, test, **given | options)


def models(algorithm, rounds=ROUNDS, **options):
    """f64[rounds + 1, d], after each round."""
    seen = [vector(start())]
    run(
        algorithm,
        measure=lambda state, _: {f"p{i}": x for i, x in enumerate(_flat(state.params))},
        record=lambda e: seen.append(np.array([e.measures[f"p{i}"][0] for i in range(4)])),
        rounds=rounds,
        **options,
    )
    return np.array(seen, np.float64)


def _flat(params):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])


def of_parts(mechanism, sampler):
    def round(key, state, cohort):
        def send(key, shard):
            return silent(key, shard), jnp.zeros(2)

        (total, _), metrics, _ = cohort.sum(send, key, mechanism=mechanism)
        params = jax.tree.map(jnp.add, state.params, total)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, sampler)


def gaussian_epsilon(mu, delta):
    """Of N(0, 1) against N(mu, 1), by the exact curve (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon):
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return stats.norm.cdf(a) - np.exp(epsilon) * stats.norm.cdf(b) - delta

    return optimize.brentq(excess, 0, 200)


def by_all_patterns(c, separation, most=None):
    """The largest sum of |C^T C| over every set of rounds, `most` at most, that are so far apart."""
    gram, rounds = np.abs(c.T @ c), range(c.shape[1])
    some = (p for k in rounds[:most] for p in combinations(rounds, k + 1))
    apart = (p for p in some if all(b - a >= separation for a, b in pairwise(p)))
    return max(gram[np.ix_(p, p)].sum() for p in apart) ** 0.5


def certificate(algorithm, rounds=ROUNDS, **options):
    return fp.certify(algorithm, start(), FEDERATION, rounds, 1e-5, **options)


def drawing(sampler, rounds):
    """key -> who takes part in each round, by the draws alone; compiled once for all keys."""
    draws = draws_of(sampler, rounds)

    def taking_part(key):
        drawn = draws(key)
        each = zip(np.asarray(drawn.ids), np.asarray(drawn.mask), strict=True)
        return [ids[mask].tolist() for ids, mask in each]

    return taking_part


def cohorts(sampler, rounds, seed=0, key=None):
    """Who takes part in each round of one run."""
    return drawing(sampler, rounds)(jax.random.key(seed) if key is None else key)
