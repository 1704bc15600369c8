"""What each view sees of a run whose noise is correlated over its rounds: one release of the whole run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from fedpriv.certification.client_releases import of_unit_norm
from fedpriv.certification.marks import Sum
from fedpriv.certification.trace import Stage
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.mechanisms.correlated import (
    Participation,
    adder_of,
    is_correlated,
    run_sensitivity,
    whole_run,
)
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism
from fedpriv.mechanisms.noise_matrices import Factorization, identity
from fedpriv.privacy import VIEWS, Everyone, Release
from fedpriv.privacy.release import Unit
from fedpriv.privacy.sampling import ParticipationSchema, Sampling

ADDED_BY_SERVER = (
    "the server adds the noise, as clients cannot add shares of noise that takes back that of earlier rounds; see "
    "`enclave` of fp.correlated"
)


def correlated_sums(stages: Sequence[Stage]) -> tuple[Sum, ...]:
    """Correlated sums of the first stage, in the order of the cohort's calls; of no other, see `check_correlated`."""
    sums = stages[0].sums if stages else ()
    return tuple(each for each in sums if _is_correlated(each))


def check_correlated(stages: Sequence[Stage]) -> None:
    """Raises ValueError: noise is correlated over rounds that are not alike."""
    sums = [each for stage in stages for each in stage.sums if _is_correlated(each)]
    if not sums:
        return
    if len(stages) > 1:
        raise ValueError(
            f"sampler: an fp.Opening, but noise is correlated over all rounds ({sums[0].line}); draw all cohorts the "
            "same way"
        )


def factorizations(sums: Sequence[Sum]) -> tuple[Factorization, ...]:
    """The factorizations of the correlated noise of each sum, or of its parts."""
    return tuple(f for each in sums for f in _factorizations(each.step.mechanism))


def check_rounds(sums: Sequence[Sum], rounds: int) -> None:
    """Raises ValueError: the matrix of correlated noise is for fewer rounds than the run has."""
    for each in sums:
        for factorization in _factorizations(each.step.mechanism):
            if factorization.rounds is not None and rounds > factorization.rounds:
                raise ValueError(
                    f"rounds: {rounds}; the matrix of correlated noise ({each.line}) is for at most "
                    f"{factorization.rounds}; make it for all of them before the run begins"
                )


def run_releases(
    stage: Stage, sampler: Any, unit: Unit, rounds: int, kind: UnitKind = ANY
) -> tuple[Release, ...]:
    """What each view sees of a unit of this kind in so many rounds, whose noise is correlated.

    A third party sees the noisy sums; of cyclic Poisson cohorts it does not know who joined. Of random allocation it is
    taken to know the rounds of each client, as no amplification is known. A server adds the noise
    and so sees the bare sums; where an enclave does, a server with secure aggregation knows who takes part.

    Formal guarantees: see `fp.correlated`. For cyclic Poisson cohorts C has no more bands than there are groups, so
    that the columns of a client's turns have no row in common: each turn is a release of its own, of sensitivity
    max_t ||C e_t||, amplified by its draw (Choquette-Choo et al. 2023, Theorem 4).

    Raises:
      ValueError: a sampler whose cohorts are not bound to a schedule; private means of records beside the sums; more
        bands than groups; more rounds than a matrix is for.
    """
    sums = [each for each in stage.sums if each.step.mechanism is not ALREADY_PRIVATE]
    schema = _schema(sampler.accounting.of_group(kind.group), sums[0].line)
    weight = sampler.accounting.weight_of(kind.group)
    if stage.means:
        raise ValueError(
            f"round: it protects clients ({sums[0].line}) and their records ({stage.means[0].line}); protect one unit"
        )
    if rounds == 0:
        return tuple(
            Release(view, unit, math.inf, Everyone(schema.population), 0) for view in VIEWS
        )
    known = Release(
        "third_party",
        unit,
        _multiplier(sums, rounds, _participation(schema, rounds)) / weight,
        Everyone(schema.population),
        1,
        adder="server",
        schedule=_words(sums, schema, rounds),
        mechanism=_for_audits(sums, schema, rounds),
        reason="; ".join(
            dict.fromkeys(why for each in sums for why in _uncounted(each.step.mechanism))
        ),
    )
    bare = replace(known, multiplier=0.0, reason=ADDED_BY_SERVER)
    by_enclave = all(_is_hidden(each.step.mechanism) for each in sums)
    behind = replace(known, adder="enclave") if by_enclave else bare
    third_party = known
    if schema.most_bands is not None:
        third_party = _amplified(known, sums, schema, stage.remembers, rounds, weight)
    return (
        third_party,
        replace(bare, view="server"),
        replace(behind, view="server_secagg"),
    )


