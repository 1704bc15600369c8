"""What a view sees of draws that nothing but a table of views makes: of persons, of places, of units that remember."""

from fedpriv.privacy import Seen
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.rows import Row
from fedpriv.proof.cases import Noisy
from fedpriv.proof.row import seen_of


def seen_by_hand(
    drawn: Drawn,
    multiplier: float,
    rounds: int = 1,
    *,
    view: str = "third_party",
    unit: str = "client",
    noise: str = "gaussian",
    adder: str = "shares",
) -> Seen:
    """Of so many rounds."""
    noisy = Noisy(noise, 1 / multiplier)
    return seen_of(Row(view, unit, noisy, adder, drawn, Repeated(rounds)))
