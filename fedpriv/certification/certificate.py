"""From an algorithm to a certificate, by a trace of its round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv.certification.assumed import assumed
from fedpriv.certification.closed_over import check_closed_over, closed_over
from fedpriv.certification.initial_state import INIT_CLOSED_OVER, look_at_start
from fedpriv.certification.privacy_labels import Holding
from fedpriv.certification.releases import is_proved, pieces, seen
from fedpriv.certification.second_trace import check_same
from fedpriv.certification.trace import Stage, look, program_of
from fedpriv.core.arguments import CountOrZero, MeanRuns, Probability, Rate, checked, require
from fedpriv.core.generators import check_default_generator
from fedpriv.core.provenance import constructed
from fedpriv.core.trees import check_arrays
from fedpriv.core.types import Key, Params
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked, gives
from fedpriv.data.cohort_federation import CohortFederation
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.privacy import Certificate, Release, certify_releases
from fedpriv.privacy.release import View
from fedpriv.rounds.algorithm import Algorithm, made_at, require_algorithm
from fedpriv.rounds.samplers import Sampler, parts_of

_CLOSED_OVER = (
    "round: it closes over {}; reach clients through the cohort, and the server's examples by "
    "`cohort.public`"
)


class Looked(NamedTuple):
    """What was read off an algorithm's round.

    Attributes:
      algorithm: whose.
      holding: what it was traced for.
      stages: the releases with each of its samplers.
      before: shapes of the state that a round is given.
      after: shapes of (state, metrics) that it gives back.
      init_arrays: that `init` closes over, with the line that uses each.
    """

    algorithm: Algorithm
    holding: Holding
    stages: tuple[Stage, ...]
    before: Any
    after: Any
    init_arrays: tuple[tuple[Any, str], ...] = ()

    def releases(self, rounds: int) -> tuple[Release, ...]:
        """What each view sees of so many rounds.

        Raises:
          ValueError: it has no certificate: a multiplier that is computed in the round, or units, samplings or kinds of
            noise that do not go together.
        """
        if self.algorithm.releases is not None:
            declare = self.algorithm.releases
            declared = asked("releases", declare, "(rounds)", rounds)
            several = isinstance(declared, tuple | list)
            gives(several, "releases", declare, declared, "give back a tuple of fp.Release")
            return tuple(declared)
        parts = parts_of(self.algorithm.sampler, rounds)
        found, begun = [], 0
        for (length, sampler), stage in zip(parts, self.stages, strict=True):
            for steps, first in pieces(stage, begun, begun + length):
                found += seen(stage, sampler, self.algorithm.unit, steps, first)
            begun += length
        return tuple(r for r in found if r.steps) or tuple(found)

    def certify(
        self,
        rounds: CountOrZero,
        delta: Probability,
        *,
        view: View = "third_party",
        honest: Rate = 1.0,
        best_of: MeanRuns = 1.0,
    ) -> Certificate:
        """As `certify`, of the round as it was traced.

        Args:
            rounds, view, honest, best_of: as `certify`.
            delta: probability, in (0, 1).

        Raises:
            ValueError: as `certify`.
        """
        rounds = checked("rounds", rounds, CountOrZero)
        options: Any = {"honest": honest, "best_of": best_of}
        found = certify_releases(self.releases(rounds), delta, view, **options)
        return with_basis(found, [self])

    def assumed(self) -> tuple[str, ...]:
        """What the traced program does not show; nothing where releases are declared."""
        if self.algorithm.releases is not None:
            return ()
        return assumed(self.stages, self.init_arrays, made_at(self.algorithm))

    @property
    def basis(self) -> str:
        """Of a certificate: "constructed", or "declared" where a release or a multiplier is somebody's word."""
        if self.algorithm.releases is not None:
            return "declared"
        notes = [n for s in self.stages for n in (*s.sums, *s.means)]
        samplers = [s for _, s in parts_of(self.algorithm.sampler, 2)]
        samplers += [n.records for n in notes if n.records is not None]
        proved = all(map(is_proved, notes)) and all(map(constructed, samplers))
        return "constructed" if proved else "declared"


def with_basis(found: Certificate, looked: Sequence[Looked]) -> Certificate:
    """The certificate of what these rounds release, with its basis and what their traces do not show."""
    texts = [text for each in looked for text in each.assumed() if math.isfinite(found.epsilon)]
    proved = all(each.basis == "constructed" for each in looked)
    return replace(
        found,
        basis="constructed" if proved else "declared",
        assumptions=tuple(dict.fromkeys((*found.assumptions, *texts))),
    )


