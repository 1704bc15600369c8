"""Canaries: what they put in, what is seen of them, and bounds that keep below the certificate."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from small import assert_normal, one_round, regression, squared, start, vector
from small import records as records_of

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.canaries import Canaries, NoPlaceError
from fedpriv.attacks.canaries import with_canaries as attacked
from fedpriv.attacks.estimates import gaussian_estimate
from fedpriv.attacks.mechanism_audit import Scores, draw_scores
from fedpriv.attacks.one_run import epsilon_one_run
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RECORDS, CLIP, RATE = 40, 4, 0.5, 0.2
FEDERATION, WIDE = (regression([RECORDS] * CLIENTS, features=f) for f in (3, 770))
DIRECTIONS = Canaries(jax.random.key(0), jnp.ones(CLIENTS, bool), 1.0, 0)
WHOLE = regression([60], features=3)
COMMON = {"optimizer": lambda t: optax.sgd(RATE), "batches": fp.full_batch()}


def clients(noise, sampler=None):
    sampler = sampler or fp.everyone(CLIENTS)
    return fp.dp_fed_avg(squared, sampler=sampler, clip_norm=CLIP, noise_multiplier=noise, **COMMON)


def records(noise, steps=3):
    local = fp.LocalSteps(
        fp.per_example(squared),
        fp.everyone(RECORDS),
        steps,
        COMMON["optimizer"],
        fp.gaussian(CLIP, noise),
    )
    return fp.dp_sgd(local, sampler=fp.everyone(CLIENTS))


def release_of(algorithm, federation=FEDERATION, features=3, rounds=1):
    traced = fp.trace_round(algorithm, start(features), federation)
    return next(r for r in traced.releases(rounds) if r.view == "third_party")


def with_canaries(algorithm, count, federation=FEDERATION, features=3, **how):
    release = release_of(algorithm, federation, features)
    return attacked(algorithm, count, release, **how)


def a_round(algorithm, key=1):
    return one_round(algorithm)(
        jax.random.key(key), algorithm.init(start(), FEDERATION), FEDERATION
    )[0]


@pytest.fixture(scope="module")
def directions():
    """f64[CLIENTS, 4]."""
    of_canary = jax.jit(jax.vmap(lambda j: flatten(DIRECTIONS.direction(j, start()))))
    return np.asarray(of_canary(jnp.arange(CLIENTS)), np.float64)


def clipped(vectors):
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors * np.minimum(1, CLIP / lengths)


def gradients(i, theta):
    """f64[RECORDS, 4], of a client's records, by hand."""
    x, y = records_of(FEDERATION, i)
    x = np.concatenate([np.ones((RECORDS, 1)), x], 1)
    return x * (x @ theta - y)[:, None]


def test_canary_clients_move_the_model_by_the_clip_norm_in_their_direction(directions):
    """All clients are canaries: without noise the model moves by C times the directions of those there, over n.

    Coins are tossed in the first round alone.
    """
    audited = with_canaries(clients(0.0), CLIENTS)
    after = a_round(audited)
    expected = CLIP * np.asarray(after.present, float) @ directions / CLIENTS
    np.testing.assert_allclose(vector(start()) - vector(after.params), expected, atol=1e-6)
    assert 5 < after.present.sum() < 35
    again, _ = one_round(audited)(jax.random.key(2), after, FEDERATION)
    np.testing.assert_array_equal(again.present, after.present)


def test_canary_records_move_it_in_every_step(directions):
    """One canary at the first position of each client; the others' gradients as without it."""
    after = a_round(with_canaries(records(0.0), CLIENTS, per_client=1))

    def client(i):
        theta = vector(start())
        for _ in range(3):
            others = clipped(gradients(i, theta)[1:]).sum(0)
            total = others + CLIP * float(after.present[i]) * directions[i]
            theta = theta - RATE * total / RECORDS
        return theta

    expected = np.mean([client(i) for i in range(CLIENTS)], 0)
    np.testing.assert_allclose(vector(after.params), expected, atol=2e-5)


def test_others_are_left_alone(directions):
    """With only one place taken the rest trains as ever, canary there or not."""
    theta = vector(start())
    updates = clipped(np.stack([RATE * gradients(i, theta).mean(0) for i in range(CLIENTS)]))
    audited = with_canaries(clients(0.0), 1)
    single = Canaries(jax.random.key(0), jnp.ones(1, bool), 1.0, 0)
    direction = flatten(single.direction(jnp.int32(0), start()))
    seen = set()
    for key in range(1, 21):  # all coins alike: 2e-6
        after = a_round(audited, key)
        seen.add(there := bool(after.present[0]))
        total = updates[1:].sum(0) + there * CLIP * direction
        np.testing.assert_allclose(vector(after.params), theta - total / CLIENTS, atol=1e-6)
    assert seen == {True, False}


