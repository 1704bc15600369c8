"""What is seen, as somebody's word: rows of the table of views that are declared by hand."""

from __future__ import annotations

import math
from typing import Any, get_args

from fedpriv.core.arguments import Count, CountOrZero, Multiplier, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.pairs.integer_noise import IntegerKind, IntegerNoise
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.noisy_integers import noise_of
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling.kinds_of_units import Who
from fedpriv.privacy.sampling.own import check_draw
from fedpriv.proof.drawn import Drawn as PlainDrawn
from fedpriv.proof.draws import ONE, Sampling, told_law
from fedpriv.proof.row import Row as PlainRow
from fedpriv.proof.row import seen_of
from fedpriv.proof.seen import Adder, NoiseKind, Seen, Unit, View


def declared(
    view: View,
    unit: Unit,
    multiplier: Multiplier,
    sampling: Sampling,
    rounds: CountOrZero,
    *,
    noise: NoiseKind = "gaussian",
    adder: Adder = "shares",
    local_steps: Count = 1,
    participation: Sampling | None = None,
    reason: str = "",
    integers: IntegerNoise | None = None,
    mechanism: Any = None,
    honest: Rate = 1.0,
) -> Seen:
    """What one view sees of one unit in `rounds` rounds, as somebody's word: a Gaussian or Laplace mechanism.

    Each round draws once by `participation`, and once by `sampling` for each of its `local_steps`, all independently.
    If K releases share *one* draw that the view knows, give that draw as `participation`, with
    `sampling=Everyone(...)`. If the view does not know it, they are one release of multiplier (sum_k
    multiplier_k^-2)^-1/2.

    Args:
        view, unit: as of `Seen`.
        multiplier: 1 / whitened sensitivity of zeroing out one unit when it takes part, 1 / sup ||Sigma^-1/2 A u|| (see
            `whitened_multiplier`); for Laplace noise its scale b over the l1 sensitivity; 0 if nothing hides the unit,
            infinity if the view does not see it. It is that of a unit drawn once: one drawn n times counts n times.
        sampling: how the units of a round, or the records of a local step, are drawn.
        rounds: number of rounds.
        noise: its kind.
        adder: who adds the noise that is counted; see `Adder`.
        local_steps: number of releases in a round, such as a client's K local steps, each with its own draw.
        participation: how a round's clients are drawn, once for all its local steps; the view is taken to know who
            takes part. A client drawn several times takes part once. None: there is only `sampling`.
        reason: why `multiplier` is 0, in words.
        integers: of integer noise, what its law is and how far a unit moves the sum; None of real noise.
        mechanism: the `fp.Mechanism` that bounds a contribution and perturbs the sum, for audits.
        honest: the fraction of shares of the noise that is added and stays unknown to the view.

    Raises:
        ValueError: for an unknown view, unit, noise or adder, a negative multiplier, a negative number of steps, or
            noise that a server adds and that is to hide something from it, or that of a sum from who sees messages.
    """
    view, unit = checked("view", view, View), checked("unit", unit, Unit)
    multiplier = checked("multiplier", multiplier, Multiplier)
    noise, adder = checked("noise", noise, NoiseKind), checked("adder", adder, Adder)
    rounds, steps = (
        checked("rounds", rounds, CountOrZero),
        checked("local_steps", local_steps, Count),
    )
    honest = checked("honest", honest, Rate)
    for name, each in (("sampling", sampling), ("participation", participation)):
        if each is not None or name == "sampling":
            check_draw(name, each)
    _check_adder(view, adder, multiplier)
    _check_integers(noise, multiplier, integers)
    few = rounds * steps <= 2**53
    require(few, "local_steps", local_steps, "give at most 2^53 steps in all rounds")
    far = math.inf if multiplier == 0 else 1 / multiplier
    noisy = noise_of(noise, far, integers)
    of_records, is_plain = unit == "record", steps == 1 and participation is None
    if is_plain and mechanism is None and is_plain_row(view, unit, adder, sampling):
        plain = PlainDrawn(sampling, known=view != "third_party")
        return seen_of(PlainRow(view, unit, noisy, adder, plain, rounds, reason), honest)
    who = Who(lost=sampling.lossy)
    drawn = Drawn(sampling, who, known=view != "third_party" and not of_records)
    if participation is not None and participation.lossy:
        remedy = "members that vanish set the noise of all steps; give Everyone as `sampling`"
        require(sampling.everyone, "participation", participation, remedy)
        ((often, _),) = told_law(sampling, ONE)
        noisy = noisy.moved(often)
        drawn = Drawn(participation, Who(lost=True), known=True, shared=steps)
        participation, steps = None, 1
    repeated = Repeated(rounds, steps, participation)
    row = Row(view, unit, noisy, adder, drawn, repeated, of_records, reason, mechanism)
    return seen_of(row, honest)


def is_plain_row(view: View, unit: Unit, adder: Adder, sampling: Sampling) -> bool:
    """Whether a row of the table of views with such draws, in one step of a round, is a plain one."""
    shared = adder == "shares" or (adder == "own" and view == "server")
    return unit == "client" and shared and are_plain(sampling)


def are_plain(drawn: Any) -> bool:
    """Whether such draws go with plain rows: of single units that stay, once in each round, count equally."""
    if not isinstance(drawn, Sampling) or drawn.group_names or drawn.turns is not None:
        return False
    stay = drawn.vanish == 0 and not drawn.lossy
    return drawn.repeats == 1 and stay and drawn.block is None


def _check_adder(view: View, adder: Adder, multiplier: float) -> None:
    seen = adder == "server" and view != "third_party" and multiplier > 0
    remedy = 'a server sees the sum before it adds the noise; give "enclave", or a multiplier of 0'
    require(not seen, "adder", adder, remedy)
    seen = adder in ("enclave", "own_summed") and view == "server" and multiplier > 0
    remedy = 'it sees every message, not only the sum with this noise; give "server_secagg", or noise of a message'
    require(not seen, "view", view, remedy)


def _check_integers(noise: NoiseKind, multiplier: float, integers: Any) -> None:
    of_integers = noise in get_args(IntegerKind) and 0 < multiplier < math.inf
    kind = integers and integers.kind
    remedy = "give it for a discrete Gaussian or Skellam noise, of that kind, and for no other"
    require(kind == (noise if of_integers else None), "integers", integers, remedy)
    if integers is not None:
        alike = math.isclose(multiplier, integers.multiplier, rel_tol=1e-6)
        remedy = f"give that of `integers`, {integers.multiplier:.7g}"
        require(alike, "multiplier", multiplier, remedy)
