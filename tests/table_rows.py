"""Rows of the table of views, each of a tiny round with two clients, with the laws that are written out by hand."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from explicit_laws import (
    Cohorts,
    Law,
    both,
    deltas,
    everyone,
    given,
    joining,
    of_integers,
    one_of,
    seen,
)

import fedpriv as fp
from fedpriv.mechanisms.noise_matrices.banded import Banded
from fedpriv.privacy import Dropping, Everyone, declared
from fedpriv.rounds.private_step import features_of

SIGMA, LOUDER, RATE, VANISH = 1.0, 1.5, 0.5, 0.25
GAUSSIAN, LOUD = fp.gaussian(1.0, SIGMA), fp.gaussian(1.0, LOUDER)
SCALE = 0.8  # of Laplace noise
BANDS = (0.8, 0.6)
BANDED = {
    who: fp.correlated(GAUSSIAN, Banded("by hand", 4, (BANDS,)), adder=who)
    for who in ("server", "enclave")
}
EVERYONE, POISSON, ONE = fp.everyone(2), fp.poisson(2, RATE, 2), fp.fixed_size(2, 1)
GROUPS = fp.grouped(
    ["a", "b"], {"a": fp.everyone(1), "b": fp.everyone(1)}, weights={"a": 0.5, "b": 0.25}
)
GRADIENTS = fp.per_example(lambda params, example: params["w"][0] * example["x"][0])
NONE: Mapping[str, Any] = MappingProxyType({})
PUBLIC = ("third_party", "server_secagg")
Neighbours = Iterator[tuple[Law, Law]]
Laws = Callable[[str, str], Neighbours]
"""(view, relation) -> pairs of neighbours' laws, the worst of which counts."""


class Row(NamedTuple):
    """One algorithm, or release that is declared, and what each view sees of it.

    Attributes:
      make: () -> a traced round; or view -> what it sees.
      laws: written by hand.
      rounds: that `laws` are of.
      loose: view of which the certificate is only a bound -> by how much it is larger, relative, at most.
      views: of which the law is known.
      options: of `certify`.
      divergence: of two laws, at several epsilons.
    """

    make: Callable[..., Any]
    laws: Laws
    rounds: int = 2
    loose: Mapping[str, float] = NONE
    views: tuple[str, ...] = fp.privacy.VIEWS
    options: Mapping[str, Any] = NONE
    divergence: Callable[..., np.ndarray] = deltas


def traced(client: Callable[..., Any], sampler: Any, person: Any = None, **how: Any) -> Any:
    """The round that makes `count` sums of what these clients send."""
    count, unit = how.pop("count", 1), how.pop("unit", "client")

    def round(key: Any, state: Any, cohort: fp.Cohort) -> Any:
        for _ in range(count):
            total, metrics, _ = cohort.sum(
                lambda key, shard, *own: client(state.params, shard, *own), key, **how
            )
        return fp.ModelState(total, state.round + 1), metrics

    return look(fp.Algorithm(fp.start, round, sampler, unit=unit), person)


def look(algorithm: fp.Algorithm, person: Any = None) -> Any:
    """The round with two clients of two records each."""
    x = np.ones((4, 1), np.float32)
    federation = fp.Federation.from_arrays({"x": x}, [[0, 1], [2, 3]], person=person)
    return fp.trace_round(algorithm, {"w": jnp.zeros(1)}, federation)


def message(params: Any, shard: fp.Shard, *own: Any) -> Any:
    sent = {"w": jnp.mean(shard.examples["x"], axis=0)}
    return fp.Sent(sent, own=own[0]) if own else sent


def summed(sampler: Any, person: Any = None, **how: Any) -> Callable[[], Any]:
    return partial(traced, message, sampler, person, **{"mechanism": GAUSSIAN} | how)


def means(
    sampler: Any, *kinds: Any, person: Any = None, records: Any = POISSON, unit: str = "record"
) -> Callable[[], Any]:
    """Clients take a private mean of each kind of their two records."""

    def client(params: Any, shard: fp.Shard) -> Any:
        for used in kinds:
            params = shard.private_mean(GRADIENTS, params, records=records, mechanism=used)
        return params

    return partial(traced, client, sampler, person, mechanism=fp.ALREADY_PRIVATE, unit=unit)


