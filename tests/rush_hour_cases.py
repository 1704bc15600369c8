"""What `rush_hours` draws, as the accountant sees it: all that it is ever asked."""

from dataclasses import dataclass

from fedpriv.privacy import DrawCase, Sampling
from fedpriv.privacy.sampling import once


@dataclass(frozen=True)
class RushHours(Sampling):
    """With probability `rush` a round has all `population` clients; else each joins at the rate `usual`."""

    population: int
    usual: float
    rush: float
    adjacency = "add_or_remove"

    @property
    def most(self):
        return self.population

    @property
    def rate(self):
        return self.rush + (1 - self.rush) * self.usual

    @property
    def together(self):
        return self.rush + (1 - self.rush) * self.usual**2

    def cases(self):
        """*Proof.* Whether a round is a rush hour has the same law whoever there is; let the view know it. Given that,
        the others join without regard to the unit, which then adds u with probability 1, or `usual`.
        """
        return DrawCase(self.rush, 1.0, 1.0), DrawCase(1 - self.rush, self.usual, 1.0)

    def times_drawn(self):
        return once(self.rate)

    def how_drawn(self, what, some_vanish):
        return (
            f"in rush hours, which may be known, {what} are of everyone; else units join independently",
        )
