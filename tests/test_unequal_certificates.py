"""Records of clients that hold unequal numbers of them: certificates, against own pairs, dp-accounting and audits."""

import math
from itertools import combinations

import dp_accounting as dp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats
from small import FALSE_ALARM, refused, regression, start, table_of, vector
from unequal import CLIP, LEAF, WALL, algorithm_of, mean_of, sending, steps, three_ways, trained

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.privacy.sampling import Poisson, Who
from fedpriv.proof import curves

pytestmark = pytest.mark.usefixtures("quick_to_compile")


WAYS = [
    (fp.dp_sgd, "public, batches", LEAF),
    (fp.dp_sgd, "secret", LEAF),
    (fp.dp_scaffold, "public, Poisson", LEAF),
    (fp.dp_scaffold, "secret", WALL),
]
NAMED = {f"{make.__name__}, {way}": (make, way, sizes) for make, way, sizes in WAYS}


@tiers.every("name", NAMED, kind=lambda given: given[1])
def test_unequal_clients_are_certified(name):
    make, way, sizes = NAMED[name]
    federation = regression(sizes)
    algorithm = algorithm_of(make, three_ways(sizes)[way], 2.0)
    relation = "add_or_remove" if way == "secret" else "replace_one"
    traced = fp.trace_round(algorithm, start(), federation)
    for view in fp.privacy.VIEWS:
        certificate = traced.certify(4, 1e-3, view=view)
        assert certificate.basis == "constructed"
        assert certificate.relation == relation
        assert 0 < certificate.epsilon < math.inf
    public = [a.startswith("how many records each client") for a in certificate.assumptions]
    secret = [a.startswith("the largest number of records") for a in certificate.assumptions]
    assert any(public) == (way != "secret")
    assert any(secret) == (way == "secret")


@pytest.mark.slow
@pytest.mark.parametrize("name", tiers.one_of_each(NAMED, lambda given: given[1]))
def test_unequal_clients_train(name):
    make, way, sizes = NAMED[name]
    algorithm = algorithm_of(make, three_ways(sizes)[way], 2.0)
    assert np.all(np.isfinite(vector(trained(algorithm, regression(sizes), 1).params)))


def epsilon_of(curve, steps, delta, step=2e-3, reach=40.0):
    """Of so many compositions of a pair with this curve delta(epsilon), by own convolutions on an own grid.

    The losses' distribution F under P is read off the curve: delta'(e) = -e^e Q[loss > e], P from Q by its loss.
    """
    grid = np.arange(-reach, reach + step / 2, step)
    above = -np.diff(curve(grid)) / np.diff(np.exp(grid))  # Q[loss > e]
    under_q = np.append(-np.diff(above), 0.0)
    losses = np.append(grid[1:-1], grid[-1])
    under_p = np.maximum(under_q, 0) * np.exp(losses)
    under_p /= under_p.sum()
    size = 1 << math.ceil(math.log2(len(under_p) * steps))
    composed = np.fft.irfft(np.fft.rfft(under_p, size) ** steps, size)
    total = losses[0] * steps + step * np.arange(size)
    kept = composed > 0

    def excess(epsilon):
        gain = np.maximum(0.0, -np.expm1(epsilon - total[kept]))
        return float(gain @ composed[kept]) - delta

    return optimize.brentq(excess, 0.0, 60.0)


def replaced_curve(rate, multiplier):
    """By hand: H of (1 - q) N(0) + q N(1) against N(0), at the distance 2 / multiplier, either way round."""
    mu = 2 / multiplier

    def once(e):
        return stats.norm.cdf(mu / 2 - e / mu) - np.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)

    def forward(e):
        return rate * once(np.log1p(np.expm1(e) / rate))

    def curve(epsilon):
        e = np.abs(epsilon)
        return np.where(epsilon >= 0, forward(e), -np.expm1(-e) + np.exp(-e) * forward(e))

    return curve


def in_place_curve(rate, multiplier):
    """By hand: H of (1 - q) N(0) + q N(1) against (1 - q) N(0) + q N(-1), at 1 / multiplier: all others stay."""

    def mixture(f, x, at):
        return (1 - rate) * f(x) + rate * f(x - at / multiplier)

    def forward(e):
        low, high = np.full_like(e, -60.0), np.full_like(e, 60.0)
        for _ in range(80):  # their ratio rises
            x = (low + high) / 2
            one, other = (mixture(stats.norm.pdf, x, at) for at in (1, -1))
            above = one > np.exp(e) * other
            low, high = np.where(above, low, x), np.where(above, x, high)
        one, other = (mixture(stats.norm.sf, high, at) for at in (1, -1))
        return one - np.exp(e) * other

    def curve(epsilon):
        e = np.abs(np.asarray(epsilon, float))
        return np.where(epsilon >= 0, forward(e), -np.expm1(-e) + np.exp(-e) * forward(e))

    return curve


