"""What each view sees of a run whose noise is correlated over its rounds: one release of the whole run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from fedpriv.certification.stages import Stage
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.certification.views import of_unit_norm
from fedpriv.mechanisms.correlated import (
    Participation,
    adder_of,
    is_correlated,
    run_sensitivity,
    whole_run,
)
from fedpriv.mechanisms.described import worst_case_of
from fedpriv.mechanisms.noise_matrices import identity
from fedpriv.mechanisms.noise_matrices.factorization import Factorization
from fedpriv.privacy import VIEWS
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling import Accounting, Everyone, MinimumSeparation, Turns, Who, Why
from fedpriv.proof.bound import Mechanism
from fedpriv.proof.cases import Noisy
from fedpriv.proof.drawn import NOT_EMPTIED
from fedpriv.proof.marks import Sum
from fedpriv.proof.seen import ClippedUnit
from fedpriv.rounds.scheduled_samplers import AnySampler

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


def run_rows(
    stage: Stage, sampler: AnySampler, unit: ClippedUnit, rounds: int, kind: UnitKind = ANY
) -> list[Row]:
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
    sums = [each for each in stage.sums if not each.step.passes_on]
    own, weight = sampler.accounting.of_group(kind.group)
    turns, population = _turns(own, sums[0].line), own.population
    if stage.means:
        raise ValueError(
            f"round: it protects clients ({sums[0].line}) and their records ({stage.means[0].line}); protect one unit"
        )
    if rounds == 0:
        drawn = Drawn(Everyone(population))
        nothing = Row("third_party", unit, Noisy("gaussian", 0.0), "server", drawn, Repeated(0))
        return [replace(nothing, view=view) for view in VIEWS]
    multiplier = _multiplier(sums, rounds, _participation(turns, rounds)) / weight
    why = dict.fromkeys(why for each in sums for why in _uncounted(each.step.mechanism))
    known = Row(
        "third_party",
        unit,
        Noisy("gaussian", 1 / multiplier if multiplier > 0 else math.inf),
        "server",
        Drawn(Everyone(population), closed=(("emptied", NOT_EMPTIED),)),
        Repeated(1, schedule=_words(sums, turns, rounds)),
        reason="; ".join(why),
        used=_for_audits(sums, turns, rounds),
        releases=tuple(sums),
    )
    bare = replace(known, noisy=Noisy("gaussian", math.inf), reason=ADDED_BY_SERVER)
    by_enclave = all(_is_hidden(each.step.mechanism) for each in sums)
    behind = replace(known, adder="enclave") if by_enclave else bare
    third_party = known
    if turns.bands is not None:
        third_party = _amplified(known, sums, own, stage.remembers, rounds, weight)
    return [third_party, replace(bare, view="server"), replace(behind, view="server_secagg")]


def _amplified(
    known: Row,
    sums: Sequence[Sum],
    own: Accounting,
    remembers: bool,
    rounds: int,
    weight: float,
) -> Row:
    turns: Any = own.turns
    for each in sums:
        for factorization in _factorizations(each.step.mechanism):
            bands = factorization.bands
            if bands is None or bands > turns.bands:
                raise ValueError(
                    f"factorization: {factorization!r} has {bands or 'no'} bands, but a client's turn comes every "
                    f"{turns.bands} rounds ({each.line}); give at most so many bands, or fp.shuffled_blocks"
                )
    drawn = known.drawn._replace(by=own.of_a_round, who=Who(remembers=remembers))
    if isinstance(drawn.by.cases("removed", drawn.who), Why):
        return known
    once = _multiplier(sums, rounds, Participation(rounds, 1)) / weight
    used: Any = sums[0].step.mechanism
    plain = used.correlation.mechanism if known.used else None
    noisy = Noisy("gaussian", 1 / once if once > 0 else math.inf)
    repeated = known.repeated._replace(rounds=turns.of(rounds))
    return replace(known, noisy=noisy, drawn=drawn, repeated=repeated, used=plain)


def _for_audits(sums: Sequence[Sum], turns: Turns, rounds: int) -> Mechanism | None:
    """The mechanism of the whole run, where there is but one."""
    used: Any = sums[0].step.mechanism
    if len(sums) > 1 or used.parts or worst_case_of(used.correlation.mechanism) is None:
        return None
    return whole_run(of_unit_norm(used), rounds, _participation(turns, rounds))


def _is_correlated(release: Sum) -> bool:
    used = release.step.mechanism
    return type(used) is Mechanism and is_correlated(used)


def _turns(drawn: Accounting, line: str) -> Turns:
    """Which rounds are a client's, also where all are everybody's."""
    if drawn.turns is not None:
        return drawn.turns
    if drawn.of_a_round.everyone and not drawn.secret:
        return MinimumSeparation(drawn.population, drawn.population, 1).turns
    raise ValueError(
        f"sampler: {drawn} may draw a client in any rounds, but noise is correlated over rounds ({line}); give a "
        "sampler with a schedule, such as fp.shuffled_blocks(clients, size)"
    )


def _participation(turns: Turns, rounds: int) -> Participation:
    """Which rounds a unit may be in, for those who know them."""
    most = turns.most if turns.block is None else turns.of(rounds)
    return Participation(turns.apart, most, turns.block)


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


def _words(sums: Sequence[Sum], turns: Turns, rounds: int) -> str:
    """The rounds of a client, and the noise."""
    each = dict.fromkeys(repr(f) for one in sums for f in _factorizations(one.step.mechanism))
    return f"{turns.in_words(rounds)}, noise by {' and '.join(each)}"