def mean_of_cohort() -> Any:
    """A private mean of the records of all clients together."""

    def round(key: Any, state: Any, cohort: fp.Cohort) -> Any:
        mean, metrics = cohort.private_mean(
            GRADIENTS, state.params, records=POISSON, mechanism=GAUSSIAN
        )
        return fp.ModelState(mean, state.round + 1), metrics

    return look(fp.Algorithm(fp.start, round, EVERYONE, unit="record"))


def declared_lost(view: str) -> Any:
    """Two steps of each draw, of which a share of the noise is lost with members who vanish."""
    lost = Dropping(2, 2, VANISH, True)
    return declared(view, "client", SIGMA, Everyone(2), 1, local_steps=2, participation=lost)


def of_client(draw: Callable[..., Cohorts], sums: int = 1, rounds: int = 2, **how: Any) -> Laws:
    """Of client 0, whatever client 1 sends: as many sums of one cohort, in so many rounds."""
    sigma, adder, units = (
        how.pop("sigma", SIGMA),
        how.pop("adder", "shares"),
        how.pop("units", (0,)),
    )

    def laws(view: str, relation: str) -> Neighbours:
        def law(clients: tuple[int, ...], own: float, other: float) -> Law:
            sends = {1: [other] * sums} | {i: [own] * sums for i in units}
            return both(*[seen(view, draw(*clients), sends, sigma, adder, **how)] * rounds)

        for other in (-1.0, 0.0) if units == (0,) else (0.0,):
            if relation == "add_or_remove":
                rest = tuple({0, 1} - set(units))
                yield law((0, 1), 1.0, other), law(rest, 1.0, other)
            else:
                yield (
                    law((0, 1), 1.0, other),
                    law((0, 1), -1.0 * (relation == "replace_one"), other),
                )

    return laws


def of_records(
    *sigmas: float,
    units: tuple[int, ...] = (0,),
    cohort: Callable[[Law], Law] = lambda law: law,
) -> Laws:
    """Of records of one client, whatever the other one is: a private mean with noise of each deviation."""

    def laws(view: str, relation: str) -> Neighbours:
        rest = tuple({0, 1} - set(units))
        for other in (-1.0, 0.0):
            sends = {1: [other]} | {i: [1.0] for i in units}
            p, q = (
                [seen("third_party", joining(RATE, *there), sends, s, "shares") for s in sigmas]
                for there in ((0, 1), rest)
            )
            yield cohort(both(*p)), cohort(both(*q))

    return laws


def told_half(law: Law) -> Law:
    """Of a client that takes part in half of the rounds, as is known."""
    nothing = both()
    return given([(0.5, "in", law), (0.5, "out", nothing)])


def shared(view: str, relation: str) -> Neighbours:
    """The client stays, and sends the opposite, whatever is said of its neighbours."""
    return of_client(everyone)(view, "replace_one")


def of_group(view: str, relation: str) -> Neighbours:
    """A message that counts half."""
    p, q = (
        both(*[seen(view, everyone(0, 1), {0: [m], 1: [0.0]}, SIGMA, "shares")] * 2)
        for m in (0.5, 0.0)
    )
    yield p, q


def of_group_with_own_noise(view: str, relation: str) -> Neighbours:
    """A message that counts half, and its noise with it; that of others, who may tell it, is left out."""
    p, q = (both(*[seen(view, everyone(0), {0: [m]}, SIGMA / 2, "own")] * 2) for m in (0.5, 0.0))
    yield p, q


def of_all_records(view: str, relation: str) -> Neighbours:
    """Of one record, in each of two rounds; both clients add noise, which a server sees apart."""
    sigma = SIGMA if view == "server" else SIGMA * 2**0.5
    return of_records(sigma, sigma)(view, relation)


def of_records_half_hidden(view: str, relation: str) -> Neighbours:
    """Of the noise of both clients a half is known to the view; one's own is not."""
    return of_records(SIGMA, SIGMA)(view, relation)


