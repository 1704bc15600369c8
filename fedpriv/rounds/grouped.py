"""Groups of clients with budgets of their own: each is drawn, or counts, in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Rate, checked
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.types import Key, PyTree
from fedpriv.privacy.sampling.asked import is_alone
from fedpriv.privacy.sampling.grouped import Grouped, GroupedTurns, adjacency_of
from fedpriv.rounds.group_names import digest_of, labels_of, named, table
from fedpriv.rounds.samplers import Answer, Draw, Sampler
from fedpriv.rounds.scheduled_samplers import AnySampler, ScheduledSampler, no_memory


def grouped(
    groups: Sequence[str],
    samplers: Mapping[str, AnySampler] | AnySampler,
    *,
    weights: Mapping[str, Rate] | None = None,
    clip_scales: Mapping[str, Rate] | None = None,
) -> AnySampler:
    """Clients in public groups, each with a sampler, a weight or a clip norm of its own, and so with its own epsilon.

    A cohort is drawn from each group, independently of the others, and all are summed together. Or all groups are drawn
    by one sampler, and differ only in how much they count. A mean divides by the expected sum of the weights.

    Formal guarantees: a unit has the certificate of its own group's sampler, with noise that is 1 / (w c) times as
    large for a weight w and a clip scale c; the proof is at `fedpriv.privacy.sampling.grouped.Strata`. Groups, rates
    and weights have to be public, fixed, and independent of records; a unit that is replaced stays in its group. That
    somebody asks for more privacy may tell something by itself, which nothing here hides.

    Args:
      groups: [clients], the name of each client's group, a text or a whole number.
      samplers: name -> a sampler of that group's members, such as `fp.poisson(members, rate)`; or one sampler of all
        clients.
      weights: name -> in (0, 1], by which clipped messages are multiplied; None: 1.
      clip_scales: name -> in (0, 1], the group's clip norm over the mechanism's; None: 1.

    Raises:
      ValueError: a client without a group; a group without a sampler or number, or one without members; a sampler for
        another number of clients, of your own, or whose vanishing members take noise along; groups that are certified
        under different adjacencies; persons' draws; weights or clip scales that differ where one draw of all groups may
        put a client in another's place.
    """
    labels = labels_of("groups", groups)
    members = {name: np.flatnonzero(labels == name) for name in dict.fromkeys(labels.tolist())}
    weight = _of_each("weights", weights, members)
    scale = _of_each("clip_scales", clip_scales, members)
    counts = tuple(weight[name] * scale[name] for name in members)
    if isinstance(samplers, Mapping):
        strata = _strata(samplers, members)
        drawn = {name: one.accounting for name, (one, _) in strata.items()}
        expected = sum(weight[name] * one.expected_size for name, (one, _) in strata.items())
    else:
        remedy = "give name of a group -> sampler of its members, or one sampler of all clients"
        require(isinstance(samplers, AnySampler), "samplers", samplers, remedy)
        _check_sampler("samplers", samplers, len(labels))
        alike = len({(weight[name], scale[name]) for name in members}) == 1
        alone = is_alone(samplers.accounting.of_a_round) or alike
        remedy = "a client may stand in the place of one that counts otherwise; give a sampler for each group"
        require(alone, "samplers", samplers.accounting, remedy)
        strata = {"": (samplers, np.arange(len(labels)))}
        drawn = dict.fromkeys(members, samplers.accounting)
        mean = sum(weight[name] * len(own) for name, own in members.items()) / len(labels)
        expected = mean * samplers.expected_size
    each = [one for one, _ in strata.values()]
    accounting: dict[str, Any] = {
        "population": len(labels),
        "most": sum(one.most for one in each),
        "parts": tuple(drawn.items()),
        "weights": counts,
        "members": digest_of([labels]),
        "labels": tuple(labels.tolist()),
    }
    tables = [table(ids.astype(np.int32)) for _, ids in strata.values()]
    answer = Answer(*(_of_clients(numbers, labels) for numbers in (weight, scale)))
    draw = partial(_drawn, each, tables, answer, len(labels))
    slots = sum(one.slots for one in each)
    if not any(one.accounting.turns is not None for one in each):
        return sealed(Sampler(lambda key: draw(key)[0], slots, expected, Grouped(**accounting)))
    remembers = any(one.has_memory for one in each)
    return sealed(
        ScheduledSampler(
            draw,
            slots,
            expected,
            GroupedTurns(**accounting),
            (lambda: tuple(one.first_memory() for one in each)) if remembers else no_memory,
        )
    )


def _drawn(
    samplers: Sequence[AnySampler],
    members: Sequence[jax.Array],
    answer: Answer,
    population: int,
    key: Key,
    t: Any = None,
    memory: PyTree = (),
) -> tuple[Draw, PyTree]:
    """(Draws of all strata one after another, what their samplers remember).

    Args:
      members: i32[members] of each stratum, ids.
      answer: leaves [clients].
      t: rounds done, where some go by it; then the key is that of the run.
    """
    ids, masks, after = [], [], []
    for number, (one, own) in enumerate(zip(samplers, members, strict=True)):
        of_run = jax.random.fold_in(key, number)
        of_round = of_run if t is None else jax.random.fold_in(of_run, t)
        drawn, remembered = one.cohort(of_round, of_run, t, memory[number] if memory else ())
        alike = not jax.tree.leaves(drawn.answer)
        remedy = (
            "its members' answers differ already; give one whose members answer at once, and alike"
        )
        require(alike, "samplers", one.accounting, remedy)
        ids.append(own.at[drawn.ids].get(mode="fill", fill_value=population))
        masks.append(drawn.mask)
        after.append(remembered)
    everybody = jnp.concatenate(ids)
    answers = jax.tree.map(lambda leaf: leaf.at[everybody].get(mode="fill", fill_value=1), answer)
    return Draw(everybody, jnp.concatenate(masks), answers), tuple(after) if memory else ()


def _strata(
    samplers: Mapping[str, AnySampler], members: Mapping[str, np.ndarray]
) -> dict[str, tuple[AnySampler, np.ndarray]]:
    """Name -> (sampler, ids i64[members])."""
    given = named("samplers", samplers, members, "a sampler of its members")
    for name, own in members.items():
        _check_sampler(f"samplers[{name!r}]", given[name], len(own))
    adjacencies = {name: adjacency_of(given[name].accounting) for name in members}
    first, *others = adjacencies
    for other in others:
        require(
            adjacencies[first] == adjacencies[other],
            "samplers",
            {name: adjacencies[name] for name in (first, other)},
            "groups need one adjacency; draw all the same way (fp.poisson(n, 1) and fp.fixed_size(n, n) draw everyone)",
        )
    return {name: (given[name], own) for name, own in members.items()}


def _check_sampler(what: str, sampler: Any, clients: int) -> None:
    remedy = f"give one such as fp.poisson({clients}, rate=0.1)"
    require(isinstance(sampler, AnySampler), what, sampler, remedy)
    drawn = sampler.accounting
    require(
        constructed(sampler) and not drawn.group_names and not drawn.persons,
        what,
        drawn,
        "made by hand, of persons, or grouped itself; give one of fedpriv's own, whose draws are proved to be "
        "independent",
    )
    remedy = (
        f"made for {drawn.population} clients, but `groups` has {clients}; give it one name for each client, and both "
        "the same number"
    )
    require(drawn.population == clients, what, drawn, remedy)
    remedy = 'who vanishes takes noise of all groups along; give fp.dropping(..., noise="whole")'
    require(not drawn.of_a_round.lossy, what, drawn, remedy)


def _of_each(what: str, given: Any, members: Mapping[str, Any]) -> dict[str, float]:
    """Name -> a number in (0, 1], as the program multiplies by it; 1 where none is given."""
    if given is None:
        return dict.fromkeys(members, 1.0)
    numbers = named(what, given, members, "a number in (0, 1]")

    def as_multiplied(name: str) -> float:
        text = f"{what}[{name!r}]"
        return float(checked(text, np.float32(checked(text, numbers[name], Rate)), Rate))

    return {name: as_multiplied(name) for name in members}


def _of_clients(numbers: Mapping[str, float], labels: np.ndarray) -> jax.Array | None:
    """f32[clients]; None where all are 1."""
    if set(numbers.values()) == {1.0}:
        return None
    return table(np.array([numbers[name] for name in labels.tolist()], np.float32))
