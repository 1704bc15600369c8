"""From an algorithm to a certificate, by a trace of its round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr

from fedpriv.certification.assumed import assumed, assumed_of_normalised, program_of
from fedpriv.certification.closed_over import ClosedOver
from fedpriv.certification.correlated_releases import (
    check_correlated,
    check_rounds,
    correlated_sums,
    factorizations,
    run_releases,
)
from fedpriv.certification.data_checks import check_data
from fedpriv.certification.groups import (
    by_group,
    costliest_kinds,
    grouping_of,
    kinds_of,
)
from fedpriv.certification.information_flow import NONE, Labels
from fedpriv.certification.initial_state import trace_init
from fedpriv.certification.known_operations import lines_that_print
from fedpriv.certification.marked_cohort import FederationShape
from fedpriv.certification.person_releases import (
    of_clients_of_a_person,
    of_records_of_a_person,
)
from fedpriv.certification.persons_held import (
    PersonsHeld,
    also_held_out,
    assumed_of_persons,
    persons_held,
)
from fedpriv.certification.releases import pieces_of_a_client, stage_releases
from fedpriv.certification.second_trace import check_same_again
from fedpriv.certification.trace import Stage, kept_by_clients, stage_of, traced_program
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.core.arguments import CountOrZero, MeanRuns, Probability, Rate, checked, require
from fedpriv.core.fixed_points import fixed_point
from fedpriv.core.provenance import constructed
from fedpriv.core.trees import check_arrays
from fedpriv.core.types import Key, Params, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked
from fedpriv.data.cohort_federation import CohortFederation
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.mechanisms.correlated import first_memory
from fedpriv.mechanisms.noise_matrices import Factorization
from fedpriv.privacy import Certificate, Release, certify_releases
from fedpriv.privacy.release import NO_OTHERS, View
from fedpriv.privacy.sampling.grouped import Strata
from fedpriv.rounds.algorithm import Algorithm, made_at, require_algorithm
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.samplers import parts_of
from fedpriv.rounds.scheduled_samplers import AnySampler


class TracedRound(NamedTuple):
    """What was read off an algorithm's round.

    Attributes:
      algorithm: whose.
      shape: of the federation that it was traced for.
      stages: the releases with each of its samplers.
      before: shapes of the state that a round is given.
      after: shapes of (state, metrics) that it gives back.
      init_arrays: that `init` closes over.
      persons: what each person holds, where the federation says whose each record is; units are then persons.
      normalised: the federation's leaves that are on the scale of released statistics.
      also_held_out: how many units have held-out records beside those that are trained on, in words; "" for none.
    """

    algorithm: Algorithm
    shape: FederationShape
    stages: tuple[Stage, ...]
    before: Any
    after: Any
    init_arrays: tuple[ClosedOver, ...] = ()
    persons: PersonsHeld | None = None
    normalised: tuple[str, ...] = ()
    also_held_out: str = ""

    @property
    def kinds(self) -> tuple[UnitKind, ...]:
        """The units that a certificate is of: one of each public group, or of what persons hold.

        Every other's curve is below that of one of these.

        Raises:
          ValueError: there are both.
        """
        if self.persons is not None:
            return self._kinds_of_persons(self.persons)
        if self.grouping is None:
            return (ANY,)
        if self.public_sizes is None:
            return tuple(UnitKind(group=name) for name in self.grouping.group_names)
        return costliest_kinds(self.kinds_of_clients)

    def _kinds_of_persons(self, persons: PersonsHeld) -> tuple[UnitKind, ...]:
        remedy = "groups with budgets of their own are not certified for persons; leave one of the two out"
        require(self.grouping is None, "sampler", self.algorithm.sampler, remedy)
        of_records = self.algorithm.unit == "record"
        held = persons.costliest(of_records, self.public_sizes is not None)
        return tuple(UnitKind(held=each) for each in held)

    @property
    def counts_persons_by_size(self) -> bool:
        """Whether what a person's records cost depends on how many their clients hold."""
        by_size = self.algorithm.unit == "record" and self.public_sizes is not None
        return self.persons is not None and by_size

    @property
    def kinds_of_clients(self) -> tuple[tuple[UnitKind, ...], ...]:
        """Of the units that each client holds, [clients]."""
        return kinds_of(self.grouping, self._records, self.shape.num_clients)

    @property
    def grouping(self) -> Strata | None:
        """The public groups of clients, or of records, where there are any.

        Raises:
          ValueError: as `grouping_of`.
        """
        return grouping_of(self.samplers)

    @property
    def _records(self) -> list[RecordSampler]:
        return [mean.step.sampling for stage in self.stages for mean in stage.means]

    def releases(self, rounds: int, kind: UnitKind | None = None) -> tuple[Release, ...]:
        """What each view sees of a unit in so many rounds.

        Args:
          kind: of the unit, one of `kinds`; it has to be given where there are several.

        Raises:
          ValueError: no kind, where there are several; one that is no person's, where units are persons; no
            certificate: a multiplier that is computed in the round, or units, samplings or kinds of noise that do not
            go together.
        """
        if kind is None:
            kind, *others = self.kinds
            remedy = "units of each kind have releases of their own; give one of `kinds`"
            require(not others, "kind", None, remedy)
        if self.persons is None:
            return self._of_single(rounds, kind)
        remedy = "units are persons, who may hold more than one of these; give one of `kinds`"
        require(len(kind.held) > 0, "kind", kind, remedy)
        if self.algorithm.unit == "client":
            of_one, clients = self._of_single(rounds, ANY), len(kind.held)
            return tuple(of_clients_of_a_person(of_one, clients, self.persons.share_clients))

        def of_size(size: int | None) -> tuple[Release, ...]:
            return self._of_single(rounds, kind._replace(size=size))

        return tuple(of_records_of_a_person(of_size, kind.held))

    def _of_single(self, rounds: int, kind: UnitKind) -> tuple[Release, ...]:
        """As `releases`, of a client or a record, where a person holds several."""
        if correlated_sums(self.stages):
            stage, sampler = self.stages[0], self.algorithm.sampler
            return run_releases(stage, sampler, self.algorithm.unit, rounds, kind)
        parts = parts_of(self.algorithm.sampler, rounds)
        releases, begun = [], 0
        for (length, sampler), stage in zip(parts, self.stages, strict=True):
            drawn, end = sampler.accounting.of_group(kind.group), begun + length
            for steps, first in pieces_of_a_client(stage, drawn, begun, end):
                releases += stage_releases(stage, sampler, self.algorithm.unit, steps, first, kind)
            begun = end
        return tuple(release for release in releases if release.rounds) or tuple(releases)

    def certify(
        self,
        rounds: CountOrZero,
        delta: Probability,
        *,
        view: View = "third_party",
        honest: Rate = 1.0,
        best_of: MeanRuns = 1.0,
        kind: UnitKind | None = None,
    ) -> Certificate:
        """As `certify`, of the round as it was traced.

        Args:
            rounds, view, honest, best_of: as `certify`.
            delta: probability, in (0, 1).
            kind: of the unit; by default all `kinds`.

        Raises:
            ValueError: as `certify`.
        """
        rounds = checked("rounds", rounds, CountOrZero)
        options: Any = {"honest": honest, "best_of": best_of}
        return self._of_all(self.kinds if kind is None else (kind,), rounds, delta, view, **options)

    def _of_all(
        self, kinds: Sequence[UnitKind], rounds: int, delta: float, view: View, **options: Any
    ) -> Certificate:
        """Of units of these kinds; `options` as `certify_releases`."""
        each = {
            kind: certify_releases(self.releases(rounds, kind), delta, view, **options)
            for kind in kinds
        }
        return with_basis(by_group(each), [self])

    def first_memory(self, rounds: int) -> tuple[PyTree, ...]:
        """What correlated noise remembers before the first of so many rounds, for each call of the cohort.

        Raises:
          ValueError: a matrix is for fewer rounds.
        """
        sums = correlated_sums(self.stages)
        check_rounds(sums, rounds)
        return tuple(first_memory(each.step.mechanism, each.like) for each in sums)  # type: ignore[arg-type]

    @property
    def factorizations(self) -> tuple[Factorization, ...]:
        """Those of its correlated noise, and the identity of noise beside it."""
        return factorizations(correlated_sums(self.stages))

    @property
    def most_rounds(self) -> int | None:
        """For how many rounds its correlated noise is; None: any number."""
        lengths = [each.rounds for each in self.factorizations if each.rounds is not None]
        return min(lengths, default=None)

    @property
    def public_sizes(self) -> tuple[int, ...] | None:
        """How many records each client holds, [clients], if its records are drawn by that, and it is public."""
        return next((r.public_sizes for r in self._records if r.public_sizes is not None), None)

    def assumed(self) -> tuple[str, ...]:
        """What the traced program does not show."""
        given = self.samplers, self.init_arrays, made_at(self.algorithm)
        return (
            *assumed(self.stages, *given),
            *assumed_of_persons(self.persons, self.algorithm.unit),
            *assumed_of_normalised(self.normalised),
        )

    @property
    def calls(self) -> tuple[Any, ...]:
        """Of the cohort, with each part of the sampler, in plain values: what is trained has to make the same."""
        return tuple(stage.calls for stage in self.stages)

    @property
    def samplers(self) -> tuple[AnySampler, ...]:
        """Of cohorts, and of a client's records."""
        cohorts = [sampler for _, sampler in parts_of(self.algorithm.sampler, 2)]
        places = [each.places for each in self._records]
        return (*cohorts, *places)

    @property
    def basis(self) -> str:
        """Of a certificate: "constructed", or "declared" where a multiplier is somebody's word."""
        releases = (release for stage in self.stages for release in stage.releases)
        proved = all(release.step.is_proved for release in releases)
        proved &= all(map(constructed, self.samplers))
        return "constructed" if proved else "declared"