def certified_of(algorithm, view="third_party"):
    return fp.certify(algorithm, start(770), WIDE, 4, 1e-9, view=view).epsilon


@pytest.mark.parametrize("per_client", [0, 2])
def test_canaries_leave_the_certificate_as_it_is(per_client):
    """Their scores are diagnostics; who certifies traces the sums of a cohort that canaries have copied."""
    algorithm = records(3.0) if per_client else clients(3.0, fp.poisson(CLIENTS, 0.3, 30))
    audited = with_canaries(algorithm, 10, WIDE, 770, per_client=per_client)
    assert certified_of(audited) == certified_of(algorithm) < np.inf


def trained(algorithm, *, seeds=20, per_client=0):
    """(present, scores) of a canary per client in 771 dimensions, after four rounds."""
    audited = with_canaries(algorithm, CLIENTS, WIDE, 770, per_client=per_client)
    state = audited.init(start(770), WIDE)

    def run(key):
        def step(state, key):
            return fp.one_round(audited)(key, state, WIDE)[0], None

        return jax.lax.scan(step, state, jax.random.split(key, 4))[0]

    after = jax.jit(lambda keys: jax.lax.map(run, keys))(jax.random.split(jax.random.key(0), seeds))
    return np.asarray(after.present), np.asarray(after.scores)


def runs(algorithm, seeds, rounds, federation=FEDERATION, per_client=0):
    """(present [seeds], scores [seeds, 3]) of a single canary."""
    release = release_of(algorithm, federation, rounds=rounds)
    audited = attacked(algorithm, 1, release, per_client=per_client)
    test = jax.tree.map(lambda leaf: leaf[:1], federation.examples)
    state = fp.simulate(
        audited,
        start(),
        federation,
        test,
        score=lambda params, example: {"loss": squared(params, example)},
        rounds=rounds,
        every=rounds,
        seeds=range(seeds),
    ).state
    return np.asarray(state.present)[:, 0], np.asarray(state.scores, np.float64)[:, :, 0]


def of_one_client(noise, steps):
    """DP-SGD on records in one place."""
    local = fp.LocalSteps(
        fp.per_example(squared),
        fp.everyone(60),
        steps,
        COMMON["optimizer"],
        fp.gaussian(CLIP, noise),
    )
    return fp.dp_sgd(local, sampler=fp.everyone(1))


def correlated(noise):
    used = fp.correlated(fp.gaussian(CLIP, noise), fp.noise_matrices.tree(rounds=4))
    return fp.fed_avg(squared, sampler=fp.everyone(CLIENTS), mechanism=used, **COMMON)


@pytest.mark.parametrize(
    ("algorithm", "federation", "per_client"),
    [
        (clients(2.0), FEDERATION, 0),
        (of_one_client(2.0, 1), WHOLE, 1),
        (of_one_client(2.0, 3), WHOLE, 1),
        (correlated(4.0), FEDERATION, 0),
    ],
    ids=["clients", "records", "records in three steps", "correlated"],
)
def test_scores_are_log_likelihood_ratios(algorithm, federation, per_client):
    """Where nothing but noise is random: N(mu^2 / 2, mu^2), and N(-mu^2 / 2, mu^2) without the canary.

    By Kolmogorov and Smirnov; false alarm 1e-6 each.
    """
    rounds = 4
    present, scores = runs(algorithm, 400, rounds, federation, per_client)
    releases = fp.trace_round(algorithm, start(), federation).releases(rounds)
    seen = next(r for r in releases if r.view == "third_party")
    mu = np.sqrt(seen.steps * seen.local_steps) / seen.multiplier
    for there in (True, False):
        law = scipy.stats.norm((there - 0.5) * mu**2, mu)
        assert scipy.stats.kstest(scores[present == there, 0], law.cdf).pvalue > 1e-6
    np.testing.assert_array_equal(scores[:, 0], scores[:, 1])


