"""Rounds with canaries in the places of clients or of records: rules over the program of a round.

A round is run with a number `unknown` that is 0: its derivative by it is how far the model moves because of what an
adversary does not know who knows the others, the noise and the canaries' contributions, through whatever the round does
with them. Another such number, `of_honest`, multiplies what an honest canary would add: its client is run once more by
itself, as it may not have been drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from fedpriv.attacks.audited import Audited
from fedpriv.attacks.canary_messages import Canaries
from fedpriv.attacks.canary_places import NoPlaceError, Place, made_of
from fedpriv.attacks.canary_records import LANES, RecordsOfClient
from fedpriv.attacks.injected import Injected
from fedpriv.attacks.places import Places
from fedpriv.core.jaxprs import bind, evaluate
from fedpriv.core.trees import dimension
from fedpriv.data.federation import Federation
from fedpriv.proof.given import OfClient
from fedpriv.proof.program import RoundProgram
from fedpriv.proof.reference import Call
from fedpriv.rounds.private_step import features_of
from fedpriv.rounds.round_arguments import answer_like
from fedpriv.rounds.running import RoundToRun
from fedpriv.rounds.samplers import Answer, Draw


class _Among(Audited):
    """A round with canaries in it.

    Attributes:
      places: that canaries find.
      made_of: by the name of a place, what its mechanism is made of in this round.
    """

    def __init__(
        self,
        program: RoundProgram,
        of: RoundToRun,
        canaries: Canaries,
        injected: Injected,
        places: Sequence[Place],
    ):
        of_places = {place.name: self._remembered(place) for place in places}
        super().__init__(program, of, Places(regions={**of_places, **self.regions}))
        self._canaries, self._injected, self._sampler = canaries, injected, of.sampler
        self.places, self.made_of = places, dict[str, list[Any]]()

    @property
    def regions(self) -> Mapping[str, Callable[[JaxprEqn, list[Any]], Any]]:
        """Of the round itself, as in `Places`."""
        return {}

    def _remembered(self, place: Place) -> Callable[[JaxprEqn, list[Any]], Any]:
        def remember(eqn: JaxprEqn, values: list[Any]) -> Any:
            self.made_of[place.name] = made_of(eqn, values, place.release.like)
            return NotImplemented

        return remember

    def _alone(self, call: Call, run: Callable[[OfClient, Sequence[Any]], list[Any]]) -> list[Any]:
        """The sums of what `run` gives back for client 0 alone.

        Raises:
          NoPlaceError: the federation holds nobody's records but the cohort's.
        """
        if not isinstance(self._federation, Federation):
            raise NoPlaceError("federation: an honest canary is of one that is in memory")
        like = answer_like(self._sampler)
        now = None if like.delay is None else jnp.zeros(1, jnp.int32)
        whole = jax.tree.map(lambda s: jnp.ones(1, s.dtype), like._replace(delay=None))
        answer = Answer(whole.weight, whole.clip_scale, now)
        client = Draw(jnp.zeros(1, jnp.int32), jnp.ones(1, bool), answer)
        return self.over_clients(call, lambda *given: (run(*given)[: call.summed], []), client)[0]


class AmongClients(_Among):
    """Canary j takes the place of client j; in the round's sums the noise and what canaries send are unknown."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._numbers = {place.release.call: number for number, place in enumerate(self.places)}
        self._place: int | None = None  # of the last call
        self._release: Any = None
        self._of_canaries: list[Any] = []  # of the last call, a sum of integers
        self._theirs: list[Any] = []  # what an honest canary adds to that

    @property
    def regions(self) -> Mapping[str, Callable[[JaxprEqn, list[Any]], Any]]:
        """As `Places`: noise comes in."""
        return {"noise": self._noise, "integer_noise": self._integer_noise}

    def clients(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """As `Engine`, with canaries among them; messages that carry noise are unknown."""
        call = Call.of(eqn, values)
        self._place = self._numbers.get(call.number)
        if self._place is None:
            return super().clients(eqn, values)
        if self._canaries.data is not None and call.kept:
            self._check_known()
        self._release = self.released(call)
        total, stacked = self.over_clients(
            call, lambda *given: self._sent(call, *given), self._drawn
        )
        total, self._of_canaries = total[: call.summed], total[call.summed :]
        if self._canaries.data is not None:
            self._theirs = self._alone(call, lambda *given: self._sent_alone(call, *given))
            if not self._of_canaries:
                total = self._with_theirs(total, self._theirs)
        return [*total, *stacked]

    def _sent(
        self, call: Call, given: OfClient, rows: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """What a client gives back; then, where messages are integers, what is unknown of them."""
        i, own_noise, integers = given.number, self._release.step.adder == "own", self._are_integers
        places = self._canaries.of_client(i, plain=own_noise or integers)
        found = evaluate(call.program, self._arguments(call, given, rows), places)
        message, kept = found[: call.summed], found[call.summed :]
        unknown = jnp.asarray(own_noise) | (i < len(self._canaries.present))
        parts = [jnp.where(unknown, u, jnp.zeros_like(u)) for u in message]
        if integers:
            return [*message, *parts], kept
        return [*map(self._injected.part, message, parts)], kept

    def _sent_alone(self, call: Call, given: OfClient, rows: Sequence[Any]) -> list[Any]:
        """What an honest canary gives back when it is there, without noise of its own."""
        silent = Places(regions={"own_noise": lambda eqn, values: values[-len(eqn.outvars) :]})
        return evaluate(call.program, self._arguments(call, given, rows), silent)

    def _arguments(self, call: Call, given: OfClient, rows: Sequence[Any]) -> list[Any]:
        records = self._canaries.records_of_client(given.number, given.records)
        return call.arguments(given._replace(records=records), rows)

    @property
    def _are_integers(self) -> bool:
        return getattr(self._release.step.mechanism, "integers", None) is not None

    def _check_known(self) -> None:
        """Raises NoPlaceError: the cohort is secret, so that a third party does not know what a client keeps."""
        drawn = self._sampler.accounting
        if not (drawn.of_a_round.everyone or (drawn.turns is not None and not drawn.secret)):
            raise NoPlaceError(
                "own: an honest canary that keeps something tells by its message when it took part, which is secret; "
                "audit the worst case, or let everyone take part"
            )

    def _with_theirs(self, total: list[Any], theirs: list[Any]) -> list[Any]:
        return [*map(jnp.add, total, self._injected.of_canary(theirs))]

    def _noise(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        if self._place is None:
            return NotImplemented
        total = values[-len(eqn.outvars) :]
        return self._injected.noise(list(bind(eqn, values)), total)

    def remember(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """As `Engine`; the noise is unknown."""
        noisy = super().remember(eqn, values)
        if self._place is None:
            return noisy
        return self._injected.noise(noisy, values[2 : 2 + len(noisy)])

    def _integer_noise(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        if self._place is None:
            return NotImplemented
        *noisy, wrapped = bind(eqn, values)
        rotation_key, total = values[-2:]
        known = self._decoded(rotation_key, total - self._of_canaries[0])
        noisy = self._injected.noise(noisy, known)
        if self._theirs:
            noisy = self._with_theirs(noisy, self._decoded(rotation_key, self._theirs[0]))
        return [*noisy, wrapped]

    def _decoded(self, rotation_key: Any, total: jax.Array) -> list[Any]:
        """A sum of messages that are integers, without noise."""
        like = self._release.like
        integers = features_of(self._release.step).integer_sum(dimension(like))
        assert integers is not None
        return jax.tree.leaves(integers.decode(rotation_key, total, like))

    def mark(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """As `Engine`; a noisy sum gets what is added there."""
        if self._place is None or not self.is_sum(eqn):
            return values
        return self._injected.at(self._place, values)


class AmongRecords(_Among):
    """Canary j takes the place of the record at position j mod q of client j div q."""

    def clients(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """As `Engine`, with canaries among their records."""
        call = Call.of(eqn, values)

        def run(given: OfClient, rows: Sequence[Any], lane: jax.Array | None = None) -> list[Any]:
            records = RecordsOfClient(self._canaries, given.number, self._injected, lane)
            return evaluate(call.program, call.arguments(given, rows), records.places)

        def played(given: OfClient, rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            found = run(given, rows)
            return found[: call.summed], found[call.summed :]

        def alone(given: OfClient, rows: Sequence[Any]) -> list[Any]:
            both = jax.vmap(lambda lane: run(given, rows, lane), axis_name=LANES)(jnp.arange(2))
            return [leaf[0] for leaf in both]

        total, stacked = self.over_clients(call, played, self._drawn)
        if self._canaries.data is not None and call.summed:
            moves = [s - lax.stop_gradient(s) for s in self._alone(call, alone)]
            total = [*map(jnp.add, total, moves)]
        return [*total, *stacked]
