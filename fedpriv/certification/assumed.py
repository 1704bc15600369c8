"""What a traced round does not show of its privacy, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from fedpriv.certification.closed_over import ClosedOver, closed_over
from fedpriv.certification.pieces import bits_of_shares, too_narrow
from fedpriv.certification.second_trace import same_array
from fedpriv.certification.stages import Stage
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed
from fedpriv.core.trees import dimension
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.correlated import first_memory, is_correlated, perturbed_in_run
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.proof.marks import Sum
from fedpriv.proof.stream import THREEFRY
from fedpriv.rounds.private_step import features_of
from fedpriv.rounds.record_marks import Mean
from fedpriv.rounds.scheduled_samplers import AnySampler, cohort_drawn, first_memories

Which: TypeAlias = Literal["only", "first", "later"]
"""Of several runs that are certified together."""

_EARLIER = "on data only through what this view saw of earlier runs"
_CLOSING: dict[Which, tuple[str, str, str]] = {
    "only": ("the algorithm", "do not depend on data", "does not depend on data"),
    "first": ("the first run", "do not depend on data", "does not depend on data"),
    "later": ("a later run", f"depend {_EARLIER}", f"depends {_EARLIER}"),
}
"""Who closes over arrays, and what is assumed of these, and of a base."""


def assumed(
    stages: Sequence[Stage],
    samplers: Sequence[AnySampler],
    init_arrays: Sequence[ClosedOver],
    made: str | None,
    which: Which = "only",
) -> tuple[str, ...]:
    """What has to hold beside what was read off the rounds of these `stages`.

    Args:
      samplers: of cohorts and of records.
      init_arrays: that `init` closes over.
      made: as `closed_over`.
      which: of several runs.
    """
    releases = [release for stage in stages for release in stage.releases]
    texts = []
    means = [release for release in releases if isinstance(release, Mean)]
    if any(mean.step.sampling.public_sizes is not None for mean in means):
        texts.append(
            "how many records each client holds is public; the records of the smallest client cost most"
        )
    else:
        texts.append(
            "the largest number of records that a client holds, which array shapes show, is public, but how many each "
            "holds is not"
        )
    by_rounds = (each for stage in stages for each in closed_over(stage.program, made))
    arrays = [*init_arrays, *by_rounds]
    run, depend, depends = _CLOSING[which]
    if base := {id(each.array): each.array for each in arrays if each.is_base}.values():
        texts.append(
            f"the base of the model that is fine-tuned ({len(base)} arrays, {dimension([*base])} numbers) is public: "
            f"it {depends}"
        )
    if names := _names([each for each in arrays if not each.is_base], releases):
        texts.append(f"the arrays that {run} closes over ({', '.join(names)}) {depend}")
    if names := sorted({_name(each) for each in _of_draws(samplers)}):
        texts.append(
            f"the arrays that a sampler made by hand closes over ({', '.join(names)}) do not depend on data"
        )
    computed = [bits_of_shares(stage) for stage in stages if stage.uplink is None]
    if any(computed):
        texts.append(
            "the uplink that the round reports, which it computes anew in every round, has room for a client's share "
            f"of the noise, {max(computed)} bits"
        )
    texts += dict.fromkeys(
        f"the noise of others is not counted, as {why}"
        for stage in stages
        if any(_adds_its_own(release) for release in stage.releases) and (why := too_narrow(stage))
    )
    if any(stage.of.answer.delay is not None for stage in stages):
        texts.append(
            "how late an answer comes, for which model, and how much it counts, is drawn without looking at the data"
        )
    if lines := dict.fromkeys(line for stage in stages for line in stage.prints):
        texts.append(f"what the round prints ({', '.join(lines)}) is not released")
    return tuple(texts)


def assumed_of_normalised(leaves: Sequence[str]) -> tuple[str, ...]:
    """What has to hold where leaves of the records are on the scale of released statistics."""
    if not leaves:
        return ()
    return (
        f"{', '.join(leaves)} of the records is on the scale of released statistics, whose cost is counted only where "
        "they are among the runs that are certified together",
    )


def _adds_its_own(release: Sum | Mean) -> bool:
    """Whether each client hides its own unit, and others only add to it."""
    return release.step.is_noisy and release.step.adder in ("own", "own_summed")


def _names(arrays: Sequence[ClosedOver], releases: Sequence[Sum | Mean]) -> list[str]:
    """Of the arrays, but for the tables of sealed samplers and schedules."""
    tables = list(_tables(releases)) if arrays else []
    own = (x for x in arrays if not any(same_array(x.array, table) for table in tables))
    return sorted({_name(each) for each in own})


def _name(each: ClosedOver) -> str:
    return f"{each.array.dtype} {np.shape(each.array)} in {each.line}"


def _of_draws(samplers: Sequence[AnySampler]) -> Iterator[ClosedOver]:
    """The arrays that the draws of samplers made by hand close over."""
    for sampler in (sampler for sampler in samplers if not constructed(sampler)):
        yield from closed_over(program_of(sampler))


def program_of(sampler: AnySampler) -> ClosedJaxpr:
    """A sampler's draw, traced.

    Raises:
      ValueError: it is made by hand, and says how much members count, how they are clipped, or when they answer: that
        could follow the data.
    """
    key = jax.eval_shape(lambda: jax.random.key(0, impl=THREEFRY))
    (memory,) = first_memories(sampler)
    draw = partial(cohort_drawn, sampler)
    program, (drawn, _) = jax.make_jaxpr(draw, return_shape=True)(key, key, jnp.int32(0), memory)
    said = [name for name, leaf in drawn.answer._asdict().items() if leaf is not None]
    remedy = (
        "made by hand, it could follow the data; give fp.grouped(...), which fixes it beforehand"
    )
    require(constructed(sampler) or not said, "draw: answer", said, remedy)
    return program


def _tables(releases: Sequence[Sum | Mean]) -> Iterator[Any]:
    """The arrays that sealed samplers of records, schedules, correlated noise and sums of integers close over."""
    for release in releases:
        places = release.step.sampling.places if isinstance(release, Mean) else None
        if places is not None and constructed(places):
            yield from (each.array for each in closed_over(program_of(places)))
        used = release.step.mechanism
        if type(used) is Dynamic and constructed(used):
            yield used.ends
        if type(used) is Mechanism and is_correlated(used) and constructed(used):
            yield from (each.array for each in closed_over(_program_in_run(used, release.like)))
        integers = features_of(release.step).integer_sum(dimension(release.like))
        if integers is not None and constructed(used):
            lost = release.step.sampling.accounting.of_a_round.lossy
            yield from (each.array for each in closed_over(_program_of_sum(integers, lost)))


def _program_in_run(used: Mechanism, like: PyTree) -> ClosedJaxpr:
    """What correlated noise is in a round, traced."""
    key = jax.eval_shape(lambda: jax.random.key(0, impl=THREEFRY))
    memory = jax.eval_shape(lambda: first_memory(used, like))

    def perturb(key: Key, total: PyTree, memory: PyTree, t: jax.Array) -> PyTree:
        return perturbed_in_run(used, key, total, memory, t)

    return jax.make_jaxpr(perturb)(key, like, memory, jnp.int32(0))


def _program_of_sum(integers: IntegerSum, shares_are_lost: bool) -> ClosedJaxpr:
    """What is done with the messages of a cohort that travel as integers, traced."""
    key = jax.eval_shape(lambda: jax.random.key(0, impl=THREEFRY))

    def of_one(key: Key, message: jax.Array, staying: jax.Array) -> PyTree:
        total = integers.encode(key, key, message)
        noisy, _ = integers.perturb(key, total, staying if shares_are_lost else None)
        return integers.decode(key, noisy, message)

    message = jax.ShapeDtypeStruct((integers.dimension,), jnp.float32)
    return jax.make_jaxpr(of_one)(key, message, jnp.int32(0))
