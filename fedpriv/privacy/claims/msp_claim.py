"""MSP-FL's and MSPDQ-FL's claims.

Y. Wang, X. Cao, S. Jin, M.-Y. Chow, "A Novel Privacy Enhancement Scheme with Dynamic Quantization for Federated
Learning".
"""

from __future__ import annotations

from fedpriv.core.arguments import Bits, Budget, LargeCount, NonNegative, Positive, checked
from fedpriv.core.complaints import require
from fedpriv.privacy.certificate import Claim

_QUANTIZER = (
    "The statement is for one element of one message; deltas add up over elements, messages and "
    "rounds, to more than 1 for a model, so that it says nothing about a client.",
    "With all 2^B levels in use the second term is 1, and delta = 1 excludes nothing.",
    "The two terms bound two different cases, so the smaller one need not bound both: inputs more "
    "than a step apart share no output.",
    "The bound C4 on the difference of two models is assumed; nothing clips the models.",
)
_LAPLACE = (
    "Nothing clips the local model, so its l1 sensitivity, which scales the noise, is not bounded.",
    "The noise is not kept: the invisible submodels add up to (1 + m) w - a[0], and the consensus "
    "rounds pull the visible submodel towards them, so that with equal weights alpha the second "
    "message shows w - a[0] up to one scalar, alpha (1 + m).",
    "Every round that a client takes part in costs epsilon again; the paper states one.",
    "Epsilon is a setting here, not a number that the paper computes.",
)


def mspdq_claim(
    levels: LargeCount, bits: Bits, interval: Positive, difference: NonNegative
) -> Claim:
    """(0, delta) of MSPDQ-FL's stochastic quantizer, for one element of one message.

    Proposition 4: delta = min(C4 (l - 1) / (pi a_max), (l - 1) / (2^B - 1)), for two models that
    differ by at most C4 in l1 norm. The paper prints no number for it.

    Formal guarantees: none for a client; see the claim's reasons.

    Args:
        levels: l, quantization levels in the interval.
        bits: B, bits per element; 2^B is at least l.
        interval: pi a_max, width of the interval.
        difference: C4, l1 distance of neighbouring models.

    Raises:
        ValueError: for fewer than two levels, more than 2^bits, a width that is not positive, or a
            negative difference.
    """
    levels = checked("levels", levels, LargeCount)
    bits = checked("bits", bits, Bits)
    interval = checked("interval", interval, Positive)
    difference = checked("difference", difference, NonNegative)
    remedy = f"give at least 2, and at most 2^bits = {2**bits}"
    require(2 <= levels <= 2**bits, "levels", levels, remedy)
    delta = min(difference * (levels - 1) / interval, (levels - 1) / (2**bits - 1))
    return _unproved(0.0, delta, "MSPDQ-FL (Wang et al.), Proposition 4", _QUANTIZER)


def msp_laplace_claim(epsilon: Budget) -> Claim:
    """Pure epsilon of MSP + Lap: one initial visible submodel a[0] ~ Laplace(w, Delta_1 / epsilon).

    Proposition 1: drawing it so is the Laplace mechanism on the local model w. Delta is 0.

    Formal guarantees: none; see the claim's reasons.

    Args:
        epsilon: eps_DP, pure epsilon in nats, positive and finite.

    Raises:
        ValueError: for an epsilon that is not positive and finite.
    """
    epsilon = checked("epsilon", epsilon, Budget)
    return _unproved(epsilon, 0.0, "MSP + Lap (Wang et al.), Proposition 1", _LAPLACE)


def _unproved(epsilon: float, delta: float, source: str, reasons: tuple[str, ...]) -> Claim:
    """The server sees the messages; neighbours are any two data sets of one client."""
    return Claim(
        epsilon=epsilon,
        delta=delta,
        unit="client",
        view="server",
        relation="replace_one",
        source=source,
        reproduced=False,
        sound=False,
        reasons=reasons,
    )
