"""A cohort with canaries in the places of clients or of records.

A round is run with a number `unknown` that is 0: its derivative by it is how far the model moves because of what an
adversary does not know who knows the others, the noise and the canaries' contributions, through whatever the round does
with them. Another such number, `of_honest`, multiplies what an honest canary would add: its client is run once more by
itself, as it may not have been drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.attacks.canary_messages import Canaries
from fedpriv.attacks.injected import Injected, Place
from fedpriv.compression.codecs import UNCODED, Codec, Coded
from fedpriv.core.trees import dimension
from fedpriv.core.types import Key, Metrics, Params, PyTree
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism
from fedpriv.mechanisms.not_finite_counts import Tally
from fedpriv.mechanisms.per_example import RecordMechanism
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort, Summed
from fedpriv.rounds.private_step import PrivateStep, SumAdder
from fedpriv.rounds.record_samplers import PublicGroups
from fedpriv.rounds.samplers import Draw
from fedpriv.rounds.sent import Client, Sent
from fedpriv.rounds.weighting import Weighting


class NoPlaceError(ValueError):
    """The algorithm lets nobody take the place of a client, or of a record."""


class _Played:
    """A cohort with canaries in it; of each place that they find, a `Place` goes to `places`."""

    def __init__(
        self, cohort: Cohort, canaries: Canaries, injected: Injected | None, places: list[Place]
    ):
        self._cohort, self._canaries = copy(cohort), canaries
        self._injected, self._places = injected, places

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cohort, name)

    private_mean = Cohort.private_mean
    """As a cohort's, by the sum in which canaries are."""


class AmongClients(_Played):
    """Canary j takes the place of client j."""

    def sum(
        self,
        client: Client,
        key: Key,
        *,
        mechanism: Any,
        codec: Codec = UNCODED,
        adder: SumAdder = "shares",
        **how: Any,
    ) -> Summed:
        """As `Cohort.sum`."""
        if mechanism is ALREADY_PRIVATE:
            return self._cohort.sum(client, key, mechanism=mechanism, codec=codec, **how)
        canaries, own = self._canaries, adder == "own"
        if canaries.data is not None and jax.tree.leaves(how.get("own", ())):
            _check_known(self._cohort)

        def played(key: Key, shard: Shard, *mine: PyTree) -> Sent:
            sent = canaries.sent(client, key, shard, *mine)
            there = ~canaries.away(shard.client_id)
            return sent if plain else sent._replace(message=(there, sent.message))

        # Where clients add the noise themselves, who is away sends that; else nothing at all.
        as_integers = getattr(mechanism, "integers", None) is not None
        plain = own or as_integers  # zeros are sent as such
        options: dict[str, Any] = {
            "codec": codec if plain else _of_those_there(codec),
            "adder": adder,
        }
        place, number = len(self._places), len(self._cohort._stream.told)
        cohort = _listening(self._cohort, canaries, self._injected, own, as_integers, place)
        summed = cohort.sum(played, key, mechanism=mechanism, **options, **how)
        like = jax.eval_shape(lambda: summed.total)
        step = PrivateStep(mechanism, self._cohort._sampler, adder) if as_integers else None
        integers = step.integer_sum(dimension(like)) if step else None
        self._places.append(Place(like, mechanism, integers))
        if self._injected and canaries.data is not None:
            single = _alone(self._cohort, number, self._injected.of_canary)
            all_present = canaries._replace(present=jnp.ones_like(canaries.present))
            theirs = single.sum(
                lambda *given: all_present.sent(client, *given),
                key,
                mechanism=mechanism,
                codec=codec,
                **how,
            )
            summed = summed._replace(total=jax.tree.map(jnp.add, summed.total, theirs.total))
        return summed


