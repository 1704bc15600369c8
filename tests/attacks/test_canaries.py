"""Canaries: what they put in, what is seen of them, and bounds that keep below the certificate."""

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import assert_normal, classification

import fedpriv as fp
from fedpriv.attacks.bounds import epsilon_estimate, epsilon_one_run
from fedpriv.attacks.canaries import Canaries, NoPlaceError, with_canaries
from fedpriv.core.trees import flatten, unflatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RECORDS, CLIP = 40, 4, 0.5
FEDERATION, _, MODEL = classification(CLIENTS, RECORDS, public=0)
PARAMS = MODEL.init(jax.random.key(0))
D = sum(leaf.size for leaf in jax.tree.leaves(PARAMS))
COMMON = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}


LARGE = fp.models.classifier(fp.models.LogisticRegression(3), (16, 16, 1))
TEST_IMAGES = {
    "image": np.random.default_rng(0).integers(0, 255, (CLIENTS * RECORDS, 16, 16, 1), np.uint8),
    "label": np.arange(CLIENTS * RECORDS, dtype=np.int32) % 3,
}
IMAGES = fp.Federation.from_arrays(TEST_IMAGES, np.arange(CLIENTS * RECORDS).reshape(CLIENTS, -1))


def clients(noise, sampler=None, model=MODEL):
    sampler = sampler or fp.everyone(CLIENTS)
    return fp.dp_fed_avg(
        model.loss, sampler=sampler, clip_norm=CLIP, noise_multiplier=noise, **COMMON
    )


def records(noise, steps=3, rate=0.2, model=MODEL):
    local = fp.LocalSteps(
        fp.per_example(model.loss),
        fp.everyone(RECORDS),
        steps,
        lambda t: optax.sgd(rate),
        fp.gaussian(CLIP, noise),
    )
    return fp.dp_sgd(local, sampler=fp.everyone(CLIENTS))


def one_round(algorithm, key=1):
    state = algorithm.init(PARAMS, FEDERATION)
    after, _ = jax.jit(fp.one_round(algorithm))(jax.random.key(key), state, FEDERATION)
    return after


def directions_of(like):
    """f32[CLIENTS, d]."""
    canaries = Canaries(jax.random.key(0), jnp.ones(CLIENTS, bool), 1.0, 0)
    return jax.vmap(lambda j: flatten(canaries.direction(j, like)))(jnp.arange(CLIENTS))


def test_canary_clients_move_the_model_by_the_clip_norm_in_their_direction():
    """All clients are canaries: without noise the model moves by C times the directions of those there, over n."""
    after = one_round(with_canaries(clients(0.0), CLIENTS))
    directions = directions_of(PARAMS)
    moved = flatten(jax.tree.map(jnp.subtract, PARAMS, after.params))
    expected = CLIP * after.present.astype(float) @ directions / CLIENTS
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    assert 5 < after.present.sum() < 35
    cosines = directions @ expected / np.linalg.norm(expected)
    np.testing.assert_allclose(after.scores[0], cosines, atol=1e-5)


def test_canary_records_move_it_in_every_step():
    """One canary at the first position of each client; the others' gradients as without it."""
    after = one_round(with_canaries(records(0.0), CLIENTS, per_client=1))
    directions = directions_of(PARAMS)
    grads = jax.jit(jax.vmap(jax.grad(MODEL.loss), (None, 0)))

    def client(i):
        theta = flatten(PARAMS)
        others = jax.tree.map(lambda x: x[FEDERATION.rows[i][1:]], FEDERATION.examples)
        for _ in range(3):
            g = grads(unflatten(theta, PARAMS), others)
            g = np.concatenate([leaf.reshape(3, -1) for leaf in jax.tree.leaves(g)], 1)
            g *= np.minimum(1, CLIP / np.linalg.norm(g, axis=1, keepdims=True))
            total = g.sum(0) + CLIP * float(after.present[i]) * directions[i]
            theta = theta - 0.2 * total / RECORDS
        return theta

    expected = np.mean([client(i) for i in range(CLIENTS)], 0)
    np.testing.assert_allclose(flatten(after.params), expected, atol=2e-5)


def test_others_are_left_alone():
    """Without canaries there, and with only one place taken, the rest trains as ever."""
    plain = one_round(clients(0.0))
    for key in range(1, 9):
        after = one_round(with_canaries(clients(0.0), 1), key)
        missing = jax.tree.map(lambda p, q: p - q, after.params, plain.params)
        if not after.present[0]:  # client 0 does not contribute: its own clipped update is missing
            alone = fp.Federation.from_arrays(
                jax.device_get(FEDERATION.examples), [np.asarray(FEDERATION.rows[0])]
            )
            own = fp.dp_fed_avg(
                MODEL.loss, sampler=fp.everyone(1), clip_norm=CLIP, noise_multiplier=0.0, **COMMON
            )
            state, _ = fp.one_round(own)(jax.random.key(1), own.init(PARAMS, alone), alone)
            back = jax.tree.map(lambda p, q: (p - q) / CLIENTS, PARAMS, state.params)
            np.testing.assert_allclose(flatten(missing), flatten(back), atol=1e-6)
            return
    pytest.fail("eight coins were heads")


