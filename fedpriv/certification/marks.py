"""What the marks in a traced round mean: where private data come from, what clients keep, what is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax

from fedpriv.certification.information_flow import NONE, Labels, mark
from fedpriv.certification.privacy_labels import Private
from fedpriv.compression.codecs import Codec
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.per_example import Gradients, MedianClipping, RecordMechanism
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.weighting import Weighting


class Source(NamedTuple):
    """Private data come from here; the others say who takes part, too, or what it is that may be known."""

    label: Private


class ClientNumber(NamedTuple):
    """Which client it is comes from here."""

    label: Private


class Diagnostics(NamedTuple):
    """Diagnostics of clients, of all together from here on."""

    label: Private


class ClientKey(NamedTuple):
    """The key of one client, which from here on stands for those of all."""


class ChangedRecords(NamedTuple):
    """Records that are not a client's own as it holds them, before a private mean is taken in `line`."""

    line: str


class OwnState(NamedTuple):
    """A client gets what it has kept for itself, in `line`; its own row is private, as `label` says."""

    line: str
    label: Private


@dataclass
class Stored:
    """A client keeps something for itself.

    Attributes:
      line: of the user's code.
      call: of the cohort.
      labels: of what is kept, once they have been followed.
    """

    line: str
    call: int
    labels: Labels = NONE


@dataclass
class NoiseKey:
    """The noise of a mechanism is drawn from this key.

    Attributes:
      line: of the user's code.
      mechanism: that draws.
      keys: labels of the key, once they have been followed.
    """

    line: str
    mechanism: Any
    keys: Labels = NONE


@dataclass
class Sum:
    """The sum of a cohort's messages is released.

    Attributes:
      line: of the user's code.
      call: of the cohort.
      mechanism, codec, local, weighting: as given to `Cohort.sum`.
      like: what is released, in shapes.
      generator: what draws its noise, by JAX's name.
      times: how often a round makes this release.
      labels: of the messages, once they have been followed.
    """

    line: str
    call: int
    mechanism: Mechanism | Dynamic
    codec: Codec
    local: bool
    weighting: Weighting
    like: PyTree
    generator: str
    times: int = 0
    labels: Labels = NONE


@dataclass
class Mean:
    """The noisy mean of a client's records is released.

    Attributes:
      line: of the user's code.
      number: of the mark.
      call: of the cohort.
      label: of the records of its batch.
      mechanism, records, gradients: as given to `Shard.private_mean`.
      like: what is released, in shapes.
      generator: what draws its noise, by JAX's name.
      times: how often a round makes this release.
      labels: of the mean, once they have been followed.
      keys: labels of the key of its noise, likewise.
    """

    line: str
    number: int
    call: int
    label: Private
    mechanism: RecordMechanism
    records: RecordSampler
    gradients: Gradients
    like: PyTree
    generator: str
    times: int = 0
    labels: Labels = NONE
    keys: Labels = NONE


class Capacity(NamedTuple):
    """How much room there is for a client's records is read in `line`."""

    line: str


_Private: TypeAlias = Source | ClientNumber | Diagnostics | ClientKey | ChangedRecords
Mark: TypeAlias = _Private | Capacity | OwnState | Stored | NoiseKey | Sum | Mean
Marks: TypeAlias = list[Mark]
"""Those of a round, by their numbers."""


def mark_tree(marks: Marks, meaning: Mark, tree: PyTree) -> PyTree:
    """The tree, its leaves marked."""
    leaves, structure = jax.tree.flatten(tree)
    marks.append(meaning)
    return jax.tree.unflatten(structure, mark(len(marks) - 1, *leaves)) if leaves else tree


def is_noisy(release: Sum | Mean | NoiseKey) -> bool:
    """Whether its mechanism adds noise in any round."""
    used: Any = release.mechanism
    known = type(used) in (Mechanism, Dynamic, MedianClipping)
    if not known or (type(used) is Mechanism and is_correlated(used)):
        return True
    multipliers = [multiplier for _, multiplier in used.multipliers(1)]
    return any(isinstance(m, jax.core.Tracer) or m > 0 for m in multipliers)
