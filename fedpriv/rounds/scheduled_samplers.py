"""Samplers that decide by the round who may take part, so that a client rests between its rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Count, Positive
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_functions import asked, gives
from fedpriv.privacy.sampling import Accounting
from fedpriv.rounds.samplers import (
    Answer,
    Draw,
    Opening,
    Sampler,
    check_draw,
    parts_of,
)


def no_memory() -> tuple[()]:
    """What a sampler that goes by the round alone remembers."""
    return ()


@checking_fields
class ScheduledSampler(NamedTuple):
    """Draws each round's cohort from the round's number and a memory; it is made together with its accounting.

    Attributes:
      draw: (key of the run, rounds done t: i32[], memory) -> (Draw, memory after the round, of the same shapes and
        types). The engine keeps the memory between rounds, and no algorithm sees it. It is () if nothing is remembered.
      slots: length of a draw's arrays.
      expected_size: divisor of a mean over the cohort.
      accounting: the rounds in which a client may take part.
      init: () -> the memory before the first round, a tree of arrays; by default ().
      seal: see `fedpriv.core.provenance`; leave it out of a sampler of your own.
    """

    draw: Callable[[Key, jax.Array, PyTree], tuple[Draw, PyTree]]
    slots: Count
    expected_size: Positive
    accounting: Accounting
    init: Callable[[], PyTree] = no_memory
    seal: tuple = ()

    @property
    def most(self) -> int:
        """Most clients that one draw can hold."""
        return self.accounting.most

    @property
    def has_memory(self) -> bool:
        """Whether it goes by more than the round."""
        return self.init is not no_memory

    def first_memory(self) -> PyTree:
        """What it remembers before the first round.

        Raises:
          ValueError: its `init` is no function without arguments, or gives back no arrays.
        """
        memory = asked("init", self.init, "()")
        check_leaves("init: memory", memory)
        return jax.tree.map(jnp.array, memory)

    def cohort(self, key: Key, schedule: Key, t: jax.Array, memory: PyTree) -> tuple[Draw, PyTree]:
        """As `cohort_drawn`."""
        draw = self.draw
        returned = asked("draw", draw, "(key of the run, round, memory)", schedule, t, memory)
        pair = type(returned) is tuple and len(returned) == 2
        gives(
            pair,
            "draw",
            draw,
            returned,
            "return (fp.types.Draw(ids, mask), memory), the latter as it came if unused",
        )
        drawn, after = returned
        check_draw(self, drawn)
        check_leaves("draw: memory", after)
        remedy = "return it with the structure, shapes and types of `init`"
        gives(_kinds(after) == _kinds(memory), "draw: memory", draw, after, remedy)
        return drawn, after


AnySampler: TypeAlias = Sampler | ScheduledSampler


def has_full_cohorts(sampler: AnySampler) -> bool:
    """Whether every draw of a sampler has a client in each of its slots."""
    drawn = sampler.accounting
    if sampler.has_memory:
        return False  # there may be too few whom it may draw
    return drawn.full and drawn.of_a_round.vanish == 0 and sampler.slots == drawn.most


def first_memories(sampler: AnySampler | Opening) -> tuple[PyTree, ...]:
    """What each part of the sampler, of which an `Opening` has two, remembers before the first round.

    Raises:
      ValueError: a sampler's `init` is no function without arguments, or gives back no arrays.
    """
    return tuple(part.first_memory() for _, part in parts_of(sampler, 2))


def cohort_drawn(
    sampler: AnySampler, key: Key, schedule: Key, t: jax.Array, memory: PyTree
) -> tuple[Draw, PyTree]:
    """Who takes part in a round, and what the sampler remembers after it.

    Args:
      key: for the draw of this round.
      schedule: the key for who takes part when, of the whole run.
      t: i32[], rounds done.
      memory: of the sampler, before the round.

    Raises:
      ValueError: as `drawn_from`; the memory comes back with other shapes or types.
    """
    return sampler.cohort(key, schedule, t, memory)


def answers_drawn(sampler: AnySampler) -> Answer:
    """What a sampler says of its members' answers, in shapes."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    (memory,) = first_memories(sampler)
    given = key, key, jax.ShapeDtypeStruct((), jnp.int32), memory
    drawn: Draw = jax.eval_shape(lambda *given: cohort_drawn(sampler, *given)[0], *given)
    return drawn.answer


def _kinds(tree: PyTree) -> list[Any]:
    leaves = jax.tree.leaves(tree)
    return [jax.tree.structure(tree), *((jnp.shape(x), jnp.result_type(x)) for x in leaves)]
