"""What a server sees of every family of algorithms, and what inversion makes of it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import assert_close, assert_normal, classification, filled
from victims import IMAGES, LABELS, loss
from victims import PARAMS as THETA

import fedpriv as fp
from fedpriv.attacks.image_scores import mse
from fedpriv.attacks.server_views import (
    View,
    by_models,
    infer_labels,
    invert_view,
    local_update,
    server_view,
)
from fedpriv.attacks.transcript import least_squares
from fedpriv.core.trees import flatten
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, COHORT, RATE = 8, 4, 0.5
FEDERATION, _, MODEL = classification(CLIENTS, 1)
PARAMS = filled(MODEL.init)
D = fp.dimension(PARAMS)
OWN = {
    "sampler": fp.fixed_size(CLIENTS, COHORT),
    "optimizer": lambda t: optax.sgd(RATE),
    "batches": fp.epochs(1, 1),
}


def view(algorithm, seed=0):
    state = algorithm.init(PARAMS, FEDERATION)
    seen = jax.jit(lambda key: server_view(algorithm, key, state, FEDERATION))
    return jax.tree.map(np.asarray, seen(jax.random.key(seed)))


@cache
def every_gradient():
    """RATE times the gradient of each client's one example, f32[CLIENTS, D]."""

    def one(row):
        example = jax.tree.map(lambda leaf: leaf[row], FEDERATION.examples)
        return RATE * flatten(jax.grad(MODEL.loss)(PARAMS, example))

    return np.asarray(jax.jit(jax.vmap(one))(FEDERATION.rows[:, 0]))


def gradients(ids):
    return every_gradient()[np.asarray(ids)]


def clipped(updates, norm):
    lengths = np.linalg.norm(updates, axis=1, keepdims=True)
    return updates * np.minimum(1, norm / lengths)


UNBOUNDED = fp.LocalSteps(
    fp.per_example(MODEL.loss),
    fp.everyone(1),
    1,
    lambda t: optax.sgd(RATE),
    fp.gaussian(float("inf"), 0),
)
PLAIN = {
    "fed_avg": fp.fed_avg(MODEL.loss, **OWN),
    "dp_scaffold": fp.dp_scaffold(UNBOUNDED, sampler=OWN["sampler"]),
}


@tiers.every("name", PLAIN)
def test_one_step_shows_the_gradient(name):
    found = view(PLAIN[name])
    assert len(set(found.cohort.ids)) == COHORT
    assert found.sent.all()
    assert found.transcript is None
    assert_close(found.update, gradients(found.cohort.ids))


def test_the_round_is_not_called_again_to_be_heard():
    made, calls = PLAIN["fed_avg"], []

    def counted(key, state, cohort):
        calls.append(state)
        return made.round(key, state, cohort)

    heard, state = made._replace(round=counted), made.init(PARAMS, FEDERATION)
    jax.eval_shape(lambda k: server_view(heard, k, state, FEDERATION).update, jax.random.key(0))
    assert len(calls) == 1


@pytest.mark.slow
def test_what_is_not_sent_is_zero():
    sparsifier = fp.papers.select_rand_k(0.4)
    found = view(fp.papers.fed_avg_sparse(MODEL.loss, **OWN, sparsifier=sparsifier))
    assert found.sent.sum() == 6
    assert not found.update[:, ~found.sent].any()
    expected = D / 6 * gradients(found.cohort.ids) * found.sent
    assert_close(found.update, expected)


def noise(algorithm, norm, draws=400):
    """What is on top of the clipped updates, in many rounds: f32[draws, COHORT, D]."""
    state = algorithm.init(PARAMS, FEDERATION)
    keys = jax.random.split(jax.random.key(1), draws)
    seen = jax.jit(jax.vmap(lambda k: server_view(algorithm, k, state, FEDERATION)))(keys)
    every = clipped(gradients(range(CLIENTS)), norm)
    return (seen.update - every[seen.cohort.ids])[..., np.asarray(seen.sent[0])]