@pytest.mark.parametrize(("way", "size"), [("public, Poisson", 40), ("public, batches", 25)])
def test_public_sizes_have_the_epsilon_of_an_own_pair(way, size):
    records = three_ways(WALL)[way]
    algorithm = fp.dp_sgd(steps(records, fp.gaussian(CLIP, 2.0), 2), sampler=fp.everyone(8))
    traced = fp.trace_round(algorithm, start(), regression(WALL))
    certificate = traced.certify(5, 1e-3, view="server")
    in_place = way == "public, Poisson"
    curve = in_place_curve(0.1, 2.0) if in_place else replaced_curve(10 / size, 2.0)
    own = epsilon_of(curve, 10, 1e-3)
    assert certificate.epsilons["PLD"] == pytest.approx(own, rel=1e-3)


def test_secret_sizes_have_the_epsilon_of_dp_accounting():
    algorithm = fp.dp_sgd(
        steps(fp.poisson(231, 0.1, 231), fp.gaussian(CLIP, 1.0), 2), sampler=fp.everyone(8)
    )
    found = {
        fp.trace_round(algorithm, start(), regression(sizes))
        .certify(2, 1e-5, view="server")
        .epsilon
        for sizes in (WALL, [1] * 8)
    }
    event = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0))
    accountant = PLDAccountant(value_discretization_interval=5e-4)
    own = accountant.compose(dp.SelfComposedDpEvent(event, 4)).get_epsilon(1e-5)
    assert len(found) == 1
    assert found.pop() == pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("replaced", [False, True])
def test_the_cases_of_cut_places_bound_explicit_neighbours(capacity, replaced):
    """Four places, all subsets, records at -1 and 1: mixtures of normals, their divergences integrated by hand."""
    n, rate, sigma = 4, 0.4, 1.1
    x = np.linspace(-14, 14, 20_001)

    def density(contributions):
        total = 0.0
        for joined in range(2**n):
            who = [i for i in range(n) if joined >> i & 1]
            chance = rate ** len(who) * (1 - rate) ** (n - len(who))
            subsets = [who]
            if len(who) > capacity:
                subsets = list(map(list, combinations(who, capacity)))
            for kept in subsets:
                moved = sum(contributions[i] for i in kept)
                total = total + chance / len(subsets) * stats.norm.pdf(x, moved, sigma)
        return total

    neighbour = "replaced" if replaced else "emptied"
    cases = Poisson(n, rate, capacity).cases(neighbour, Who(stays=replaced))
    assert sum(case.chance for case in cases) == pytest.approx(1, abs=1e-12)
    assert sum(case.chance * case.rate for case in cases) == pytest.approx(
        sum(stats.binom.pmf(k, n - 1, rate) * rate * min(1, capacity / (k + 1)) for k in range(n))
    )
    for others in ([-1, -1, -1], [1, -1, 1], [0, 0, 0], [1, 1, 1]):
        with_it = density([1, *others])
        without = density([-1 if replaced else 0, *others])
        for one, other, curve in (
            (with_it, without, curves.replace_delta if replaced else curves.remove_delta),
            (without, with_it, curves.replace_delta if replaced else curves.add_delta),
        ):
            for epsilon in (0.0, 0.2, 0.7, 1.5):
                true = np.trapezoid(np.maximum(0, one - math.exp(epsilon) * other), x)
                multiplier = sigma / 2 if replaced else sigma
                bound = sum(
                    case.chance * float(curve(epsilon, multiplier / case.far, case.rate))
                    for case in cases
                    if case.rate > 0
                )
                assert true <= bound + 1e-9


AUDITED = [("public, batches", LEAF), ("secret", WALL)]


@pytest.mark.slow
@pytest.mark.parametrize("given", AUDITED)
def test_the_audit_of_the_worst_client_is_below_its_certificate_and_near_it(given):
    """A bound above a true epsilon has probability 1e-6; 60 % of the certificate are found at 95 % confidence.

    A client of LEAF is smaller than a batch.
    """
    (way, sizes), delta = given, 1e-2
    sigma, rounds = (1.0, 5) if way == "secret" else (4.0, 8)
    local = steps(three_ways(sizes)[way], fp.gaussian(CLIP, sigma), 2)
    traced = fp.trace_round(fp.dp_sgd(local, sampler=fp.everyone(8)), start(), regression(sizes))
    certificate = traced.certify(rounds, delta, view="server")
    scores = draw_scores(traced.seen(rounds), "server", draws=20_000)
    assert lower_bounds(scores, delta, FALSE_ALARM).least <= certificate.epsilon
    assert lower_bounds(scores, delta).least > 0.6 * certificate.epsilon


def clients_of(algorithm, federation, rounds, delta, **how):
    """Certificates of each client's records."""
    options = {"each_client": True, **how}
    return fp.certify(algorithm, start(), federation, rounds, delta, **options).of_clients


