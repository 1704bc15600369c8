"""Model splitting and consensus: invariants, limits, the paper's matrices and conditions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from small import FALSE_ALARM

from fedpriv import consensus, splitting
from fedpriv.algorithms.consensus import (
    agree,
    check_coupling,
    coupling,
    eigenvalues,
    exchange,
    full_precision,
    interval_scale,
)
from fedpriv.algorithms.splitting import Submodels

pytestmark = pytest.mark.usefixtures("quick_to_compile")

M, D = 4, 7


def exactly(values):
    """What is sent at full precision."""
    return full_precision().send(None, values, values, None)


def split(key, models, m, most, by):
    """The cohort's submodels, without quantization."""
    slots = len(models)
    a = jax.vmap(by.draw)(jax.random.split(key, slots), models, m)
    keys = jax.random.split(jax.random.fold_in(key, 1), slots)
    b = jax.vmap(lambda k, w, a, m: splitting.invisible(k, w, a, m, most))(keys, models, a, m)
    return Submodels(a, b, jnp.arange(most) < m[:, None])


MODELS = jax.random.normal(jax.random.key(0), (M, D))
UNEQUAL = jnp.array([1, 3, 2, 3])
SPLITTINGS = {
    "uniform": splitting.uniform(0.3),
    "laplace": splitting.laplace(0.5, 2.0),
    "gaussian": splitting.gaussian(0.4),
}