@pytest.mark.slow
def test_each_message_has_its_share_of_the_noise():
    """C sigma / sqrt(r) of independent noise, false alarms as `small` says."""
    made = fp.dp_fed_avg(MODEL.loss, **OWN, clip_norm=0.1, noise_multiplier=3.0)
    found = noise(made, 0.1)
    assert_normal(found, 0.3 / np.sqrt(COHORT))
    assert_normal(found.sum(1), 0.3)
    seen = fp.trace_round(made, PARAMS, FEDERATION).seen(1)
    (server,) = (each for each in seen if each.view == "server")
    assert np.isclose(plays_of(server).multiplier, 3.0 / np.sqrt(COHORT))


@pytest.mark.slow
def test_the_noise_of_local_privacy_is_there_once():
    made = fp.papers.ldp_fed_avg(MODEL.loss, **OWN, mechanism=fp.gaussian(0.1, 3.0))
    assert_normal(noise(made, 0.1), 0.3)


@pytest.mark.slow
def test_the_noise_of_sparse_messages_is_where_they_are():
    made = fp.fed_smp(
        MODEL.loss,
        **OWN,
        sparsifier=fp.papers.select_rand_k(0.4),
        clip_norm=0.1,
        noise_multiplier=3.0,
    )
    found = view(made)
    assert not found.update[:, ~found.sent].any()
    assert np.abs(found.update[:, found.sent]).min() > 0


@pytest.mark.slow
def test_empty_slots_show_nothing():
    """Of a Poisson cohort, and the share is that of the clients who are there."""
    own = OWN | {"sampler": fp.poisson(CLIENTS, 0.4, CLIENTS)}
    made = fp.dp_fed_avg(MODEL.loss, **own, clip_norm=1e-3, noise_multiplier=1e3)
    keys = jax.random.split(jax.random.key(2), 300)
    state = made.init(PARAMS, FEDERATION)
    seen = jax.jit(jax.vmap(lambda k: server_view(made, k, state, FEDERATION)))(keys)
    mask = np.asarray(seen.cohort.mask)
    assert 0 < mask.mean() < 1
    assert not np.asarray(seen.update)[~mask].any()
    sizes = np.broadcast_to(mask.sum(1, keepdims=True), mask.shape)
    shares = np.asarray(seen.update) * np.sqrt(sizes)[..., None]
    spread = np.std(shares[mask])
    assert abs(spread - 1) < 0.03  # 6 standard errors of 1 / sqrt(2 n), n about 14 000


@pytest.mark.slow
def test_quantized_messages_are_bare_and_on_the_grid():
    """The server decodes and adds the noise itself, so that it sees none."""
    made = fp.dp_fed_avg(MODEL.loss, **OWN, clip_norm=1e3, noise_multiplier=1.0, codec=fp.qsgd(4))
    found = view(made)
    expected = gradients(found.cohort.ids)
    largest = np.abs(expected).max(1, keepdims=True)
    levels = 7 * found.update / largest
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-4)
    assert np.abs(found.update - expected).max() < largest.max() / 7
    assert np.abs(found.update - expected).max() > 1e-4


def splitting(**options):
    return fp.papers.msp_fl(
        MODEL.loss,
        **OWN,
        splitting=fp.papers.splitting.uniform(0.3),
        coupling=fp.papers.consensus.coupling(0.5, 0.1),
        exchanges=fp.papers.consensus.constant(4),
        **options,
    )


@pytest.mark.slow
def test_model_splitting_shows_visible_submodels():
    found = view(splitting())
    assert found.transcript.shape == (5, COHORT, D)
    theta = np.asarray(flatten(PARAMS))
    np.testing.assert_array_equal(found.update, theta - found.transcript[0])
    # a[0] = w u, u in [0.3, 1.7], entry by entry
    u = found.transcript[0] / (theta - gradients(found.cohort.ids))
    assert u.min() > 0.3 - 1e-4
    assert u.max() < 1.7 + 1e-4
    assert u.std() > 0.2