def with_basis(certificate: Certificate, rounds: Sequence[TracedRound]) -> Certificate:
    """The certificate of what these rounds release, with its basis and what their traces do not show."""
    finite = math.isfinite(certificate.epsilon)
    texts = [text for traced in rounds for text in traced.assumed() if finite]
    said = [*certificate.assumptions, *texts]
    if known := [traced.also_held_out for traced in rounds if traced.also_held_out]:
        said = [each for text in said for each in (known if text == NO_OTHERS else [text])]
    proved = all(traced.basis == "constructed" for traced in rounds)
    return replace(
        certificate,
        relation=_relation(certificate, rounds),
        basis="constructed" if proved else "declared",
        assumptions=tuple(dict.fromkeys(said)),
        of_groups={name: with_basis(own, rounds) for name, own in certificate.of_groups.items()},
    )


def _relation(certificate: Certificate, rounds: Sequence[TracedRound]) -> str:
    """How neighbours differ: where a person's clients or records stay, in what these contribute."""
    persons = rounds[0].persons
    if persons is None:
        return certificate.relation
    if persons.have_several:
        return "zero_out"
    units = {traced.algorithm.unit for traced in rounds}
    if persons.share_clients and units == {"client"}:
        return "replace_one"
    empty = persons.fill_clients and "record" in units and certificate.relation == "add_or_remove"
    return "zero_out" if empty else certificate.relation


