"""What a sampler says of its draws, to everybody who asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from fedpriv.core.arguments import CountOrZero, LargeCount

if TYPE_CHECKING:
    from fedpriv.privacy.sampling.protocol import Sampling
    from fedpriv.privacy.sampling.schedules import ParticipationSchema


class Accounting(ABC):
    """What a sampler says of its draws, whether one is as the other (`Sampling`) or the round's number decides.

    What is not said is taken for what costs most.

    Attributes:
        population: number of units.
    """

    population: LargeCount
    if TYPE_CHECKING:

        @property
        def most(self) -> int:
            """Most units that one draw can hold."""
            ...

    has_turns: bool = False
    """Whether the number of a round decides who may take part."""
    not_by_hand: str = ""
    """What to use instead, where draws by somebody's own function cannot be measured against this."""

    @property
    def is_secret(self) -> bool:
        """Whether certificates towards a third party count on nobody's knowing who is drawn."""
        return True

    @property
    def takes_all(self) -> bool:
        """Whether every draw holds a unit, the likeliest one, equally often, however that is said."""
        return False

    @property
    def has_one_size(self) -> bool:
        """Whether every draw holds `most` units, before some may vanish."""
        return False

    @property
    def block_rounds(self) -> int | None:
        """Of how many rounds a unit takes part in one, by one draw for all of them; None where each has its own."""
        return None

    @property
    def most_bands(self) -> int | None:
        """Most bands of correlated noise under which each turn is released, and amplified, by itself; None: none is."""
        return None

    @property
    @abstractmethod
    def of_a_round(self) -> Sampling:
        """The draw of those whose turn it is."""

    @property
    @abstractmethod
    def joining(self) -> float:
        """Probability that a unit whose turn it is takes part in a round, as an audit plays it."""

    @abstractmethod
    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """How many draws of so many rounds may hold a unit, at most."""

    @property
    @abstractmethod
    def window(self) -> int:
        """Of so many rounds in a row one is a unit's at most."""

    @abstractmethod
    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a unit's; empty where all may be."""

    def turn(self, units: Any, t: Any) -> Any:
        """Whether it is the units' turn in round t, as everybody knows, bool[k]; None: who takes part is known."""
        return None

    def as_schedule(self) -> ParticipationSchema | None:
        """The rounds of a unit, where they are known beforehand; None where any may be."""
        return None