def certified_of(algorithm, view="third_party"):
    return fp.certify(algorithm, LARGE.init, IMAGES, 4, 1e-9, view=view).epsilon


def trained(algorithm, count, *, rounds=4, seeds=20, per_client=0):
    """(present, scores) of canaries in 771 dimensions, among noise images."""
    audited = with_canaries(algorithm, count, per_client=per_client, clip_norm=CLIP)
    state = fp.simulate(
        audited,
        LARGE.init,
        IMAGES,
        TEST_IMAGES,
        score=LARGE.score,
        rounds=rounds,
        every=rounds,
        seeds=range(seeds),
    ).state
    return np.asarray(state.present), np.asarray(state.scores)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "per_client"),
    [
        (clients(2.0, fp.poisson(CLIENTS, 0.5, CLIENTS), model=LARGE), 0),
        (clients(2.0, fp.fixed_size(CLIENTS, 20), model=LARGE), 0),
        (records(0.5, 1, model=LARGE), 2),
    ],
    ids=["poisson", "fixed size", "records"],
)
def test_bounds_keep_below_the_certificate(algorithm, per_client):
    """Wrong with probability 1e-6 at most, where the certificate is right; the estimate says something."""
    present, scores = trained(algorithm, CLIENTS, per_client=per_client)
    for v, view in enumerate(("third_party", "server_secagg")):
        certified = certified_of(algorithm, view)
        assert epsilon_one_run(scores[:, v], present, 1e-9, significance=1e-6) <= certified
        assert epsilon_estimate(scores[:, v], present, 1e-9) > 0.3


def sparse(noise):
    """Messages are coordinates, other ones in every round."""
    return fp.fed_smp(
        LARGE.loss,
        sampler=fp.everyone(CLIENTS),
        sparsifier=fp.select_rand_k(0.5),
        clip_norm=CLIP,
        noise_multiplier=noise,
        **COMMON,
    )


def adaptive(noise):
    """Messages are pairs, of which the model follows the first."""
    return fp.adaptive_fed_avg(
        LARGE.loss,
        sampler=fp.everyone(CLIENTS),
        quantile=0.5,
        clip_norm=CLIP,
        noise_multiplier=noise,
        count_noise=10.0,
        **COMMON,
    )


@pytest.mark.parametrize("make", [lambda noise: clients(noise, model=LARGE), sparse, adaptive])
def test_too_little_noise_is_seen(make):
    """A twentieth of the noise that is certified: the bound refutes that (wrong once in 1e6), the estimate too."""
    said = certified_of(make(10.0))
    present, scores = trained(make(0.5), CLIENTS)
    assert epsilon_one_run(scores[:, 0], present, 1e-9, significance=1e-6) > said
    assert epsilon_estimate(scores[:, 0], present, 1e-9) > said


def test_coins_differ_by_seed_and_do_not_by_round():
    present, _ = trained(clients(1.0, model=LARGE), CLIENTS, rounds=2, seeds=10)
    again, _ = trained(clients(1.0, model=LARGE), CLIENTS, rounds=3, seeds=10)
    np.testing.assert_array_equal(present, again)
    assert len(np.unique(present, axis=0)) == 10
    assert 120 < present.sum() < 280  # of 400 fair coins: 8 standard deviations


def test_only_rounds_of_one_s_own_count_behind_secure_aggregation():
    audited = with_canaries(clients(1.0, fp.fixed_size(CLIENTS, 10)), CLIENTS)
    after = one_round(audited)
    drawn = np.asarray(after.scores[1]) != 0
    assert drawn.sum() == 10
    np.testing.assert_array_equal(after.scores[1][drawn], after.scores[0][drawn])


def test_the_estimate_of_a_gaussian_mechanism():
    """Scores of mu = 1; the relative error of 1e5 each is below 2 % (five standard deviations)."""
    rng = np.random.default_rng(0)
    present = np.arange(200_000) % 2 == 0
    scores = rng.normal(size=200_000) + present
    true = dp_accounting.get_epsilon_gaussian(1.0, 1e-5)
    assert epsilon_estimate(scores, present, 1e-5) == pytest.approx(true, rel=0.03)
    assert epsilon_estimate(-scores, present, 1e-5) == 0


def test_one_run_by_hand():
    """Steinke et al., Theorem 5.2 with delta near 0: r of r guesses right at p >= (1 + e^-eps)^-r."""
    present = np.arange(40) % 2 == 0
    found = epsilon_one_run(np.where(present, 1.0, 0.0), present, 1e-12, significance=0.05)
    least = -np.log(0.05 ** (-1 / 10) - 1)  # half of them choose the threshold
    assert found == pytest.approx(least, abs=1e-3)