def _amplified(
    known: Release,
    sums: Sequence[Sum],
    schema: ParticipationSchema,
    remembers: bool,
    rounds: int,
    weight: float,
) -> Release:
    most = schema.most_bands
    for each in sums:
        for factorization in _factorizations(each.step.mechanism):
            bands = factorization.bands
            if bands is None or most is None or bands > most:
                raise ValueError(
                    f"factorization: {factorization!r} has {bands or 'no'} bands, but a client's turn comes every "
                    f"{most} rounds ({each.line}); give at most so many bands, or fp.shuffled_blocks"
                )
    drawn: Sampling | None = schema.of_a_round
    if remembers:
        drawn = schema.of_a_round.remembered()
    if drawn is None:
        return known
    once = _multiplier(sums, rounds, Participation(rounds, 1)) / weight
    turns = schema.rounds_of_a_unit(rounds)
    used: Any = sums[0].step.mechanism
    plain = used.correlation.mechanism if known.mechanism else None
    return replace(known, multiplier=once, sampling=drawn, rounds=turns, mechanism=plain)


def _for_audits(sums: Sequence[Sum], schema: ParticipationSchema, rounds: int) -> Mechanism | None:
    """The mechanism of the whole run, where there is but one."""
    used: Any = sums[0].step.mechanism
    if len(sums) > 1 or used.parts or used.correlation.mechanism.worst_case is None:
        return None
    return whole_run(of_unit_norm(used), rounds, _participation(schema, rounds))


def _is_correlated(release: Sum) -> bool:
    used = release.step.mechanism
    return type(used) is Mechanism and is_correlated(used)


def _schema(drawn: Any, line: str) -> ParticipationSchema:
    schedule: ParticipationSchema | None = drawn.as_schedule()
    if schedule is None:
        raise ValueError(
            f"sampler: {drawn} may draw a client in any rounds, but noise is correlated over rounds ({line}); give a "
            "sampler with a schedule, such as fp.shuffled_blocks(clients, size)"
        )
    return schedule


def _participation(schema: ParticipationSchema, rounds: int) -> Participation:
    """Which rounds a unit may be in, for those who know them."""
    block = schema.block_rounds
    most = schema.participations if block is None else schema.rounds_of_a_unit(rounds)
    return Participation(schema.separation, most, block)


def _multiplier(sums: Sequence[Sum], rounds: int, participation: Participation) -> float:
    """Of all sums of a run together, for a client with such rounds."""
    squared = 0.0
    for each in sums:
        try:
            squared += each.times * _squared(each.step.mechanism, rounds, participation)
        except jax.errors.ConcretizationTypeError:
            raise ValueError(
                f"mechanism: its multiplier is computed in the round ({each.line}), so nothing can be certified; "
                "give a number"
            ) from None
    return squared**-0.5


def _squared(used: Any, rounds: int, participation: Participation) -> float:
    """How far a client moves the sums of a run at most, in deviations of their noise, squared."""
    if type(used) is Mechanism and used.parts:
        return sum(_squared(part, rounds, participation) for part in used.parts)
    factorization, multiplier = identity(), 0.0
    if type(used) is Mechanism and used.noise == "gaussian":
        factorization, multiplier = _factorization(used), _plain_multiplier(used)
    if not multiplier > 0:
        return math.inf
    return (run_sensitivity(factorization, rounds, participation) / multiplier) ** 2


def _uncounted(used: Any) -> list[str]:
    """Why it has no Gaussian noise that could be counted together with that of a whole run."""
    if type(used) is not Mechanism:
        return [
            "noise that changes over the rounds is not counted beside noise correlated over them"
        ]
    if used.parts:
        return [why for part in used.parts for why in _uncounted(part)]
    if used.noise != "gaussian":
        return [f"{used.noise} noise is not counted beside noise that is correlated over rounds"]
    return [used.reason] if used.reason and used.correlation is None else []


def _factorization(used: Mechanism) -> Factorization:
    return identity() if used.correlation is None else used.correlation.factorization


def _plain_multiplier(used: Mechanism) -> float:
    plain = used if used.correlation is None else used.correlation.mechanism
    return float(plain.certified_multiplier)


def _factorizations(used: Any) -> list[Factorization]:
    if type(used) is Mechanism and used.parts:
        return [each for part in used.parts for each in _factorizations(part)]
    return [_factorization(used)] if type(used) is Mechanism else []


def _is_hidden(used: Any) -> bool:
    """Whether an enclave can add its noise: the correlated by its word, and so the fresh beside it."""
    return type(used) is Mechanism and (not is_correlated(used) or adder_of(used) == "enclave")


def _words(sums: Sequence[Sum], schema: ParticipationSchema, rounds: int) -> str:
    """The rounds of a client, and the noise."""
    each = dict.fromkeys(repr(f) for one in sums for f in _factorizations(one.step.mechanism))
    return f"{schema.in_words(rounds)}, noise by {' and '.join(each)}"