@names_user_code
def looked_at(algorithm: Algorithm, params: Any, federation: Any) -> Looked:
    """Traces the algorithm's round.

    Args:
      params: the model, its shapes, or key -> model.
      federation: what it trains on, or one of the same shapes (`Federation.blank`).

    Raises:
      ValueError: the round releases what it does not bound, or what cannot be counted; a sampler for another number of
        clients or of records; parameters that are no arrays.
      LeakError: something private gets past the releases of a round, or into the initial state.
    """
    require_algorithm(algorithm)
    known = isinstance(federation, Federation | StreamedFederation | CohortFederation)
    require(known, "federation", federation, "give such as fp.Federation.from_arrays(...)")
    if isinstance(federation, StreamedFederation):
        federation = federation.empty()
    check_default_generator()
    _check_samplers(algorithm)
    holding = Holding(
        federation.num_clients, federation.capacity, _like(federation), federation.public.shape[-1]
    )
    for _, sampler in parts_of(algorithm.sampler, 2):
        population = sampler.accounting.population
        if population != holding.num_clients:
            raise ValueError(
                f"sampler: made for {population} clients, but the federation has {holding.num_clients}; give both the "
                "same number"
            )
    model = _model(params)
    state, init_arrays = look_at_start(algorithm, model, federation)
    found = _traced(algorithm, holding, state)._replace(init_arrays=tuple(init_arrays))
    check_data(found, federation)
    return found


def _model(params: Any) -> Params:
    """The parameters, or their shapes where a function of a key makes them."""

    def made(key: Key) -> Params:
        found = asked("params", params, "(key)", key)
        check_arrays(found)
        return found

    if callable(params):
        return jax.eval_shape(made, jax.random.key(0))
    check_arrays(params)
    return params


def check_data(looked: Looked, federation: Any) -> None:
    """The checks of a round that look at a federation's own arrays.

    Raises:
      ValueError: clients hold another number of records than is drawn among.
      LeakError: the round closes over the federation's arrays.
    """
    check_closed_over(looked.init_arrays, federation, INIT_CLOSED_OVER)
    for stage in looked.stages:
        _check_records(stage, np.asarray(federation.size))
        check_closed_over(closed_over(stage.program), federation, _CLOSED_OVER)


def _check_samplers(algorithm: Algorithm) -> None:
    for _, sampler in parts_of(algorithm.sampler, 2):
        remedy = "give such as fp.poisson(clients, rate), or an fp.Opening of two of these"
        require(isinstance(sampler, Sampler), "sampler", sampler, remedy)


def _traced(algorithm: Algorithm, holding: Holding, state: Any) -> Looked:
    stages: list[Stage] = []
    out: Any = None
    held: Any = None
    before: Any = ()
    while held != before:  # what clients keep in the first rounds is there in the later ones
        stages, before = [], held
        for _, sampler in parts_of(algorithm.sampler, 2):
            stage, out, held = look(algorithm, sampler, holding, state, held)
            stages.append(stage)
        if len(stages) == 1:
            break
    return Looked(algorithm, holding, tuple(stages), state, out)


def check_twice(looked: Looked) -> None:
    """Traces the round once more.

    Raises:
      ValueError: it is another program then, because it counts or draws on the host; and in which line.
    """
    algorithm, holding, state = looked.algorithm, looked.holding, looked.before
    for stage, (_, sampler) in zip(looked.stages, parts_of(algorithm.sampler, 2), strict=True):
        again, _, _ = program_of(algorithm, sampler, holding, state)
        check_same(stage.program, again, made_at(algorithm))


def _like(federation: Any) -> Any:
    """A client's records, in shapes."""
    held = getattr(federation, "held", None)
    cut = 2 if held is not None else 1
    room = (federation.capacity,)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*room, *leaf.shape[cut:]), leaf.dtype),
        federation.examples if held is None else held,
    )


def _check_records(stage: Stage, sizes: np.ndarray) -> None:
    for note in stage.means:
        assert note.records is not None
        expected = note.records.accounting.population
        if (sizes != expected).any():
            odd = int(np.argmax((sizes != expected).reshape(-1)))
            raise ValueError(
                f"records: drawn among {expected} of each client, but client {odd % sizes.shape[-1]} holds "
                f"{sizes.reshape(-1)[odd]}; give every client {expected}"
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
) -> Certificate:
    """Proved epsilon of everything that `view` sees of `rounds` rounds of `algorithm`, read off its traced round.

    Where the algorithm brings `releases`, or a mechanism made by hand, the certificate is *declared*, else
    *constructed*.

    Formal guarantees: see `certify_releases`.

    Args:
        algorithm: what trains.
        params: the model, its shapes, or key -> model.
        federation: what it trains on, or one of the same shapes (`Federation.blank`).
        rounds: number of rounds T, 0 or more.
        delta: probability, in (0, 1).
        view: "third_party" (every global model), "server" (every message, knows the cohort) or "server_secagg" (the
            cohort's sums, knows the cohort).
        honest: fraction of each cohort that adds its share of the noise and keeps it to itself.
        best_of: what choosing costs: only the best of a secret number of runs is released, which is geometric with
            this mean; 1 is a single run.

    Raises:
        ValueError: for rounds, delta, a view or a fraction that is not allowed; as `looked_at`; a round that counts or
            draws on the host.
        LeakError: something private gets past the releases of a round: what, and in which line.
    """
    rounds = checked("rounds", rounds, CountOrZero)
    delta = checked("delta", delta, Probability)
    view = checked("view", view, View)
    honest = checked("honest", honest, Rate)
    best_of = checked("best_of", best_of, MeanRuns)
    looked = looked_at(algorithm, params, federation)
    check_twice(looked)
    return looked.certify(rounds, delta, view=view, honest=honest, best_of=best_of)
