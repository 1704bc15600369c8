"""What `rush_hours` draws, as the accountant sees it: all that it is ever asked."""

from dataclasses import dataclass

from fedpriv.privacy import Case, Sampling, Why


@dataclass(frozen=True)
class RushHours(Sampling):
    """With probability `rush` a round has all `population` clients; else each joins at the rate `usual`."""

    population: int
    usual: float
    rush: float

    @property
    def most(self):
        return self.population

    @property
    def together(self):
        return self.rush + (1 - self.rush) * self.usual**2

    def cases_of_one(self, neighbour):
        """*Proof.* Whether a round is a rush hour has the same law whoever there is; let the view know it. Given that,
        the others join without regard to the unit, which then adds u with probability 1, or `usual`.
        """
        if neighbour == "replaced":
            return Why("rush hours are proved for a client that is missing")
        return Case(self.rush, ((1.0, 1.0),)), Case(1 - self.rush, ((1.0, self.usual),))

    def words(self, neighbour):
        return ("in rush hours, which may be known, all take part; else units join independently",)
