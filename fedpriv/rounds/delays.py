"""How late answers are: laws of delays, in server steps, for `fp.buffered`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import CountOrZero, Fraction, NonNegative, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Key
from fedpriv.rounds.group_names import labels_of, named

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
      names: of the classes; by default their numbers.

    Raises:
      ValueError: chances that do not add up to 1, or a class without chances.
    """

    chances: Sequence[Any]
    classes: Sequence[CountOrZero] | None = None
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        several = isinstance(self.chances, Sequence) and not isinstance(self.chances, str | bytes)
        remedy = "give a list of those of each class, such as [[0.5, 0.5]]"
        require(several and len(self.chances) > 0, "chances", self.chances, remedy)
        each = enumerate(self.chances)
        rows = tuple(checked(f"chances[{c}]", row, Sequence[Fraction]) for c, row in each)
        object.__setattr__(self, "chances", rows)
        listed = isinstance(self.names, Sequence)
        require(listed, "names", self.names, "give the name of each class, in a list")
        names = tuple(self.names) or tuple(map(str, range(len(rows))))
        differ = len(set(names)) == len(names) == len(rows)
        require(differ, "names", names, f"give {len(rows)} that differ")
        object.__setattr__(self, "names", names)
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
    def most_late(self) -> int:
        """The largest delay that occurs."""
        return max(map(max, self.possible.values()))

    @property
    def possible(self) -> dict[str, list[int]]:
        """By the name of each class that has clients, the delays that occur."""
        used = [0] if self.classes is None else sorted(set(self.classes))
        ends = np.pad(self._reached().astype(np.int64), ((0, 0), (1, 1)))
        ends[:, -1] = _ALL
        return {self.names[c]: np.flatnonzero(np.diff(ends[c])).tolist() for c in used}

    @property
    def labels(self) -> tuple[str, ...]:
        """[clients], the name of the class of each; () where all are of one."""
        return tuple(self.names[c] for c in self.classes or ())

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


def by_class(classes: Sequence[str], laws: Mapping[str, DelayLaw]) -> DelayLaw:
    """Each client has the delays of its speed class, such as its kind of device, which is public.

    Args:
      classes: [clients], the name of the class of each, a text or a whole number.
      laws: of each label.

    Raises:
      ValueError: no clients, one without a label, a label without a law or clients, or a law that has classes itself.
    """
    labels = labels_of("classes", classes)
    members = dict.fromkeys(labels.tolist())
    own = named("laws", laws, members, "a law such as fp.delays.constant(2)")
    for name in members:
        plain = isinstance(own[name], DelayLaw) and own[name].classes is None
        require(plain, f"laws[{name!r}]", own[name], "give one such as fp.delays.constant(2)")
    numbers = [list(members).index(name) for name in labels.tolist()]
    return DelayLaw([own[name].chances[0] for name in members], numbers, [*members])
