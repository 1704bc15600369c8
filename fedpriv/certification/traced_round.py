"""What was read off an algorithm's round, and the certificate of what its rounds release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedpriv.certification.assumed import Which, assumed, assumed_of_normalised
from fedpriv.certification.closed_over import ClosedOver
from fedpriv.certification.correlated_views import (
    check_rounds,
    correlated_sums,
    factorizations,
    run_rows,
)
from fedpriv.certification.groups import (
    by_group,
    costliest_kinds,
    grouping_of,
    kinds_of,
)
from fedpriv.certification.person_views import (
    of_clients_of_a_person,
    of_records_of_a_person,
)
from fedpriv.certification.persons_held import (
    Held,
    PersonsHeld,
    assumed_of_persons,
)
from fedpriv.certification.pieces import pieces_of_a_client
from fedpriv.certification.rows import stage_rows
from fedpriv.certification.stages import Stage
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.core.arguments import CountOrZero, MeanRuns, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.core.kinds import Rate
from fedpriv.core.provenance import constructed
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.correlated import first_memory
from fedpriv.mechanisms.noise_matrices.factorization import Factorization
from fedpriv.privacy import Certificate, Seen, certify_seen
from fedpriv.privacy.rows import Row, featured
from fedpriv.privacy.sampling.grouped import Strata
from fedpriv.proof.row import AnyRow, seen_of
from fedpriv.proof.seen import NO_OTHERS, View
from fedpriv.rounds.algorithm import Algorithm, made_at
from fedpriv.rounds.cohort_program import CohortProgram
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.round_arguments import FederationShape
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
        remedy = (
            "records in groups, or one draw of all groups, are not certified for persons; draw each group of clients "
            "by itself"
        )
        of_clients = self.grouping is None or len(self.grouping.classes) > 0
        require(of_clients, "records", self.grouping and self.grouping.group_names, remedy)
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

    def seen(
        self, rounds: int, kind: UnitKind | None = None, *, honest: Rate = 1.0
    ) -> tuple[Seen, ...]:
        """What each view sees of a unit in so many rounds.

        Args:
          kind: of the unit, one of `kinds`; it has to be given where there are several.
          honest: fraction of the noise's shares that are added and stay unknown to the view.

        Raises:
          ValueError: no kind, where there are several; one that is no person's, where units are persons; no
            certificate: a multiplier that is computed in the round, or units, samplings or kinds of noise that do not
            go together.
        """
        if kind is None:
            kind, *others = self.kinds
            remedy = "units of each kind are seen by themselves; give one of `kinds`"
            require(not others, "kind", None, remedy)
        return tuple(seen_of(row, honest) for row in self._rows(rounds, kind))

    def _rows(self, rounds: int, kind: UnitKind) -> Sequence[AnyRow]:
        """Of the table of views."""
        if self.persons is None:
            return self._of_single(rounds, kind)
        remedy = "units are persons, who may hold more than one of these; give one of `kinds`"
        require(len(kind.held) > 0, "kind", kind, remedy)
        grouped, held = self.grouping is not None, self._in_own_classes(kind.held)

        def of_client(held: Held) -> list[Row]:
            group = held.which if grouped else ""
            rows = self._of_single(rounds, UnitKind(held.size, group, kind.held))
            return [*map(featured, rows)]

        if self.algorithm.unit == "record":
            return of_records_of_a_person(of_client, held)
        return of_clients_of_a_person(of_client, held, self.persons.share_clients, grouped)

    @property
    def classes(self) -> tuple[str, ...]:
        """Of each client its public class, see `Accounting.classes`."""
        return classes_of(self.algorithm.sampler)

    def _in_own_classes(self, held: Sequence[Held]) -> tuple[Held, ...]:
        """Turns do not keep clients apart where noise is correlated over them."""
        by_turns = self.grouping is None and bool(correlated_sums(self.stages))
        return tuple(one._replace(which="") for one in held) if by_turns else tuple(held)

    def _of_single(self, rounds: int, kind: UnitKind) -> Sequence[AnyRow]:
        """As `_rows`, of a client or a record, where a person holds several."""
        if correlated_sums(self.stages):
            stage, sampler = self.stages[0], self.samplers[0]
            return run_rows(stage, sampler, self.algorithm.unit, rounds, kind)
        parts = parts_of(self.algorithm.sampler, rounds)
        rows: list[AnyRow] = []
        begun = 0
        for (length, sampler), stage in zip(parts, self.stages, strict=True):
            (drawn, _), end = sampler.accounting.of_group(kind.group), begun + length
            for steps, first in pieces_of_a_client(stage, drawn, begun, end):
                rows += stage_rows(stage, sampler, self.algorithm.unit, steps, first, kind)
            begun = end
        return [row for row in rows if not row.is_empty] or rows

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
        self,
        kinds: Sequence[UnitKind],
        rounds: int,
        delta: float,
        view: View,
        honest: float = 1.0,
        **options: Any,
    ) -> Certificate:
        """Of units of these kinds; `options` as `certify_seen`."""
        honest = checked("honest", honest, Rate)

        def of(kind: UnitKind) -> Certificate:
            rows = (row for row in self._rows(rounds, kind) if row.view == view)
            return certify_seen([seen_of(row, honest) for row in rows], delta, view, **options)

        each = {kind: of(kind) for kind in kinds}
        return with_basis(by_group(each), [self])

    def first_memory(self, rounds: int) -> tuple[PyTree, ...]:
        """What correlated noise remembers before the first of so many rounds, for each call of the cohort.

        Raises:
          ValueError: a matrix is for fewer rounds.
        """
        sums = correlated_sums(self.stages)
        check_rounds(sums, rounds)
        return tuple(first_memory(each.step.mechanism, each.like) for each in sums)

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

    def assumed(self, which: Which = "only") -> tuple[str, ...]:
        """What the traced program does not show, where it is of this one of several runs."""
        given = self.samplers, self.init_arrays, made_at(self.algorithm), which
        return (
            *assumed(self.stages, *given),
            *assumed_of_persons(self.persons, self.algorithm.unit),
            *assumed_of_normalised(self.normalised),
        )

    @property
    def programs(self) -> tuple[CohortProgram, ...]:
        """Of the round with each part of the sampler."""
        return tuple(stage.of for stage in self.stages)

    @property
    def digests(self) -> tuple[str, ...]:
        """Of these programs."""
        return tuple(program.digest for program in self.programs)

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
        proved &= all(stage.is_fedprivs for stage in self.stages)
        return "constructed" if proved else "declared"


def with_basis(
    certificate: Certificate, rounds: Sequence[TracedRound], *, in_order: bool = False
) -> Certificate:
    """The certificate of what these rounds release, with its basis and what their traces do not show.

    Args:
      in_order: whether they are of several runs, of which later ones may use what earlier ones released.
    """
    finite = math.isfinite(certificate.epsilon)

    def place(number: int) -> Which:
        return "only" if not in_order else "later" if number else "first"

    each = enumerate(rounds if finite else ())
    texts = [text for number, traced in each for text in traced.assumed(place(number))]
    said = [*certificate.assumptions, *texts]
    if known := [traced.also_held_out for traced in rounds if traced.also_held_out]:
        said = [each for text in said for each in (known if text == NO_OTHERS else [text])]
    proved = all(traced.basis == "constructed" for traced in rounds)
    doors = (door for traced in rounds for stage in traced.stages for door in stage.doors)
    return replace(
        certificate,
        relation=_relation(certificate, rounds),
        basis="constructed" if proved else "declared",
        assumptions=tuple(dict.fromkeys(said)),
        programs=tuple(digest for traced in rounds for digest in traced.digests),
        doors=tuple(dict.fromkeys([*certificate.doors, *doors])),
        of_groups={
            name: with_basis(own, rounds, in_order=in_order)
            for name, own in certificate.of_groups.items()
        },
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


def classes_of(sampler: Any) -> tuple[str, ...]:
    """Of each client its public class, see `Accounting.classes`; (): all are alike, or classes differ by the round."""
    each = {part.accounting.classes for _, part in parts_of(sampler, 2)}
    return each.pop() if len(each) == 1 else ()
