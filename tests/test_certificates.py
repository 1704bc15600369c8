"""What is read off each algorithm's round: the releases that its paper, and arithmetic by hand, say it makes."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import blank, regression, released, sgd, squared, start

import fedpriv as fp
from fedpriv import clipping, consensus, noise, splitting
from fedpriv.privacy import Everyone

CLIENTS, RECORDS, D = 6, 4, 4  # four parameters: no padding of Haar coefficients
C, SIGMA, ROUNDS = 0.5, 1.2, 9
COMMON = {"optimizer": sgd, "batches": fp.full_batch()}
PRIVATE = {"clip_norm": C, "noise_multiplier": SIGMA}
GAUSSIAN, LAPLACE = fp.gaussian(C, SIGMA), fp.laplace(C, SIGMA)
HAAR = fp.mechanism(clipping.flat(), noise.haar_noise(D), **PRIVATE)
BY_TENSOR = fp.mechanism(clipping.separately(2), noise.isotropic(), **PRIVATE)
FALLING = fp.dynamic(GAUSSIAN, rounds=8, clip_decay=2.0, noise_decay=3.0, parts=4)
PIECES = [(2, SIGMA), (2, SIGMA / 3**0.25), (2, SIGMA / 3**0.5), (3, SIGMA / 3**0.75)]

SAMPLERS = {
    "everyone": fp.everyone(CLIENTS),
    "fixed_size": fp.fixed_size(CLIENTS, 3),
    "subsets": fp.subsets(CLIENTS, 2),  # with spare slots
    "poisson": fp.poisson(CLIENTS, 0.5, CLIENTS),
    "cut": fp.poisson(CLIENTS, 0.5, 2),
    "with_replacement": fp.with_replacement([1, 1, 1, 1, 1, 2], 4),
}
MOST = {
    "everyone": 6,
    "fixed_size": 3,
    "subsets": 2,
    "poisson": 6,
    "cut": 2,
    "with_replacement": 4,
}
"""The largest cohort."""


@pytest.fixture(params=SAMPLERS)
def drawn(request):
    """Name, sampler, size of the largest cohort."""
    return request.param, SAMPLERS[request.param], MOST[request.param]


def seen(algorithm, rounds=ROUNDS):
    """View -> [(rounds, multiplier)], in order; and all that is the same for all releases of a view."""
    found = released(algorithm, rounds, RECORDS)
    parts = {view: [(r.steps, r.multiplier) for r in each] for view, each in found.items()}
    rest = {}
    for view, each in found.items():
        kinds = {
            (
                r.noise,
                r.noise_is_split,
                r.server_adds_noise,
                r.local_steps,
                r.sampling,
                r.participation,
            )
            for r in each
        }
        assert len(kinds) == 1
        rest[view] = Kind(*kinds.pop(), sorted({r.reason for r in each}))
    return parts, rest


class Kind(NamedTuple):
    """What `Release` has beside its multiplier and its number of rounds."""

    noise: str
    noise_is_split: bool
    server_adds_noise: bool
    local_steps: int
    sampling: object
    participation: object
    reasons: list


def assert_parts(found, third_party, server, behind):
    """[(rounds, multiplier)] of each view."""
    for view, expected in zip(fp.VIEWS, (third_party, server, behind), strict=True):
        assert [n for n, _ in found[view]] == [n for n, _ in expected]
        np.testing.assert_allclose([m for _, m in found[view]], [m for _, m in expected])


def scaled(parts, factor):
    return [(n, m * factor) for n, m in parts]


def of_clients(sampler, codec=fp.compression.codecs.UNCODED):
    """Algorithm, multiplier of the perturbed sum."""
    options = {"sampler": sampler, "codec": codec, **COMMON}
    rand_k, top_k = fp.select_rand_k(0.5), fp.select_top_k(0.5, fp.full_batch())
    wav = {"d": D, **options, **PRIVATE, "bounded": "update"}
    adaptive = {"quantile": 0.5, "count_noise": 1.0, **options, **PRIVATE}
    return {
        "fed_avg": (fp.fed_avg(squared, mechanism=GAUSSIAN, **options), SIGMA),
        "haar": (fp.fed_avg(squared, mechanism=HAAR, **options), SIGMA / math.sqrt(D)),
        "tensors": (fp.fed_avg(squared, mechanism=BY_TENSOR, **options), SIGMA / math.sqrt(2)),
        "dp_fed_avg": (fp.dp_fed_avg(squared, **options, **PRIVATE), SIGMA),
        "fed_smp": (fp.fed_smp(squared, sparsifier=rand_k, **options, **PRIVATE), SIGMA),
        "top_k": (fp.fed_smp(squared, sparsifier=top_k, **options, **PRIVATE), SIGMA),
        "adaptive": (fp.adaptive_fed_avg(squared, **adaptive), SIGMA),
        "wavelet": (fp.dp_fed_avg_wav(squared, **wav), SIGMA / math.sqrt(D)),
    }


def test_sums_of_a_cohort(drawn):
    """All of the noise hides a client from who sees the sum, one share of it from who sees messages.

    A client that is drawn again and again moves the sum by as many clip norms.
    """
    name, sampler, most = drawn
    times = most if name == "with_replacement" else 1
    for algorithm, m in of_clients(sampler).values():
        parts, kinds = seen(algorithm)
        whole = [(ROUNDS, m / times)]
        assert_parts(parts, whole, scaled(whole, most**-0.5), whole)
        for view, kind in kinds.items():
            shares = view != "server"
            assert kind == ("gaussian", shares, False, 1, sampler.accounting, None, [""])


def test_sums_of_rounded_messages(drawn):
    """The server adds the noise: it hides nothing from itself."""
    name, sampler, most = drawn
    times = most if name == "with_replacement" else 1
    for algorithm, m in of_clients(sampler, fp.qsgd(8)).values():
        parts, kinds = seen(algorithm)
        assert_parts(parts, [(ROUNDS, m / times)], [(ROUNDS, 0)], [(ROUNDS, 0)])
        for view, kind in kinds.items():
            third = view == "third_party"
            assert kind[:3] == ("gaussian", False, third)
            assert ("the server adds the noise" in kind.reasons[0]) == (not third)


def test_laplace_noise_has_no_shares(drawn):
    name, sampler, most = drawn
    times = most if name == "with_replacement" else 1
    parts, kinds = seen(fp.fed_avg(squared, sampler=sampler, mechanism=LAPLACE, **COMMON))
    whole = [(ROUNDS, SIGMA / times)]
    assert_parts(parts, whole, [(ROUNDS, 0)], whole)
    assert {kind.noise for kind in kinds.values()} == {"laplace"}
    assert kinds["server"].reasons == ["a client's share of Laplace noise is not Laplace"]


@pytest.mark.parametrize(
    "codec", [fp.compression.codecs.UNCODED, fp.qsgd(8)], ids=["uncoded", "rounded"]
)
@pytest.mark.parametrize("used", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_members_who_perturb_their_own_messages(drawn, used, codec):
    """A sum hides one of them behind the noise of all, if it is Gaussian, not rounded, and their number is known.

    Of a Poisson cohort nobody is hidden: who stays away takes its noise along.
    """
    name, sampler, most = drawn
    algorithm = fp.ldp_fed_avg(squared, sampler=sampler, mechanism=used, codec=codec, **COMMON)
    parts, kinds = seen(algorithm)
    fixed = name in ("everyone", "fixed_size", "subsets")
    together = fixed and used is GAUSSIAN and not codec.lossy
    behind = [(ROUNDS, SIGMA * math.sqrt(most) if together else SIGMA)]
    assert_parts(parts, behind, [(ROUNDS, SIGMA)], behind)
    poisson = name in ("poisson", "cut")
    for view, kind in kinds.items():
        assert kind[:3] == (used.noise, together and view != "server", False)
        assert kind.sampling == (Everyone(CLIENTS) if poisson else sampler.accounting)
        assert kind.participation == (sampler.accounting if poisson else None)


@pytest.mark.parametrize("name", ["fixed_size", "poisson"])
def test_schedules_piece_by_piece(name):
    sampler, most = SAMPLERS[name], MOST[name]
    for algorithm in (
        fp.fed_avg(squared, sampler=sampler, mechanism=FALLING, **COMMON),
        fp.fed_avg_sparse(
            squared,
            sampler=sampler,
            mechanism=FALLING,
            sparsifier=fp.select_rand_k(0.5),
            **COMMON,
        ),
    ):
        parts, _ = seen(algorithm)
        assert_parts(parts, PIECES, scaled(PIECES, most**-0.5), PIECES)
        for rounds in (0, 1, 3):
            short = [(n, m) for n, m in seen(algorithm, rounds)[0]["third_party"]]
            assert sum(n for n, _ in short) == rounds
            np.testing.assert_allclose([m for _, m in short], [m for _, m in PIECES[: len(short)]])


SPLIT = {
    "splitting": splitting.uniform(0.3),
    "coupling": consensus.coupling(0.2, 0.1),
    "exchanges": consensus.constant(3),
    "submodels": (1, 2),
}


def of_nothing(sampler):
    """Algorithm, what its certificate has to say."""
    options = {"sampler": sampler, **COMMON}
    loose = {"d": D, **options, **PRIVATE, "bounded": "gradients"}
    silent = {"quantile": 0.5, "clip_norm": C, "noise_multiplier": 0.0, **options}
    found = {
        "fed_avg": (fp.fed_avg(squared, **options), "no noise"),
        "fed_sgd": (fp.fed_sgd(squared, sampler=sampler, learning_rate=0.1), "no noise"),
        "silent": (fp.fed_avg(squared, mechanism=fp.gaussian(C, 0), **options), "no noise"),
        "adaptive": (fp.adaptive_fed_avg(squared, **silent), "no noise"),
        "wavelet": (fp.dp_fed_avg_wav(squared, **loose), "the update of many steps"),
        "jopeq": (
            fp.jopeq(squared, bits=8, bound=0.1, epsilon=2.0, **options),
            "knows the dither",
        ),
        "ldp": (fp.ldp_fed_avg(squared, mechanism=fp.gaussian(C, 0), **options), "no noise"),
    }
    if sampler is not SAMPLERS["poisson"]:
        found["msp"] = (fp.msp_fl(squared, **SPLIT, **options), "least squares")
        found["mspdq"] = (fp.mspdq_fl(squared, bits=8, **SPLIT, **options), "without fresh noise")
    return found


@pytest.mark.parametrize("name", ["fixed_size", "poisson", "with_replacement"])
def test_what_hides_nothing_says_why(name):
    for algorithm, reason in of_nothing(SAMPLERS[name]).values():
        parts, kinds = seen(algorithm)
        assert_parts(parts, *[[(ROUNDS, 0)]] * 3)
        for kind in kinds.values():
            (said,) = kind.reasons
            assert reason in said


# Records

BATCHES = {
    "everyone": fp.everyone(RECORDS),
    "fixed_size": fp.fixed_size(RECORDS, 2),
    "subsets": fp.subsets(RECORDS, 2),
    "poisson": fp.poisson(RECORDS, 0.5, RECORDS),
    "cut": fp.poisson(RECORDS, 0.5, 3),
    "with_replacement": fp.with_replacement([1] * RECORDS, 5),
}
LARGEST = {
    "everyone": 4,
    "fixed_size": 2,
    "subsets": 2,
    "poisson": 4,
    "cut": 3,
    "with_replacement": 5,
}
"""The largest batch: by so many clip norms a whole client moves a step, and a record that is drawn with replacement."""


def local(records=BATCHES["fixed_size"], steps=3, used=GAUSSIAN, unit="record", **more):
    optimizer = more.pop("optimizer", optax.sgd(0.1))
    return fp.LocalSteps(
        fp.per_example(squared), records, steps, lambda t: optimizer, used, unit, **more
    )


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("batch", BATCHES)
def test_local_steps(batch, unit):
    """Every view is taken to see each noisy gradient of a client, in the rounds that it takes part in."""
    records, client = BATCHES[batch], unit == "client"
    own = SIGMA / (LARGEST[batch] if client or batch == "with_replacement" else 1)
    sampling = Everyone(RECORDS) if client else records.accounting
    of_records = {} if batch != "fixed_size" else SAMPLERS
    for name, sampler in ({"poisson": SAMPLERS["poisson"]} | of_records).items():
        steps = local(records, unit=unit)
        algorithms = [fp.dp_sgd(steps, sampler=sampler), fp.record_fed_avg(steps, sampler=sampler)]
        if name != "with_replacement":
            algorithms.append(fp.dp_scaffold(steps, sampler=sampler))
            algorithms.append(fp.dp_scaffold(steps, sampler=sampler, codec=fp.qsgd(8)))
        for algorithm in algorithms:
            parts, kinds = seen(algorithm)
            assert_parts(parts, *[[(ROUNDS, own)]] * 3)
            expected = ("gaussian", False, False, 3, sampling, sampler.accounting, [""])
            assert set(map(str, kinds.values())) == {str(Kind(*expected))}
            assert {r.unit for each in released(algorithm, 1).values() for r in each} == {unit}


def test_mechanisms_of_local_steps():
    sampler, root = SAMPLERS["fixed_size"], math.sqrt
    wav = fp.wavelet_mechanism(D, **PRIVATE)
    median = fp.MedianClipping(2 * SIGMA)
    for algorithm, parts in (
        (fp.dp_sgd(local(used=HAAR), sampler=sampler), [(ROUNDS, SIGMA / root(D))]),
        (fp.dp_sgd(local(used=BY_TENSOR), sampler=sampler), [(ROUNDS, SIGMA / root(2))]),
        (fp.dp_sgd(local(used=LAPLACE), sampler=sampler), [(ROUNDS, SIGMA)]),
        (fp.dp_sgd(local(used=FALLING), sampler=sampler), PIECES),
        (fp.dp_scaffold(local(used=FALLING), sampler=sampler), PIECES),
        (fp.dp_sgd_wav(local(used=wav), sampler=sampler), [(ROUNDS, SIGMA / D)]),
        (
            fp.dp_sgd_wav(local(used=wav), sampler=sampler, noise_on_each=True),
            [(ROUNDS, SIGMA / D * root(2))],
        ),
        (fp.dp_scaffold(local(used=median), sampler=sampler), [(ROUNDS, 0)]),
        (fp.dp_sgd(local(used=fp.gaussian(C, 0)), sampler=sampler), [(ROUNDS, 0)]),
    ):
        assert_parts(seen(algorithm)[0], parts, parts, parts)
    steps = {"records": BATCHES["subsets"], "steps": 3, "learning_rate": 0.1, **PRIVATE}
    for unit, tensors, m in (
        ("record", 1, 2 * SIGMA),  # S = 2 C / (s R)
        ("record", 2, 2 * SIGMA / root(2)),
        ("client", 1, 2 * SIGMA * RECORDS / 2),  # S = 2 C / s, on what moves by 2 C / (s R)
    ):
        made = fp.dp_scaffold_steps(fp.per_example(squared), unit=unit, tensors=tensors, **steps)
        parts, _ = seen(fp.dp_scaffold(made, sampler=sampler))
        assert_parts(parts, *[[(ROUNDS, m)]] * 3)


@pytest.mark.parametrize("name", ["everyone", "fixed_size", "subsets"])
def test_one_step_is_hidden_by_the_cohort(name):
    """In a sum that is a fixed multiple of the noisy gradients alone."""
    sampler, all_of_it = SAMPLERS[name], math.sqrt(MOST[name])
    for steps in (
        local(steps=1),
        local(steps=1, optimizer=optax.sgd(0.1, momentum=0.9)),
        local(steps=1, weight_decay=0.1),
    ):
        parts, kinds = seen(fp.dp_sgd(steps, sampler=sampler))
        own = [(ROUNDS, SIGMA)]
        assert_parts(parts, scaled(own, all_of_it), own, scaled(own, all_of_it))
        assert [kinds[view].noise_is_split for view in fp.VIEWS] == [True, False, True]
    falling, _ = seen(fp.dp_sgd(local(steps=1, used=FALLING), sampler=sampler))
    assert_parts(falling, scaled(PIECES, all_of_it), PIECES, scaled(PIECES, all_of_it))


def test_where_one_step_is_not():
    """Steps that bend the gradient, control variates, rounded messages, other noise, or cohorts of unknown size."""
    fixed, one = SAMPLERS["fixed_size"], local(steps=1)
    for algorithm in (
        fp.dp_sgd(local(steps=1, optimizer=optax.adam(0.1)), sampler=fixed),
        fp.dp_sgd(local(steps=1, optimizer=optax.adagrad(0.1)), sampler=fixed),
        fp.dp_sgd(local(steps=2), sampler=fixed),
        fp.dp_sgd(one, sampler=fixed, codec=fp.qsgd(8)),
        fp.dp_sgd(local(steps=1, used=LAPLACE), sampler=fixed),
        fp.dp_sgd(one, sampler=SAMPLERS["poisson"]),
        fp.dp_sgd(one, sampler=SAMPLERS["with_replacement"]),
        fp.dp_scaffold(one, sampler=fixed),
    ):
        parts, kinds = seen(algorithm)
        assert_parts(parts, *[[(ROUNDS, SIGMA)]] * 3)
        assert not any(kind.noise_is_split for kind in kinds.values())


def test_warm_starts():
    """They count as rounds; everyone takes part in the first one, if it is so asked."""
    sampler = SAMPLERS["fixed_size"]
    for used, pieces in (
        (GAUSSIAN, [(ROUNDS, SIGMA)]),
        (FALLING, PIECES),
    ):
        plain, warm, first = (
            released(fp.dp_scaffold(local(used=used), sampler=sampler, **more), ROUNDS)
            for more in ({}, {"warm_start": 2}, {"warm_start": 2, "everyone_first": True})
        )
        assert warm == plain
        begun = [(1, pieces[0][1]), (pieces[0][0] - 1, pieces[0][1]), *pieces[1:]]
        cohorts = [Everyone(CLIENTS)] + [sampler.accounting] * len(pieces)
        for each in first.values():
            assert [r.steps for r in each] == [n for n, _ in begun]
            np.testing.assert_allclose([r.multiplier for r in each], [m for _, m in begun])
            assert [r.participation for r in each] == cohorts


# A round of a user's own


def test_releases_of_one_round_are_one():
    """Of one cohort: sum_k m_k^-2; a scan makes as many as it has turns."""

    def own(sums, sampler=SAMPLERS["fixed_size"]):
        def round(key, state, cohort):
            def client(key, shard):
                return jax.tree.map(jnp.zeros_like, state.params)

            def one(key, mechanism):
                return cohort.sum(client, key, mechanism=mechanism)

            def turn(params, k):
                total, metrics, _ = one(jax.random.fold_in(key, k), GAUSSIAN)
                return jax.tree.map(jnp.add, params, total), metrics

            params, metrics = jax.lax.scan(turn, state.params, jnp.arange(sums))
            total, _, _ = one(jax.random.fold_in(key, sums), fp.gaussian(C, 2 * SIGMA))
            params = jax.tree.map(jnp.add, params, total)
            metrics = {"uplink": jax.tree.map(lambda n: n.sum(), metrics["uplink"])}
            return fp.ModelState(params, state.round + 1), metrics

        return fp.Algorithm(fp.start, round, sampler)

    for sums in (1, 3):
        parts, _ = seen(own(sums))
        together = [(ROUNDS, SIGMA / math.sqrt(sums + 1 / 4))]
        assert_parts(parts, together, scaled(together, 3**-0.5), together)
    found = fp.certify(own(3), start(), blank(own(3)), 5, 1e-5)
    alone = fp.gaussian(C, SIGMA / math.sqrt(3.25))
    expected = fp.fed_avg(squared, sampler=SAMPLERS["fixed_size"], mechanism=alone, **COMMON)
    assert found.epsilon == fp.certify(expected, start(), regression([2] * 6), 5, 1e-5).epsilon


def test_it_is_constructed_unless_somebody_s_word_is_in_it():
    """A mechanism whose parts were replaced, or made by hand, is taken at its word."""
    options = {"sampler": SAMPLERS["fixed_size"], **COMMON}
    word = GAUSSIAN._replace(certified_multiplier=100.0)
    for used, basis in (
        (GAUSSIAN, "constructed"),
        (HAAR, "constructed"),
        (FALLING, "constructed"),
        (fp.UNPROTECTED, "constructed"),
        (word, "declared"),
        (FALLING._replace(start=word), "declared"),
        (GAUSSIAN._replace(clip=lambda update: (update, jnp.zeros(()))), "declared"),
    ):
        algorithm = fp.fed_avg(squared, mechanism=used, **options)
        looked = fp.looked_at(algorithm, start(), blank(algorithm))
        assert looked.basis == basis
        steps = local(used=used)
        by_record = fp.dp_sgd(steps, sampler=options["sampler"])
        assert fp.looked_at(by_record, start(), blank(by_record)).basis == basis
