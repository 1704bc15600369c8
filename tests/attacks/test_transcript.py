"""The transcript attack on model splitting: exact at full precision, blunted by quantization."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import classification

import fedpriv as fp
from fedpriv.algorithms.consensus import (
    DECAYS,
    agree,
    constant,
    coupling,
    dynamic,
    fixed,
    full_precision,
)
from fedpriv.algorithms.splitting import Submodels
from fedpriv.attacks.transcript import (
    _responses,
    fit_weights,
    least_squares,
    nearest,
    state_sum,
    unmixed,
)
from fedpriv.compression.quantization import Quantized
from fedpriv.papers import splitting

pytestmark = pytest.mark.usefixtures("quick_to_compile")

M, D, MOST = 6, 300, 3
NUMBERS = jnp.array([1, 2, 3, 1, 2, 3])
MODELS = 0.1 * jax.random.normal(jax.random.key(0), (M, D))


def messages(transmission=None, exchanges=10, decay="linear", gamma=0.1, weights=splitting.equal):
    """What the server sees of one round of MSP-FL, and of MSPDQ-FL."""
    return np.asarray(jax.jit(lambda: _messages(transmission, exchanges, decay, gamma, weights))())


def _messages(transmission, exchanges, decay, gamma, weights):
    transmission = transmission or full_precision()
    draw = splitting.uniform(0.3).draw
    a = jax.vmap(draw)(jax.random.split(jax.random.key(1), M), MODELS, NUMBERS)
    if transmission.common:
        a = jnp.broadcast_to(a[0], a.shape)
    b = jax.vmap(lambda *x: splitting.invisible(*x, MOST))(
        jax.random.split(jax.random.key(2), M), MODELS, a, NUMBERS
    )
    drawn = weights(jax.random.key(4), (M, MOST))
    start = Submodels(a, b, jnp.where(jnp.arange(MOST) < NUMBERS[:, None], drawn, 0.0))
    sent = Quantized(a, jnp.zeros(a.shape, jnp.int32), jnp.zeros(a.shape, bool))
    used = coupling(0.5, gamma, decay)
    agreed = agree(jax.random.key(3), start, sent, used, transmission, exchanges, exchanges)
    return agreed.messages


def error(found):
    return np.linalg.norm(found - MODELS, axis=1) / np.linalg.norm(MODELS, axis=1)


@tiers.every("decay", DECAYS)
def test_it_recovers_numbers_weights_and_models(decay):
    """From the first two exchanges as from all ten."""
    seen = messages(decay=decay)
    for exchanges in (2, 10):
        found = least_squares(seen[: exchanges + 1], 0.5, DECAYS[decay])
        np.testing.assert_allclose(found.number, NUMBERS, atol=2e-2)
        np.testing.assert_allclose(found.weights, 0.1, rtol=2e-2)
        assert np.max(error(found.model)) < 5e-3


@tiers.every("decay", DECAYS)
def test_secret_weights_of_clients_change_nothing(decay):
    """Least squares never used that they are equal: it finds them."""
    own = splitting.per_client(0.2)
    found = least_squares(messages(decay=decay, weights=own), 0.5, DECAYS[decay])
    np.testing.assert_allclose(found.number, NUMBERS, atol=0.05)
    true = 0.1 * own(jax.random.key(4), (M, MOST))[:, :1]
    np.testing.assert_allclose(found.weights, true, rtol=0.05)
    assert np.ptp(true) > 0.03
    assert np.max(error(found.model)) < 0.02


def exact_messages(weights, exchanges, decay):
    """f64, by NumPy, of clients with these weights f64[M, m]; and their models."""
    rng, (clients, m) = np.random.default_rng(0), weights.shape
    models = rng.normal(size=(clients, D))
    a, b = rng.normal(size=(clients, D)), rng.normal(size=(clients, m, D))
    b += (((1 + m) * models - a - b.sum(1)) / m)[:, None]
    sent = [a]
    for k in range(exchanges):
        apart = weights[..., None] * float(jnp.float32(DECAYS[decay](k))) * (b - a[:, None])
        a, b = a + 0.5 * (a.mean(0) - a) + apart.sum(1), b - apart
        sent.append(a)
    return np.stack(sent), models


@tiers.every("decay", DECAYS)
def test_secret_weights_of_submodels_are_as_many_unknowns_more(decay):
    """In exact arithmetic nothing of a client with r different weights is left secret after r + 1 exchanges."""
    weights = np.array([[0.02, 0.05, 0.08], [0.05, 0.05, 0.09], [0.04, 0.04, 0.04]])
    seen, models = exact_messages(weights, 4, decay)
    for i, different in enumerate((3, 2, 1)):
        found = least_squares(seen, 0.5, DECAYS[decay], different)
        np.testing.assert_allclose(found.number[i], 3, atol=1e-3)
        np.testing.assert_allclose(found.weights[i], np.unique(weights[i]), rtol=1e-3)
        np.testing.assert_allclose(found.model[i], models[i], atol=1e-3)
        if different > 1:  # fewer unknowns do not do
            fewer = least_squares(seen, 0.5, DECAYS[decay], different - 1)
            assert np.abs(fewer.model[i] - models[i]).max() > 0.1
    found = fit_weights(seen, 0.5, DECAYS[decay], 3, 0.1)
    np.testing.assert_allclose(found.model[0], models[0], atol=1e-3)
    np.testing.assert_allclose(found.weights[0], weights[0], rtol=1e-3)


def test_float32_hides_what_the_server_does_not_search_for():
    """Three weights of float32 messages: least squares is off, the search is not, and theta tells which to take."""
    seen, models = exact_messages(np.array([[0.02, 0.05, 0.08]] * 3), 10, "linear")
    seen = seen.astype(np.float32)
    tried = [least_squares(seen, 0.5, DECAYS["linear"], r) for r in (1, 2, 3)]
    tried.append(fit_weights(seen, 0.5, DECAYS["linear"], 3, 0.1))
    off = [np.abs(one.model - models).max() for one in tried]
    assert off[-1] < 0.02 < min(off[:-1])
    theta = models + 0.05 * np.random.default_rng(1).normal(size=models.shape)
    np.testing.assert_array_equal(nearest(theta[0], tried)[0], tried[-1].model[0])


def test_that_weights_are_secret_hides_nothing_that_rounding_does_not():
    """Six weights and float32: who knows them is far off, too, by more than an update."""
    weights = np.array([[0.01, 0.02, 0.03, 0.04, 0.05, 0.06]] * 6)
    seen, models = exact_messages(weights, 10, "linear")
    messages = seen.astype(np.float32).astype(np.float64)
    now, public = messages[:-1], np.float32(1 / np.arange(1.0, 11)).astype(np.float64)
    moved = np.diff(messages, axis=0) - 0.5 * (now.mean(1, keepdims=True) - now)
    of_hidden, of_visible = _responses(weights[0], public)
    flat = (moved - np.einsum("kl,lmd->kmd", of_visible, now)).reshape(10, -1)
    hidden = np.linalg.lstsq(of_hidden, flat)[0].sum(0).reshape(models.shape)
    assert np.median(np.abs((seen[0] + hidden) / 7 - models)) > 0.1
    exact = np.diff(seen, axis=0) - 0.5 * (seen[:-1].mean(1, keepdims=True) - seen[:-1])
    flat = (exact - np.einsum("kl,lmd->kmd", of_visible, seen[:-1])).reshape(10, -1)
    hidden = np.linalg.lstsq(of_hidden, flat)[0].sum(0).reshape(models.shape)
    np.testing.assert_allclose((seen[0] + hidden) / 7, models, atol=0.01)  # in exact arithmetic


def test_what_reaches_the_model_reaches_the_server():
    """Whatever is secret, w[K] is the mean of a[0] + sum_k x[k], which the server sees of each client."""
    seen, _ = exact_messages(np.random.default_rng(2).uniform(0.01, 0.1, (M, 4)), 7, "root")
    now = seen[:-1]
    moved = np.diff(seen, axis=0) - 0.5 * (now.mean(1, keepdims=True) - now)
    np.testing.assert_allclose((seen[0] + moved.sum(0)).mean(0), seen[-1].mean(0), atol=1e-12)


@pytest.mark.slow
def test_the_messages_kept_are_those_that_were_sent():
    kept = messages(exchanges=4)
    assert kept.shape == (5, M, D)
    np.testing.assert_array_equal(kept[:3], messages(exchanges=2))


@pytest.mark.slow
def test_the_state_sum_needs_the_number_and_the_consensus():
    """Constant weights come to consensus; those that fall as 1 / (k + 1) leave much of the splitting."""
    settled = messages(exchanges=300, decay="none", gamma=0.05)
    assert np.max(error(state_sum(settled, 0.5, NUMBERS.astype(float)))) < 1e-3
    wrong = error(state_sum(settled, 0.5, 1.0))
    assert np.max(wrong[NUMBERS == 1]) < 1e-3 < 0.1 < np.min(wrong[NUMBERS > 1])
    assert np.min(error(state_sum(messages(), 0.5, NUMBERS.astype(float)))) > 0.2


QUANTIZED = {"dynamic": dynamic, "fixed": lambda bits: fixed(bits, 1.0)}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantization_blunts_it(name):
    """Errors in the equations' coefficients bias the solution: the fewer bits, the further off."""
    off = {
        bits: np.median(
            error(least_squares(messages(QUANTIZED[name](bits)), 0.5, DECAYS["linear"]).model)
        )
        for bits in (22, 8)
    }
    assert off[22] < 0.2 < 0.4 < off[8]


