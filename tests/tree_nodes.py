"""Binary trees as the papers account for them: every complete node is released. Their sensitivity, exactly.

P. Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling", arXiv:2103.00039, Appendix D.

A tree over the rounds of a run releases the sum of every node that is complete by its end, with noise of variance 1.
Its squared sensitivity is the largest sum over nodes of (participations below the node)^2: a unit's contributions below
a node add up to at most their number in norm, and to just that where they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedpriv.core.arguments import Count, checked
from fedpriv.privacy.strategy_sensitivity import most_participations

NEVER = 2**40
Entry = tuple[int, NDArray[np.int64]]
"""(value, i64[a]: the round of the last participation, at the earliest, if the first is in round a or later).

For some number n of participations; value is the sum over nodes of squares. `NEVER`: that cannot be."""
Table = dict[int, list[Entry]]
"""By n."""


def nodes_of(rounds: int, restart_every: int) -> NDArray[np.float64]:
    """0/1, [nodes, rounds]: the nodes that are complete."""
    nodes = []
    for start, height in roots(rounds, restart_every):
        for size in 2 ** np.arange(height + 1):
            first = np.arange(start, start + 2**height, size)[:, None]
            nodes.append((first <= np.arange(rounds)) & (np.arange(rounds) < first + size))
    return np.concatenate(nodes).astype(np.float64)


def tree_sensitivity_squared(
    rounds: int, restart_every: int, separation: Count, most: Count | None
) -> int:
    """max over patterns of at most `most` rounds, `separation` apart, of sum over complete nodes of squares.

    Formal guarantees: exact, by dynamic programming over the nodes. What later nodes need to know of a pattern is how
    many participations it has and when the last was; of patterns with equal numbers, one with the smaller value and the
    later last round is never needed.

    Args:
      rounds: T.
      restart_every: rounds of a tree, after which a new one begins.
      separation, most: as for `strategy_sensitivity.sensitivity`.
    """
    separation = checked("separation", separation, Count)
    k = most_participations(rounds, separation, most)
    full = [_leaf()]
    for height in range(1, min(rounds, restart_every).bit_length()):
        full.append(_parent(full[-1], 2 ** (height - 1), separation, k))
    pattern: Table = {0: [(0, np.array([-separation]))]}
    for start, height in roots(rounds, restart_every):
        pattern = _followed(pattern, full[height], start, separation, k)
    return max(value for entries in pattern.values() for value, _ in entries)


def roots(rounds: int, restart_every: int) -> Iterator[tuple[int, int]]:
    """(first round, height) of the complete nodes that have no complete parent, in order."""
    for start in range(0, rounds, restart_every):
        end = min(start + restart_every, rounds)
        while start < end:
            height = (end - start).bit_length() - 1
            yield start, height
            start += 2**height


def _leaf() -> Table:
    return {1: [(1, np.array([0, NEVER]))]}


def _parent(child: Table, half: int, separation: int, k: int) -> Table:
    """The table of a node from that of either of its two children, of `half` rounds each."""
    never = np.full(half, NEVER)
    left: Table = {
        n: [(value, np.append(last, never)) for value, last in entries]
        for n, entries in child.items()
    }
    left[0] = [(0, np.arange(2 * half + 1) - separation)]
    both = _followed(left, child, half, separation, k)
    return {n: [(value + n**2, last) for value, last in both[n]] for n in both if n > 0}


def _followed(before: Table, node: Table, start: int, separation: int, k: int) -> Table:
    """Patterns of the rounds before `start`, continued into the node that begins there, or not."""
    found: Table = {n: list(entries) for n, entries in before.items()}
    for n, entries in before.items():
        for more, of_node in node.items():
            if n + more > k:
                continue
            found.setdefault(n + more, []).extend(
                (value + added, start + last[np.clip(ended + separation - start, 0, len(last) - 1)])
                for value, ended in entries
                for added, last in of_node
            )
    return {n: kept for n in found if (kept := _needed(found[n]))}


def _needed(entries: list[Entry]) -> list[Entry]:
    """One for each value: the earliest of this value or a larger, if that is earlier than of the larger alone."""
    kept: dict[int, NDArray[np.int64]] = {}
    earliest = np.full_like(entries[0][1], NEVER)
    for value, last in sorted(entries, key=lambda entry: -entry[0]):
        if (last < earliest).any():
            earliest = kept[value] = np.minimum(earliest, last)
    return list(kept.items())