def _listening(
    cohort: Cohort,
    canaries: Canaries,
    injected: Injected | None,
    own_noise: bool,
    as_integers: bool,
    place: int,
) -> Cohort:
    """The cohort, in which who is away has no weight.

    In its sums the noise and what canaries send are unknown; messages that carry noise are, too.
    """
    heard: Any = copy(cohort)

    def size_for(weighting: Weighting, shard: Shard) -> jax.Array:
        size = cohort._size_for(weighting, shard)
        return jnp.where(canaries.away(shard.client_id), 0, size)

    heard._size_for = size_for
    if injected is None:
        return heard

    of_canaries: list[PyTree] = []  # sums of what is unknown of messages that are integers

    def of_all(
        fn: Callable[..., tuple], hidden: Key, key: Key, own: PyTree
    ) -> tuple[PyTree, PyTree]:
        def one(key: Key, shard: Shard, *mine: PyTree) -> tuple:
            message, kept = fn(key, shard, *mine)
            is_canary = jnp.asarray(shard.client_id) < len(canaries.present)
            unknown = jnp.asarray(own_noise) | is_canary
            parts = jax.tree.map(lambda u: jnp.where(unknown, u, jnp.zeros_like(u)), message)
            if as_integers:
                return (message, parts), kept
            return jax.tree.map(injected.part, message, parts), kept

        total, kept = cohort._of_all(one, hidden, key, own)
        if as_integers:
            total, of_canaries[:] = total[0], total[1:]
        return total, kept

    def noisy_integers(
        keys: tuple[Key, Key], total: jax.Array, step: PrivateStep, like: PyTree
    ) -> tuple[PyTree, Metrics]:
        noisy, wrapped = cohort._noisy_integers(keys, total, step, like)
        known = _decoded(keys[1], total - of_canaries[0], step, like)
        return injected.noise(noisy, known), wrapped

    def noisy(used: Mechanism, key: Key, total: PyTree, step: PrivateStep) -> PyTree:
        return injected.noise(cohort._noisy(used, key, total, step), total)

    def observe(total: PyTree, hidden: Key, step: PrivateStep) -> PyTree:
        return injected.at(place, cohort._observe(total, hidden, step))

    heard._of_all, heard._noisy, heard._observe = of_all, noisy, observe
    heard._noisy_integers = noisy_integers
    return heard


def _decoded(rotation_key: Key, total: jax.Array, step: PrivateStep, like: PyTree) -> PyTree:
    """A sum of messages like this one that are integers, without noise."""
    integers = step.integer_sum(dimension(like))
    assert integers is not None
    return integers.decode(rotation_key, total, like)


def _check_known(cohort: Cohort) -> None:
    """Raises NoPlaceError: the cohort is secret, so that a third party does not know what a client keeps."""
    drawn = cohort._sampler.accounting
    if not (drawn.of_a_round.everyone or (drawn.turns is not None and not drawn.secret)):
        raise NoPlaceError(
            "own: an honest canary that keeps something tells by its message when it took part, which is secret; audit "
            "the worst case, or let everyone take part"
        )


def _of_those_there(codec: Codec) -> Codec:
    """`codec` of (whether the client is there, message): the message, or zeros."""

    def code(key: Key, given: tuple) -> Coded:
        there, message = given
        coded = codec.code(key, message)
        return coded._replace(
            message=jax.tree.map(lambda leaf: jnp.where(there, leaf, 0.0), coded.message)
        )

    return codec._replace(code=code)


def _alone(cohort: Cohort, number: int, shown: Callable[[PyTree], PyTree]) -> Cohort:
    """A cohort of client 0, for call `number` once more, of whose sum `shown` is shown in place of noise.

    Raises:
      NoPlaceError: the federation holds nobody's records but the cohort's.
    """
    if not isinstance(cohort._federation, Federation):
        raise NoPlaceError("federation: an honest canary is of one that is in memory")
    single: Any = copy(cohort)
    single._drawn = Draw(jnp.zeros(1, jnp.int32), jnp.ones(1, bool))
    single._messages, single._records = Tally(), Tally()
    single._stream = cohort._stream.again(number)
    single._noisy = lambda used, key, total, step: shown(total)
    single._noisy_integers = lambda keys, *given: (shown(_decoded(keys[1], *given)), {})
    return single