@pytest.mark.parametrize("make", ["dense", "sparse"])
def test_scores_of_secret_cohorts_are_those_of_the_certified_pair(make):
    """Two samples, by Kolmogorov and Smirnov; false alarm 1e-6 each."""
    sampler = fp.poisson(CLIENTS, 0.3, CLIENTS)
    algorithm = clients(1.0, sampler) if make == "dense" else sparse(1.0, sampler)
    present, scores = runs(algorithm, 400, 4)
    releases = fp.trace_round(algorithm, start(), FEDERATION).releases(4)
    for v, view in enumerate(("third_party", "server_secagg")):
        pair = draw_scores(releases, view, draws=4_000)
        for there, exact in ((True, pair.present), (False, pair.absent)):
            assert scipy.stats.ks_2samp(scores[present == there, v], exact).pvalue > 1e-6


def in_turns(used):
    """A quarter of the clients in turn, of whom each joins by a coin; client 0 is the first's."""
    return fp.fed_avg(squared, sampler=fp.cyclic_poisson(CLIENTS, 4, 0.3), mechanism=used, **COMMON)


@pytest.mark.parametrize("noise", ["fresh", "correlated"])
def test_whose_turn_it_is_may_be_known_but_not_who_joins(noise):
    """The certificate of a third party is amplified by the draw: scores have the law of its pair, as above."""
    used = fp.gaussian(CLIP, 0.7)
    if noise == "correlated":
        used = fp.correlated(used, fp.noise_matrices.banded_toeplitz(8, 4))
    algorithm = in_turns(used)
    present, scores = runs(algorithm, 400, 8)
    releases = fp.trace_round(algorithm, start(), FEDERATION).releases(8)
    pair = draw_scores(releases, "third_party", draws=4_000)
    for there, exact in ((True, pair.present), (False, pair.absent)):
        assert scipy.stats.ks_2samp(scores[present == there, 0], exact).pvalue > 1e-6


def test_a_right_certificate_is_kept_by_a_secret_draw():
    """One round of 20, drawn at random. Who knows it refutes what holds for others; wrong with probability 1e-6."""
    used, delta = fp.gaussian(CLIP, 0.6), 0.1
    sampler = fp.random_allocation(CLIENTS, 20, CLIENTS)
    algorithm = fp.fed_avg(squared, sampler=sampler, mechanism=used, **COMMON)
    present, scores = runs(algorithm, 1_500, 20)
    third, known = (
        lower_bounds(
            Scores(mine[present], mine[~present], frozenset(), False), delta, 1e-6
        ).clopper_pearson
        for mine in scores.T[:2]
    )
    certified = fp.certify(algorithm, start(), FEDERATION, 20, delta, view="third_party").epsilon
    assert third <= certified < known


def test_the_last_model_tells_less_than_all_of_them():
    present, scores = runs(clients(1.0), 400, 4)

    def apart(v):
        on, off = scores[present, v], scores[~present, v]
        return (on.mean() - off.mean()) / np.sqrt((on.var() + off.var()) / 2)

    assert 0.5 < apart(2) < apart(0) == pytest.approx(2.0, abs=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "per_client"),
    [
        (clients(2.0, fp.poisson(CLIENTS, 0.5, CLIENTS)), 0),
        (clients(2.0, fp.fixed_size(CLIENTS, 20)), 0),
        (records(0.5, 1), 2),
    ],
    ids=["poisson", "fixed size", "records"],
)
def test_bounds_keep_below_the_certificate(algorithm, per_client):
    """Wrong with probability 1e-6 at most, where the certificate is right; the estimate says something."""
    present, scores = trained(algorithm, per_client=per_client)
    for v, view in enumerate(("third_party", "server_secagg")):
        bound = epsilon_one_run(scores[:, v], present, 1e-9, 1e-6, method="epsilon_delta")
        assert bound <= certified_of(algorithm, view)
        assert gaussian_estimate(scores[:, v], present, 1e-9).epsilon > 0.3


def sparse(noise, sampler=None):
    """Messages are coordinates, other ones in every round."""
    return fp.fed_smp(
        squared,
        sampler=sampler or fp.everyone(CLIENTS),
        sparsifier=fp.select_rand_k(0.5),
        clip_norm=CLIP,
        noise_multiplier=noise,
        **COMMON,
    )


def adaptive(noise):
    """Messages are pairs, of which the model follows the first."""
    return fp.adaptive_fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        quantile=0.5,
        clip_norm=CLIP,
        noise_multiplier=noise,
        count_noise=10.0,
        **COMMON,
    )


@pytest.mark.parametrize("make", [clients, sparse, adaptive])
def test_too_little_noise_is_seen(make):
    """A twentieth of the noise that is certified: the bound refutes that (wrong once in 1e6), the estimate too."""
    said = certified_of(make(10.0))
    present, scores = trained(make(0.5))
    assert epsilon_one_run(scores[:, 0], present, 1e-9, 1e-6, method="epsilon_delta") > said
    assert gaussian_estimate(scores[:, 0], present, 1e-9).epsilon > said
    assert len(np.unique(present, axis=0)) == 20  # coins differ by seed
    assert 288 < present.sum() < 512  # of 800 fair coins: 8 standard deviations


