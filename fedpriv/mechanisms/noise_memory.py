"""What the correlated mechanisms of a run remember from round to round."""

from __future__ import annotations

import jax

from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.correlated import perturbed_in_run
from fedpriv.mechanisms.mechanisms import Mechanism


class NoiseMemory:
    """The memory of one round: an entry for each correlated call of the cohort, in their order.

    Args:
      before: what is remembered of the rounds before; None where a round stands alone.
    """

    def __init__(self, before: tuple[PyTree, ...] | None):
        self._before = before
        self._after: list[PyTree] = []

    @property
    def after(self) -> tuple[PyTree, ...]:
        """What is remembered after the round."""
        return tuple(self._after)

    def nested(self) -> NoiseMemory:
        """The same, for a function that runs the whole round; `adopt` takes what it remembers afterwards."""
        return NoiseMemory(self._before)

    def adopt(self, after: tuple[PyTree, ...]) -> None:
        """Remembers what `nested` did."""
        self._after = list(after)

    def perturb(self, used: Mechanism, key: Key, total: PyTree, t: jax.Array) -> PyTree:
        """The noisy sum of round t.

        Raises:
          ValueError: the round stands alone, or was certified without this call.
        """
        if self._before is None:
            raise ValueError(
                "mechanism: its noise is correlated over rounds, and this round stands alone; train with fp.simulate"
            )
        if len(self._after) == len(self._before):
            raise ValueError(
                "mechanism: a call of cohort.sum whose noise is correlated over rounds is not among those that were "
                "certified; make the mechanism by fp.correlated, and the same calls in every round"
            )
        before = self._before[len(self._after)]
        noisy, after = perturbed_in_run(used, key, total, before, t)
        self._after.append(after)
        return noisy
