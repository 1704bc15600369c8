"""What marks in a traced program mean, and the labels of private data that are followed through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import jax

from fedpriv.certification.information_flow import NONE, Labels, mark
from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.generators import THREEFRY
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.per_example import Gradients, MedianClipping, RecordMechanism
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.samplers import Sampler
from fedpriv.rounds.weighting import EQUALLY, Weighting


class LeakError(ValueError):
    """Something private gets past the releases of a round: what, to where, and in which line."""


# Labels are not tuples: those of two kinds would be equal where their numbers are.


@dataclass(frozen=True)
class Private:
    """A label of what is protected.

    Attributes:
      what: it is, in words.
      call: of the cohort to whose client it belongs; -1: to all.
      line: of the user's code that asked for it.
    """

    what: str
    call: int
    line: str


@dataclass(frozen=True)
class Held:
    """A label of what clients keep for themselves, each its own row, by a call in `line`."""

    line: str


@dataclass(frozen=True)
class Noisy:
    """A label of a fixed multiple of `note`'s noisy mean, the same for all clients, plus what does not depend on it."""

    note: int


@dataclass(frozen=True)
class Bent:
    """A label of what depends on `note`'s noisy mean in another way."""

    note: int


OF_CLIENT, OF_OWN = "a client's key", "a client's own row"
TAKING_PART = "who takes part"


@dataclass
class Note:
    """What a mark in the program means.

    Attributes:
      kind: where private data come from, or what is released.
      line: of the user's code.
      call: number of the note of the cohort's call.
      label: of what comes from here.
      mechanism, codec, local, weighting: of a release, as given to `Cohort.sum`.
      records: of a private mean, what draws its batches.
      like: what is released, in shapes.
      gradients: of a private mean.
      times: how often a round makes this release.
      found: labels of what a sum is made of.
      keys: labels of the keys that its noise is drawn from.
      generator: what draws it, by JAX's name.
    """

    kind: Literal[
        "source", "number", "seen", "client", "own", "store", "changed", "noise", "sum", "mean"
    ]
    line: str
    call: int = -1
    label: Any = None
    mechanism: RecordMechanism | None = None
    codec: Codec = UNCODED
    local: bool = False
    weighting: Weighting = EQUALLY
    records: Sampler | None = None
    like: Any = None
    gradients: Gradients | None = None
    times: int = 0
    found: Labels = NONE
    keys: Labels = NONE
    generator: str = THREEFRY


class Holding(NamedTuple):
    """What a trace has to know of a federation.

    Attributes:
      num_clients, capacity: as `Federation`.
      like: a client's records, `jax.ShapeDtypeStruct`s [capacity, ...].
      public: number of public examples.
    """

    num_clients: int
    capacity: int
    like: PyTree
    public: int


Notes: TypeAlias = list[Note]


def tree_mark(notes: Notes, note: Note, tree: PyTree) -> PyTree:
    """The tree, its leaves marked."""
    leaves, structure = jax.tree.flatten(tree)
    notes.append(note)
    return jax.tree.unflatten(structure, mark(len(notes) - 1, *leaves)) if leaves else tree


def noisy(note: Note) -> bool:
    """Whether a release adds noise in any round."""
    used: Any = note.mechanism
    known = type(used) in (Mechanism, Dynamic, MedianClipping)
    told = [m for _, m in used.multipliers(1)] if known else []
    return not known or any(isinstance(m, jax.core.Tracer) or m > 0 for m in told)


def of(kind: type, labels: Labels) -> Labels:
    """Those of one kind."""
    return frozenset(label for label in labels if isinstance(label, kind))
