"""The transcript attack on model splitting: exact at full precision, blunted by quantization."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import classification

import fedpriv as fp
from fedpriv import splitting
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
from fedpriv.attacks.transcript import least_squares, state_sum, unmixed
from fedpriv.compression.quantization import Quantized

pytestmark = pytest.mark.usefixtures("quick_to_compile")

M, D, MOST = 6, 300, 3
NUMBERS = jnp.array([1, 2, 3, 1, 2, 3])
MODELS = 0.1 * jax.random.normal(jax.random.key(0), (M, D))


def messages(transmission=None, exchanges=10, decay="linear", gamma=0.1):
    """What the server sees of one round of MSP-FL, and of MSPDQ-FL."""
    return np.asarray(jax.jit(lambda: _messages(transmission, exchanges, decay, gamma))())


def _messages(transmission, exchanges, decay, gamma):
    transmission = transmission or full_precision()
    draw = splitting.uniform(0.3).draw
    a = jax.vmap(draw)(jax.random.split(jax.random.key(1), M), MODELS, NUMBERS)
    if transmission.common:
        a = jnp.broadcast_to(a[0], a.shape)
    b = jax.vmap(lambda *x: splitting.invisible(*x, MOST))(
        jax.random.split(jax.random.key(2), M), MODELS, a, NUMBERS
    )
    start = Submodels(a, b, jnp.arange(MOST) < NUMBERS[:, None])
    sent = Quantized(a, jnp.zeros(a.shape, jnp.int32), jnp.zeros(a.shape, bool))
    used = coupling(0.5, gamma, decay)
    agreed = agree(jax.random.key(3), start, sent, used, transmission, exchanges, exchanges)
    return agreed.messages


def error(found):
    return np.linalg.norm(found - MODELS, axis=1) / np.linalg.norm(MODELS, axis=1)


@pytest.mark.parametrize("decay", DECAYS)
def test_it_recovers_numbers_weights_and_models(decay):
    """From the first two exchanges as from all ten."""
    seen = messages(decay=decay)
    for exchanges in (2, 10):
        found = least_squares(seen[: exchanges + 1], 0.5, DECAYS[decay])
        np.testing.assert_allclose(found.number, NUMBERS, atol=2e-2)
        np.testing.assert_allclose(found.weight, 0.1, rtol=2e-2)
        assert np.max(error(found.model)) < 5e-3


def test_the_messages_kept_are_those_that_were_sent():
    kept = messages(exchanges=4)
    assert kept.shape == (5, M, D)
    np.testing.assert_array_equal(kept[:3], messages(exchanges=2))


def test_the_state_sum_needs_the_number_and_the_consensus():
    """Constant weights come to consensus; those that fall as 1 / (k + 1) leave much of the splitting."""
    settled = messages(exchanges=300, decay="none", gamma=0.05)
    assert np.max(error(state_sum(settled, 0.5, NUMBERS.astype(float)))) < 1e-3
    wrong = error(state_sum(settled, 0.5, 1.0))
    assert np.max(wrong[NUMBERS == 1]) < 1e-3 < 0.1 < np.min(wrong[NUMBERS > 1])
    assert np.min(error(state_sum(messages(), 0.5, NUMBERS.astype(float)))) > 0.2


@pytest.mark.parametrize("make", [dynamic, lambda bits: fixed(bits, 1.0)])
def test_quantization_blunts_it(make):
    """Errors in the equations' coefficients bias the solution: the fewer bits, the further off."""
    off = {
        bits: np.median(error(least_squares(messages(make(bits)), 0.5, DECAYS["linear"]).model))
        for bits in (22, 8)
    }
    assert off[22] < 0.2 < 0.5 < off[8]


def cosines(found, true):
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(true, axis=1)
    return np.sum(found * true, 1) / lengths


@pytest.mark.parametrize("transmission", [None, dynamic(8, "columns")], ids=["exact", "8 bits"])
def test_unmixing_finds_the_direction_of_the_updates(transmission):
    """Also under the dynamic quantizer, where least squares and the last message have nothing of it."""
    theta = 0.3 * jax.random.normal(jax.random.key(4), (3000,))
    updates = 0.05 * jax.random.normal(jax.random.key(5), (M, 3000))
    one = jnp.ones(M, jnp.int32)
    transmission = transmission or full_precision()
    draw = splitting.uniform(0.3).draw
    a = jax.vmap(draw)(jax.random.split(jax.random.key(1), M), theta - updates, one)
    if transmission.common:
        a = jnp.broadcast_to(a[0], a.shape)
    start = Submodels(a, (2 * (theta - updates) - a)[:, None], jnp.ones((M, 1), bool))
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


def test_one_exchange_is_not_enough():
    with pytest.raises(ValueError, match="messages: of 1 exchange"):
        least_squares(messages(exchanges=1), 0.5, DECAYS["linear"])


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

    def certified(algorithm, view):
        return fp.certify(algorithm, model.init, federation, 1, 1e-5, view=view)

    for view in fp.privacy.VIEWS:
        said = certified(fp.msp_fl(model.loss, **options), view)
        assert said.epsilon == np.inf
        assert "give m_i and the trained model exactly" in said.assumptions[0]
        said = certified(fp.mspdq_fl(model.loss, bits=8, **options), view)
        assert "the sum of its visible ones points along the client's update" in said.assumptions[0]
    one = fp.msp_fl(model.loss, **options | {"exchanges": constant(1)})
    assert "exactly" not in certified(one, "server").assumptions[0]
