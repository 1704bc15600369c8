"""What is asked of each accountant, where some noise is of integers: as real noise where that is proved, or its law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedpriv.pairs.blocks import Block
from fedpriv.pairs.end_of_run import Best, Slack
from fedpriv.pairs.integer_noise import DRAWN_APART, FARTHEST, IntegerNoise
from fedpriv.pairs.pieces import together
from fedpriv.pairs.search import SET_ASIDE
from fedpriv.pairs.several import moved
from fedpriv.proof.pairs import SEEN, All, AnyPair, Moved, Pair, Times, Told, fold, leaves_of, told

_GROUPS = 16  # of numbers of shares that are left


def bounds_of(settings: Sequence[Pair], mean: float, delta: float) -> dict[str, AnyPair]:
    """Accountant -> the pair that it is asked of: one for both, but of integer noise.

    Args:
        settings: what is seen of a run of each setting.
        mean: number of runs of which the best is released, see `Best`; 1 of a single run.
        delta: of which a part is set aside for integer noise.
    """
    if not any(map(_of_integers, settings)):
        return dict.fromkeys(("PLD", "RDP"), _whole(settings, mean))
    found: dict[str, AnyPair] = {}
    off = DRAWN_APART * mean * max(map(_numbers_drawn, settings))
    real = _as_real(settings[0], 1) if mean == 1 and len(settings) == 1 else None
    if real is not None and real[1] <= FARTHEST:
        found["PLD"] = Slack(together([real[0]]), real[1], off)
    sums = max(map(_sums, settings))
    seldom = SET_ASIDE / 2 * delta / sums / mean if sums else 0.0
    coarse = [_with_fewer_cases(pair, seldom) for pair in settings]
    found["RDP"] = Slack(_whole(coarse, mean), 0.0, off)
    return found


def _whole(settings: Sequence[Pair], mean: float) -> Pair | Best:
    single = mean == 1 and len(settings) == 1
    return settings[0] if single else Best(tuple(settings), mean)


def _noise_of(draw: Pair) -> IntegerNoise | None:
    noise = draw.noise if isinstance(draw, Moved | Block) else None
    return noise if isinstance(noise, IntegerNoise) else None


def _of_integers(pair: Pair) -> bool:
    return any(_noise_of(draw) is not None for draw in leaves_of(pair))


def _most(pair: Pair, numbers: dict[Pair, int]) -> int:
    """Of such numbers of draws, at most, in all cases."""
    return fold(
        pair,
        lambda draw: numbers.get(draw, 0),
        lambda cases: max(most for _, most in cases),
        lambda once, n: once * n,
        sum,
    )


def _sums(pair: Pair) -> int:
    return _most(pair, {draw: 1 for draw in set(leaves_of(pair)) if _noise_of(draw) is not None})


def _numbers_drawn(pair: Pair) -> int:
    """Of a sum some of whose shares are lost, one for each binary digit of how many there are.

    Neighbouring numbers of shares are taken together at the fewest, which have a digit less at most.
    """
    known = ((draw, _noise_of(draw)) for draw in set(leaves_of(pair)))
    return _most(
        pair,
        {
            draw: sum(each.dimension * (each.shares.bit_length() + 1) for each in n.sums)
            for draw, n in known
            if n is not None
        },
    )


def _as_real(pair: Pair, times: int) -> tuple[Pair, float] | None:
    """(Real Gaussian noise that hides no more, how far apart the integers are from a function of it, in nats).

    See `IntegerNoise.gaussian`: with noise that is (epsilon, delta)-private, integers are (epsilon + 2 apart, e^apart
    delta)-private. None where nothing is proved of some noise.

    Args:
        times: how often the pair is released.
    """
    if isinstance(pair, Times):
        once = _as_real(pair.of, times * pair.n)
        return None if once is None else (Times(once[0], pair.n), once[1])
    if isinstance(pair, Told | All):
        parts = [case for _, case in pair.cases] if isinstance(pair, Told) else pair.of
        each = [_as_real(part, times) for part in parts]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        real, apart = zip(*known, strict=True) if known else ((), ())
        if isinstance(pair, All):
            return All(real), math.fsum(apart)
        cases = zip((chance for chance, _ in pair.cases), real, strict=True)
        return Told(tuple(cases), pair.made_by), max(apart)
    noise = _noise_of(pair)
    if noise is None:
        return pair, 0.0
    found = noise.gaussian(times)
    if found is None:
        return None
    multiplier, off = found
    if isinstance(pair, Block):
        of_block = tuple((chance, d / multiplier, seen) for chance, d, seen in pair.cases)
        return replace(pair, noise="gaussian", cases=of_block), off
    assert isinstance(pair, Moved)
    law = [(d / multiplier, p) for d, p in pair.law]
    return moved("gaussian", law, pair.replaced, pair.subset), off


def _with_fewer_cases(pair: Pair, seldom: float) -> Pair:
    """Cases of how many shares are left, of which neighbouring ones are taken together, at the fewest of them.

    Where not so few as `seldom` are left, they count as seen.
    """

    def mixed(cases: list[tuple[float, Pair]]) -> Pair:
        return told(_fewer(cases, seldom))

    return fold(pair, lambda draw: draw, mixed, Times, lambda each: All(tuple(each)))


def _fewer(cases: list[tuple[float, Pair]], seldom: float) -> list[tuple[float, Pair]]:
    of_shares = [(p, c) for p, c in cases if isinstance(c, Moved) and _is_of_shares(c)]
    alike = {_without_shares(case) for _, case in of_shares}
    if len(of_shares) < 2 or len(alike) > 1:
        return cases
    seen = [p for p, c in cases if isinstance(c, Moved) and math.isinf(c.law[-1][0])]
    shown: list[tuple[float, Pair]] = [(p, c) for p, c in cases if not isinstance(c, Moved)]
    rising = sorted(of_shares, key=lambda one: _shares(one[1]))
    lost = math.fsum(seen)
    while rising and lost + rising[0][0] <= seldom:
        lost += rising.pop(0)[0]
    groups = min(len(rising), _GROUPS)
    for numbers in np.array_split(np.arange(len(rising)), groups) if groups else ():
        group = [rising[i] for i in numbers]
        shown.append((math.fsum(p for p, _ in group), _least([case for _, case in group])))
    return [*shown, (lost, SEEN)] if lost else shown


def _is_of_shares(draw: Moved) -> bool:
    """Whether it is of integers, and of one distance."""
    return _noise_of(draw) is not None and len(draw.law) == 1 and math.isfinite(draw.law[0][0])


def _shares(draw: Pair) -> int:
    noise = _noise_of(draw)
    assert noise is not None
    return noise.shares


def _without_shares(draw: Moved) -> tuple[IntegerNoise, float]:
    noise = _noise_of(draw)
    assert noise is not None
    return noise.share, draw.law[0][0]


def _least(draws: Sequence[Moved]) -> Moved:
    """With the fewest shares, and the largest rate: divergences fall with the one and rise with the other.

    All are of one kind of neighbour, but that a sure move is the same for any.
    """
    ((far, _),) = draws[0].law
    rate = max(draw.law[0][1] for draw in draws)
    noise = min(draws, key=_shares).noise
    secret = [draw for draw in draws if not draw.is_sure]
    if rate >= 1 or not secret:
        return Moved(noise, ((far, 1.0),))
    subsets = [draw.subset for draw in secret if draw.subset is not None]
    return Moved(noise, ((far, rate),), secret[0].replaced, max(subsets, default=None))
