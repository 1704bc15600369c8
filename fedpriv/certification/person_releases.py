"""What each view sees of a person: from the releases of a single client, or of a single record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from fedpriv.certification.persons_held import Held
from fedpriv.privacy import Release
from fedpriv.privacy.sampling import PersonsDraw, Sampling


def of_clients_of_a_person(releases: Sequence[Release], clients: int, share: bool) -> list[Release]:
    """What is seen of a person with so many clients, from what is seen of one of them.

    Formal guarantees: see `Sampling.cases_of_several`, and `_together`.

    Args:
      share: whether the clients hold records of others, too. Then they stay, and send something else: the sum moves by
        2 C for each.

    Raises:
      ValueError: a schedule with secret draws, or draws of which nothing of several clients is known.
    """
    return [_of_clients(release, clients, share) for release in releases]


def _of_clients(release: Release, clients: int, share: bool) -> Release:
    release = replace(release, unit="person")
    if release.multiplier == 0 or math.isinf(release.multiplier):
        return release
    if share:
        release = _of_clients_that_stay(release)
    if clients == 1:
        return release
    apart = release.adder == "own" and (release.noise == "gaussian" or bool(release.integers))
    if apart and release.integers:
        of_all = replace(release.integers, dimension=clients * release.integers.dimension)
        release = replace(release, integers=of_all)
    drawn, known = release.sampling, release.participation
    in_turns = bool(release.schedule)
    squares = not (
        in_turns and release.integers
    )  # of which it is not proved that costs rise as they do
    if squares and drawn.takes_all and (known is None or known.takes_all):
        return _together(release, clients, apart)
    if in_turns:
        what = "sums of integers" if release.integers else "secret draws"
        raise ValueError(
            f"sampler: {release.schedule}; {what} by turns are not certified for a person with {clients} "
            "clients; draw by fp.poisson, fp.fixed_size or fp.everyone, or keep one client of each (per_person=1)"
        )
    if known is None:
        drawn = drawn.with_whole_noise() if apart else drawn
        return replace(release, sampling=PersonsDraw(drawn, clients, apart))
    known = known.with_whole_noise() if apart else known
    steps = release.local_steps if release.noise == "gaussian" else 1
    if steps < release.local_steps:
        raise ValueError(
            f"round: {release.local_steps} steps of Laplace noise by one draw of clients; give Gaussian noise, or keep "
            "one client of each person (per_person=1)"
        )
    return replace(
        release.moved(math.sqrt(steps)),  # of all steps of one draw together
        sampling=PersonsDraw(known, clients, apart, known=True),
        participation=None,
        local_steps=1,
    )


def _together(release: Release, clients: int, apart: bool) -> Release:
    """Where it is known when each client takes part.

    *Proof.* What a client changes in the whole run has a norm of at most 1 / multiplier, in units of the noise; so all
    of a person's together change `clients` times that at most, whenever they take part. Where each message has Gaussian
    or integer noise of its own, and that alone is counted, what they change is orthogonal: one longer message.
    """
    return release.moved(math.sqrt(clients) if apart else clients)


def _of_clients_that_stay(release: Release) -> Release:
    """Of a client that is there with either neighbour, and sends something else."""
    drawn = release.sampling
    secret = release.view == "third_party" and drawn.adjacency in ("add_or_remove", "replace_one")
    if secret:
        return replace(release, sampling=drawn.of_one_that_stays())
    return release.moved(2)


def of_records_of_a_person(
    of_size: Callable[[int | None], Sequence[Release]], held: Sequence[Held]
) -> list[Release]:
    """What is seen of a person, in every client that holds records of it, from what is seen of one record there.

    Formal guarantees: see `Sampling.cases_of_several`; releases of several clients compose, as these take part
    independently of one another, and the views know when. Of a cohort that is cut fewer of them take part.

    Args:
      of_size: the releases of a record of a client with so many records.

    Raises:
      ValueError: clients that do not take part independently of one another, or draws of which nothing of several
        records is known.
    """
    releases: list[Release] = []
    for (size, records), clients in Counter(held).items():
        for release in of_size(size):
            hides = 0 < release.multiplier < math.inf
            if hides and len(held) > 1:
                _check_independent(release.participation, len(held))
            one = _of_records(release, records) if hides else release
            releases += [replace(one, unit="person", by_record=True)] * clients
    return releases


def _of_records(release: Release, records: int) -> Release:
    if records == 1:
        return release
    if release.sampling.takes_all:
        return release.moved(records)
    return replace(release, sampling=PersonsDraw(release.sampling, records))


def _check_independent(clients: Sampling | None, several: int) -> None:
    if clients is not None and not clients.is_independent:
        raise ValueError(
            f"sampler: {clients!r} draws the {several} clients with a person's records depending on one another, so "
            "nothing is certified; draw them by fp.poisson or fp.everyone, or keep a person's records at one client"
        )
