"""How late answers are: laws of delays, in server steps, for `fp.buffered`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import CountOrZero, Fraction, NonNegative, checked, require
from fedpriv.core.types import Key

__all__ = ["DelayLaw", "by_class", "constant", "geometric"]

_ALL = 2**31  # numbers that 31 random bits can be
_ROUNDING = 1e-6


@dataclass(frozen=True)
class DelayLaw:
    """How many server steps ago a client was given the model that it answers for; drawn without looking at data.

    Probabilities are rounded to multiples of 2^-31.

    Attributes:
      chances: of the delays 0, 1, .., for each speed class of clients.
      classes: [clients], the class of each client by its place in `chances`; None: all are of the first. They are
        public, as the delays are.

    Raises:
      ValueError: chances that do not add up to 1, or a class without chances.
    """

    chances: Sequence[Sequence[Fraction]]
    classes: Sequence[CountOrZero] | None = None

    def __post_init__(self) -> None:
        rows = tuple(checked("chances", row, Sequence[Fraction]) for row in self.chances)
        object.__setattr__(self, "chances", rows)
        require(len(rows) > 0, "chances", rows, "give those of at least one class")
        for row in rows:
            add_up = abs(math.fsum(row) - 1) < _ROUNDING
            require(add_up, "chances", math.fsum(row), "give chances that add up to 1")
        if self.classes is None:
            return
        classes = checked("classes", self.classes, Sequence[CountOrZero])
        object.__setattr__(self, "classes", classes)
        require(len(classes) > 0, "classes", classes, "give the class of each client")
        remedy = f"there are chances of {len(rows)} classes, from 0 on"
        require(max(classes) < len(rows), "classes", max(classes), remedy)

    @property
    def least(self) -> tuple[int, ...]:
        """The smallest delay of each class that occurs."""
        return tuple(min(delays) for delays in self._possible())

    @property
    def latest(self) -> tuple[int, ...]:
        """The largest delay of each class that occurs."""
        return tuple(max(delays) for delays in self._possible())

    @property
    def most_late(self) -> int:
        """The largest delay."""
        return max(self.latest)

    @property
    def possible(self) -> frozenset[int]:
        """The delays that occur."""
        return frozenset(delay for delays in self._possible() for delay in delays)

    @property
    def sizes(self) -> tuple[float, ...]:
        """Clients of each class that occurs; infinity where all are of one."""
        if self.classes is None:
            return (math.inf,)
        return tuple(np.unique(self.classes, return_counts=True)[1].tolist())

    def draw(self, key: Key, ids: jax.Array) -> jax.Array:
        """i32[slots], the delays of clients with these ids, each on its own; any number in an empty slot."""
        reached = jnp.asarray(self._reached())
        table = reached[:1] if self.classes is None else reached[self._class_of(ids)]
        bits = jax.random.bits(key, ids.shape, jnp.uint32) >> 1
        return jnp.sum(bits[:, None] >= table, -1, dtype=jnp.int32)

    def _class_of(self, ids: jax.Array) -> jax.Array:
        return jnp.asarray(self.classes, jnp.int32).at[ids].get(mode="clip")

    def _reached(self) -> np.ndarray:
        """u32[classes, longest - 1]: below how many of 2^31 random numbers the delay is at most 0, 1, .."""
        longest = max(map(len, self.chances))
        padded = [[*row, *[0.0] * (longest - len(row))] for row in self.chances]
        below = np.cumsum(np.array(padded, np.float64), -1)
        return np.minimum(np.round(below / below[:, -1:] * _ALL), _ALL)[:, :-1].astype(np.uint32)

    def _possible(self) -> list[list[int]]:
        """The delays of each class that occurs."""
        used = [0] if self.classes is None else sorted(set(self.classes))
        ends = np.pad(self._reached().astype(np.int64), ((0, 0), (1, 1)))
        ends[:, -1] = _ALL
        return [np.flatnonzero(np.diff(ends[row])).tolist() for row in used]


def constant(steps: CountOrZero) -> DelayLaw:
    """Every answer comes so many server steps after the client was given its model; 0: in the same step.

    Raises:
      ValueError: steps below 0.
    """
    steps = checked("steps", steps, CountOrZero)
    return DelayLaw(((*[0.0] * steps, 1.0),))


def geometric(mean: NonNegative, most_late: CountOrZero) -> DelayLaw:
    """P[delay = d] is proportional to (mean / (1 + mean))^d, for d = 0, .., `most_late`.

    Args:
      mean: of the law before it is cut.
      most_late: the largest delay; longer ones are left out, and the others are as likely relative to one another.

    Raises:
      ValueError: a mean or largest delay below 0.
    """
    mean = checked("mean", mean, NonNegative)
    most_late = checked("most_late", most_late, CountOrZero)
    law = (mean / (1 + mean)) ** np.arange(most_late + 1.0)
    return DelayLaw(((law / law.sum()).tolist(),))


def by_class(classes: Sequence[Hashable], laws: Mapping[Hashable, DelayLaw]) -> DelayLaw:
    """Each client has the delays of its speed class, such as its kind of device, which is public.

    Args:
      classes: [clients], a label for each.
      laws: of each label.

    Raises:
      ValueError: no clients, a label without a law, or a law that has classes itself.
    """
    labels = np.asarray(classes).tolist()
    named = isinstance(labels, list) and len(labels) > 0
    require(named, "classes", classes, "give a label for each client")
    known = isinstance(laws, Mapping)
    require(known, "laws", laws, "give a dict, {label: fp.delays.constant(2)}")
    for label in dict.fromkeys(labels):
        law = laws.get(label)
        plain = isinstance(law, DelayLaw) and law.classes is None
        remedy = f"give the label {label!r} a law, such as fp.delays.constant(2)"
        require(plain, "laws", law, remedy)
    names = list(dict.fromkeys(labels))
    numbers = tuple(names.index(label) for label in labels)
    return DelayLaw([laws[name].chances[0] for name in names], numbers)
