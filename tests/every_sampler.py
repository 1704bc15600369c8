"""Every sampler of clients, for one population: a new one gets one entry, and is held to all laws of samplers."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import fedpriv as fp
from fedpriv.rounds.late_samplers import late
from fedpriv.rounds.samplers import Sampler, parts_of
from fedpriv.rounds.scheduled_samplers import answers_drawn

N, RUNS, ROUNDS = 12, 300, 24
LABELS = [*"aabbbb"] * 2
LATE = fp.delays.geometric(1.0, 3)


class Entry(NamedTuple):
    """A sampler, as laws ask for it."""

    sampler: Any

    @property
    def kind(self) -> tuple:
        """What it is accounted as, whether a run remembers something, and whether it has parts."""
        return type(self.sampler.accounting), self.has_memory, self.has_parts

    @property
    def has_memory(self) -> bool:
        """Whether a run remembers something between its rounds."""
        return any(part.has_memory for _, part in parts_of(self.sampler, 2))

    @property
    def has_parts(self) -> bool:
        """Whether rounds are drawn by one sampler, and later ones by another."""
        return isinstance(self.sampler, fp.Opening)

    @property
    def is_cut(self) -> bool:
        """Whether members of some draws are left out for lack of room."""
        return bool(getattr(self.sampler.accounting.of_a_round, "can_be_cut", False))

    @property
    def is_weighted(self) -> bool:
        """Whether clients are drawn by weights, or count by those of their groups."""
        told = self.sampler.accounting
        return type(told).__name__ == "WithReplacement" or not told.counts_equally

    @property
    def is_late(self) -> bool:
        """Whether answers come late."""
        (_, sampler), *_ = parts_of(self.sampler, 1)
        return answers_drawn(sampler).delay is not None

    @property
    def is_alike(self) -> bool:
        """Whether each draw is as the other, of clients that are all alike."""
        told = self.sampler.accounting
        return isinstance(self.sampler, Sampler) and not (told.group_names or self.is_weighted)


def by_groups(samplers, **options):
    return fp.grouped(LABELS, samplers, **options)


BY_RATE = {"a": fp.poisson(4, 0.75), "b": fp.poisson(8, 0.25)}
SAMPLERS = {
    "everyone": fp.everyone(N),
    "everyone, some vanish": fp.dropping(fp.everyone(N), 0.3125),
    "fixed": fp.fixed_size(N, 4),
    "fixed, some vanish": fp.dropping(fp.fixed_size(N, 4), 0.3125),
    "poisson": fp.poisson(N, 0.3, N),
    "poisson, cut": fp.poisson(N, 0.4, 4),
    "with replacement": fp.with_replacement([*range(1, N + 1)], 4),
    "opening, then rests": fp.Opening(fp.everyone(N), 2, fp.random_availability(N, 3, 2, 0.7, 2)),
    "opening": fp.Opening(fp.everyone(N), 2, fp.poisson(N, 0.3, N)),
    "groups": by_groups(BY_RATE),
    "weights": by_groups(BY_RATE, weights={"a": 0.5, "b": 1.0}),
    "turns of groups": by_groups(
        {"a": fp.fixed_order(4, 1), "b": fp.random_availability(8, 2, 2, 0.9)}
    ),
    "order": fp.fixed_order(N, 5),
    "order, ends": fp.fixed_order(N, 4, 2),
    "blocks": fp.shuffled_blocks(N, 4),
    "cyclic": fp.cyclic_poisson(N, 3, 0.6),
    "cyclic, cut": fp.cyclic_poisson(N, 3, 0.6, 2),
    "allocation": fp.random_allocation(N, 4, N),
    "allocation, cut": fp.random_allocation(N, 4, 4),
    "availability": fp.random_availability(N, 3, 2, 0.7),
    "availability, ends": fp.random_availability(N, 3, 2, 0.7, 3),
    "free": late(fp.FreeClients(N, buffer=3), LATE)[0],
    "late": late(fp.poisson(N, 0.3), LATE, lambda d: 1 / (1 + d))[0],
}
ENTRIES = {name: Entry(sampler) for name, sampler in SAMPLERS.items()}
DRAWN = {name: entry for name, entry in ENTRIES.items() if not entry.has_parts}

EVERYBODY = {
    "fixed size": fp.fixed_size(N, N),
    "poisson": fp.poisson(N, 1.0, N),
    "vanishing at rate 0": fp.dropping(fp.fixed_size(N, N), 0.0),
    "order": fp.fixed_order(N, N),
    "blocks": fp.shuffled_blocks(N, N),
    "cyclic": fp.cyclic_poisson(N, 1, 1.0),
    "allocation": fp.random_allocation(N, 1),
    "availability": fp.random_availability(N, N, 1, 1.0),
    "groups": by_groups({"a": fp.everyone(4), "b": fp.everyone(8)}),
    "free": late(fp.FreeClients(N, buffer=N), fp.delays.constant(0))[0],
}
NOBODY = {
    "poisson": fp.poisson(N, 1e-12),
    "cyclic": fp.cyclic_poisson(N, 3, 1e-12),
    "availability": fp.random_availability(N, 3, 2, 1e-12),
    "vanishing": fp.dropping(fp.everyone(N), 1 - 2**-32),
    "groups": by_groups({"a": fp.poisson(4, 1e-12), "b": fp.poisson(8, 1e-12)}),
}


class Drawn(NamedTuple):
    """What was drawn in some runs: arrays [runs, rounds, ...].

    Attributes:
      ids, mask: of the slots.
      times: how often each client was drawn.
      weight: what members count together.
    """

    ids: np.ndarray
    mask: np.ndarray
    times: np.ndarray
    weight: np.ndarray


def drawn_by(sampler, runs=RUNS, rounds=ROUNDS) -> Drawn:
    """By the draws alone, as the engine asks for them."""

    @jax.jit
    @jax.vmap
    def of_run(root):
        def one(memory, t):
            key = jax.random.fold_in(root, t)
            drawn, memory = sampler.cohort(key, jax.random.fold_in(root, rounds), t, memory)
            weight = drawn.answer.weight
            total = jnp.sum(drawn.mask * (1.0 if weight is None else weight))
            return memory, (drawn.ids, drawn.mask, total)

        return lax.scan(one, sampler.first_memory(), jnp.arange(rounds))[1]

    ids, mask, weight = map(np.asarray, of_run(jax.random.split(jax.random.key(0), runs)))
    times = np.zeros((runs, rounds, N + 1), int)
    np.add.at(times, (*np.indices(ids.shape)[:2], ids), mask)
    return Drawn(ids, mask, times[..., :N], weight)


@cache
def draws(name: str) -> Drawn:
    """Of an entry of `DRAWN`."""
    return drawn_by(DRAWN[name].sampler)


def told(sampler, client: int):
    """How a client is drawn, as its group is."""
    accounting = sampler.accounting
    return accounting.of_group(LABELS[client])[0] if accounting.group_names else accounting
