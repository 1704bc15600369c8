"""Mechanisms whose clip norm and noise change over a run, by a schedule that does not look at the data.

J. Du, S. Li, X. Chen, S. Chen, M. Hong, "Dynamic Differential-Privacy Preserving SGD", arXiv:2111.00173.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.argument_kinds import require_kind
from fedpriv.core.provenance import sealed
from fedpriv.mechanisms.mechanisms import Mechanism, check_scales

MOST_PARTS = 10_000


def in_round(mechanism: Any, t: jax.Array | int) -> Any:
    """The mechanism of round t.

    Raises:
      ValueError: it is none.
    """
    such_as = "fp.gaussian(clip_norm, noise_multiplier), or fp.unprotected(reason)"
    fits = hasattr(mechanism, "in_round") and not isinstance(mechanism, type)
    require_kind("mechanism", mechanism, fits, such_as)
    return mechanism.in_round(t)


class Dynamic(NamedTuple):
    """Both fall geometrically over T rounds: C_t = C clip_decay^(-t / T), sigma_t = sigma noise_decay^(-t / T).

    In steps: `parts` equal pieces of the run, each with the values at its start, so that a certificate composes that
    many mechanisms instead of one per round. Rounds from T on keep the last.

    Formal guarantees: in each round those of the mechanism at (C_t, sigma_t), see `stages`.

    Attributes:
      start: the mechanism at C and sigma.
      rounds: T.
      clip_decay: C over what it would be in round T, rho_C.
      noise_decay: sigma over what it would be in round T, rho_mu (the paper lets mu = 1 / sigma grow).
      parts: number of pieces.
      seal: see `fedpriv.core.provenance`; `dynamic` sets it.
    """

    start: Mechanism
    rounds: int
    clip_decay: float = 1.0
    noise_decay: float = 1.0
    parts: int = 10
    seal: tuple = ()

    def in_round(self, t: jax.Array | int) -> Mechanism:
        """The mechanism at (C_t, sigma_t)."""
        if self.clip_decay == self.noise_decay == 1:
            return self.start  # to the bit: traced, C sigma would round otherwise
        done = jnp.searchsorted(jnp.asarray(self.ends), t, side="right") / self.parts
        return self.start.at(  # type: ignore[misc]
            self.start.clip_norm * self.clip_decay**-done,
            self.start.noise_multiplier * self.noise_decay**-done,
        )

    def stages(self, rounds: int) -> tuple[tuple[int, float], ...]:
        """(number of rounds, multiplier) of each piece that a run of `rounds` rounds reaches."""
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
        """i32[parts - 1], the rounds at which all pieces but the first begin."""
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
    rounds: int,
    clip_decay: float = 1.0,
    noise_decay: float = 1.0,
    parts: int = 10,
) -> Dynamic:
    """A `Dynamic` whose arguments are checked.

    Raises:
      ValueError: a mechanism whose clip norm and noise cannot be changed or that has no noise, rounds or parts below 1,
        or a decay that is not positive.
    """
    if start.at is None or start.certified_multiplier == 0:
        raise ValueError("start: it has no Gaussian noise that could change; give one with noise")
    for name, count in (("rounds", rounds), ("parts", parts)):
        if count < 1:
            raise ValueError(f"{name}: {count} is not at least 1")
    if parts > MOST_PARTS:
        raise ValueError(f"parts: {parts} exceeds {MOST_PARTS}; a certificate composes each")
    for name, decay in (("clip_decay", clip_decay), ("noise_decay", noise_decay)):
        if not decay > 0:
            raise ValueError(f"{name}: {decay} is not positive; 1 keeps the value")
    check_scales(
        start.clip_norm / clip_decay,
        start.noise_multiplier / noise_decay,
        f" after clip_decay {clip_decay:g} and noise_decay {noise_decay:g}",
    )
    return sealed(Dynamic(start, rounds, clip_decay, noise_decay, parts))
