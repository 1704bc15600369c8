"""Who keeps state, who adds the noise, and records, where members vanish: what each view then sees."""

import math

import optax
import pytest
import tiers
from rows_seen import rows
from small import certified, refused, squared

import fedpriv as fp
from fedpriv.compression.codecs import UNCODED
from fedpriv.privacy import Dropping, FixedSize, Who

N, S, P, SIGMA, DELTA = 12, 6, 0.3125, 3.0, 1e-3  # P is a multiple of 2^-32
PLAIN = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}


def dp_fed_avg(sampler, noise_multiplier=SIGMA, **more):
    private = {"clip_norm": 1.0, "noise_multiplier": noise_multiplier}
    return fp.dp_fed_avg(squared, sampler=sampler, **PLAIN, **private, **more)


def found(sampler, view="third_party", rounds=3, delta=DELTA, **more):
    return certified(dp_fed_avg(sampler), rounds, delta, view=view, **more)


FIXED, ALL = fp.fixed_size(N, S), fp.everyone(N)


def heads(sampler):
    return fp.fed_per(
        squared, head=("b",), sampler=sampler, mechanism=fp.gaussian(1.0, SIGMA), **PLAIN
    )


@tiers.every("noise", ["lost", "whole"])
def test_clients_that_remember_whether_they_stayed(noise):
    """The view is taken to know who was drawn and who vanished: no amplification, as of secure aggregation."""
    algorithm = heads(fp.dropping(FIXED, P, noise))
    certificate = certified(algorithm, 3, DELTA)
    assert certificate.relation == "zero_out"
    known = found(fp.dropping(FIXED, P, noise), "server_secagg")
    assert certificate.epsilon == pytest.approx(known.epsilon, rel=1e-9)
    on_their_own = rows(heads(fp.dropping(ALL, P)), 3)["third_party"][0].drawn
    assert (on_their_own.who, on_their_own.known) == (Who(remembers=True), False)


@tiers.every("noise", ["lost", "whole"])
def test_everyones_own_noise(noise):
    """Known to stay, beside the noise of the others who do."""
    algorithm = fp.papers.ldp_fed_avg(
        squared, sampler=fp.dropping(ALL, P, noise), mechanism=fp.gaussian(1.0, SIGMA), **PLAIN
    )
    seen = rows(algorithm, 3)["third_party"][0]
    assert (seen.drawn.by, seen.drawn.who, seen.drawn.known) == (
        Dropping(N, N, P, noise == "lost"),
        Who(lost=True),
        True,
    )
    assert seen.noisy.multiplier == pytest.approx(SIGMA * math.sqrt(N))


@tiers.every("noise", ["lost", "whole"])
def test_noise_of_ones_own_goes_with_who_vanishes(noise):
    """Local differential privacy: a sum of k messages has the noise of k, whatever the sampler says."""
    algorithm = fp.papers.ldp_fed_avg(
        squared, sampler=fp.dropping(FIXED, P, noise), mechanism=fp.gaussian(1.0, SIGMA), **PLAIN
    )
    seen = rows(algorithm, 3)
    assert seen["server_secagg"][0].drawn.who.lost
    assert seen["server_secagg"][0].noisy.multiplier == pytest.approx(SIGMA * math.sqrt(S))
    assert not seen["server"][0].drawn.who.lost
    assert seen["server"][0].noisy.multiplier == pytest.approx(SIGMA)
    laplace = fp.papers.ldp_fed_avg(
        squared, sampler=fp.dropping(FIXED, P, noise), mechanism=fp.laplace(1.0, 20.0), **PLAIN
    )
    assert rows(laplace, 3)["third_party"][0].drawn.by == FixedSize(N, S)


def test_noise_of_the_server_is_never_lost():
    for part in ({"codec": fp.top_k(2)}, {"weighting": fp.ByExamples(3.0, estimator="clipped")}):
        algorithm = dp_fed_avg(fp.dropping(FIXED, P, "lost"), **part)
        seen = rows(algorithm, 3)["third_party"][0]
        assert seen.adder == "server"
        assert not seen.drawn.who.lost


@tiers.every("noise", ["lost", "whole"])
def test_records_are_seen_where_their_client_stays(noise):
    """The noises of a step that the cohort takes together do not count together, as others may vanish."""
    local = fp.LocalSteps(
        fp.per_example(squared),
        records=fp.poisson(4, 0.5, 4),
        steps=1,
        optimizer=lambda t: optax.sgd(0.1),
        mechanism=fp.gaussian(1.0, SIGMA),
    )
    drop, keep = (
        rows(fp.dp_sgd(local, sampler=sampler, together=True), 3)["third_party"][0]
        for sampler in (fp.dropping(FIXED, P, noise), FIXED)
    )
    assert drop.repeated.among == fp.dropping(FIXED, P, noise).accounting
    assert drop.noisy.multiplier == pytest.approx(keep.noisy.multiplier / math.sqrt(S))
    assert drop.adder == "own"
    assert drop.repeated.among.inclusion == pytest.approx((1 - P) * S / N)


def two_sums(sampler, codec):
    """Of which the server adds the noise of the second, where the codec is lossy."""
    used = fp.gaussian(1.0, SIGMA)

    def round(key, state, cohort):
        first = cohort.sum(lambda key, shard: state.params, key, mechanism=used)
        second = cohort.sum(lambda key, shard: state.params, key, mechanism=used, codec=codec)
        return state._replace(params=first.total, round=state.round + 1), second.metrics

    return fp.Algorithm(fp.start, round, sampler)


def test_shares_of_one_sum_are_not_lost_beside_whole_noise_of_another():
    lost = fp.dropping(FIXED, P, "lost")
    assert rows(two_sums(lost, UNCODED), 1)["third_party"][0].drawn.who.lost
    with refused("round: sums of one cohort differ in .*who adds it"):
        rows(two_sums(lost, fp.top_k(2)), 1)
    mixed = rows(two_sums(fp.dropping(FIXED, P), fp.top_k(2)), 1)["third_party"][0]
    assert not mixed.drawn.who.lost