def test_only_rounds_of_one_s_own_count_behind_secure_aggregation():
    audited = with_canaries(clients(1.0, fp.fixed_size(CLIENTS, 10)), CLIENTS)
    after = a_round(audited)
    third, known, _ = np.asarray(after.scores, np.float64)
    drawn = known != 0
    assert drawn.sum() == 10
    secret = np.log(3 / 4 + np.exp(known[drawn]) / 4)  # a quarter of the clients takes part
    np.testing.assert_allclose(third[drawn], secret, rtol=1e-4, atol=1e-6)


def test_what_has_no_place_for_them():
    with pytest.raises(ValueError, match="count: 41; give 1 to 40"):
        with_canaries(clients(1.0), 41).init(start(), FEDERATION)
    with pytest.raises(ValueError, match="per_client: a client has 4 records, not 5"):
        a_round(with_canaries(records(1.0), 41, per_client=5))

    def round(key, state, cohort):
        total, metrics, _ = cohort.unprotected(
            lambda k, shard: jnp.zeros(()), key, lambda k, each: (each.sum(), None), reason="none"
        )
        return state._replace(round=state.round + 1 + jnp.int32(total)), metrics

    bare = fp.Algorithm(fp.start, round, fp.everyone(CLIENTS))
    with pytest.raises(NoPlaceError, match="canaries find no place in it; protect clients"):
        a_round(with_canaries(bare, 2))
    with pytest.raises(NoPlaceError, match="protect records with shard"):
        a_round(with_canaries(clients(1.0), 2, per_client=1))
    with pytest.raises(NoPlaceError, match="protect clients with cohort"):
        a_round(with_canaries(records(1.0), 2))


def test_clients_with_noise_of_their_own_send_that_when_they_are_away():
    """Local noise: absent canaries change the sum by their update alone, not by its noise."""
    loud = fp.gaussian(1e-3, 1000.0)
    algorithm = fp.ldp_fed_avg(squared, sampler=fp.everyone(CLIENTS), mechanism=loud, **COMMON)
    audited = with_canaries(algorithm, CLIENTS)
    state = audited.init(start(), FEDERATION)

    def move(key):
        after, _ = fp.one_round(audited)(key, state, FEDERATION)
        return flatten(after.params) - flatten(state.params)

    moves = jax.jit(lambda keys: jax.lax.map(move, keys))(jax.random.split(jax.random.key(1), 120))
    # CLIENTS numbers of variance 1 in every sum, whoever is there; C is too small to matter.
    assert_normal(moves * np.sqrt(CLIENTS), 1.0)


def warm(sampler, noise):
    """DP-SCAFFOLD whose control variates are first set by everyone."""
    local = fp.dp_scaffold_steps(
        fp.per_example(squared),
        fp.everyone(RECORDS),
        1,
        RATE,
        clip_norm=CLIP,
        noise_multiplier=noise,
    )
    return fp.dp_scaffold(local, sampler=sampler, warm_start=1, everyone_first=True)


def test_canary_records_are_in_a_warm_start_of_everyone(directions):
    """Nobody's noise: a client's control variate is the mean of its clipped gradients, its canary's among them."""
    audited = with_canaries(warm(fp.fixed_size(CLIENTS, 10), 0.0), CLIENTS, per_client=1)
    after = a_round(audited)
    assert not after.scores.any()  # the model stays as it is
    for i in range(CLIENTS):
        others = clipped(gradients(i, vector(start()))[1:]).sum(0)
        expected = (others + CLIP * float(after.present[i]) * directions[i]) / RECORDS
        np.testing.assert_allclose(after.inner.controls[i], expected, atol=1e-6)


def test_a_run_with_a_warm_start_of_everyone_is_audited():
    """The bound as in the tests above; the estimate's false alarm has a chance of 1e-6."""
    algorithm = warm(fp.fixed_size(CLIENTS, 20), 0.1)
    present, scores = trained(algorithm, per_client=2)
    for v, view in enumerate(("third_party", "server_secagg")):
        bound = epsilon_one_run(scores[:, v], present, 1e-9, 1e-6, method="epsilon_delta")
        assert bound <= certified_of(algorithm, view)
        assert gaussian_estimate(scores[:, v], present, 1e-9).epsilon > 0.3
