"""Model splitting and consensus: invariants, limits, the paper's matrices and conditions."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from scipy import stats
from small import FALSE_ALARM

import fedpriv.algorithms.consensus
from fedpriv.algorithms.consensus import (
    check_coupling,
    coupling,
    eigenvalues,
    exchange,
    full_precision,
    interval_scale,
)
from fedpriv.algorithms.splitting import Submodels
from fedpriv.papers import consensus, splitting

pytestmark = pytest.mark.usefixtures("quick_to_compile")

M, D = 4, 7
EXACT = full_precision()
SPLITTINGS = {
    "uniform": splitting.uniform(0.3),
    "laplace": splitting.laplace(0.5, 2.0),
    "gaussian": splitting.gaussian(0.4),
}

agree = jax.jit(
    fedpriv.algorithms.consensus.agree, static_argnames=("coupling", "transmission", "most")
)
move = jax.jit(exchange)


def agreed(begun, used, way, rounds, most, sent=None, key=7):
    """Consensus from these submodels, of which the visible ones were sent as they are."""
    sent = EXACT.send(None, begun.visible, begun.visible, None) if sent is None else sent
    return agree(jax.random.key(key), begun, sent, used, way, rounds, most)


@functools.partial(jax.jit, static_argnames=("most", "by"))
def split(key, models, m, most, by="uniform"):
    """The cohort's submodels, without quantization."""
    slots = len(models)
    a = jax.vmap(SPLITTINGS[by].draw)(jax.random.split(key, slots), models, m)
    keys = jax.random.split(jax.random.fold_in(key, 1), slots)
    b = jax.vmap(lambda k, w, a, m: splitting.invisible(k, w, a, m, most))(keys, models, a, m)
    return Submodels(a, b, (jnp.arange(most) < m[:, None]).astype(models.dtype))


MODELS = jax.random.normal(jax.random.key(0), (M, D))
UNEQUAL = jnp.array([1, 3, 2, 3])
PAPER, LASTING, FAST = coupling(0.5, 0.1), coupling(0.5, 0.1, "none"), coupling(0.4, 0.2)