def twice_as_far(view: str, relation: str) -> Neighbours:
    """Both records of a client, in each of two steps."""
    p, q = (both(*[seen(view, everyone(0), {0: [m]}, SIGMA, "own")] * 2) for m in (2.0, 0.0))
    yield p, q


def of_integer_sums(name: str, sums: int) -> Laws:
    """The shares of both clients, or one's own; a unit moves a sum by the norm to which integers are bounded."""

    def laws(view: str, relation: str) -> Iterator[Any]:
        squared = features_of(made(name).stages[0].sums[0].step).integer_sum(1).squared_norm
        shares = 1 if view == "server" else 2
        yield (shares, SIGMA**2 * squared / 2), (math.isqrt(squared),) * sums

    return laws


def correlated(by: str) -> Laws:
    """C times the sums, whose noise is independent, in whichever direction a unit moves each of them."""
    c = np.array([[BANDS[0], 0.0], [BANDS[1], BANDS[0]]])

    def laws(view: str, relation: str) -> Neighbours:
        adder = "shares" if by == "enclave" and view == "server_secagg" else "server"
        for second in (-1.0, 1.0):
            p, q = (
                seen(view, everyone(0), {0: c @ [one, two]}, SIGMA, adder)
                for one, two in ((1.0, second), (0.0, 0.0))
            )
            yield p, q

    return laws


def by_turns(view: str, relation: str) -> Neighbours:
    """C moves the rounds of one turn along a direction of norm 1, and no two turns move the same round."""
    p, q = (
        both(*[seen(view, joining(RATE, *there), {0: [1.0]}, SIGMA, "server")] * 2)
        for there in ((0,), ())
    )
    yield p, q


def lost(draw: Callable[..., Cohorts], **how: Any) -> Laws:
    return of_client(draw, lost=True, told=True, **how)


def drawn_twice(*clients: int) -> Cohorts:
    """Two draws among both, with replacement; who contributes zeros is drawn, too."""
    return [(0.25, (i, j)) for i in (0, 1) for j in (0, 1)]


def stays(*clients: int) -> Cohorts:
    return joining(1 - VANISH, *clients)


def one_that_stays(*clients: int) -> Cohorts:
    return [(VANISH, ()), *((chance * (1 - VANISH), c) for chance, c in one_of(*clients))]


