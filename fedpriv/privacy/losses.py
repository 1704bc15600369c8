"""Composition by privacy loss distributions (PLD)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedpriv.privacy import curves
from fedpriv.privacy import mixture_curves as mixtures
from fedpriv.privacy.curves import Floats
from fedpriv.privacy.discretised import Losses, connect_the_dots
from fedpriv.privacy.large_losses import Rounds
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release
from fedpriv.privacy.sampling import Sampling
from fedpriv.privacy.tilted import Composed, Priced

_CELLS, _COMPOSED_CELLS = 5e4, 1e6  # aimed at for the losses of one round, and of all rounds
_FINEST = 1e-4  # nats; dp-accounting's own default
COARSEST = 64.0  # where e^width is safe
_FAR = 14.0  # deviations of Gaussian noise beyond which a loss counts as infinite: less than 1e-44
_WASTED = 1e-3  # of epsilon, that cells or rounding may cost before a narrower grid is tried
_LEAST = 1e-6  # nats; a smaller epsilon is taken for this one there
_STEPS = 50  # of a cell up to epsilon, at least
_BEYOND = 1e-6  # of delta, that losses have that count as infinite on a narrower grid
_LEAST_BEYOND = 1e-16  # they have no more, where smaller deltas may be asked for, too
_RARE = 1e-3, _BEYOND  # of delta, the same where none is; the first leaves more room
_MOST_ONCE, _MOST_COMPOSED = 2**17, 2**21  # cells of a narrower grid
_MOST_HALVINGS = 6  # at once, as epsilon falls with them


def pld_epsilon(releases: Sequence[Release], relation: str, delta: float) -> float:
    """Smallest epsilon that the composed privacy loss distribution certifies; infinity where there is none.

    Formal guarantees: an upper bound. Add-or-remove: the tight pair of Zhu, Dong and Wang 2022 for Poisson cohorts,
    `curves.remove_delta` and `curves.add_delta`, and `Sampling.losses` of blocks. Replace-one:
    `curves.replace_delta`. Both in each of the sampling's cases, see `Sampling.cases`. Zero-out: `curves.shown_delta`,
    where noise is lost in each case.

    Args:
        releases: positive, finite multipliers, at least one step.
        relation: "add_or_remove", "replace_one" or "zero_out".
        delta: probability, in (0, 1).
    """
    releases = tuple(releases)
    grids = on_grids(releases, relation, delta)
    if not grids:
        return math.inf
    # Losses far rarer than delta may have taken the room of narrower cells.
    last = grids[-1]
    for part in _RARE if last.too_wide > 1 else ():
        rare = _share(releases, part * delta)
        more = _narrowing(releases, relation, delta, last.interval, rare, rare)
        grids += more
        infinity = max(composed.infinity for composed in more[-1].directions)
        if more[-1].too_wide <= 1 and infinity <= _BEYOND * delta:
            break
    return min(grid.epsilon for grid in grids)


class Grid(NamedTuple):
    """For PLD: losses of all rounds on cells of one width.

    Attributes:
        epsilon: at the delta it was made for.
        directions: as `compose` gives them.
        interval: width of a cell, in nats.
        too_wide: how many times as wide as they may be the cells are, at that delta; 1 or less where that costs little.
    """

    epsilon: float
    directions: tuple[Composed, ...]
    interval: float
    too_wide: float


@lru_cache(maxsize=4)
def on_grids(releases: tuple[Release, ...], relation: str, delta: float) -> tuple[Grid, ...]:
    """The grid of `cell_width`, and narrower ones until no more than `_WASTED` of epsilon is given away.

    The last gives away more only where its cells would be too many. None where losses are too large for any grid.

    Formal guarantees: every grid's losses dominate those of the rounds, whatever its cells and what of a release counts
    as infinite; so each epsilon is an upper bound.

    Args:
        releases, relation, delta: as `pld_epsilon`.
    """
    rare = _share(releases, min(_BEYOND * delta, _LEAST_BEYOND))
    return _narrowing(releases, relation, delta, cell_width(releases, relation), 0.0, rare)


def _share(releases: Sequence[Release], chance: float) -> float:
    """The part of a chance that falls to one release: a power of two, rounded down."""
    count = sum(r.rounds * r.local_steps for r in releases)
    return float(2.0 ** math.floor(math.log2(max(chance / count, 1e-300))))


def _narrowing(
    releases: Sequence[Release],
    relation: str,
    delta: float,
    interval: float,
    beyond: float,
    rare: float,
) -> tuple[Grid, ...]:
    """Grids from cells of `interval` on, see `on_grids`.

    Args:
        releases, relation, delta: as `pld_epsilon`.
        interval, beyond: of the first, as of `compose`.
        rare: `beyond` of the narrower ones.
    """
    grids: list[Grid] = []
    while interval <= COARSEST:
        found = [_priced(c, delta) for c in compose(releases, relation, interval, beyond)]
        worst, _ = max(found, key=lambda one: one[0].epsilon)
        directions = tuple(composed for _, composed in found)
        too_wide = _too_wide(worst, interval)
        grids.append(Grid(worst.epsilon, directions, interval, too_wide))
        if too_wide <= 1:
            break
        # Losses that were rounded to wider cells are rounded less where rare ones are left out, not on narrower cells.
        width = max(c.width for c in directions)
        wanted = math.ceil(math.log2(2 * too_wide / width))
        room = min(
            _MOST_ONCE / max(c.cells_of_one(rare) for c in directions),
            _MOST_COMPOSED / max(worst.cells, 1),
        )
        halvings = max(0, min(wanted, _MOST_HALVINGS, math.floor(math.log2(room))))
        if halvings == 0 and (width == 1 or beyond == rare):
            break
        interval, beyond = interval / 2**halvings, rare
    return tuple(grids)


def _too_wide(found: Priced, interval: float) -> float:
    """How many times as wide as they may be the cells are: 1 or less where that costs little."""
    if found.epsilon == 0 or math.isinf(found.epsilon):
        return 1.0
    epsilon = max(found.epsilon, _LEAST)
    return max(_STEPS * interval, math.sqrt(epsilon * found.to_cells / _WASTED)) / epsilon


def _priced(composed: Composed, delta: float) -> tuple[Priced, Composed]:
    """With large losses told apart where the margin for rounding costs much otherwise."""
    found = composed.priced(delta)
    if found.to_rounding <= _WASTED * max(found.epsilon, _LEAST):
        return found, composed
    apart = composed.with_jumps(delta)
    return min((found, composed), (apart.priced(delta), apart), key=lambda one: one[0].epsilon)


def compose(
    releases: Sequence[Release], relation: str, interval: float, beyond: float = 0.0
) -> list[Composed]:
    """Privacy losses of all rounds: with the unit against without it, and, where that is not the same, without it.

    Args:
        releases, relation: as `pld_epsilon`.
        interval: width of a cell, in nats.
        beyond: the largest losses of a release count as infinite where its delta there is no more than this.
    """
    each = []
    for release in releases:
        multiplier = multiplier_for(release, relation)
        known, drawn, rate = release.participation, release.sampling, 1.0
        if known is not None and known.loses_noise:  # how much noise is left is known, too
            pair = _round(known, release.noise, multiplier, "zero_out", interval, beyond)
        else:
            pair = _round(drawn, release.noise, multiplier, relation, interval, beyond)
            rate = 1.0 if known is None else known.rate
        each.append([Rounds(one, release.local_steps, rate, release.rounds) for one in pair])
    directions = list(zip(*each, strict=True))
    kept = directions if relation == "add_or_remove" else directions[:1]
    return [Composed(rounds, interval) for rounds in kept]


def cell_width(releases: Sequence[Release], relation: str) -> float:
    """Width of a cell in nats: 1e-4, or as many powers of two above as keep the arrays small.

    Wide cells cost tightness, never soundness. Powers of two let calls with different numbers of rounds share the
    cached distribution of a round.
    """
    once = spread = 0.0
    for release in releases:
        multiplier = multiplier_for(release, relation)
        known = release.participation
        drawn = known if known is not None and known.loses_noise else release.sampling
        n, chances = drawn.times_drawn()
        spread += release.rounds * release.local_steps * float(chances @ n**2) / multiplier**2
        once = max(once, _largest_loss(drawn, release.noise, multiplier, 10.0))
    composed = spread / 2 + 10 * math.sqrt(spread)
    width = max(once / _CELLS, composed / _COMPOSED_CELLS) / _FINEST
    return float(_FINEST * 2.0 ** max(0, math.ceil(math.log2(width))))


def _largest_loss(sampling: Sampling, noise: str, multiplier: float, deviations: float) -> float:
    """Nats; of Gaussian noise so many standard deviations away."""
    distances = [case.farthest for case in sampling.cases() if math.isfinite(case.distance)]
    separation = max(sampling.most_often, *distances) / multiplier
    return separation if noise == "laplace" else separation**2 / 2 + deviations * separation


@lru_cache(maxsize=32)
def _round(
    sampling: Sampling,
    noise: str,
    multiplier: float,
    relation: str,
    interval: float,
    beyond: float,
) -> tuple[Losses, Losses]:
    """Losses of one release, in both directions; `multiplier` is relative to `relation`'s distance."""
    if sampling.block_rounds is not None and relation == "add_or_remove":
        return sampling.losses(noise, multiplier, interval, beyond)

    def forward(epsilon: Floats) -> Floats:
        if relation == "zero_out" and sampling.loses_noise:
            return of_cases(_told_delta, epsilon)
        if relation == "zero_out":
            return curves.shown_delta(epsilon, multiplier, sampling.times_drawn(), noise)
        if relation == "replace_one":
            return of_cases(curves.replace_delta, epsilon)
        return of_cases(curves.remove_delta, epsilon)

    def backward(epsilon: Floats) -> Floats:
        return (
            of_cases(curves.add_delta, epsilon) if relation == "add_or_remove" else forward(epsilon)
        )

    def of_cases(curve: Callable[..., Floats], epsilon: Floats) -> Floats:
        total = np.zeros(len(epsilon))
        for case in sampling.cases():
            if case.rate == 0:  # the same for both
                total -= case.chance * np.expm1(np.minimum(epsilon, 0.0))
                continue
            if math.isinf(case.distance):
                total += case.chance * curves.seen_delta(
                    epsilon, case.rate, curve is curves.add_delta
                )
                continue
            if case.times:
                n, chances = np.array(case.times).T
                far = n * (case.distance / multiplier)
                total += case.chance * _OF_SEVERAL[curve](epsilon, far, chances, noise)
                continue
            total += case.chance * curve(epsilon, multiplier / case.distance, case.rate, noise)
        return total

    reach = _largest_loss(sampling, noise, multiplier, _FAR)
    if beyond:
        losses = np.geomspace(min(interval, reach), reach, 512)
        rare = np.maximum(forward(losses), backward(losses)) <= beyond
        reach = float(losses[np.argmax(rare)]) if rare.any() else reach
    last = math.ceil(reach / interval)
    return connect_the_dots(forward, backward, last, interval)


_OF_SEVERAL: dict[Callable[..., Floats], Callable[..., Floats]] = {
    curves.remove_delta: mixtures.several_delta,
    curves.add_delta: mixtures.none_delta,
    curves.replace_delta: mixtures.replaced_delta,
}
"""Curve of one unit -> of several, of a person."""


def _told_delta(epsilon: Floats, multiplier: float, rate: float, noise: str) -> Floats:
    """`curves.shown_delta` of a unit that is drawn once, at `rate`."""
    drawn = np.arange(2.0), np.array([1 - rate, rate])
    return curves.shown_delta(epsilon, multiplier, drawn, noise)