def test_coins_that_all_fell_alike_say_nothing():
    for present in (np.ones(3, bool), np.zeros(3, bool)):
        assert epsilon_one_run(np.arange(3.0), present, 1e-5) == 0
        assert epsilon_estimate(np.arange(3.0), present, 1e-5) == 0


def test_one_run_bounds_are_wrong_as_seldom_as_they_say():
    """Scores that say nothing: at 90 % confidence more than 70 of 400 bounds above 0 have a chance of 3e-6."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        present = rng.random(200) < 0.5
        wrong += epsilon_one_run(rng.normal(size=200), present, 1e-9, significance=0.1) > 0
    assert wrong <= 70


def test_what_has_no_place_for_them():
    with pytest.raises(ValueError, match="canaries: 41 do not fit into 40 places"):
        with_canaries(clients(1.0), 41).init(PARAMS, FEDERATION)
    with pytest.raises(ValueError, match="per_client: a client has 4 records, not 5"):
        one_round(with_canaries(records(1.0), 41, per_client=5))

    def round(key, state, cohort):
        total, metrics, _ = cohort.unprotected(
            lambda k, shard: jnp.zeros(()), key, lambda k, each: (each.sum(), None), reason="none"
        )
        return state._replace(round=state.round + 1 + jnp.int32(total)), metrics

    bare = fp.Algorithm(fp.start, round, fp.everyone(CLIENTS))
    with pytest.raises(NoPlaceError, match="canaries find no place in it; protect clients"):
        one_round(with_canaries(bare, 2))
    with pytest.raises(NoPlaceError, match="protect records with shard"):
        one_round(with_canaries(clients(1.0), 2, per_client=1))
    with pytest.raises(NoPlaceError, match="protect clients with cohort"):
        one_round(with_canaries(records(1.0), 2))


def test_clients_with_noise_of_their_own_send_that_when_they_are_away():
    """Local noise: absent canaries change the sum by their update alone, not by its noise."""
    loud = fp.gaussian(1e-3, 1000.0)
    algorithm = fp.ldp_fed_avg(MODEL.loss, sampler=fp.everyone(CLIENTS), mechanism=loud, **COMMON)
    audited = with_canaries(algorithm, CLIENTS)
    state = audited.init(PARAMS, FEDERATION)

    def move(key):
        after, _ = fp.one_round(audited)(key, state, FEDERATION)
        return flatten(jax.tree.map(jnp.subtract, PARAMS, after.params))

    moves = jax.jit(lambda keys: jax.lax.map(move, keys))(jax.random.split(jax.random.key(1), 30))
    # CLIENTS numbers of variance 1 in every sum, whoever is there; C is too small to matter.
    assert_normal(moves * np.sqrt(CLIENTS), 1.0)


def warm(model, sampler, noise):
    """DP-SCAFFOLD whose control variates are first set by everyone."""
    local = fp.dp_scaffold_steps(
        fp.per_example(model.loss),
        fp.everyone(RECORDS),
        1,
        0.2,
        clip_norm=CLIP,
        noise_multiplier=noise,
    )
    return fp.dp_scaffold(local, sampler=sampler, warm_start=1, everyone_first=True)


def test_canary_records_are_in_a_warm_start_of_everyone():
    """Nobody's noise: a client's control variate is the mean of its clipped gradients, its canary's among them."""
    after = one_round(
        with_canaries(warm(MODEL, fp.fixed_size(CLIENTS, 10), 0.0), CLIENTS, per_client=1)
    )
    assert not after.scores.any()  # the model stays as it is
    directions = directions_of(PARAMS)
    of_record = jax.vmap(jax.grad(MODEL.loss), (None, 0))
    for i in range(CLIENTS):
        others = jax.tree.map(lambda x, i=i: x[FEDERATION.rows[i][1:]], FEDERATION.examples)
        g = jax.vmap(flatten)(of_record(PARAMS, others))
        g *= np.minimum(1, CLIP / np.linalg.norm(g, axis=1, keepdims=True))
        expected = (g.sum(0) + CLIP * float(after.present[i]) * directions[i]) / RECORDS
        np.testing.assert_allclose(after.inner.controls[i], expected, atol=1e-6)


def test_a_run_with_a_warm_start_of_everyone_is_audited():
    """The bound as in the tests above; the estimate's false alarm has a chance of 1e-6."""
    algorithm = warm(LARGE, fp.fixed_size(CLIENTS, 20), 0.1)
    present, scores = trained(algorithm, CLIENTS, per_client=2)
    for v, view in enumerate(("third_party", "server_secagg")):
        certified = certified_of(algorithm, view)
        assert epsilon_one_run(scores[:, v], present, 1e-9, significance=1e-6) <= certified
        assert epsilon_estimate(scores[:, v], present, 1e-9) > 0.3
