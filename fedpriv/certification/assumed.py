"""What a traced round does not show of its privacy, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from fedpriv.certification.closed_over import closed_over
from fedpriv.certification.privacy_labels import Note, noisy
from fedpriv.certification.second_trace import same_array
from fedpriv.certification.trace import Stage
from fedpriv.core.provenance import constructed
from fedpriv.mechanisms.schedules import Dynamic


def assumed(
    stages: Sequence[Stage], init_arrays: Sequence[tuple[Any, str]], made: str | None
) -> tuple[str, ...]:
    """What has to hold beside what was read off the rounds of these `stages`.

    Args:
      init_arrays: that `init` closes over, with the line that uses each.
      made: as `closed_over`.
    """
    notes = [note for stage in stages for note in (*stage.sums, *stage.means)]
    texts = ["every noise has a key of its own (checked by `fp.check_algorithm`)"]
    if generators := sorted({note.generator for note in notes if noisy(note)}):
        texts.append(
            f"numbers drawn by JAX's {' and '.join(generators)} cannot be told from truly random ones"
        )
    if arrays := _arrays(stages, init_arrays, notes, made):
        texts.append(
            f"the arrays that the algorithm closes over ({', '.join(arrays)}) do not depend on data"
        )
    if lines := dict.fromkeys(line for stage in stages for line in stage.prints):
        texts.append(f"what the round prints ({', '.join(lines)}) is not released")
    return tuple(texts)


def _arrays(
    stages: Sequence[Stage], init_arrays: Any, notes: Sequence[Note], made: str | None
) -> list[str]:
    """Those that `init` or a round closes over, but for the tables of sealed samplers and schedules."""
    held = [*init_arrays, *(pair for stage in stages for pair in closed_over(stage.program, made))]
    own = list(_tables(notes)) if held else []
    shown = [
        f"{c.dtype} {np.shape(c)} in {line}"
        for c, line in held
        if not any(same_array(c, table) for table in own)
    ]
    return sorted(set(shown))


def _tables(notes: Sequence[Note]) -> Iterator[Any]:
    """The arrays that sealed samplers of records and schedules close over by themselves."""
    for note in notes:
        if note.records is not None and constructed(note.records):
            program = jax.make_jaxpr(note.records.draw)(jax.eval_shape(jax.random.key, 0))
            yield from (value for value, _ in closed_over(program))
        if type(note.mechanism) is Dynamic and constructed(note.mechanism):
            yield note.mechanism.ends
