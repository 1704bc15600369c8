"""What is read off each algorithm's round: what its paper, and arithmetic by hand, say that is seen of it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from rows_seen import (
    BY_TENSOR,
    CLIENTS,
    COMMON,
    FALLING,
    GAUSSIAN,
    HAAR,
    LAPLACE,
    MOST,
    PIECES,
    PRIVATE,
    ROUNDS,
    SAMPLERS,
    SIGMA,
    C,
    D,
    assert_parts,
    local,
    scaled,
    seen,
)
from small import blank, certified, refused, regression, squared, start

import fedpriv as fp
from fedpriv.papers import consensus, splitting
from fedpriv.privacy import Everyone


@pytest.fixture(params=tiers.cases(SAMPLERS, lambda sampler: type(sampler.accounting)))
def drawn(request):
    """Name, sampler, size of the largest cohort."""
    return request.param, SAMPLERS[request.param], MOST[request.param]


def of_clients(sampler, codec=fp.compression.codecs.UNCODED):
    """Algorithm, multiplier of the perturbed sum."""
    options = {"sampler": sampler, "codec": codec, **COMMON}
    rand_k, top_k = fp.papers.select_rand_k(0.5), fp.papers.select_top_k(0.5, fp.full_batch())
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
        "wavelet": (fp.papers.dp_fed_avg_wav(squared, **wav), SIGMA / math.sqrt(D)),
    }


def algorithms(name, *codec):
    """All with one sampler; with others, which differ in the cohort alone, two."""
    found = of_clients(SAMPLERS[name], *codec)
    every = name == "fixed_size" and not codec
    return [found[x] for x in (found if every else ("fed_avg", "adaptive"))]


def test_sums_of_a_cohort(drawn):
    """All of the noise hides a client from who sees the sum, one share of it from who sees messages.

    A client drawn with replacement may be behind each of the messages.
    """
    name, sampler, most = drawn
    for algorithm, m in algorithms(name):
        parts, kinds = seen(algorithm)
        whole = [(ROUNDS, m)]
        assert_parts(parts, whole, scaled(whole, most**-0.5), whole)
        for view, kind in kinds.items():
            adder = "own" if view == "server" else "shares"
            assert kind == ("client", "gaussian", adder, 1, sampler.accounting, None, [""])


def test_sums_of_rounded_messages(drawn):
    """The server adds the noise: it hides nothing from itself."""
    name, *_ = drawn
    for algorithm, m in algorithms(name, fp.qsgd(8)):
        parts, kinds = seen(algorithm)
        assert_parts(parts, [(ROUNDS, m)], [(ROUNDS, 0)], [(ROUNDS, 0)])
        for view, kind in kinds.items():
            third = view == "third_party"
            assert kind[:3] == ("client", "gaussian", "server")
            assert ("the server adds the noise" in kind.reasons[0]) == (not third)


def test_laplace_noise_has_no_shares(drawn):
    _, sampler, _ = drawn
    parts, kinds = seen(fp.fed_avg(squared, sampler=sampler, mechanism=LAPLACE, **COMMON))
    whole = [(ROUNDS, SIGMA)]
    assert_parts(parts, whole, [(ROUNDS, 0)], whole)
    assert {kind.noise for kind in kinds.values()} == {"laplace"}
    assert kinds["server"].reasons == ["a client's share of Laplace noise is not Laplace"]


OWN_NOISE = {
    "gaussian": (GAUSSIAN, fp.compression.codecs.UNCODED),
    "gaussian, rounded": (GAUSSIAN, fp.qsgd(8)),
    "laplace": (LAPLACE, fp.compression.codecs.UNCODED),
}


@tiers.every("how", OWN_NOISE)
def test_members_who_perturb_their_own_messages(drawn, how):
    """A sum hides one of them behind the noise of all, if it is Gaussian, not rounded, and their number is known.

    Of a Poisson cohort nobody is hidden: who stays away takes its noise along. Who is drawn with replacement sends the
    same message, however often.
    """
    (name, sampler, most), (used, codec) = drawn, OWN_NOISE[how]
    algorithm = fp.papers.ldp_fed_avg(
        squared, sampler=sampler, mechanism=used, codec=codec, **COMMON
    )
    parts, kinds = seen(algorithm)
    fixed = name in ("everyone", "fixed_size")
    together = fixed and used is GAUSSIAN and not codec.lossy
    behind = [(ROUNDS, SIGMA * math.sqrt(most) if together else SIGMA)]
    assert_parts(parts, behind, [(ROUNDS, SIGMA)], behind)
    # Rounded messages depend on a member's public key, so that a sum of them tells who they are of.
    known = not fixed or (name == "fixed_size" and codec.lossy)
    for view, kind in kinds.items():
        adder = "own_summed" if together and view != "server" else "own"
        assert kind[:3] == ("client", used.noise, adder)
        assert kind.sampling == (Everyone(CLIENTS) if known else sampler.accounting)
        assert kind.participation == (sampler.accounting if known else None)


@tiers.every("name", ["fixed_size", "poisson"])
def test_schedules_piece_by_piece(name):
    sampler, most = SAMPLERS[name], MOST[name]
    for algorithm in (
        fp.fed_avg(squared, sampler=sampler, mechanism=FALLING, **COMMON),
        fp.papers.fed_avg_sparse(
            squared,
            sampler=sampler,
            mechanism=FALLING,
            sparsifier=fp.papers.select_rand_k(0.5),
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
        "wavelet": (fp.papers.dp_fed_avg_wav(squared, **loose), "the update of many steps"),
        "jopeq": (
            fp.papers.jopeq(squared, bits=8, bound=0.1, epsilon=2.0, **options),
            "knows the dither",
        ),
        "ldp": (fp.papers.ldp_fed_avg(squared, mechanism=fp.gaussian(C, 0), **options), "no noise"),
    }
    if sampler is not SAMPLERS["poisson"]:
        found["msp"] = (fp.papers.msp_fl(squared, **SPLIT, **options), "least squares")
        found["mspdq"] = (
            fp.papers.mspdq_fl(squared, bits=8, **SPLIT, **options),
            "without fresh noise",
        )
    return found


@tiers.every("name", ["fixed_size", "poisson", "with_replacement"])
def test_what_hides_nothing_says_why(name):
    for algorithm, reason in of_nothing(SAMPLERS[name]).values():
        parts, kinds = seen(algorithm)
        assert_parts(parts, *[[(ROUNDS, 0)]] * 3)
        for kind in kinds.values():
            (said,) = kind.reasons
            assert reason in said


# A round of a user's own


def test_sums_of_one_round_are_one():
    """Of one cohort: sum_k m_k^-2."""

    def own(sums, sampler=SAMPLERS["fixed_size"]):
        def round(key, state, cohort):
            def client(key, shard):
                return jax.tree.map(jnp.zeros_like, state.params)

            params = state.params
            for used in [GAUSSIAN] * sums + [fp.gaussian(C, 2 * SIGMA)]:
                total, metrics, _ = cohort.sum(client, key, mechanism=used)
                params = jax.tree.map(jnp.add, params, total)
            return fp.ModelState(params, state.round + 1), metrics

        return fp.Algorithm(fp.start, round, sampler)

    for sums in (1, 3):
        parts, _ = seen(own(sums))
        together = [(ROUNDS, SIGMA / math.sqrt(sums + 1 / 4))]
        assert_parts(parts, together, scaled(together, 3**-0.5), together)


def test_it_is_constructed_unless_somebody_s_word_is_in_it():
    """A mechanism whose parts were replaced, or made by hand, is taken at its word."""
    options = {"sampler": SAMPLERS["fixed_size"], **COMMON}
    word = GAUSSIAN._replace(certified_multiplier=100.0)
    for used, basis in (
        (GAUSSIAN, "constructed"),
        (HAAR, "constructed"),
        (FALLING, "constructed"),
        (fp.unprotected(), "constructed"),
        (word, "declared"),
        (FALLING._replace(start=word), "declared"),
        (GAUSSIAN._replace(clip=lambda update: (update, jnp.zeros(()))), "declared"),
    ):
        algorithm = fp.fed_avg(squared, mechanism=used, **options)
        traced = fp.trace_round(algorithm, start(), blank(algorithm))
        assert traced.basis == basis
    for used, basis in ((GAUSSIAN, "constructed"), (word, "declared")):
        by_record = fp.dp_sgd(local(used=used), sampler=options["sampler"])
        assert fp.trace_round(by_record, start(), blank(by_record)).basis == basis


def closing_over(value, sampler=None):
    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(lambda key, shard: state.params, key, mechanism=GAUSSIAN)
        params = jax.tree.map(lambda p, t: p - jnp.sum(value) * t, state.params, total)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, sampler or SAMPLERS["everyone"])


@pytest.mark.parametrize(
    ("value", "listed"), [(jnp.float32(2), True), (jnp.ones(1), True), (np.float32(2), False)]
)
def test_arrays_that_a_round_closes_over_are_assumed_to_be_public(value, listed):
    """A scalar of NumPy is written into the program, as any number of the source."""
    algorithm = closing_over(value)
    found = certified(algorithm, 1, 1e-3).assumptions
    about = [text for text in found if "closes over" in text]
    assert len(about) == listed
    assert all(f"{jnp.shape(value)} in test_certificates.py:" in text for text in about)


def test_what_clients_hold_is_known_by_its_numbers():
    """Copies of a federation's arrays; zeros, and what equal sizes say, are anybody's."""
    unequal, equal = regression([3, 5, 2, 8]), regression([3] * 4)
    arrays = {name: np.asarray(leaf) for name, leaf in unequal.examples.items()}
    clients = np.split(np.arange(18), [3, 8, 10])
    streamed = fp.StreamedFederation.from_arrays(arrays, clients)
    example = {"x": np.zeros(3, np.float32), "y": np.float32(0)}
    nobodys = fp.Federation.blank(example, 4, 3)
    known = [
        (unequal, np.array(unequal.client_rows.start)),
        (streamed, np.array(streamed.most_records)),
        (nobodys, np.array(nobodys.client_rows.size)),
    ]
    others = [
        (equal, np.array(equal.client_rows.start)),
        *((nobodys, zeros) for zeros in (np.zeros(3), np.zeros(3, bool), np.zeros((4, 3)))),
    ]
    sampler = fp.fixed_size(4, 2)
    for federation, array in known:
        with refused("round: it closes over federation", fp.LeakError):
            fp.trace_round(closing_over(array, sampler), start(), federation)
    for federation, array in others:
        fp.trace_round(closing_over(array, sampler), start(), federation)


@pytest.mark.parametrize("reason", ["", "it is a baseline"])
def test_an_infinite_epsilon_says_why(reason):
    bare = fp.unprotected(reason) if reason else fp.gaussian(1.0, 0.0)
    algorithm = fp.fed_avg(squared, sampler=SAMPLERS["everyone"], mechanism=bare, **COMMON)
    shown = str(certified(algorithm, 1, 1e-3))
    assert f"not private: {reason or 'no noise is added'}" in shown
    assert ("noise that a round adds itself" in shown) == (not reason)


def test_arrays_made_in_the_round_are_the_same_when_it_is_traced_again():
    """NaN, too, and keys; each trace makes them anew."""

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(lambda key, shard: state.params, key, mechanism=GAUSSIAN)
        odd = jnp.asarray(np.array([np.nan, 1.0], np.float32)) * jax.random.uniform(
            jax.random.key(3)
        )
        params = jax.tree.map(lambda p, t: p - t + 0 * odd[1], state.params, total)
        return fp.ModelState(params, state.round + 1), metrics

    algorithm = fp.Algorithm(fp.start, round, SAMPLERS["everyone"])
    assert math.isfinite(fp.certify(algorithm, start(), blank(algorithm), 1, 1e-3).epsilon)
