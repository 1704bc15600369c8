"""From an algorithm to a certificate, by a trace of its round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from fedpriv.certification.assumed import program_of
from fedpriv.certification.correlated_views import (
    check_correlated,
)
from fedpriv.certification.data_checks import check_data
from fedpriv.certification.groups import (
    grouping_of,
)
from fedpriv.certification.initial_state import trace_init
from fedpriv.certification.persons_held import (
    PersonsHeld,
    also_held_out,
    persons_held,
    persons_of_seeds,
)
from fedpriv.certification.second_trace import check_same_again
from fedpriv.certification.stages import stages_of
from fedpriv.certification.traced_round import TracedRound, classes_of
from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core.arguments import CountOrZero, MeanRuns, Probability, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.core.parameters import check_arrays
from fedpriv.core.provenance import constructed
from fedpriv.core.types import Key, Params
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.privacy import Certificate
from fedpriv.proof.operations import check_operations
from fedpriv.proof.seen import View
from fedpriv.rounds.algorithm import Algorithm, made_at, require_algorithm
from fedpriv.rounds.cohort_program import program_of_round
from fedpriv.rounds.round_arguments import shape_of
from fedpriv.rounds.samplers import parts_of
from fedpriv.rounds.scheduled_samplers import AnySampler


@names_user_code
def trace_round(algorithm: Algorithm, params: Any, federation: Any) -> TracedRound:
    """Traces the algorithm's round; `.seen(rounds)` lists what each view sees of so many.

    Args:
      params: the model, its shapes, or key -> model.
      federation: what it trains on, or a federation of the same shapes (`Federation.blank`).

    Raises:
      ValueError: the round releases something unbounded, or calls the cohort where noise could be repeated; an
        operation that is not known; a sampler for another number of clients or records; parameters that are no arrays.
      LeakError: something private gets past the releases of a round, or into the initial state.
    """
    require_algorithm(algorithm)
    known = isinstance(federation, Federation | StreamedFederation)
    require(known, "federation", federation, "give one such as fp.Federation.from_arrays(...)")
    all_records = federation
    if isinstance(federation, StreamedFederation):
        federation = federation.empty()
    _check_samplers(algorithm)
    shape = shape_of(federation)
    for _, sampler in parts_of(algorithm.sampler, 2):
        population = sampler.accounting.population
        if population != shape.num_clients:
            raise ValueError(
                f"sampler: made for {population} clients, but the federation has {shape.num_clients}; give both the "
                "same number"
            )
    model = _model(params)
    state, init_arrays = trace_init(algorithm, model, federation)
    samplers = [sampler for _, sampler in parts_of(algorithm.sampler, 2)]
    stages = stages_of(algorithm, samplers, shape, state)
    out = stages[-1].of.out
    after = out.state, out.metrics
    check_correlated(stages)
    persons = _persons(algorithm, [all_records])
    leaves = getattr(all_records, "normalised", ())
    held_out = also_held_out(all_records, algorithm.unit)
    traced = TracedRound(
        algorithm, shape, stages, state, after, tuple(init_arrays), persons, leaves, held_out
    )
    for sampler in traced.samplers:
        if not constructed(sampler):
            check_operations(program_of(sampler), "draw")
    check_data(stages, traced.init_arrays, algorithm, all_records)
    grouping_of(traced.samplers)
    return traced


def of_all_seeds(traced: TracedRound, federations: Sequence[Any]) -> TracedRound:
    """The round, of which certificates hold for the persons of every seed, whatever its partition is.

    Args:
      traced: for the first of these.
      federations: of each seed, or stacked.

    Raises:
      ValueError: some have persons, others not; as `trace_round`.
    """
    each = [*{id(one): one for one in federations}.values()]
    if all(one.persons is None for one in each):
        return traced
    held_out = next(filter(None, (also_held_out(one, traced.algorithm.unit) for one in each)), "")
    return traced._replace(persons=_persons(traced.algorithm, each), also_held_out=held_out)


def _persons(algorithm: Algorithm, federations: Sequence[Any]) -> PersonsHeld | None:
    """What persons hold of any of these, by the classes of clients where these make a difference.

    Raises:
      ValueError: a person has several clients, or clients are in groups, and classes differ by the round; some have
        persons, others not.
    """
    parts = [part.accounting for _, part in parts_of(algorithm.sampler, 2)]
    grouped = any(part.group_names for part in parts)
    classes = classes_of(algorithm.sampler)
    persons = persons_of_seeds([persons_held(one, classes) for one in federations])
    if persons is None:
        return None
    if persons.most_clients == 1 and not grouped:
        return persons.without_classes()  # whose turn it is makes no difference
    alike = len({part.classes for part in parts}) == 1
    remedy = "its parts have other groups, or turns, and clients are of persons; give both the same"
    require(alike, "sampler", algorithm.sampler, remedy)
    return persons


def _model(params: Any) -> Params:
    """The parameters, or their shapes where a function of a key makes them."""

    def model(key: Key) -> Params:
        made = asked("params", params, "(key)", key)
        check_arrays(made)
        return made

    if callable(params):
        return jax.eval_shape(model, jax.random.key(0))
    check_arrays(params)
    return params


def _check_samplers(algorithm: Algorithm) -> None:
    for _, sampler in parts_of(algorithm.sampler, 2):
        remedy = "give one such as fp.poisson(clients, rate), or an fp.Opening of two of these"
        require(isinstance(sampler, AnySampler), "sampler", sampler, remedy)


def check_twice(traced: TracedRound) -> None:
    """Traces the round once more, to certify it only if it is the same.

    Raises:
      ValueError: it is another program then, because it counts or draws on the host; and in which line.
    """
    algorithm, shape, state = traced.algorithm, traced.shape, traced.before
    for stage, (_, sampler) in zip(traced.stages, parts_of(algorithm.sampler, 2), strict=True):

        def again(sampler: AnySampler = sampler) -> ClosedJaxpr:
            return program_of_round(algorithm, sampler, shape, state).program

        check_same_again(stage.program, again, made_at(algorithm))


@names_user_code
def certify(
    algorithm: Algorithm,
    params: Any,
    federation: Any,
    rounds: CountOrZero,
    delta: Probability,
    *,
    view: View = "third_party",
    honest: Rate = 1.0,
    best_of: MeanRuns = 1.0,
    each_client: bool = False,
) -> Certificate:
    """Proved epsilon of all that `view` sees of `rounds` rounds of `algorithm`, read off its traced round.

    The certificate is *constructed*, or *declared* if something in it is your word: a mechanism, sampler or other part
    made by hand.

    Formal guarantees: see `certify_seen`.

    Args:
        algorithm: what trains.
        params: the model, its shapes, or key -> model.
        federation: what it trains on, or a federation of the same shapes (`Federation.blank`).
        rounds: number of rounds T, 0 or more.
        delta: probability, in (0, 1).
        view: "third_party" (every global model), "server" (every message, knows the cohort) or "server_secagg" (the
            cohort's sums, knows the cohort).
        honest: fraction of each cohort that adds its share of the noise and keeps it secret.
        best_of: if above 1, also count the cost of choosing: only the best of a secret number of runs is released, and
            that number is geometric with this mean.
        each_client: also certify the records of each client: `Certificate.of_clients`.

    Raises:
        ValueError: rounds, delta, view or honest out of range; as `trace_round`; a round that counts or draws on the
            host; `each_client` of an algorithm of whole clients, for all of which one certificate holds, or with
            persons.
        LeakError: something private gets past the releases of a round; says what, and in which line.
    """
    rounds = checked("rounds", rounds, CountOrZero)
    delta = checked("delta", delta, Probability)
    view = checked("view", view, View)
    honest = checked("honest", honest, Rate)
    best_of = checked("best_of", best_of, MeanRuns)
    each_client = checked("each_client", each_client, bool)
    require_algorithm(algorithm)
    traced = trace_round(algorithm, params, federation)
    remedy = "with persons, a certificate is of the person who holds most; leave it out"
    require(not (each_client and traced.persons), "each_client", each_client, remedy)
    differ = algorithm.unit == "record" or traced.grouping is not None
    remedy = "one certificate holds for each whole client; leave it out"
    require(differ or not each_client, "each_client", each_client, remedy)
    check_twice(traced)
    options: Any = {"view": view, "honest": honest, "best_of": best_of}
    certificate = traced.certify(rounds, delta, **options)
    if not each_client:
        return certificate

    @cache
    def of_client(kinds: tuple[UnitKind, ...]) -> Certificate:
        return traced._of_all(kinds, rounds, delta, **options)

    return replace(certificate, of_clients=tuple(map(of_client, traced.kinds_of_clients)))