@tiers.every("name", SPLITTINGS)
def test_submodels_add_up(name):
    with jax.enable_x64(True):
        models = MODELS.astype(jnp.float64)
        a, b, weights = split(jax.random.key(1), models, UNEQUAL, 3, name)
        total = a + b.sum(1)
        np.testing.assert_allclose(total, (1 + UNEQUAL)[:, None] * models, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(weights.sum(1), UNEQUAL)
        assert not np.any(np.where(weights[..., None] > 0, 0, b))
        apart = np.asarray(b[1, 0] - b[1, 1])
        assert np.abs(apart).min() > 1e-3  # the invisible ones differ


@pytest.mark.slow
def test_the_distributions_of_the_visible_submodel():
    keys = jax.random.split(jax.random.key(2), 20_000)
    w, m = jnp.array([2.0, -1.0]), jnp.int32(3)
    laws = {
        "uniform": lambda w: stats.uniform(*((0.3 * w, 3.4 * w) if w > 0 else (3.7 * w, -3.4 * w))),
        "laplace": lambda w: stats.laplace(w, 0.25),
        "gaussian": lambda w: stats.norm(w, 0.4),
    }
    for name, law in laws.items():
        draw = jax.jit(jax.vmap(lambda k, n=name: SPLITTINGS[n].draw(k, w, m)))
        drawn = np.asarray(draw(keys))
        for j in range(2):
            assert stats.kstest(drawn[:, j], law(float(w[j])).cdf).pvalue > FALSE_ALARM


def test_only_the_laplace_splitting_has_a_claim():
    claim = splitting.laplace(0.5, 2.0).claim
    assert claim is not None
    assert claim.epsilon == 2
    assert not claim.sound
    assert splitting.uniform(0.3).claim is None


def paper_matrix(size, most, e, alphas):
    """P[k] of eq. 41 (eq. 44 for one submodel); alphas: [most, M], 0 where there is none."""
    u = np.eye(size) - e * (np.eye(size) - np.ones((size, size)) / size)
    p = np.zeros(((1 + most) * size, (1 + most) * size))
    p[:size, :size] = u - np.diag(alphas.sum(0))
    for n, alpha in enumerate(alphas, 1):
        rows = slice(n * size, (n + 1) * size)
        p[:size, rows] = p[rows, :size] = np.diag(alpha)
        p[rows, rows] = np.eye(size) - np.diag(alpha)
    return p


@pytest.mark.slow
@pytest.mark.parametrize(("m", "least"), [([1, 3, 2, 3], 0.2), ([1, 1, 1, 1], 1.0)])
def test_an_exchange_is_the_paper_s_matrix(m, least):
    """With equal weights, and with some of every client and submodel."""
    most, e, alpha = max(m), 0.4, 0.07
    real = np.arange(most)[:, None] < np.array(m)
    weights = real * np.random.default_rng(0).uniform(least, 1, real.shape)
    p = paper_matrix(M, most, e, alpha * weights)
    with jax.enable_x64(True):
        rows = jnp.eye((1 + most) * M, dtype=jnp.float64)  # each submodel a unit vector
        start = Submodels(
            rows[:M], rows[M:].reshape(most, M, -1).swapaxes(0, 1), jnp.asarray(weights.T)
        )
        new = exchange(start, start.visible.mean(0), start.visible, e, jnp.float64(alpha))
    got = np.concatenate(
        [new.visible, np.asarray(new.invisible).swapaxes(0, 1).reshape(most * M, -1)]
    )
    np.testing.assert_allclose(got, p, atol=1e-15)


OWN = jax.random.uniform(jax.random.key(9), (M, 3), minval=0.2)


@tiers.every("decay", ["linear", "root"])
def test_a_trajectory_with_own_weights_is_the_paper_s_matrices(decay):
    """All that is sent, and what is not, after each of 6 exchanges: P[5] ... P[0] (eq. 41), by NumPy."""
    used, m = coupling(0.4, 0.1, decay), UNEQUAL
    begun = split(jax.random.key(3), MODELS, m, 3)._replace(
        weights=jnp.where(jnp.arange(3) < m[:, None], OWN, 0)
    )
    end = agreed(begun, used, EXACT, 6, 6)
    hidden = np.asarray(begun.invisible, np.float64).swapaxes(0, 1).reshape(3 * M, D)
    state = np.concatenate([np.asarray(begun.visible, np.float64), hidden])
    for k in range(7):
        np.testing.assert_allclose(end.messages[k], state[:M], atol=2e-6)
        if k < 6:
            alphas = 0.1 * np.array(DECAY[decay](k)) * np.asarray(begun.weights, np.float64).T
            state = paper_matrix(M, 3, 0.4, alphas) @ state
    found = np.asarray(end.submodels.invisible).swapaxes(0, 1).reshape(3 * M, D)
    np.testing.assert_allclose(found, state[M:], atol=2e-6)


DECAY = {"linear": lambda k: 1 / (k + 1), "root": lambda k: (k + 1) ** -0.5, "none": lambda k: 1}


def one_weight(begun, used, rounds):
    """What is sent where one alpha[k] stands for every pair, as eq. 3 reads with equal weights."""
    a, b, weights = begun
    sent = [a]
    for k in range(rounds):
        alpha = jnp.float32(used.gamma * used.decay(k))
        apart = jnp.where(weights[..., None] > 0, b - a[:, None], 0.0)
        a, b = a + used.step * (a.mean(0) - a) + alpha * jnp.sum(apart, 1), b - alpha * apart
        sent.append(a)
    return jnp.stack(sent)


@pytest.mark.slow
def test_equal_weights_are_one_weight_to_the_bit():
    begun = split(jax.random.key(3), MODELS, UNEQUAL, 3)
    both = [
        jax.jit(lambda begun: one_weight(begun, PAPER, 4))(begun),
        agreed(begun, PAPER, EXACT, 4, 4).messages,
    ]
    np.testing.assert_array_equal(*both)


@pytest.mark.slow
def test_weights_that_are_a_half_are_half_a_gamma():
    """Of messages, and of the interval, whose width goes by the largest weight there is."""
    begun, way = split(jax.random.key(4), MODELS, UNEQUAL, 3), consensus.dynamic(8)
    halved = begun._replace(weights=begun.weights / 2)
    one, other = agreed(begun, coupling(0.5, 0.05), way, 5, 5), agreed(halved, PAPER, way, 5, 5)
    np.testing.assert_array_equal(one.messages, other.messages)
    assert one.width == other.width > 0


@pytest.mark.slow
def test_the_interval_covers_what_moves_a():
    """Where two submodels stand on either side of a, their sum is 0, and a moves nonetheless."""
    apart = jnp.ones((M, 1))
    now = Submodels(jnp.zeros((M, 1)), jnp.stack([apart, -apart], 1), jnp.array([[1, 0.2]] * M))
    assert consensus.dynamic(8).distance(now) == pytest.approx(0.8 * M**0.5)
    assert consensus.dynamic(8, "columns").distance(now) == pytest.approx(0.8 * M**0.5)
    equal = now._replace(weights=jnp.ones((M, 2)))
    assert consensus.dynamic(8).distance(equal) == 0


def test_eigenvalues_of_u():
    for size, e in ((4, 0.3), (7, 0.9), (2, 1.3), (1, 0.5)):
        u = np.eye(size) - e * (np.eye(size) - np.ones((size, size)) / size)
        values = np.sort(np.linalg.eigvalsh(u))[::-1]
        second = values[1] if size > 1 else 1.0
        np.testing.assert_allclose(eigenvalues(e, size), (second, values[-1]), atol=1e-12)


def test_the_condition_makes_the_matrix_positive_semidefinite():
    """Section V-B, for two submodels; at the bound, and not beyond twice of it."""
    e = 0.5
    bound = 0.5 / 1.5
    for factor, semidefinite in ((0.999, True), (2.0, False)):
        alphas = np.full((2, M), factor * bound / 2)
        least = np.linalg.eigvalsh(paper_matrix(M, 2, e, alphas)).min()
        assert (least >= 0) == semidefinite


@pytest.mark.parametrize("quantized", [False, True])
def test_the_cohort_s_sum_is_invariant_in_every_step(quantized):
    """Whatever is sent, as the e-terms cancel over the cohort (eq. 5)."""
    with jax.enable_x64(True):
        models = MODELS.astype(jnp.float64)
        now = split(jax.random.key(3), models, UNEQUAL, 3)
        total = np.asarray(now.visible.sum(0) + now.invisible.sum((0, 1)))
        for k in range(10):
            sent = now.visible
            if quantized:
                sent = sent + jax.random.normal(jax.random.key(k), sent.shape, jnp.float64)
            now = move(now, sent.mean(0), sent, 0.4, jnp.float64(0.08 / (k + 1)))
            after = now.visible.sum(0) + now.invisible.sum((0, 1))
            np.testing.assert_allclose(after, total, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@tiers.every("m", [[1, 3, 2, 3], [2, 2, 2, 2]], len)
def test_consensus_is_the_weighted_mean(m):
    begun = split(jax.random.key(4), MODELS, jnp.array(m), 3)
    end = agreed(begun, LASTING, EXACT, 600, 600)
    weights = (1 + np.array(m)) / (1 + np.array(m)).sum()  # FedAvg's where they are equal
    np.testing.assert_allclose(end.model, weights @ np.asarray(MODELS), atol=1e-5)
    np.testing.assert_allclose(end.submodels.visible, np.tile(end.model, (M, 1)), atol=1e-5)
    assert end.saturated == 0


@pytest.mark.slow
@tiers.every("how", [(0.9, "root"), (0.3, "none")])
def test_what_remains_of_the_splitting(how):
    """For equal m_i the model is off the mean by prod_k (1 - (1 + m) alpha[k]) of what a[0] was off, whatever e.

    In exact arithmetic the cohort's mean of a moves by alpha m (mean b - mean a), that of the b by -alpha of it.
    """
    (step, decay), mean = how, np.asarray(MODELS, np.float64).mean(0)
    used = coupling(step, 0.1, decay)
    for m in (1, 3, 18):
        begun = split(jax.random.key(8), MODELS, jnp.full(M, m), 18)
        off = np.asarray(begun.visible, np.float64).mean(0) - mean
        for rounds in (4, 10):
            end = agreed(begun, used, EXACT, rounds, 10)
            left = np.prod([1 - (1 + m) * float(used.alpha(k)) for k in range(rounds)])
            np.testing.assert_allclose(end.model - mean, left * off, atol=2e-4)


def test_without_exchanges_it_is_the_mean_of_what_was_sent():
    begun = split(jax.random.key(4), MODELS, UNEQUAL, 3)
    for most in (0, 5):
        end = agreed(begun, PAPER, EXACT, 0, most)
        np.testing.assert_allclose(end.model, begun.visible.mean(0), rtol=1e-6)


@pytest.mark.slow
def test_rounds_beyond_k_do_nothing():
    begun, way = split(jax.random.key(4), MODELS, UNEQUAL, 3), consensus.fixed(8, 0.3)
    one, other = (agreed(begun, PAPER, way, 3, most) for most in (3, 9))
    np.testing.assert_array_equal(one.model, other.model)
    assert one.saturated == other.saturated > 0


def by_hand(key, start, sent, e, gamma, bits, rounds, norm="frobenius"):
    """Algorithm 1, lines 22 to 31, written down again in NumPy, for one invisible submodel."""
    a, b, q = (np.asarray(x, np.float64) for x in (start.visible, start.invisible[:, 0], sent))
    widest = 0.0
    for k in range(rounds):
        alpha = gamma / (k + 1)
        apart = np.linalg.norm(a - b) if norm == "frobenius" else np.linalg.norm(a - b, 2, 0).max()
        widest = max(widest, apart)
        pi = 8 * (e + 1 + widest) / (1 - (1 - e))
        a, b = a + e * (q.mean(0) - q) + alpha * (b - a), b + alpha * (a - b)
        half = pi * alpha / 2
        u = np.asarray(jax.random.uniform(jax.random.fold_in(key, k), a.shape), np.float64)
        step = 2 * half / (2**bits - 1)
        q = q - half + step * np.floor((a - (q - half)) / step + u)
    return q.mean(0)


def from_one_point(models):
    """Each with one invisible submodel, the visible ones all alike."""
    common = jnp.broadcast_to(models[0], models.shape)
    return Submodels(common, (2 * models - common)[:, None], jnp.ones((M, 1)))


@tiers.every("how", [("columns", 4), ("frobenius", 8)])
def test_the_dynamic_quantizer_against_numpy(how):
    norm, bits = how
    begun = from_one_point(MODELS)
    end = agreed(begun, FAST, consensus.dynamic(bits, norm), 12, 12)
    expected = by_hand(jax.random.key(7), begun, begun.visible, 0.4, 0.2, bits, 12, norm)
    np.testing.assert_allclose(end.model, expected, atol=1e-3)


@pytest.mark.slow
def test_the_longest_column_is_enough():
    """With 2^B >= sqrt(M) pi + 1 nothing leaves the interval (Lemma 10 by coordinates), however many they are.

    By the whole matrix, 4096 coordinates make the interval, and so the error, many times as wide.
    """
    begun = from_one_point(jax.random.normal(jax.random.key(20), (M, 4096)))
    ways = {"exact": EXACT, "columns": consensus.dynamic(10, "columns")}
    ways["frobenius"] = consensus.dynamic(10)
    found = {name: agreed(begun, FAST, way, 30, 30) for name, way in ways.items()}
    assert all(end.saturated == 0 for end in found.values())
    pi = float(found["columns"].width) / (0.2 / 30)
    assert math.sqrt(M) * pi + 1 <= 2**10
    assert found["frobenius"].width > 10 * found["columns"].width
    error = {name: np.linalg.norm(end.model - found["exact"].model) for name, end in found.items()}
    assert error["frobenius"] > 10 * error["columns"] > 0


@pytest.mark.parametrize("decay", consensus.DECAYS)
def test_no_coordinate_can_leave_its_interval(decay):
    """Lemma 10 for a single coordinate, by its recursion; 2^B >= sqrt(M) pi + 1 makes |Delta[k]| <= alpha[k - 1].

    X[k] bounds the clients' distance from their mean. All is linear in 1 and W~, so that each may be had by itself.
    """
    alpha = np.broadcast_to(np.asarray(consensus.DECAYS[decay](jnp.arange(500))), 500).tolist()
    for e in (0.1, 0.5, 0.9, 1.04, 1.2):
        larger = max(1, e)
        for one, w in ((1, 0), (0, 1)):
            x = 0.0
            for k, a in enumerate(alpha):
                error = one * alpha[k - 1] if k else 0.0
                moved = (1 + e) * error + e * x + a * w  # |a[k + 1] - q[k]|
                assert moved <= 4 * (one * (e + larger) + larger * w) / e * a  # pi alpha / 2
                x = abs(1 - e) * x + e * error + a * w
        assert interval_scale(e, 8)(3.0) == pytest.approx(8 * (e + 4 * larger) / e)


@pytest.mark.slow
def test_the_interval_shrinks_and_errors_with_it():
    """(35): |q - a| <= pi a_max / (2^B - 1), by the interval that was used."""
    begun, way = split(jax.random.key(6), MODELS, jnp.ones(M, int), 1), consensus.dynamic(10)
    widths = []
    for rounds in (1, 10, 50):
        end = agreed(begun, FAST, way, rounds, 50)
        error = np.abs(end.model - end.submodels.visible.mean(0))
        assert error.max() <= end.width / (2**10 - 1) * (1 + 1e-5)
        widths.append(float(end.width))
    assert widths[0] > 5 * widths[1] > 15 * widths[2]


@pytest.mark.slow
def test_saturation_is_counted():
    begun = split(jax.random.key(6), MODELS, UNEQUAL, 3)
    tight, wide = consensus.fixed(8, 1e-3), consensus.fixed(8, 1e3)
    assert agreed(begun, PAPER, tight, 5, 5).saturated > 0.8  # of five messages out of six
    end = agreed(begun, PAPER, wide, 5, 5)
    assert (end.saturated, end.width) == (0, 2e3)  # what is in use
    first = tight.send(jax.random.key(0), begun.visible, begun.visible, jnp.float32(0))
    assert agreed(begun, PAPER, tight, 0, 5, first).saturated > 0.9


def test_unstable_couplings_are_allowed_where_asked_for():
    check_coupling(coupling(0.5, 0.1), 4, 18, stable=False)