@pytest.mark.parametrize("name", SPLITTINGS)
def test_submodels_add_up(name):
    with jax.enable_x64(True):
        models = MODELS.astype(jnp.float64)
        a, b, real = split(jax.random.key(1), models, UNEQUAL, 3, SPLITTINGS[name])
        total = a + b.sum(1)
        np.testing.assert_allclose(total, (1 + UNEQUAL)[:, None] * models, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(real.sum(1), UNEQUAL)
        assert not np.any(np.where(real[..., None], 0, b))
        apart = np.asarray(b[1, 0] - b[1, 1])
        assert np.abs(apart).min() > 1e-3  # the invisible ones differ


def test_the_distributions_of_the_visible_submodel():
    keys = jax.random.split(jax.random.key(2), 20_000)
    w, m = jnp.array([2.0, -1.0]), jnp.int32(3)
    laws = {
        "uniform": lambda w: stats.uniform(*((0.3 * w, 3.4 * w) if w > 0 else (3.7 * w, -3.4 * w))),
        "laplace": lambda w: stats.laplace(w, 0.25),
        "gaussian": lambda w: stats.norm(w, 0.4),
    }
    for name, law in laws.items():
        drawn = np.asarray(jax.vmap(lambda k, n=name: SPLITTINGS[n].draw(k, w, m))(keys))
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


@pytest.mark.parametrize("m", [[1, 1, 1, 1], [1, 3, 2, 3]])
def test_an_exchange_is_the_paper_s_matrix(m):
    most, e, alpha = max(m), 0.4, 0.07
    real = np.arange(most)[:, None] < np.array(m)
    p = paper_matrix(M, most, e, alpha * real)
    with jax.enable_x64(True):
        rows = jnp.eye((1 + most) * M, dtype=jnp.float64)  # each submodel a unit vector
        start = Submodels(
            rows[:M], rows[M:].reshape(most, M, -1).swapaxes(0, 1), jnp.asarray(real.T)
        )
        new = exchange(start, start.visible.mean(0), start.visible, e, jnp.float64(alpha))
    got = np.concatenate(
        [new.visible, np.asarray(new.invisible).swapaxes(0, 1).reshape(most * M, -1)]
    )
    np.testing.assert_allclose(got, p, atol=1e-15)


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
        now = split(jax.random.key(3), models, UNEQUAL, 3, SPLITTINGS["uniform"])
        total = np.asarray(now.visible.sum(0) + now.invisible.sum((0, 1)))
        for k in range(10):
            sent = now.visible
            if quantized:
                sent = sent + jax.random.normal(jax.random.key(k), sent.shape, jnp.float64)
            now = exchange(now, sent.mean(0), sent, 0.4, jnp.float64(0.08 / (k + 1)))
            after = now.visible.sum(0) + now.invisible.sum((0, 1))
            np.testing.assert_allclose(after, total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m", [[1, 1, 1, 1], [2, 2, 2, 2], [1, 3, 2, 3]])
def test_consensus_is_the_weighted_mean(m):
    m = jnp.array(m)
    start = split(jax.random.key(4), MODELS, m, 3, SPLITTINGS["uniform"])
    agreed = agree(
        jax.random.key(5),
        start,
        exactly(start.visible),
        coupling(0.5, 0.1, "none"),
        full_precision(),
        600,
        600,
    )
    weights = np.asarray(1 + m) / float((1 + m).sum())
    np.testing.assert_allclose(agreed.model, weights @ np.asarray(MODELS), atol=1e-5)
    np.testing.assert_allclose(agreed.submodels.visible, np.tile(agreed.model, (M, 1)), atol=1e-5)
    if len(set(m.tolist())) == 1:
        np.testing.assert_allclose(agreed.model, MODELS.mean(0), atol=1e-5)  # FedAvg
    assert agreed.saturated == 0


@pytest.mark.parametrize("m", [1, 3, 18])
@pytest.mark.parametrize("decay", ["linear", "root", "none"])
def test_what_remains_of_the_splitting(m, decay):
    """For equal m_i the model is off the mean by prod_k (1 - (1 + m) alpha[k]) of what a[0] was off, whatever e.

    In exact arithmetic the cohort's mean of a moves by alpha m (mean b - mean a), that of the b by -alpha of it.
    """
    start = split(jax.random.key(8), MODELS, jnp.full(M, m), m, SPLITTINGS["uniform"])
    sent = exactly(start.visible)
    for step, rounds in ((0.3, 4), (0.9, 10)):
        used = coupling(step, 0.1, decay)
        agreed = agree(jax.random.key(5), start, sent, used, full_precision(), rounds, rounds)
        left = np.prod([1 - (1 + m) * float(used.alpha(k)) for k in range(rounds)])
        mean = np.asarray(MODELS, np.float64).mean(0)
        off = np.asarray(start.visible, np.float64).mean(0) - mean
        np.testing.assert_allclose(agreed.model - mean, left * off, atol=2e-4)


def test_without_exchanges_it_is_the_mean_of_what_was_sent():
    start = split(jax.random.key(4), MODELS, UNEQUAL, 3, SPLITTINGS["uniform"])
    for most in (0, 5):
        agreed = agree(
            jax.random.key(5),
            start,
            exactly(start.visible),
            coupling(0.5, 0.1),
            full_precision(),
            0,
            most,
        )
        np.testing.assert_allclose(agreed.model, start.visible.mean(0), rtol=1e-6)


def test_rounds_beyond_k_do_nothing():
    start = split(jax.random.key(4), MODELS, UNEQUAL, 3, SPLITTINGS["uniform"])
    found = [
        agree(
            jax.random.key(5),
            start,
            exactly(start.visible),
            coupling(0.5, 0.1),
            consensus.fixed(8, 5.0),
            3,
            most,
        )
        for most in (3, 9)
    ]
    np.testing.assert_array_equal(found[0].model, found[1].model)
    np.testing.assert_array_equal(found[0].saturated, found[1].saturated)


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


@pytest.mark.parametrize("norm", ["frobenius", "columns"])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_dynamic_quantizer_against_numpy(bits, norm):
    start = split(jax.random.key(6), MODELS, jnp.ones(M, int), 1, SPLITTINGS["uniform"])
    common = jnp.broadcast_to(start.visible[0], start.visible.shape)
    b = 2 * MODELS - common
    start = Submodels(common, b[:, None], start.real)
    key = jax.random.key(7)
    sent = exactly(common)
    agreed = agree(key, start, sent, coupling(0.4, 0.2), consensus.dynamic(bits, norm), 12, 12)
    expected = by_hand(key, start, common, 0.4, 0.2, bits, 12, norm)
    np.testing.assert_allclose(agreed.model, expected, atol=1e-3)


def test_the_longest_column_is_enough():
    """With 2^B >= sqrt(M) pi + 1 nothing leaves the interval (Lemma 10 by coordinates), however many they are.

    By the whole matrix, 4096 coordinates make the interval, and so the error, many times as wide.
    """
    models = jax.random.normal(jax.random.key(20), (M, 4096))
    start = split(jax.random.key(6), models, jnp.ones(M, int), 1, SPLITTINGS["uniform"])
    common = jnp.broadcast_to(start.visible[0], models.shape)
    start = Submodels(common, 2 * models[:, None] - common[:, None], start.real)
    ways = {
        "exact": full_precision(),
        "columns": consensus.dynamic(10, "columns"),
        "frobenius": consensus.dynamic(10),
    }
    found = {
        name: agree(jax.random.key(7), start, exactly(common), coupling(0.4, 0.2), way, 30, 30)
        for name, way in ways.items()
    }
    assert all(agreed.saturated == 0 for agreed in found.values())
    pi = float(found["columns"].width) / (0.2 / 30)
    assert math.sqrt(M) * pi + 1 <= 2**10
    assert found["frobenius"].width > 10 * found["columns"].width
    away = {
        name: float(jnp.linalg.norm(agreed.model - found["exact"].model))
        for name, agreed in found.items()
    }
    assert away["frobenius"] > 10 * away["columns"] > 0


@pytest.mark.parametrize("e", [0.1, 0.5, 0.9, 1.04, 1.2])
@pytest.mark.parametrize("decay", consensus.DECAYS)
def test_no_coordinate_can_leave_its_interval(decay, e):
    """Lemma 10 for a single coordinate, by its recursion; 2^B >= sqrt(M) pi + 1 makes |Delta[k]| <= alpha[k - 1].

    X[k] bounds the clients' distance from their mean. All is linear in 1 and W~, so that each may be had by itself.
    """
    alpha = [float(consensus.DECAYS[decay](k)) for k in range(500)]
    for one, w in ((1, 0), (0, 1)):
        x = 0.0
        for k, a in enumerate(alpha):
            error = one * alpha[k - 1] if k else 0.0
            moved = (1 + e) * error + e * x + a * w  # |a[k + 1] - q[k]|
            larger = max(1, e)
            assert moved <= 4 * (one * (e + larger) + larger * w) / e * a  # pi alpha / 2
            x = abs(1 - e) * x + e * error + a * w
    width = float(interval_scale(e, 8)(3.0))
    assert width == pytest.approx(8 * (e + 4 * max(1, e)) / e)


def test_the_interval_shrinks_and_errors_with_it():
    """(35): |q - a| <= pi a_max / (2^B - 1), by the interval that was used."""
    start = split(jax.random.key(6), MODELS, jnp.ones(M, int), 1, SPLITTINGS["uniform"])
    widths = []
    for rounds in (1, 10, 50):
        agreed = agree(
            jax.random.key(7),
            start,
            exactly(start.visible),
            coupling(0.4, 0.2),
            consensus.dynamic(10),
            rounds,
            50,
        )
        error = jnp.abs(agreed.model - agreed.submodels.visible.mean(0))
        assert error.max() <= agreed.width / (2**10 - 1) * (1 + 1e-5)
        widths.append(float(agreed.width))
    assert widths[0] > 5 * widths[1] > 15 * widths[2]
    assert float(interval_scale(0.4, M)(2.0)) == pytest.approx(8 * (0.4 + 1 + 2) / 0.4)


def test_saturation_is_counted():
    start = split(jax.random.key(6), MODELS, UNEQUAL, 3, SPLITTINGS["uniform"])
    tight = agree(
        jax.random.key(7),
        start,
        exactly(start.visible),
        coupling(0.5, 0.1),
        consensus.fixed(8, 1e-3),
        5,
        5,
    )
    assert tight.saturated > 0.8  # of five messages out of six
    wide = agree(
        jax.random.key(7),
        start,
        exactly(start.visible),
        coupling(0.5, 0.1),
        consensus.fixed(8, 1e3),
        5,
        5,
    )
    assert wide.saturated == 0
    assert wide.width == 2e3  # what is in use
    first = consensus.fixed(8, 1e-3).send(
        jax.random.key(0), start.visible, start.visible, jnp.float32(0)
    )
    none = agree(
        jax.random.key(7), start, first, coupling(0.5, 0.1), consensus.fixed(8, 1e-3), 0, 5
    )
    assert none.saturated > 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: check_coupling(coupling(1.4, 0.1), 4, 1),
            r"step: 1.4 is not in \(0, M / \(M - 1\)\)",
        ),
        (lambda: check_coupling(coupling(0.0, 0.1), 4, 1), "step: 0.0 is not in"),
        (lambda: check_coupling(coupling(0.5, 0.4), 4, 1), "gamma: 0.4 .* not below .* = 0.3333"),
        (lambda: check_coupling(coupling(0.5, 0.1), 4, 4), "adds up to 0.4, not below"),
        (lambda: check_coupling(coupling(0.5, 0.0), 4, 1), "gamma: 0.0 is not positive"),
        (lambda: coupling(0.5, 0.1, "fast"), "decay: 'fast' is not one of linear, root, none"),
        (lambda: splitting.uniform(1.0), "factor: 1.0 is not in"),
        (lambda: splitting.gaussian(0.0), "std: 0.0 is not positive"),
        (lambda: splitting.laplace(-1.0, 1.0), "sensitivity: -1.0 is not positive"),
        (lambda: consensus.fixed(8, -1.0), "bound: -1.0 is not positive"),
        (lambda: consensus.dynamic(0), "bits: 0 is not in 1..22"),
        (lambda: consensus.dynamic(8, "l1"), "norm: .l1. is not one of frobenius, columns"),
    ],
)
def test_wrong_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unstable_couplings_are_allowed_where_asked_for():
    check_coupling(coupling(0.5, 0.1), 4, 18, stable=False)
    with pytest.raises(ValueError, match=r"step: 1\.5"):
        check_coupling(coupling(1.5, 0.1), 4, 18, stable=False)