class AmongRecords(_Played):
    """Canary j takes the place of the record at position j mod q of client j div q."""

    def sum(self, client: Client, key: Key, **how: Any) -> Summed:
        """As `Cohort.sum`."""
        number = len(self._cohort._stream.told)
        summed = self._cohort.sum(self._played(client, self._places), key, **how)
        if not self._injected or self._canaries.data is None:
            return summed
        single = _alone(
            self._cohort,
            number,
            lambda total: jax.tree.map(lambda s: s - lax.stop_gradient(s), total),
        )
        theirs = single.sum(self._played(client, [], single=True), key, **how)
        return summed._replace(total=jax.tree.map(jnp.add, summed.total, theirs.total))

    def _sum_of_records(self, step: PrivateStep, params: Params) -> tuple[PyTree, Metrics]:
        """Raises NoPlaceError: only the integers of all records of a cohort together have noise."""
        raise NoPlaceError(
            "mechanism: records travel as integers; audit the mechanism, with draw_scores"
        )

    def unprotected(self, client: Client, *given: Any, **how: Any) -> Summed:
        """As `Cohort.unprotected`, where an honest canary finds no place."""
        places = self._places if self._canaries.data is None else []
        return self._cohort.unprotected(self._played(client, places), *given, **how)

    def _played(self, client: Client, places: list[Place], single: bool = False) -> Client:
        def played(key: Key, shard: Shard, *mine: PyTree) -> Any:
            of_both = _with_canaries(self._canaries, shard, self._injected, places, single)
            return client(key, of_both, *mine)

        return played


def _with_canaries(
    canaries: Canaries, shard: Shard, injected: Injected | None, places: list[Place], single: bool
) -> Shard:
    """The shard of a client, some of whose records are canaries; with `single` for what an honest one would add."""
    room = len(jax.tree.leaves(shard.examples)[0])
    numbered = replace(shard, examples=(shard.examples, jnp.arange(room)))
    if single:
        assert injected is not None
        injected = injected.for_one_client

    class CanaryShard(Shard):
        def _noisy_mean(
            self, step: PrivateStep, params: Params, rotation: Key | None = None
        ) -> Params:
            gradients, mechanism = step.gradients, step.mechanism
            assert rotation is None  # see `_sum_of_records`
            if isinstance(step.sampling, PublicGroups):
                _check_group(canaries, step.sampling)
            if canaries.per_client > (held := step.sampling.accounting.population):
                raise ValueError(
                    f"per_client: a client has {held} records, not {canaries.per_client} to give up"
                )
            places.append(Place(jax.eval_shape(lambda: params), mechanism))
            played = canaries.gradients(gradients, jnp.asarray(shard.client_id), injected)
            theirs = canaries.gradient(gradients, params, shard.examples) if single else None
            heard: Any = _Heard(mechanism, injected, theirs) if injected else mechanism
            return numbered._noisy_mean(replace(step, gradients=played, mechanism=heard), params)

    return CanaryShard(**vars(shard))


def _check_group(canaries: Canaries, records: PublicGroups) -> None:
    """Raises NoPlaceError: canaries are in another group than the one whose draws they are scored by."""
    places = [divmod(j, canaries.per_client) for j in range(len(canaries.present))]
    names = {(i, str(records.groups[i][at])) for i, at in places if at < len(records.groups[i])}
    drawn = {records.accounting_of(records.held[i][name], name) for i, name in names}
    if drawn != {canaries.drawn}:
        groups = sorted({name for _, name in names})
        raise NoPlaceError(
            f"records: canaries take the first records' places, of groups {groups}, which are drawn otherwise than "
            "what was seen; give what is seen of that group, `traced.seen(rounds, kind)`, and let those be of one group"
        )


class _Heard(NamedTuple):
    """A mechanism for records in whose sums the noise is unknown.

    Where clipping does more than scale, all that is summed is: canaries are not told from others there.

    Attributes:
      theirs: an honest canary's gradient, which is added as it would be; None: nothing.
    """

    listens_to: RecordMechanism
    injected: Injected
    theirs: PyTree | None

    def in_round(self, t: Any) -> _Heard:
        """That of round t."""
        return self._replace(listens_to=self.listens_to.in_round(t))

    def for_batch(self, norms: PyTree, mask: jax.Array) -> Mechanism:
        """For contributions of these norms."""
        used = self.listens_to.for_batch(norms, mask)  # type: ignore[union-attr]

        def perturb(key: Key, total: PyTree) -> PyTree:
            noisy = used.perturb(key, total)
            known = total if used.scaling else jax.tree.map(jnp.zeros_like, total)
            heard = self.injected.at(0, self.injected.noise(noisy, known))
            if self.theirs is None:
                return heard
            adds = self.injected.of_canary(used.clip(self.theirs)[0])
            return jax.tree.map(jnp.add, heard, adds)

        return used._replace(perturb=perturb)