@names_user_code
def trace_round(algorithm: Algorithm, params: Any, federation: Any) -> TracedRound:
    """Traces the algorithm's round; `.releases(rounds)` lists what each view sees of so many.

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
    shape = FederationShape(
        federation.num_clients, federation.capacity, _like(federation), federation.public.shape[-1]
    )
    for _, sampler in parts_of(algorithm.sampler, 2):
        population = sampler.accounting.population
        if population != shape.num_clients:
            raise ValueError(
                f"sampler: made for {population} clients, but the federation has {shape.num_clients}; give both the "
                "same number"
            )
    model = _model(params)
    state, init_arrays = trace_init(algorithm, model, federation)
    stages, after = _stages(algorithm, shape, state)
    check_correlated(stages)
    persons = persons_held(all_records)
    leaves = getattr(all_records, "normalised", ())
    held_out = also_held_out(all_records, algorithm.unit)
    traced = TracedRound(
        algorithm, shape, stages, state, after, tuple(init_arrays), persons, leaves, held_out
    )
    for sampler in traced.samplers:
        if not constructed(sampler):
            lines_that_print(program_of(sampler), "draw")
    check_data(stages, traced.init_arrays, algorithm, all_records)
    grouping_of(traced.samplers)
    return traced


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


def _stages(
    algorithm: Algorithm, shape: FederationShape, state: Any
) -> tuple[tuple[Stage, ...], Any]:
    """(the releases with each of the algorithm's samplers, shapes of (state, metrics)), for a state in shapes."""
    samplers = [sampler for _, sampler in parts_of(algorithm.sampler, 2)]
    programs = [traced_program(algorithm, sampler, shape, state) for sampler in samplers]

    followed: list[list[Labels]] = []  # of each sampler's round, the last time

    def a_round_later(kept: list[Labels]) -> list[Labels]:
        followed.clear()
        for traced in programs:
            followed.append(traced.propagate(kept))
            kept = kept_by_clients(kept, followed[-1])
        return kept

    # What clients keep in one round is there in all later ones.
    leaves = programs[0].program.jaxpr.invars[2:-1]
    fixed_point(a_round_later, [NONE] * len(leaves))
    stages = tuple(map(stage_of, programs, followed))
    return stages, programs[-1].out[:2]


def check_twice(traced: TracedRound) -> None:
    """Traces the round once more, to certify it only if it is the same.

    Raises:
      ValueError: it is another program then, because it counts or draws on the host; and in which line.
    """
    algorithm, shape, state = traced.algorithm, traced.shape, traced.before
    for stage, (_, sampler) in zip(traced.stages, parts_of(algorithm.sampler, 2), strict=True):

        def again(sampler: AnySampler = sampler) -> ClosedJaxpr:
            return traced_program(algorithm, sampler, shape, state).program

        check_same_again(stage.program, again, made_at(algorithm))


def _like(federation: Any) -> Any:
    """A client's records, in shapes."""
    by_cohort = isinstance(federation, CohortFederation)
    records = federation.holder_records if by_cohort else federation.examples
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((federation.capacity, *leaf.shape[1:]), leaf.dtype),
        records,
    )


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

    Formal guarantees: see `certify_releases`.

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
