"""Rows of whole clients, and of persons who hold them: all samplers with all kinds of noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from golden.rows import Row
from small import squared, start

import fedpriv as fp

CLIENTS, ROUNDS = 12, 6
GROUPS = ["a", "b", "b"] * 4  # 4 and 8 clients
LATE = fp.delays.geometric(1.0, 2)
BY_CLASS = fp.delays.by_class(GROUPS, {"a": fp.delays.constant(2), "b": fp.delays.constant(0)})
FIXED, POISSON = fp.fixed_size(CLIENTS, 4), fp.poisson(CLIENTS, 0.25, CLIENTS)
POISSON_GROUPS = {"a": fp.poisson(4, 0.5, 4), "b": fp.poisson(8, 0.1, 8)}
FIXED_GROUPS = {"a": fp.fixed_size(4, 2), "b": fp.fixed_size(8, 2)}


class Late(NamedTuple):
    """Who answers in a buffered round, and how late."""

    who: Any
    delay: Any


SAMPLINGS: dict[str, Any] = {
    "everyone": fp.everyone(CLIENTS),
    "fixed size": FIXED,
    "fixed size, all": fp.fixed_size(CLIENTS, CLIENTS),
    "poisson, never cut": POISSON,
    "poisson, sometimes cut": fp.poisson(CLIENTS, 0.25, 5),
    "poisson, mostly cut": fp.poisson(CLIENTS, 0.5, 2),
    "poisson, always cut": fp.poisson(CLIENTS, 1.0, 4),
    "with replacement": fp.with_replacement([1.0] * 11 + [2.0], 3),
    "dropping, whole": fp.dropping(FIXED, 0.25),
    "dropping, lost": fp.dropping(FIXED, 0.25, "lost"),
    "dropping of everyone, lost": fp.dropping(fp.everyone(CLIENTS), 0.25, "lost"),
    "dropping of poisson": fp.dropping(POISSON, 0.25),
    "cyclic poisson": fp.cyclic_poisson(CLIENTS, 3, 0.5, 4),
    "cyclic poisson, cut": fp.cyclic_poisson(CLIENTS, 3, 0.5, 2),
    "fixed order": fp.fixed_order(CLIENTS, 4),
    "shuffled blocks, at most once": fp.shuffled_blocks(CLIENTS, 4, participations=1),
    "random availability": fp.random_availability(CLIENTS, 3, 2, 0.7),
    "random allocation": fp.random_allocation(CLIENTS, 3, CLIENTS),
    "random allocation, cut": fp.random_allocation(CLIENTS, 3, 4),
    "groups of poisson": fp.grouped(GROUPS, POISSON_GROUPS, weights={"a": 0.5, "b": 1.0}),
    "groups of fixed size": fp.grouped(GROUPS, FIXED_GROUPS, clip_scales={"a": 0.5, "b": 1.0}),
    "groups in turn": fp.grouped(GROUPS, fp.fixed_order(CLIENTS, 4), weights={"a": 0.5, "b": 1.0}),
    "by person, poisson": partial(fp.by_person, fp.poisson(4, 0.25, 4)),
    "by person, fixed size": partial(fp.by_person, fp.fixed_size(4, 2)),
    "late, free clients": Late(fp.FreeClients(CLIENTS, buffer=3), LATE),
    "late, by class": Late(fp.FreeClients(CLIENTS, buffer=3), BY_CLASS),
    "late, poisson": Late(POISSON, LATE),
    "opening": fp.Opening(fp.everyone(CLIENTS), 2, POISSON),
}
"""A sampler, what makes one for a federation, or who answers late."""
OF_GROUPS = ("groups of poisson", "groups of fixed size", "groups in turn", "late, by class")
GAUSSIAN = fp.gaussian(0.5, 2.0)
NOISES: dict[str, Any] = {
    "gaussian": GAUSSIAN,
    "laplace": fp.laplace(0.5, 12.0),
    "discrete gaussian": fp.discrete_gaussian(0.5, 2.0, bits=18),
    "skellam": fp.skellam(0.5, 2.0, bits=18),
    "banded": None,
    "joint": fp.joint(GAUSSIAN, fp.gaussian(1.0, 4.0)),
    "falling": fp.dynamic(GAUSSIAN, rounds=ROUNDS, noise_decay=2.0, parts=3),
}
BANDED = fp.noise_matrices.banded_toeplitz(ROUNDS, 3)
CORRELATED = {who: fp.correlated(GAUSSIAN, BANDED, adder=who) for who in ("server", "enclave")}
UNITS = {"client": None, "person of 1": 1, "person of 3": 3}
"""How many clients each person has, who are the units."""
ALL = ("shares", "own", "server")
ADDERS = {
    "gaussian": ALL,
    "laplace": ("own", "server", "shares"),
    "discrete gaussian": ("shares",),
    "skellam": ("shares",),
    "banded": ("server", "enclave"),
    "joint": ("server", "shares", "own"),
    "falling": ALL,
}
"""Who can add noise of a kind; the refusals of others are not of a sampler."""
HONEST = (1.0, 1.0, 0.5)
DELTAS = (1e-5, 1e-2, 1e-9)


@cache
def federation(clients_of_a_person: int | None) -> fp.Federation:
    """Two records each."""
    persons = clients_of_a_person and np.arange(CLIENTS) // clients_of_a_person
    x = np.arange(CLIENTS * 2 * 3, dtype=np.float32).reshape(-1, 3)
    rows = np.arange(CLIENTS * 2).reshape(CLIENTS, 2)
    return fp.Federation.from_arrays({"x": x, "y": x[:, 0]}, list(rows), person=persons)


def averaging(sampling: Any, mechanism: Any, adder: str = "shares") -> fp.Algorithm:
    """The model follows the noisy sums of gradients, as short as that can be."""
    messages_are_coded = adder == "server" and mechanism not in CORRELATED.values()
    codec: Any = {"codec": fp.top_k(2)} if messages_are_coded else {}
    parts = mechanism is NOISES["joint"]

    def send(params: Any, shard: fp.Shard) -> Any:
        gradient = fp.mean_grad(squared)(params, shard.examples, shard.mask)
        return (gradient, jnp.zeros(2)) if parts else gradient

    def moved(state: Any, total: Any) -> Any:
        step = total[0] if parts else total
        params = jax.tree.map(jnp.subtract, state.params, step)
        return fp.ModelState(params, state.round + 1)

    if isinstance(sampling, Late):
        late: Any = {"sampler": sampling.who, "delay": sampling.delay, "mechanism": mechanism}
        return fp.buffered(lambda key, params, shard: send(params, shard), moved, **late, **codec)

    def round(key: Any, state: Any, cohort: fp.Cohort) -> Any:
        client = lambda key, shard: send(state.params, shard)  # noqa: E731
        who: Any = {"adder": "own"} if adder == "own" else {}
        total, metrics, _ = cohort.sum(client, key, mechanism=mechanism, **codec, **who)
        return moved(state, total), metrics

    return fp.Algorithm(fp.start, round, sampling)


@cache
def traced(sampling: str, noise: str, adder: str, unit: str) -> Any:
    """The round of an algorithm with these, traced once."""
    given, of = SAMPLINGS[sampling], federation(UNITS[unit])
    sampler = given(of) if isinstance(given, partial) else given
    mechanism = NOISES[noise] or CORRELATED[adder]
    return fp.trace_round(averaging(sampler, mechanism, adder), start(), of)


def certified(
    sampling: str, noise: str, adder: str, unit: str, delta: float, **options: Any
) -> fp.Certificate:
    """Of all rounds."""
    return traced(sampling, noise, adder, unit).certify(ROUNDS, delta, **options)


def rows() -> Iterator[Row]:
    """Every sampler with every noise; all other levels by turns, so that every pair of any two comes."""
    for i, (sampling, given) in enumerate(SAMPLINGS.items()):
        for j, noise in enumerate(NOISES):
            adders = [who for who in ADDERS[noise] if who != "own" or not isinstance(given, Late)]
            adder = adders[i // 3 % len(adders)]
            view = fp.privacy.VIEWS[(i + j) % 3]
            unit = [*UNITS][(i // 3 + 2 * j) % 3]
            if isinstance(given, partial):
                unit = "person of 3"
            elif sampling in OF_GROUPS and j > 1:
                unit = "client"  # groups are not certified for persons
            honest, delta = HONEST[(i + 2 * j) % 3], DELTAS[(i + i // 3 + j) % 3]
            words = f"{sampling} x {noise} x {adder} x {unit} x {view}"
            name = f"{words} x {honest:g} honest x delta {delta:g}"
            options = {"view": view, "honest": honest}
            yield Row(name, partial(certified, sampling, noise, adder, unit, delta, **options))
