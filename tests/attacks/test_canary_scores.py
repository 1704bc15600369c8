"""Scores of canaries: their laws, and bounds that keep below the certificate."""

from functools import cache

import jax
import numpy as np
import pytest
import scipy.stats
import tiers
from canary_runs import (
    CLIENTS,
    CLIP,
    COMMON,
    FEDERATION,
    WHOLE,
    a_round,
    attacked,
    certified_of,
    clients,
    of_one_client,
    runs,
    sparse,
    trained,
    warm,
    with_canaries,
)
from small import refused, regression, squared, start

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.estimates import gaussian_estimate
from fedpriv.attacks.mechanism_audit import Scores, draw_scores
from fedpriv.attacks.one_run import epsilon_one_run
from fedpriv.privacy.certify import pair_of
from fedpriv.privacy.played import plays_of
from fedpriv.proof.exact import exact
from fedpriv.proof.seen import common_neighbour

pytestmark = pytest.mark.usefixtures("quick_to_compile")


N = 12
FEW = regression([2] * N)
"""For laws that do not depend on how many there are."""


WITHOUT_DRAWS = {
    "clients": (clients(1.0, fp.everyone(N)), FEW, 0),
    "records in three steps": (
        of_one_client(fp.dynamic(fp.gaussian(CLIP, 2.0), rounds=4, noise_decay=3.0, parts=4), 3),
        WHOLE,
        1,
    ),
}


@cache
def scored(name):
    """(coins, scores) of 400 runs of four rounds."""
    algorithm, federation, per_client = WITHOUT_DRAWS[name]
    return runs(algorithm, 400, 4, federation, per_client=per_client)