@pytest.mark.slow
def test_the_certificate_is_the_largest_of_the_clients():
    algorithm = algorithm_of(fp.dp_sgd, three_ways(WALL)["public, batches"], 2.0)
    federation = regression(WALL)
    run = algorithm, start(), federation, 4, 1e-3
    whole = fp.certify(*run, view="server", each_client=True)
    worst = fp.certify(*run, view="server")
    epsilons = [certificate.epsilon for certificate in whole.of_clients]
    assert worst == whole
    assert len(epsilons) == 8
    assert max(epsilons) == worst.epsilon
    order = np.argsort(WALL)
    assert np.all(np.diff(np.array(epsilons)[order]) <= 0)
    alone = algorithm_of(fp.dp_sgd, fp.fixed_size(90, 10), 2.0)
    of_ninety = fp.certify(alone, start(), regression([90] * 8), 4, 1e-3, view="server")
    assert epsilons[WALL.index(90)] == pytest.approx(of_ninety.epsilon, rel=1e-9)


def test_secret_sizes_cost_every_client_the_same():
    """And what is certified of all is no other where each client is asked for, too."""
    algorithm = algorithm_of(fp.dp_sgd, three_ways(WALL)["secret"], 2.0)
    run = algorithm, start(), regression(WALL), 1, 1e-3
    whole = fp.certify(*run, each_client=True, view="server")
    assert whole == fp.certify(*run, view="server")
    assert len(whole.of_clients) == 8
    assert {certificate.epsilon for certificate in whole.of_clients} == {whole.epsilon}


def test_of_whole_clients_there_is_one_certificate():
    """Also where their sizes are public."""
    records = three_ways(LEAF)["public, batches"]
    local = steps(records, fp.gaussian(CLIP, 50.0))._replace(unit="client")
    with refused("each_client: True; one certificate holds for each whole client; leave it out"):
        algorithm = fp.dp_sgd(local, sampler=fp.everyone(8))
        clients_of(algorithm, regression(LEAF), 4, 1e-3)


def test_the_noise_of_others_counts_only_where_all_divide_by_one_number():
    """One step of fixed cohorts: a third party sees the sum. Divisors that differ leave a record its own noise."""
    federation = regression(WALL)

    def multiplier(records):
        local = steps(records, fp.gaussian(CLIP, 2.0), 1)
        algorithm = fp.dp_sgd(local, sampler=fp.fixed_size(8, 4), together=True)
        seen = table_of(fp.trace_round(algorithm, start(), federation), 1)
        return {view: row.noisy.multiplier for view, (row,) in seen.items()}

    ways = three_ways(WALL)
    assert multiplier(ways["secret"])["third_party"] == pytest.approx(2 * math.sqrt(4))
    for name in ("public, Poisson", "public, batches"):
        assert set(multiplier(ways[name]).values()) == {2.0}


def test_whole_clients_count_the_largest_batch():
    records = three_ways(LEAF)["public, batches"]
    local = steps(records, fp.gaussian(CLIP, 50.0))._replace(unit="client")
    algorithm = fp.dp_sgd(local, sampler=fp.everyone(8))
    (first, *_) = table_of(fp.trace_round(algorithm, start(), regression(LEAF)), 1)["third_party"]
    assert first.noisy.multiplier == pytest.approx(50 / 10)


@pytest.mark.slow
def test_a_client_smaller_than_a_batch_costs_no_less_at_any_renyi_order():
    """Batches of 5 of clients of 5, 6, 9 records."""
    sizes = (5, 6, 9, 9, 9, 9, 9, 9)
    local = steps(fp.PublicSizes(sizes, batch=5), fp.gaussian(CLIP, 6.0), 2)
    algorithm = fp.dp_sgd(local, sampler=fp.fixed_size(8, 4))
    each = clients_of(algorithm, regression(sizes), 5, 1e-3)
    by_rdp = [certificate.epsilons["RDP"] for certificate in each]
    assert by_rdp[0] >= by_rdp[1] >= by_rdp[2]


@pytest.mark.slow
def test_two_samplers_of_public_sizes_are_two_kinds_for_every_client():
    sizes = (60,) * 7 + (231,)

    def of_two(k, p, s):
        means = [mean_of(k, p, s, fp.PublicSizes(sizes, batch=b)) for b in (30, 40)]
        return jax.tree.map(jnp.add, *means)

    run = sending(of_two), start(), regression(sizes), 1, 1e-3
    worst = fp.certify(*run, each_client=True)
    assert max(certificate.epsilon for certificate in worst.of_clients) == worst.epsilon


@tiers.every("make", {"dp_scaffold": fp.dp_scaffold, "dp_sgd": fp.dp_sgd})
def test_public_weights_change_no_certificate_and_want_public_sizes(make):
    federation, noisy = regression(WALL), fp.gaussian(CLIP, 2.0)

    def epsilon(way, **weighting):
        local = steps(three_ways(WALL)[way], noisy, 1)
        algorithm = getattr(fp, make)(local, sampler=fp.fixed_size(8, 4), **weighting)
        return fp.trace_round(algorithm, start(), federation).certify(4, 1e-3).epsilon

    weighting = {"weighting": fp.ByPublicSizes(WALL)}
    plain = epsilon("public, batches")
    assert epsilon("public, batches", **weighting) == plain
    with refused(r"sizes\[0\]: 5, but the client holds 25"):
        epsilon("public, batches", weighting=fp.ByPublicSizes(LEAF))
    with refused("weighting: messages already carry their noise"):
        epsilon("public, batches", weighting=fp.ByExamples(cap=20))