def test_labels_are_read_off_what_was_sent():
    true = np.asarray(FEDERATION.examples["label"])[np.asarray(FEDERATION.rows)[:, 0]]
    update = jnp.asarray(gradients(range(CLIENTS)))
    cohort = fp.types.Draw(jnp.arange(CLIENTS), jnp.ones(CLIENTS, bool))

    def of_view(seen):
        return infer_labels(seen, PARAMS, lambda p: p["params"]["Dense_0"])

    def inferred(sent):
        seen = View(update * sent, sent, cohort)
        return np.asarray(jax.jit(of_view)(seen))

    np.testing.assert_array_equal(inferred(jnp.ones(D, bool)), true)
    without_bias = jnp.arange(D) >= 3  # flattened, the bias comes first
    np.testing.assert_array_equal(inferred(without_bias), true)
    without_0 = jnp.ones(D, bool) & (jnp.arange(D) % 3 != 0)
    found = inferred(without_0)
    assert (found != 0).all()
    np.testing.assert_array_equal(found[true != 0], true[true != 0])


@pytest.mark.slow
def test_simulated_training_is_training():
    """Three steps with momentum, against what `fed_avg` sends."""
    optimizer = optax.sgd(RATE, momentum=0.5)
    own = OWN | {"optimizer": lambda t: optimizer, "batches": fp.epochs(3, 1)}
    found = view(fp.fed_avg(MODEL.loss, **own))
    observe = local_update(MODEL.loss, PARAMS, optimizer, 3)
    rows = FEDERATION.rows[found.cohort.ids, 0]
    images, labels = (FEDERATION.examples[name][rows] for name in ("image", "label"))
    assert_close(found.update, jax.vmap(observe)(images, labels))


VICTIMS = 3
ATTACKED = fp.Federation.from_arrays(
    {"image": IMAGES[:VICTIMS], "label": LABELS[:VICTIMS]},
    [np.array([i]) for i in range(VICTIMS)],
)
EACH = {
    "sampler": fp.everyone(VICTIMS),
    "optimizer": lambda t: optax.sgd(0.2),
    "batches": fp.epochs(1, 1),
}


@pytest.fixture(scope="module")
def attack():
    """A view -> (median MSE, cosine distance, labels found); one compilation for all tests."""

    @jax.jit
    def run(seen):
        labels = infer_labels(seen, THETA, lambda p: p["last"])
        observe = local_update(loss, THETA, optax.sgd(0.2))
        found = invert_view(seen, observe, labels, (8, 8, 1), jax.random.key(5), steps=200)
        right = labels == LABELS[:VICTIMS]
        return jnp.median(mse(found.image, IMAGES[:VICTIMS])), found.distance, right

    return lambda seen: jax.device_get(run(seen._replace(transcript=None)))


def seen_by(algorithm):
    state = algorithm.init(THETA, ATTACKED)
    return jax.jit(lambda k: server_view(algorithm, k, state, ATTACKED))(jax.random.key(3))


@pytest.mark.slow
def test_an_update_gives_the_image_away_and_noise_does_not(attack):
    error, distance, right = attack(seen_by(fp.fed_avg(loss, **EACH)))
    assert error < 5e-3
    assert distance.max() < 1e-3
    assert right.all()
    noisy = fp.dp_fed_avg(loss, **EACH, clip_norm=1.0, noise_multiplier=1.0)
    error, distance, _ = attack(seen_by(noisy))
    assert error > 0.1
    assert distance.min() > 1  # cosine below 1/2


@pytest.mark.slow
def test_a_clipped_update_is_as_good_as_any(attack):
    """Directions are matched, so that an unknown scale hides nothing."""
    tight = fp.dp_fed_avg(loss, **EACH, clip_norm=1e-3, noise_multiplier=0.0)
    found = seen_by(tight)
    assert np.linalg.norm(found.update, axis=1) == pytest.approx(1e-3, rel=1e-4)
    assert attack(found)[0] < 5e-3


@pytest.mark.slow
def test_the_transcript_undoes_model_splitting(attack):
    made = fp.papers.msp_fl(
        loss,
        **EACH,
        splitting=fp.papers.splitting.uniform(0.3),
        coupling=fp.papers.consensus.coupling(0.5, 0.1),
        exchanges=fp.papers.consensus.constant(4),
    )
    found = seen_by(made)
    assert attack(found)[0] > 0.1
    recovered = least_squares(found.transcript, 0.5, fp.papers.consensus.DECAYS["linear"]).model
    error, _, right = attack(by_models(found, THETA, recovered))
    assert error < 5e-3
    assert right.all()
