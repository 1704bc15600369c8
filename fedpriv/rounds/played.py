"""A round that is played otherwise than by the engine's rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from fedpriv.core.types import Metrics, State
from fedpriv.proof.program import RoundProgram


@dataclass(frozen=True)
class Played:
    """A round that attacks play otherwise than it is certified.

    Attributes:
      certified: the round.
      play: what takes its place in a run, given its program.
    """

    certified: Callable[..., tuple[State, Metrics]]
    play: Callable[[RoundProgram, Any], Any]

    def __call__(self, *_: Any) -> NoReturn:
        """Raises ValueError: another round calls it, and would not be played."""
        raise ValueError(
            "round: it is that of fp.attacks.with_canaries, which the engine plays; change the algorithm before, and "
            "give the changed one to with_canaries"
        )
