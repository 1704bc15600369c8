"""Which rounds may be a client's, where their numbers decide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fedpriv.core.arguments import CountOrZero, LargeCount
from fedpriv.proof.draws import Sampling


class Turns(NamedTuple):
    """Which rounds of a run may be a client's, by their numbers.

    Attributes:
        apart: fewest rounds from one of a client to the next.
        most: most rounds of a client; None: as many as fit.
        block: of how many rounds in a row one is a client's, by one draw for all of them; None: each has its own draw.
        bands: most bands of correlated noise under which each turn is a release, amplified by its draw; None: none is.
        words: what the rounds of a run are, of their number and that of a client's.
    """

    apart: int
    words: str
    most: int | None = None
    block: int | None = None
    bands: int | None = None

    @property
    def window(self) -> int:
        """Of so many rounds in a row one is a client's at most."""
        return self.block or self.apart

    def of(self, rounds: CountOrZero) -> int:
        """How many of so many rounds are a client's, at most; or how many blocks they have."""
        fit = -(-rounds // self.window)
        return fit if self.most is None else min(fit, self.most)

    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a client's."""
        return self.words.format(turns=self.of(rounds), rounds=rounds)


class Schedule(ABC):
    """What a sampler says of its draws where the round's number decides: facts as of `Sampling`.

    What is not said is taken for what costs most. `most` is how many units one draw can hold.
    """

    population: LargeCount
    full: bool = False
    turns: Turns | None = None
    persons: str = ""
    by_hand: str = ""
    group_names: tuple[str, ...] = ()
    counts_equally: bool = True
    if TYPE_CHECKING:

        @property
        def most(self) -> int:
            """Of units that one draw can hold."""
            ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Of each client its public class, of which different ones are drawn independently; (): all are alike."""
        return ()

    def of_group(self, name: str) -> tuple[Accounting, float]:
        """(How a unit of this group is drawn, times how far it moves the sum)."""
        return self, 1.0

    @property
    @abstractmethod
    def of_a_round(self) -> Sampling:
        """The draw of those whose turn it is."""

    @property
    def secret(self) -> bool:
        """Whether certificates towards a third party count on nobody's knowing who is drawn."""
        return self.of_a_round.secret

    def turn(self, units: Any, t: Any) -> Any:
        """Whether it is the units' turn in round t, as everybody knows, bool[k]; None: who takes part is known."""
        return None


Accounting: TypeAlias = Sampling | Schedule
"""What a sampler says of its draws, whether one is as the other or the round's number decides."""