LAPLACE, INTEGERS = fp.laplace(1.0, SCALE), fp.discrete_gaussian(1.0, SIGMA, bits=9)
WITH_SLACK = dict.fromkeys(fp.privacy.VIEWS, 0.03)
# What clients remember may show in any later round, as often as it takes to average noise away: the law of that
# limit tells who took part. In two rounds of two clients messages of -1 and 1 that depend on it show no more.
OWN_STATE = jnp.zeros((2, 1))
KINDS = {
    "one person": [0] * 4,
    "each record": [0, 1, 2, 3],
    "two records": [0, 0, 1, 2],
    "at both clients": [0, 1, 0, 2],
}
ROWS: dict[str, Row] = {
    "shares": Row(summed(EVERYONE), of_client(everyone)),
    "half are honest": Row(
        summed(EVERYONE), of_client(everyone, honest=0.5), options={"honest": 0.5}
    ),
    "own": Row(summed(EVERYONE, adder="own"), of_client(everyone, adder="own")),
    "lossy codec": Row(summed(EVERYONE, codec=fp.top_k(1)), of_client(everyone, adder="server")),
    "poisson": Row(summed(POISSON), of_client(partial(joining, RATE))),
    "fixed size": Row(summed(ONE), of_client(one_of, rounds=1, shares=1.0), rounds=1),
    "fixed size, twice": Row(
        summed(ONE), of_client(one_of, shares=1.0), loose={"third_party": 0.1}
    ),
    "own, poisson": Row(
        summed(POISSON, adder="own"),
        of_client(partial(joining, RATE), adder="own", rounds=1),
        rounds=1,
        loose={"third_party": 2.1, "server_secagg": 0.9},
    ),
    "with replacement": Row(
        summed(fp.with_replacement([1.0, 1.0], 2)),
        of_client(drawn_twice, told=True, rounds=1),
        rounds=1,
    ),
    "clients remember": Row(summed(ONE, own=OWN_STATE), of_client(one_of, told=True, shares=1.0)),
    "two sums": Row(
        summed(POISSON, count=2), of_client(partial(joining, RATE), sums=2, rounds=1), rounds=1
    ),
    "two sums, laplace": Row(
        summed(EVERYONE, count=2, mechanism=LAPLACE),
        of_client(everyone, sums=2, rounds=1, sigma=SCALE),
        rounds=1,
        loose=dict.fromkeys(PUBLIC, 0.8),
        views=PUBLIC,
        divergence=partial(deltas, noise="laplace"),
    ),
    "lost shares": Row(summed(fp.dropping(EVERYONE, VANISH, "lost")), lost(stays)),
    "lost shares, one": Row(
        summed(fp.dropping(ONE, VANISH, "lost")),
        of_client(one_that_stays, rounds=1, shares=1.0, lost=True),
        rounds=1,
    ),
    "lost shares, two steps": Row(
        lambda: declared_lost, lost(stays, sums=2, rounds=1), rounds=1, views=PUBLIC
    ),
    "one person": Row(summed(EVERYONE, KINDS["one person"]), of_client(everyone, units=(0, 1))),
    "one person, poisson": Row(
        summed(POISSON, KINDS["one person"]), of_client(partial(joining, RATE), units=(0, 1))
    ),
    "clients of several": Row(summed(EVERYONE, KINDS["each record"]), shared),
    "weights": Row(summed(GROUPS), of_group),
    "weights, own": Row(summed(GROUPS, adder="own"), of_group_with_own_noise),
    "two means": Row(means(EVERYONE, GAUSSIAN, GAUSSIAN), of_records(SIGMA, SIGMA), rounds=1),
    "two means of some": Row(
        means(ONE, GAUSSIAN, GAUSSIAN), of_records(SIGMA, SIGMA, cohort=told_half), rounds=1
    ),
    "two kinds of means": Row(
        means(ONE, GAUSSIAN, LOUD), of_records(SIGMA, LOUDER, cohort=told_half), rounds=1
    ),
    "mean of the cohort": Row(mean_of_cohort, of_all_records),
    "mean of the cohort, half are honest": Row(
        mean_of_cohort, of_records_half_hidden, options={"honest": 0.5}
    ),
    "means of whole clients": Row(
        means(EVERYONE, GAUSSIAN, GAUSSIAN, records=EVERYONE, unit="client"), twice_as_far, rounds=1
    ),
    "correlated, server": Row(summed(EVERYONE, mechanism=BANDED["server"]), correlated("server")),
    "correlated, enclave": Row(
        summed(EVERYONE, mechanism=BANDED["enclave"]), correlated("enclave")
    ),
    "correlated, by turns": Row(
        summed(fp.cyclic_poisson(2, 2, RATE, 1), mechanism=BANDED["server"]),
        by_turns,
        rounds=4,
        views=("third_party",),
    ),
    "integers": Row(
        summed(EVERYONE, mechanism=INTEGERS),
        of_integer_sums("integers", 1),
        rounds=1,
        loose=WITH_SLACK,
        divergence=of_integers,
    ),
    "two sums of integers": Row(
        summed(EVERYONE, mechanism=INTEGERS, count=2),
        of_integer_sums("two sums of integers", 2),
        rounds=1,
        loose=WITH_SLACK,
        divergence=of_integers,
    ),
    "records at both clients": Row(
        means(EVERYONE, GAUSSIAN, person=KINDS["at both clients"]),
        of_records(SIGMA, SIGMA),
        rounds=1,
    ),
    "two kinds of means of a person": Row(
        means(ONE, GAUSSIAN, LOUD, person=KINDS["two records"]),
        of_records(SIGMA, LOUDER, units=(0, 1), cohort=told_half),
        rounds=1,
    ),
    "two records of a person": Row(
        means(EVERYONE, GAUSSIAN, GAUSSIAN, person=KINDS["two records"]),
        of_records(SIGMA, SIGMA, units=(0, 1)),
        rounds=1,
    ),
}


@cache
def made(name: str) -> Any:
    """What `ROWS[name]` makes, once."""
    return ROWS[name].make()
