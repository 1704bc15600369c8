"""Statistics: what is asked, the algorithm that asks it, and what is released."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.certification.calibration import calibrate_noise
from fedpriv.certification.certificate import check_twice, trace_round
from fedpriv.certification.traced_round import TracedRound
from fedpriv.core.arguments import Budget, Count, NonNegative, Probability, Rate, Seed, checked
from fedpriv.core.complaints import require
from fedpriv.core.program_text import digest
from fedpriv.core.types import Example, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.engine import not_finite_warning, secret_seeds
from fedpriv.engine.history import SHARES, Evaluation
from fedpriv.engine.simulate import simulate
from fedpriv.privacy import Certificate
from fedpriv.proof.seen import ClippedUnit, View
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.statistics.too_noisy import warn_of_noise
from fedpriv.statistics.values import Values

FEDERATION = "give one such as fp.Federation.from_arrays(...)"


class Crowd(NamedTuple):
    """Who is asked, and how much noise is added: all that an algorithm is made of, beside the statistic.

    Attributes:
      clients: how many there are; all take part.
      per_client: the most records that one holds.
      record: one record, in shapes.
      unit: what is protected.
      noise_multiplier: sigma.
    """

    clients: int
    per_client: int
    record: Example
    unit: ClippedUnit
    noise_multiplier: float

    @property
    def units(self) -> int:
        """How many clients there are, or how many records there is room for."""
        return self.clients * (self.per_client if self.unit == "record" else 1)


class Asked(NamedTuple):
    """An algorithm, and what is read off its last state.

    Attributes:
      algorithm: of one round, but for the adaptive quantile.
      read: state -> (value, standard error).
      span: how far the least and the largest number that a value can have lie apart, in its structure; None: unknown.
    """

    algorithm: Algorithm
    read: Callable[[Any], tuple[PyTree, PyTree]]
    span: PyTree | None = None


@dataclass(frozen=True, eq=False)
class Statistic:
    """What is asked of everyone: made by the functions of `fp.statistics`, and of no use before it is released.

    All clients take part. Of sampled ones a round would cost less, but needs as much less noise for as exact a number.

    Attributes:
      name: what made it, with its arguments.
      values: of which numbers of a record.
      rounds: of the algorithm.
      axis: axes of one record's value that are averaged over.
    """

    name: str
    values: Values | None
    _ask: Callable[[Crowd], Asked]
    rounds: Count = 1
    axis: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"fp.statistics.{self.name}"

    def algorithm(
        self,
        federation: Federation | StreamedFederation,
        *,
        noise_multiplier: NonNegative,
        unit: ClippedUnit = "client",
    ) -> Algorithm:
        """The algorithm, for `fp.certify_together` and the like; whatever model these are given, it has its own.

        Args:
          federation: one of the same shapes is enough (`Federation.blank`).
          noise_multiplier: sigma of the noise, relative to what a unit adds at most. With the unit "record" it is that
            of each client's own noise.
          unit: "client" or "record", of which each is clipped. Where the federation says whose each of them is, what is
            protected is a person.

        Raises:
          ValueError: an argument out of range, or a value of other shapes than the bounds.
        """
        return self._asked(federation, noise_multiplier, unit).algorithm

    @names_user_code
    def release(
        self,
        federation: Federation | StreamedFederation,
        *,
        delta: Probability,
        noise_multiplier: NonNegative | None = None,
        epsilon: Budget | None = None,
        unit: ClippedUnit = "client",
        view: View = "third_party",
        honest: Rate = 1.0,
        seed: Seed | None = None,
        secret_seed: Seed | None = None,
    ) -> Released:
        """Asks it: the number, its standard error and its certificate.

        Args:
          federation: whose clients are asked.
          noise_multiplier, epsilon: one of the two; the noise that an epsilon needs is found by `fp.calibrate_noise`.
          delta, view, honest: as `fp.certify`.
          unit: as `algorithm`.
          seed, secret_seed: as of `fp.simulate`, where no run has the same noise; nor has another statistic, or noise
            multiplier, or a federation of other shapes. Of records that have changed, give another seed. None: a secret
            one, drawn anew.

        Raises:
          ValueError: both or neither of noise and epsilon; values that are NaN, where the statistic does not leave them
            out; as `algorithm`, `fp.certify` and `fp.calibrate_noise`.
          LeakError: the round releases something private.

        Warns:
          UserWarning: 1.96 standard errors reach half of what the number can range over, such as of the bounds.
        """
        noise_multiplier = checked("noise_multiplier", noise_multiplier, NonNegative | None)
        epsilon = checked("epsilon", epsilon, Budget | None)
        seed, secret_seed = (
            checked("seed", seed, Seed | None),
            secret_seeds.checked_secret(secret_seed),
        )
        unit, priced = _checked_unit(unit), _price(delta, view, honest)
        one = (noise_multiplier is None) != (epsilon is None)
        remedy = f"give one of the two, noise_multiplier= or epsilon= (epsilon={epsilon})"
        require(one, "noise_multiplier", noise_multiplier, remedy)
        if noise_multiplier is None:

            def make(noise: float) -> Algorithm:
                return self.algorithm(federation, noise_multiplier=noise, unit=unit)

            wanted: Any = {"epsilon": epsilon, "rounds": self.rounds, **priced}
            noise_multiplier = calibrate_noise(make, _NO_MODEL, federation, **wanted)
        asked = self._asked(federation, noise_multiplier, unit)
        traced = trace_round(asked.algorithm, _NO_MODEL, federation)
        check_twice(traced)
        certificate = traced.certify(self.rounds, **priced)
        if seed is None:
            seed, secret_seed = (
                0,
                secret_seeds.secret_seed() if secret_seed is None else secret_seed,
            )
        with warnings.catch_warnings():  # what follows says it of a statistic
            warnings.filterwarnings("ignore", module=not_finite_warning.__name__)
            history = simulate(
                asked.algorithm,
                _NO_MODEL,
                federation,
                {"none": np.zeros(1, np.float32)},
                score=lambda params, example: {"none": example["none"]},
                rounds=self.rounds,
                every=self.rounds,
                seeds=(_own_seed(seed, traced, noise_multiplier),),
                secret_seed=secret_seed,
                progress=False,
            )
        self._check_finite(history.evaluations[-1])
        read = asked.read(history.state_of())
        value, error = jax.tree.map(lambda number: np.asarray(number)[()], read)
        if asked.span is not None:
            several = unit == "client" and federation.capacity > 1
            warn_of_noise(self.name, error, asked.span, may_be_records=several)
        return Released(self, value, error, certificate, asked.algorithm, noise_multiplier)

    def _check_finite(self, evaluation: Evaluation) -> None:
        """Raises ValueError: what some units added is no number, and counted as nothing."""
        finite = not any(evaluation.metric(share).any() for share in SHARES)
        remedy = (
            "some values are NaN, and nothing is released; ask fp.statistics.observed_mean, which leaves those out, or "
            "let values give a number for every record"
        )
        require(finite, "values", self, remedy)

    def _asked(self, federation: Any, noise_multiplier: float, unit: ClippedUnit) -> Asked:
        known = isinstance(federation, Federation | StreamedFederation)
        require(known, "federation", federation, FEDERATION)
        noise_multiplier = checked("noise_multiplier", noise_multiplier, NonNegative)
        unit = _checked_unit(unit)
        record = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], jnp.asarray(leaf[:0]).dtype),
            federation.examples,
        )
        counts = federation.num_clients, federation.capacity
        return self._ask(Crowd(*counts, record, unit, noise_multiplier))


_NO_MODEL = np.zeros(1, np.float32)
"""Where a model is asked for."""


def _checked_unit(unit: Any) -> ClippedUnit:
    remedy = (
        "give 'client' or 'record', whichever is to be clipped; where the federation says whose each is, its "
        "certificate is of a person with all that are its own"
    )
    require(unit != "person", "unit", unit, remedy)
    return checked("unit", unit, ClippedUnit)


def _price(delta: Any, view: Any, honest: Any) -> dict[str, Any]:
    """Of what a certificate is asked."""
    return {
        "delta": checked("delta", delta, Probability),
        "view": checked("view", view, View),
        "honest": checked("honest", honest, Rate),
    }


def _own_seed(seed: int, traced: TracedRound, noise_multiplier: float) -> int:
    """A seed of 63 bits, so that neither training from `seed` nor another round has the same noise.

    Rounds are the same where their programs are, with the arrays that these close over: then they give the same totals.
    """
    programs = [digest(each.program, math.inf) for each in traced.programs]
    told = f"{seed} {noise_multiplier!r} {traced.digests} {programs}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8]) >> 1


@dataclass(frozen=True, eq=False)
class Released:
    """A statistic that was released.

    Attributes:
      statistic: what was asked.
      value: the number, f64[...], or a tuple of several with names.
      standard_error: of each number, in the same structure; from the noise and released numbers alone. The number of
        these clients is within 1.96 of them in about 95 of 100 releases, in no fewer than 90 where it was measured; an
        adaptive quantile promises less, see there. It says nothing of others, from whom these were drawn.
      certificate: what it costs; see `fp.certify_together` for what it costs beside other releases.
      algorithm: what asked it, for `fp.certify_together([(released.algorithm, released.statistic.rounds), ...])`.
      noise_multiplier: sigma.
    """

    statistic: Statistic
    value: Any
    standard_error: Any
    certificate: Certificate | None = None
    algorithm: Algorithm | None = None
    noise_multiplier: float | None = None
