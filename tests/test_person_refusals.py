"""What is not certified of persons, and federations of which none can be drawn."""

import numpy as np
import pytest
import tiers
from small import refused, start
from test_person_certificates import (
    DELTA,
    ROUNDS,
    N,
    X,
    by_client,
    by_record,
    certified,
    devices,
    federation,
    patients,
)

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")


LOST = fp.dropping(fp.fixed_size(N, 3), 0.25, "lost")
OF_DEVICES = by_client(fp.by_person(fp.poisson(6, 0.25), devices(2)))
TURNS = "secret draws by turns are not certified for a person with 2 clients"
REFUSED = {
    "blocks": (by_client(fp.random_allocation(N, 3)), devices(2), TURNS),
    "lost shares": (by_client(LOST), devices(2), "how many of a person's units it draws"),
    "depending draws": (
        by_record(fp.with_replacement([1.0] * N, 3)),
        patients(1, 1),
        "draws the 2 clients with a person's records depending on one another",
    ),
    "other persons": (OF_DEVICES, devices(3), "it draws persons of another federation"),
    "no persons": (OF_DEVICES, federation(), "it draws persons of another federation"),
}


@tiers.every("name", REFUSED, kind=lambda given: given[2].split()[0])
def test_what_is_not_proved_is_refused(name):
    algorithm, of, said = REFUSED[name]
    with refused(said):
        certified(algorithm, of, view="server" if name == "blocks" else "third_party")


UNITS = {"clients": by_client(), "records": by_record()}


@tiers.every("unit", UNITS)
def test_no_certificate_of_each_client_is_one_of_persons(unit):
    with refused("each_client: True; with persons"):
        fp.certify(UNITS[unit], start(), devices(2), ROUNDS, DELTA, each_client=True)


def test_what_draws_no_persons_is_refused():
    with refused("federation: .* give one made by from_arrays"):
        fp.by_person(fp.poisson(N, 0.25), federation())
    with refused("federation: client 0 holds records of 6 persons; give one whose clients"):
        fp.by_person(fp.poisson(N, 0.25), patients(1))
    with pytest.warns(UserWarning, match="^held_out: 6 of 6 persons"):
        some = fp.Federation.from_arrays(
            {"x": X, "y": X.sum(1)},
            [range(5 * i, 5 * i + 3) for i in range(N)],
            held_out=[range(5 * i + 3, 5 * i + 4) if i else () for i in range(N)],
            person=np.arange(N) // 2,
        )
    with refused("federation: client 0 holds no records"):
        fp.by_person(fp.poisson(6, 0.25), some.held_out)
    with refused("sampler: .* give a sampler of the 6 persons"):
        fp.by_person(fp.poisson(N, 0.25), devices(2))
    with refused("sampler: .* give one of fp.everyone, fp.fixed_size and fp.poisson"):
        fp.by_person(fp.fixed_order(6, 2), devices(2))
