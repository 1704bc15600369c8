"""Fed-SMP: "Federated Learning with Sparsified Model Perturbation" (Hu, Guo and Gong)."""

from __future__ import annotations

import math

from fedpriv.core.arguments import CountOrZero, Multiplier, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.privacy.certificate import Claim
from fedpriv.privacy.certify import certify_seen
from fedpriv.privacy.claims._renyi import poisson_rdp_epsilon
from fedpriv.privacy.from_rows import declared
from fedpriv.privacy.sampling import Case, Sampling, Who

_SERVER = (
    "The paper also has the server in mind; the server knows who takes part, so sampling hides "
    "nothing from it: see the certificates of the server's views."
)
_FIXED = (
    "Cohorts of fixed size are drawn without replacement, while the formula that gives the printed "
    "number is the one for Poisson cohorts and one client added or removed.",
    "Without replacement another client takes the freed place, so the sum can move by 2 C instead "
    "of C: see the certificate under replace-one, or draw Poisson cohorts, for which it holds.",
)

_REPLACED = (
    "A client that is drawn several times in a round counts as often and moves the sum by more "
    "than C, which the formula does not know; draw Poisson cohorts.",
)


def fed_smp_claim(
    multiplier: Multiplier, sampling: Sampling, rounds: CountOrZero, delta: Probability
) -> Claim:
    """Epsilon of Fed-SMP (and of its baseline DP-FedAvg) as the paper computes it.

    The paper's algorithms draw cohorts of fixed size; its numbers are those of the Rényi analysis
    of the Poisson subsampled Gaussian (Mironov, Talwar and Zhang 2019) at q = r / n, orders 1.1 to
    10.9 by 0.1 and 12 to 63, converted by epsilon = rdp + log(1 / delta) / (order - 1) (Mironov
    2017; the paper's Lemma 1). Theorem 1 of the paper is a looser closed form for the same
    quantity.

    It gives every epsilon that the paper prints, to the last digit: Tables 4 to 7 with q = 100/6000
    rounded to 0.0167 and sigma 1, 1.4, 2 and 2.5; Tables 8 and 9 with q = 1e-8 and sigma 0.8, 1,
    1.2 and 1.4 over sqrt(10). The text prints 0.3 there, seemingly 1 / sqrt(10) = 0.316 rounded.

    Formal guarantees: an upper bound for a third party if cohorts are Poisson or everyone takes
    part; none for cohorts of fixed size. With a capacity the formula ignores the cut; the claim is
    then compared with the certificate.

    Args:
        multiplier: standard deviation of the sum's noise over the clip norm.
        sampling: how cohorts are drawn; its rate is the paper's q.
        rounds: number of rounds T.
        delta: probability, in (0, 1).

    Raises:
        ValueError: for a negative multiplier or number of rounds, or delta outside (0, 1).
    """
    multiplier = checked("multiplier", multiplier, Multiplier)
    require(
        isinstance(sampling, Sampling),
        "sampling",
        sampling,
        "give one such as Poisson(1000, 0.1)",
    )
    rounds = checked("rounds", rounds, CountOrZero)
    delta = checked("delta", delta, Probability)
    epsilon = poisson_rdp_epsilon(multiplier, sampling.inclusion, rounds, delta)
    sound, reasons = _judge(epsilon, multiplier, sampling, rounds, delta)
    return Claim(
        epsilon=epsilon,
        delta=delta,
        unit="client",
        view="third_party",
        relation="add_or_remove",
        source="Fed-SMP (Hu, Guo and Gong), section 6.2: Rényi analysis of the subsampled Gaussian",
        reproduced=True,
        sound=sound,
        reasons=(*reasons, _SERVER),
    )


def _judge(
    epsilon: float, multiplier: float, sampling: Sampling, rounds: int, delta: float
) -> tuple[bool, tuple[str, ...]]:
    """Whether the formula covers this sampling, and why."""
    if math.isinf(epsilon) or epsilon == 0:
        return True, ("Trivially true.",)
    if sampling.neighbour == "replaced":
        return False, _FIXED
    if sampling.neighbour == "zeroed" and not sampling.everyone:
        return False, _REPLACED
    uncut = sampling.most == sampling.population
    plain = (Case(1.0, ((1.0, sampling.inclusion),)),)
    if uncut and sampling.cases("removed", Who()) == plain:
        return True, ("The formula is a proved upper bound for this way of drawing cohorts.",)
    seen = declared("third_party", "client", multiplier, sampling, rounds)
    proved = certify_seen([seen], delta, "third_party").epsilon
    what, remedy = f"of the cut to {sampling.most} clients", ": raise the capacity"
    if uncut:
        what, remedy = "this way of drawing cohorts", ""
    unknown = f"The formula does not know {what};"
    if proved <= epsilon:
        return True, (f"{unknown} the certificate, which does, is below it.",)
    return False, (f"{unknown} the certificate, which does, is above it{remedy}.",)
