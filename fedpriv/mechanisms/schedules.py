"""Mechanisms whose clip norm and noise change over a run, by a schedule that does not look at the data.

J. Du, S. Li, X. Chen, S. Chen, M. Hong, "Dynamic Differential-Privacy Preserving SGD", arXiv:2111.00173.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, CountOrZero, Positive, Range, checked
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.mechanisms.mechanisms import Mechanism, check_scales

MOST_PARTS = 10_000
Parts: TypeAlias = Annotated[
    int,
    Range(
        f"a whole number from 1 to {MOST_PARTS}, as a certificate composes each",
        1,
        MOST_PARTS,
        integer=True,
    ),
]


MECHANISM = "one such as fp.gaussian(clip_norm, noise_multiplier), or fp.unprotected(reason)"


def is_mechanism(value: Any) -> bool:
    """Whether it bounds and perturbs, be it the same in all rounds or not; none of a subclass of ours."""
    known = hasattr(value, "in_round") and not isinstance(value, type)
    return known and (type(value) is Mechanism or not isinstance(value, Mechanism))


def plain(used: Any) -> tuple[Any, ...]:
    """What a certificate rests on of a mechanism, in plain values, which are the same of one that is made anew."""
    multipliers = tuple(
        (rounds, "computed" if isinstance(m, jax.core.Tracer) else float(m))
        for rounds, m in used.multipliers(MOST_PARTS)
    )
    correlation = getattr(used, "correlation", None)
    matrix = correlation and (repr(correlation.factorization), plain(correlation.mechanism))
    joint = getattr(used, "parts", ())
    parts = tuple(map(plain, joint)) if isinstance(joint, tuple) else ()
    proved = constructed(used) if hasattr(used, "seal") else type(used).__name__
    integers = getattr(used, "integers", None)
    return used.noise, used.reason, multipliers, proved, matrix, parts, integers


@checking_fields
class Dynamic(NamedTuple):
    """Clip norm and noise fall geometrically: C_t = C clip_decay^(-t / T), sigma_t = sigma noise_decay^(-t / T).

    They fall in steps: the run has `parts` equal pieces, each with the values at its start. So a certificate composes
    that many mechanisms instead of one per round. Rounds from T on keep the last values.

    Formal guarantees: in each round those of the mechanism at (C_t, sigma_t), see `multipliers`.

    Attributes:
      start: the mechanism at C and sigma.
      rounds: T.
      clip_decay: rho_C, C divided by its value in round T.
      noise_decay: rho_mu, sigma divided by its value in round T (the paper lets mu = 1 / sigma grow).
      parts: number of pieces.
      seal: see `fedpriv.core.provenance`; `dynamic` sets it.
    """

    start: Mechanism
    rounds: Count
    clip_decay: Positive = 1.0
    noise_decay: Positive = 1.0
    parts: Parts = 10
    seal: tuple = ()

    def in_round(self, t: jax.Array | CountOrZero) -> Mechanism:
        """The mechanism at (C_t, sigma_t)."""
        t = checked("t", t, jax.Array | CountOrZero)
        if self.clip_decay == self.noise_decay == 1:
            return self.start  # to the bit: traced, C sigma would round otherwise
        remedy = "it has no Gaussian noise to change; give a mechanism that has"
        require(self.start.at is not None, "start", self.start.noise, remedy)
        done = jnp.searchsorted(jnp.asarray(self.ends), t, side="right") / self.parts
        return self.start.at(  # type: ignore[misc]
            self.start.clip_norm * self.clip_decay**-done,
            self.start.noise_multiplier * self.noise_decay**-done,
        )

    def multipliers(self, rounds: CountOrZero) -> tuple[tuple[int, float], ...]:
        """(number of rounds, multiplier) for each piece that a run of `rounds` rounds reaches."""
        rounds = checked("rounds", rounds, CountOrZero)
        cuts = [min(cut, rounds) for cut in (0, *self.ends.tolist())] + [rounds]
        return tuple(
            (
                end - begin,
                self.start.certified_multiplier * self.noise_decay ** (-piece / self.parts),
            )
            for piece, (begin, end) in enumerate(pairwise(cuts))
            if end > begin or piece == 0
        )

    @property
    def ends(self) -> np.ndarray:
        """i32[parts - 1], the first round of each piece after the first."""
        begin = [-(-piece * self.rounds // self.parts) for piece in range(1, self.parts)]
        return np.array(begin, np.int32)

    @property
    def reason(self) -> str:
        """That of the mechanism at the start."""
        return self.start.reason

    @property
    def noise(self) -> str:
        """That of the mechanism at the start."""
        return self.start.noise


def dynamic(
    start: Mechanism,
    *,
    rounds: Count,
    clip_decay: Positive = 1.0,
    noise_decay: Positive = 1.0,
    parts: Parts = 10,
) -> Dynamic:
    """A `Dynamic` that is checked: its noise can change and stays within float32.

    Raises:
      ValueError: a mechanism whose clip norm and noise cannot be changed or that has no noise, rounds or parts below 1,
        or a decay that is not positive.
    """
    require(isinstance(start, Mechanism), "start", start, "give one such as fp.gaussian(1.0, 1.0)")
    if start.at is None or start.certified_multiplier == 0:
        raise ValueError("start: it has no Gaussian noise to change; give a mechanism that has")
    rounds = checked("rounds", rounds, Count)
    clip_decay = checked("clip_decay", clip_decay, Positive)
    noise_decay = checked("noise_decay", noise_decay, Positive)
    parts = checked("parts", parts, Parts)
    check_scales(
        start.clip_norm / clip_decay,
        start.noise_multiplier / noise_decay,
        f" after clip_decay {clip_decay:g} and noise_decay {noise_decay:g}",
    )
    return sealed(Dynamic(start, rounds, clip_decay, noise_decay, parts))
