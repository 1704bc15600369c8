"""A pair as a privacy loss distribution of dp-accounting: a second opinion, by other people's code."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedpriv.pairs.blocks import Block
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.proof.pairs import All, AnyPair, Moved, Pair, Times, Told


class NotTheirsError(ValueError):
    """Why dp-accounting does not have a pair."""


class Theirs(NamedTuple):
    """dp-accounting's epsilon of a pair, at a delta.

    Attributes:
        optimistic: from losses that are rounded down: what lies below it contradicts dp-accounting.
        pessimistic: from losses that are rounded up.
    """

    optimistic: float
    pessimistic: float


def by_dp_accounting(pair: AnyPair, delta: float, interval: float = 1e-4) -> Theirs:
    """By its privacy loss distributions.

    Args:
        interval: width of its cells, in nats.

    Raises:
        NotTheirsError: it has no such pair.
    """
    if not isinstance(pair, Pair):
        raise NotTheirsError("it has no slack, and no best of runs")
    rounded = (_distribution(pair, interval, pessimistic) for pessimistic in (False, True))
    return Theirs(*(float(one.get_epsilon_for_delta(delta)) for one in rounded))


def _distribution(pair: Pair, interval: float, pessimistic: bool) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    options: Any = {
        "value_discretization_interval": interval,
        "pessimistic_estimate": pessimistic,
        "use_connect_dots": pessimistic,  # which rounds up alone
    }
    if isinstance(pair, Moved):
        return _of_draw(pair, options)
    if isinstance(pair, Times):
        return _distribution(pair.of, interval, pessimistic).self_compose(pair.n)
    if isinstance(pair, All):
        whole = pld.PrivacyLossDistribution.create_from_rounded_probability(
            {0: 1.0}, 0.0, interval, pessimistic_estimate=pessimistic
        )
        for each in pair.of:
            whole = whole.compose(_distribution(each, interval, pessimistic))
        return whole
    if not isinstance(pair, Told):
        blocks = isinstance(pair, Block)
        raise NotTheirsError(f"it has no {'blocks' if blocks else type(pair).__name__}")
    (total, first), *others = pair.cases
    mixed = _distribution(first, interval, pessimistic)
    for chance, case in others:
        total += chance
        mixed = mixed.compute_mixture(
            _distribution(case, interval, pessimistic), (total - chance) / total
        )
    return mixed


def _of_draw(draw: Moved, options: Any) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if draw.replaced and not draw.is_sure:
        raise NotTheirsError("it has no unit that is replaced in a secret draw")
    if not isinstance(draw.noise, str):
        of_integers = isinstance(draw.noise, IntegerNoise)
        raise NotTheirsError(f"it has no such noise{' of integers' if of_integers else ''}")
    far, chances = (list(column) for column in zip(*draw.law, strict=True))
    if far[-1] == float("inf"):
        raise NotTheirsError("it has no unit that is seen")
    rate = min(chances[0], 1.0)
    if draw.noise == "laplace" and len(far) == 1:
        return pld.from_laplace_mechanism(1 / far[0], sampling_prob=rate, **options)
    if draw.noise == "laplace":
        raise NotTheirsError("it has no Laplace noise that several units move")
    if len(far) == 1:
        return pld.from_gaussian_mechanism(1 / far[0], sampling_prob=rate, **options)
    law = [0.0, *far], [max(0.0, 1 - sum(chances)), *chances]
    return pld.from_mixture_gaussian_mechanism(1.0, *law, **options)