def cosines(found, true):
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(true, axis=1)
    return np.sum(found * true, 1) / lengths


SENT = {"8 bits": dynamic(8, "columns"), "exact": full_precision()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SENT)
def test_unmixing_finds_the_direction_of_the_updates(name):
    """Also under the dynamic quantizer, where least squares and the last message have nothing of it."""
    theta = 0.3 * jax.random.normal(jax.random.key(4), (3000,))
    updates = 0.05 * jax.random.normal(jax.random.key(5), (M, 3000))
    one = jnp.ones(M, jnp.int32)
    transmission = SENT[name]
    draw = splitting.uniform(0.3).draw
    a = jax.vmap(draw)(jax.random.split(jax.random.key(1), M), theta - updates, one)
    if transmission.common:
        a = jnp.broadcast_to(a[0], a.shape)
    start = Submodels(a, (2 * (theta - updates) - a)[:, None], jnp.ones((M, 1)))
    sent = Quantized(a, jnp.zeros(a.shape, jnp.int32), jnp.zeros(a.shape, bool))
    used = coupling(0.5, 0.3, "linear")
    run = jax.jit(lambda *x: agree(jax.random.key(3), *x, used, transmission, 10, 10).messages)
    seen = run(start, sent)
    assert np.min(cosines(unmixed(seen, theta, 0.5), updates)) > 0.8
    assert np.max(cosines(unmixed(seen, theta, 0.1), updates)) < 0.8  # another e than was used
    assert np.max(cosines(theta - seen[-1], updates)) < 0.7
    if transmission.common:
        by_least_squares = theta - least_squares(seen, 0.5, DECAYS["linear"]).model
        assert np.max(cosines(by_least_squares, updates)) < 0.5


@pytest.mark.slow
def test_the_ledger_says_so():
    """In the reasons for an infinite epsilon; of quantized messages less is said."""
    options = {
        "sampler": fp.fixed_size(5, 3),
        "splitting": splitting.uniform(0.3),
        "coupling": coupling(0.5, 0.1),
        "exchanges": constant(4),
        "optimizer": lambda t: optax.sgd(0.1),
        "batches": fp.full_batch(),
    }
    federation, _, model = classification(5)

    def traced(algorithm):
        return fp.trace_round(algorithm, model.init, federation)

    exact = traced(fp.papers.msp_fl(model.loss, **options))
    rounded = traced(fp.papers.mspdq_fl(model.loss, bits=8, **options))
    for view in fp.privacy.VIEWS:
        said = exact.certify(1, 1e-5, view=view)
        assert said.epsilon == np.inf
        assert "give its weights, m_i and the trained model where" in said.assumptions[0]
        said = rounded.certify(1, 1e-5, view=view)
        assert "the sum of its visible ones points along the client's update" in said.assumptions[0]
    one = traced(fp.papers.msp_fl(model.loss, **options | {"exchanges": constant(1)}))
    assert "give its weights" not in one.certify(1, 1e-5, view="server").assumptions[0]