@tiers.every("name", WITHOUT_DRAWS, kind=lambda made: "worst-case canaries")
def test_scores_are_log_likelihood_ratios(name):
    """Where nothing but noise is random: N(mu^2 / 2, mu^2), and N(-mu^2 / 2, mu^2) without the canary.

    By Kolmogorov and Smirnov; false alarm 1e-6 each.
    """
    algorithm, federation, _ = WITHOUT_DRAWS[name]
    present, scores = scored(name)
    every = fp.trace_round(algorithm, start(), federation).seen(4)
    seen = [each for each in every if each.view == "third_party"]
    (square,) = exact(pair_of(seen, common_neighbour(seen))).values
    mu = np.sqrt(square)
    for there in (True, False):
        law = scipy.stats.norm((there - 0.5) * mu**2, mu)
        assert scipy.stats.kstest(scores[present == there, 0], law.cdf).pvalue > 1e-6
    # The same to both views, up to rounding: XLA may fuse the two sums over the rounds in different ways.
    np.testing.assert_allclose(scores[:, 0], scores[:, 1], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_scores_of_secret_cohorts_are_those_of_the_certified_pair():
    """Two samples, by Kolmogorov and Smirnov; false alarm 1e-6 each."""
    algorithm = sparse(1.0, fp.poisson(N, 0.3, N))
    present, scores = runs(algorithm, 400, 4, FEW)
    seen = fp.trace_round(algorithm, start(), FEW).seen(4)
    for v, view in enumerate(("third_party", "server_secagg")):
        pair = draw_scores(seen, view, draws=4_000)
        for there, drawn in ((True, pair.present), (False, pair.absent)):
            assert scipy.stats.ks_2samp(scores[present == there, v], drawn).pvalue > 1e-6


@pytest.mark.slow
def test_whose_turn_it_is_may_be_known_but_not_who_joins():
    """A quarter of the clients in turn, of whom each joins by a coin; client 0 is the first's.

    The certificate of a third party is amplified by the draw: scores have the law of its pair, as above.
    """
    used = fp.correlated(fp.gaussian(CLIP, 0.7), fp.noise_matrices.banded_toeplitz(8, 4))
    sampler = fp.cyclic_poisson(N, 4, 0.3)
    algorithm = fp.fed_avg(squared, sampler=sampler, mechanism=used, **COMMON)
    present, scores = runs(algorithm, 400, 8, FEW)
    seen = fp.trace_round(algorithm, start(), FEW).seen(8)
    pair = draw_scores(seen, "third_party", draws=4_000)
    for there, drawn in ((True, pair.present), (False, pair.absent)):
        assert scipy.stats.ks_2samp(scores[present == there, 0], drawn).pvalue > 1e-6


@pytest.mark.slow
def test_a_right_certificate_is_kept_by_a_secret_draw():
    """One round of 10, drawn at random. Who knows it refutes what holds for others; wrong with probability 1e-6."""
    used, delta = fp.gaussian(CLIP, 0.55), 0.1
    sampler = fp.random_allocation(N, 10, N)
    algorithm = fp.fed_avg(squared, sampler=sampler, mechanism=used, **COMMON)
    present, scores = runs(algorithm, 1_200, 10, FEW)
    third, known = (
        lower_bounds(
            Scores(mine[present], mine[~present], frozenset(), False), delta, 1e-6
        ).clopper_pearson
        for mine in scores.T[:2]
    )
    certified = fp.certify(algorithm, start(), FEW, 10, delta, view="third_party").epsilon
    assert third <= certified < known


def test_the_last_model_tells_less_than_all_of_them():
    present, scores = scored("clients")

    def apart(v):
        on, off = scores[present, v], scores[~present, v]
        return (on.mean() - off.mean()) / np.sqrt((on.var() + off.var()) / 2)

    assert 0.5 < apart(2) < apart(0) == pytest.approx(2.0, abs=0.5)


@pytest.mark.slow
def test_bounds_keep_below_the_certificate():
    """Of records, in a warm start of everyone: wrong once in 1e6, where the certificate is right.

    The estimate says something.
    """
    algorithm = warm(fp.fixed_size(CLIENTS, 20), 0.1)
    present, scores = trained(algorithm, per_client=2)
    for v, view in enumerate(("third_party", "server_secagg")):
        bound = epsilon_one_run(scores[:, v], present, 1e-9, 1e-6, method="epsilon_delta")
        assert bound <= certified_of(algorithm, view)
        assert gaussian_estimate(scores[:, v], present, 1e-9).epsilon > 0.3


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


def changing(noise):
    """The noise falls with the rounds, of which a round computes its own."""
    used = fp.dynamic(fp.gaussian(CLIP, noise), rounds=4, noise_decay=1.5)
    return fp.fed_avg(squared, sampler=fp.everyone(CLIENTS), mechanism=used, **COMMON)


MESSAGES = {"pairs": adaptive, "of changing noise": changing}


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
def test_too_little_noise_is_seen(name):
    """A twentieth of the noise that is certified: the bound refutes that (wrong once in 1e6), the estimate too."""
    make = MESSAGES[name]
    said = certified_of(make(10.0))
    present, scores = trained(make(0.5))
    assert epsilon_one_run(scores[:, 0], present, 1e-9, 1e-6, method="epsilon_delta") > said
    assert gaussian_estimate(scores[:, 0], present, 1e-9).epsilon > said
    assert len(np.unique(present, axis=0)) == 20  # coins differ by seed
    assert 288 < present.sum() < 512  # of 800 fair coins: 8 standard deviations


@pytest.mark.slow
def test_only_rounds_of_one_s_own_count_behind_secure_aggregation():
    audited = with_canaries(clients(1.0, fp.fixed_size(CLIENTS, 10)), CLIENTS)
    after = a_round(audited)
    third, known, _ = np.asarray(after.scores, np.float64)
    drawn = known != 0
    assert drawn.sum() == 10
    secret = np.log(3 / 4 + np.exp(known[drawn]) / 4)  # a quarter of the clients takes part
    np.testing.assert_allclose(third[drawn], secret, rtol=1e-4, atol=1e-6)


def in_groups(*labels):
    """Everyone, in groups of which one counts half."""
    names = [*labels, *"ba" * CLIENTS][:CLIENTS]
    sampler = fp.grouped(names, fp.everyone(CLIENTS), weights={"a": 1.0, "b": 0.5})
    algorithm = clients(2.0, sampler=sampler)
    traced = fp.trace_round(algorithm, start(), FEDERATION)
    (kind,) = (kind for kind in traced.kinds if kind.group == "a")
    seen = next(each for each in traced.seen(4, kind) if each.view == "third_party")
    return algorithm, seen


@pytest.mark.slow
def test_canaries_of_a_group_are_scored_as_its_members():
    """Others count half; false alarm 1e-6 each."""
    algorithm, seen = in_groups("a")
    audited = attacked(algorithm, 1, seen)

    def run(key):
        def step(state, key):
            return fp.one_round(audited)(key, state, FEDERATION)[0], None

        state = audited.init(start(), FEDERATION)
        return jax.lax.scan(step, state, jax.random.split(key, 4))[0]

    after = jax.jit(lambda keys: jax.lax.map(run, keys))(jax.random.split(jax.random.key(0), 400))
    mu = 2 / plays_of(seen).multiplier
    for there in (True, False):
        scores = np.asarray(after.scores)[np.asarray(after.present)[:, 0] == there, 0, 0]
        law = scipy.stats.norm((there - 0.5) * mu**2, mu)
        assert scipy.stats.kstest(scores, law.cdf).pvalue > 1e-6


@tiers.every("labels", ["ab", "b"])
def test_canaries_are_of_one_group_that_counts_whole(labels):
    algorithm, seen = in_groups(*labels)
    audited = attacked(algorithm, len(labels), seen)
    with refused("let those be of one group, of weight 1"):
        jax.eval_shape(
            fp.one_round(audited), jax.random.key(0), audited.init(start(), FEDERATION), FEDERATION
        )
