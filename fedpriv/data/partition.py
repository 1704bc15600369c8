"""Partitions of a data set among clients, on the host: an array of row numbers, i64[...], for each client.

The second argument describes *all* examples (their number, labels or keys). `rows` are those to distribute, each to
exactly one client. So take public rows out first::

    public, rest = hold_out(rng, total, 1000)
    clients = shards(rng, labels, 100, 2, rows=rest)

A client's rows come in random order, so that a slice of them is a sample of its classes. Those of `natural` keep the
order of the examples, which may be that of time.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, CountOrZero, Percent, Positive, checked
from fedpriv.core.complaints import require
from fedpriv.data.client_ids import rows_of_each
from fedpriv.data.hold_out import hold_out
from fedpriv.data.partition_arguments import (
    as_rows,
    check_generator,
    checked_clients,
    checked_skew,
    labels_and_rows,
    rows_of,
)
from fedpriv.data.partition_picture import counts, picture
from fedpriv.data.validation import array_of

__all__ = [
    "counts",
    "dirichlet",
    "dirichlet_mixtures",
    "hold_out",
    "iid",
    "natural",
    "picture",
    "quantity_skew",
    "shards",
    "similar",
]

_TRIES = 100  # draws of the Dirichlet proportions before giving up


def iid(
    rng: Generator,
    total_or_rows: CountOrZero | ArrayLike,
    clients: Count,
    *,
    rows: ArrayLike | None = None,
) -> list[np.ndarray]:
    """A partition uniformly at random, in sizes that differ by at most one; i64[...] for each client.

    Args:
        total_or_rows: the number of examples, or [n], the row numbers to distribute.
        rows: [n], the row numbers to distribute, if a number of examples is given.

    Raises:
        ValueError: clients < 1 or above the number of rows.
    """
    check_generator(rng)
    own = rows_of(total_or_rows, rows)
    clients = checked_clients(clients, len(own))
    return np.array_split(rng.permutation(own), clients)


def shards(
    rng: Generator,
    labels: ArrayLike,
    clients: Count,
    shards_per_client: Count,
    *,
    rows: ArrayLike | None = None,
) -> list[np.ndarray]:
    """Label-sorted shards of equal size (up to one): a client gets a few, and so few classes; i64[...] for each.

    H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017,
    arXiv:1602.05629, Sec. 3: 100 clients with 2 shards of 300 each on MNIST.

    Args:
        labels: [N], the classes of all examples.
        rows: [n], the row numbers to distribute; by default all.

    Raises:
        ValueError: clients < 1; shards_per_client < 1; more shards than rows.
    """
    labels, own = labels_and_rows(rng, labels, rows)
    clients = checked_clients(clients, len(own))
    total = clients * checked("shards_per_client", shards_per_client, Count)
    if total > len(own):
        raise ValueError(
            f"shards_per_client: {shards_per_client} for {clients} clients, but there are {len(own)} rows; use fewer "
            "clients or shards"
        )
    pieces = np.array_split(_sort_by_label(rng, labels, own), total)
    dealt = rng.permutation(total).reshape(clients, shards_per_client)
    return _shuffled(rng, [np.concatenate([pieces[j] for j in hand]) for hand in dealt])


def similar(
    rng: Generator,
    labels: ArrayLike,
    clients: Count,
    percent: Percent,
    *,
    rows: ArrayLike | None = None,
) -> list[np.ndarray]:
    """gamma%-similar data: gamma% of a client's rows are i.i.d., the others sorted by label; i64[...] for each.

    S. P. Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning", ICML 2020,
    arXiv:1910.06378, Sec. 7. Sizes differ by at most one. The i.i.d. share of all rows is rounded once, so a client's
    may differ from `percent` by one row.

    Args:
        labels, rows: as `shards`.

    Raises:
        ValueError: clients < 1 or above the number of rows; percent outside [0, 100].
    """
    labels, own = labels_and_rows(rng, labels, rows)
    clients = checked_clients(clients, len(own))
    percent = checked("percent", percent, Percent)
    shuffled = rng.permutation(own)
    ends = np.cumsum([len(part) for part in np.array_split(shuffled, clients)])
    mixed_ends = np.floor(ends * (percent / 100) + 0.5).astype(int)
    mixed = np.split(shuffled[: mixed_ends[-1]], mixed_ends[:-1])
    by_label = _sort_by_label(rng, labels, shuffled[mixed_ends[-1] :])
    ordered = np.split(by_label, (ends - mixed_ends)[:-1])
    return _shuffled(rng, [np.concatenate(parts) for parts in zip(mixed, ordered, strict=True)])


def dirichlet(
    rng: Generator,
    labels: ArrayLike,
    clients: Count,
    alpha: Positive,
    min_size: Count = 1,
    *,
    rows: ArrayLike | None = None,
) -> list[np.ndarray]:
    """Divides each class among the clients in proportions drawn from Dirichlet(alpha); i64[...] for each client.

    After T.-M. H. Hsu, H. Qi and M. Brown, arXiv:1909.06335, who draw each client's class proportions. Here proportions
    are drawn per class over the clients (M. Yurochkin et al., ICML 2019, arXiv:1905.12022), anew until every client has
    `min_size` rows.

    Args:
        labels, rows: as `shards`.
        alpha: concentration; large means i.i.d., small means few clients per class.

    Raises:
        ValueError: clients < 1 or above the number of rows; alpha <= 0; min_size < 1; min_size not reached in 100
            draws.
    """
    labels, own = labels_and_rows(rng, labels, rows)
    clients = checked_clients(clients, len(own))
    alpha, min_size = checked_skew(alpha, min_size, clients, len(own))
    shuffled = rng.permutation(own)
    classes = [shuffled[labels[shuffled] == c] for c in np.unique(labels[own])]
    return _shuffled(rng, _divided(rng, classes, clients, alpha, min_size))


def dirichlet_mixtures(
    rng: Generator,
    labels: ArrayLike,
    clients: Count,
    alpha: Positive,
    *,
    rows: ArrayLike | None = None,
) -> list[np.ndarray]:
    """Clients of equal size (up to one), each with class proportions from Dirichlet(alpha); i64[...] for each.

    T.-M. H. Hsu, H. Qi and M. Brown, arXiv:1909.06335, Sec. 2: one client after another draws its records from its
    mixture, without replacement, from what is left of the classes. The last clients get what nobody else drew.

    Args:
        labels, rows: as `shards`.
        alpha: as `dirichlet`.

    Raises:
        ValueError: clients < 1 or above the number of rows; alpha <= 0.
    """
    labels, own = labels_and_rows(rng, labels, rows)
    clients = checked_clients(clients, len(own))
    alpha, _ = checked_skew(alpha, 1, clients, len(own))
    shuffled = rng.permutation(own)
    classes = [shuffled[labels[shuffled] == c] for c in np.unique(labels[own])]
    left, parts = np.array([len(members) for members in classes]), []
    for size in (len(part) for part in np.array_split(own, clients)):
        mixture = rng.dirichlet(np.full(len(classes), alpha))
        taken = _drawn(rng, mixture, left, size)
        left = left - taken
        parts.append(
            np.concatenate([m[i : i + n] for m, i, n in zip(classes, left, taken, strict=True)])
        )
    return _shuffled(rng, parts)


def _drawn(rng: Generator, mixture: np.ndarray, left: np.ndarray, size: int) -> np.ndarray:
    """How many records of each class, i64[classes]; draws of a class that has run out are repeated."""
    taken = np.zeros_like(left)
    while (missing := size - taken.sum()) > 0:
        there = left - taken
        shares = mixture * (there > 0)
        if shares.sum() == 0:  # proportions too small for floats
            shares = there
        taken += np.minimum(rng.multinomial(missing, shares / shares.sum()), there)
    return taken


def quantity_skew(
    rng: Generator,
    total_or_rows: CountOrZero | ArrayLike,
    clients: Count,
    alpha: Positive,
    min_size: Count = 1,
    *,
    rows: ArrayLike | None = None,
) -> list[np.ndarray]:
    """I.i.d. records, in sizes whose proportions are drawn from Dirichlet(alpha); i64[...] for each client.

    Q. Li, Y. Diao, Q. Chen and B. He, "Federated Learning on Non-IID Data Silos", ICDE 2022, arXiv:2102.02079,
    Sec. IV-C; drawn anew until every client has `min_size` rows.

    Args:
        total_or_rows, rows: as `iid`.
        alpha: concentration; large means equal sizes, small means most records with few clients.

    Raises:
        ValueError: as `dirichlet`.
    """
    check_generator(rng)
    own = rows_of(total_or_rows, rows)
    clients = checked_clients(clients, len(own))
    alpha, min_size = checked_skew(alpha, min_size, clients, len(own))
    return _divided(rng, [rng.permutation(own)], clients, alpha, min_size)


def _divided(
    rng: Generator, classes: list[np.ndarray], clients: int, alpha: float, min_size: int
) -> list[np.ndarray]:
    """Each class cut in proportions of its own."""
    for _ in range(_TRIES):
        cuts = [_cuts(rng, len(members), clients, alpha) for members in classes]
        sizes = sum(
            np.diff(c, prepend=0, append=len(m)) for c, m in zip(cuts, classes, strict=True)
        )
        if np.min(sizes) >= min_size:
            parts = [np.split(m, c) for m, c in zip(classes, cuts, strict=True)]
            return [np.concatenate(own_parts) for own_parts in zip(*parts, strict=True)]
    raise ValueError(
        f"alpha: {alpha} left one of the {clients} clients below min_size={min_size} in each of {_TRIES} draws; raise "
        "alpha, or lower clients or min_size"
    )


def natural(keys: ArrayLike, *, rows: ArrayLike | None = None) -> list[np.ndarray]:
    """One client per distinct key (a writer, a speaking role), in order of first appearance; i64[...] for each.

    A client's rows keep the given order. If that is the order of time, its first rows are the beginning of its history.

    Args:
        keys: [N], the key of every example, such as names or numbers, all of one type.
        rows: as `shards`.

    Raises:
        ValueError: keys that are not 1-d; a missing key (None, NaN, an empty string); no rows.
    """
    ids = array_of("keys", keys)
    require(np.ndim(ids) > 0, "keys", keys, "give one key per example")
    own = as_rows("rows", len(ids) if rows is None else rows, len(ids))
    return rows_of_each("keys", ids, own)


def _shuffled(rng: Generator, parts: list[np.ndarray]) -> list[np.ndarray]:
    """Each client's rows in random order, by a generator of its own: that of the partition is not advanced."""
    (own,) = rng.spawn(1)
    return [own.permutation(rows) for rows in parts]


def _cuts(rng: Generator, count: int, clients: int, alpha: float) -> np.ndarray:
    """Where to cut `count` rows into `clients` parts of Dirichlet proportions: i[clients - 1]."""
    shares = rng.dirichlet(np.full(clients, alpha))
    return np.minimum(np.floor(np.cumsum(shares)[:-1] * count + 0.5).astype(int), count)


def _sort_by_label(rng: Generator, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    shuffled = rng.permutation(rows)  # at random within a class
    return shuffled[np.argsort(labels[shuffled], kind="stable")]
