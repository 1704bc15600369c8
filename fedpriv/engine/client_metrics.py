"""How well models serve the clients: a metric of each one's own records. A diagnostic, not private."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Finite, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Params, State
from fedpriv.core.user_functions import asked
from fedpriv.data.cohort_federation import CohortFederation
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices import distributed
from fedpriv.devices.closed_arrays import Jitted
from fedpriv.devices.layout import Strategy, current, spmd, sum_over
from fedpriv.engine.client_metric_names import (
    HELD_OUT,
    MEAN_OF_TRAINED,
    PER_CLIENT,
    PERSONAL,
    PERSONAL_PER_CLIENT,
    TRAINED,
    UNDEFINED,
)
from fedpriv.engine.compiled_rounds import Measured, ScoreFn
from fedpriv.engine.history import ClientValues
from fedpriv.engine.own_errors import OwnErrors, own_errors, owners
from fedpriv.engine.simulate import Measure
from fedpriv.models.score import WEIGHT, Score, better_higher, is_finite, is_fraction, summed

Personal: TypeAlias = Callable[[State, jax.Array], Params]
"""(state, client i: i32[]) -> the model of this client."""

BATCH = 250  # records at a time, if a client has not more
STREAMED = 1_000  # likewise, of those that are read at once


def per_client(
    score: ScoreFn,
    clients: Count | None = None,
    bound: Mapping[str, Finite] = MappingProxyType({}),
    on: Literal["train", "held_out"] | Federation = "train",
    personal: Personal | None = None,
) -> Measure:
    """A `measure` for `simulate`: the score's metrics on the clients' own records, and their spread over the clients.

    For accuracy, for example, it gives `per_client_accuracy_` with the endings

    - `mean`, over the clients, each counting equally, and `pooled`, over their records, each counting equally;
    - `median`, and `worst_decile`, the mean over the worst tenth of the clients, rounded up (T. Li et al., "Fair
      resource allocation in federated learning", ICLR 2020);
    - `below_0.5`, the fraction of clients worse than the bound (`above_` if lower is better).

    `Evaluation.clients` has the values of each client, under "per_client", each with an interval over its own records
    (`ClientValues.interval`), or over its persons where the federation says whose its records are.

    A client whose records have no weight does not count. Nor does one for which a metric of `Score.derived` is NaN
    though all its sums are finite (0/0: the recall of a client without a positive record); the ending `undefined` says
    how many these are. Any other client whose metric is NaN has diverged: it ranks worst, and makes the mean NaN.

    The names begin with `held_out_` for held-out records. For personal models they begin with `personal_` on held-out
    records, else with `personal_per_client_`. Whoever was never drawn has the model that all begin with. Where the
    state's field `trained`, bool[clients], says who has trained a model of its own, as that of `fp.ditto` does, there
    are also

    - `mean_of_trained`, over the clients that have, NaN where none has; and `trained`, how many these are.

    Args:
      score: as `simulate`'s.
      clients: how many clients to evaluate, always the same ones, drawn once without replacement; None, or more than
        there are: all.
      bound: metric -> bound; beside these, 0.5 for each accuracy.
      on: the records that clients train on, their held-out ones, or another federation; with `personal` its clients
        must be the same, in the same order.
      personal: (state, client i: i32[]) -> the client's model, as `Algorithm.personal`; by default the shared one,
        `state.params`. The result is the score's first argument, and may be more than a model.

    Raises:
      ValueError: clients below 1, or a bound that is not a number; when called, a bound of an unknown metric or outside
        its range, nothing held out, or a number of clients other than that of the personal models.
    """
    require(callable(score), "score", score, "give a function, (params, example) -> {name: number}")
    clients = checked("clients", clients, Count | None)
    remedy = "give a number for each metric that has one, {'loss': 0.4}"
    require(isinstance(bound, Mapping), "bound", bound, remedy)
    bound = {
        name: checked(f"bound[{name!r}]", evaluated, Finite) for name, evaluated in bound.items()
    }
    fits = isinstance(on, Federation) or (isinstance(on, str) and on in ("train", HELD_OUT))
    require(fits, "on", on, "give 'train', 'held_out', or such as fp.Federation.from_arrays(...)")
    scored = Score.of(score)
    kind, found_of = each_client(scored, on, personal, partial(judged, scored))

    def measure(state: State, federation: Any) -> Measured:
        ids, own = found_of(state, federation, lambda total: _chosen(total, clients))
        which = jnp.asarray(ids)
        trained = trained_of(kind, state, which)
        return _summary(kind, scored, which, own, trained, bound)

    return measure


class Judged(NamedTuple):
    """Of one client or group; of several with a leading axis.

    Attributes:
      records: f32[...], their weight.
      metrics: name -> f32[...].
      finite: bool[...], whether all sums over its records are.
    """

    records: jax.Array
    metrics: dict[str, jax.Array]
    finite: jax.Array


def judged(score: Score, sums: Mapping[str, jax.Array]) -> Judged:
    """What a score's sums say of whom they are of."""
    return Judged(sums[WEIGHT], score.metrics(sums), is_finite(sums))


class OfClients(NamedTuple):
    """Of several clients. What the score sums over the records of each may be large, and is not kept.

    Attributes:
      each: what is kept of each, leaves [clients, ...].
      errors: how exactly the records of each tell each metric.
      pooled: name -> f32[...], what the score sums over all their records.
    """

    each: Any
    errors: OwnErrors
    pooled: dict[str, jax.Array]


def each_client(
    score: Score,
    on: Literal["train", "held_out"] | Federation,
    personal: Personal | None,
    kept: Callable[[dict[str, jax.Array]], Any],
) -> tuple[str, Callable[[State, Any, Callable[[int], np.ndarray]], tuple[np.ndarray, OfClients]]]:
    """For measures of clients: the kind of their values, and what is found of single ones.

    The latter is a function of state, federation, and total number of clients -> i32[clients], those evaluated; it
    gives these, and what was found.

    Args:
      on, personal: as `per_client`.
      kept: what the score sums over a client's records -> what is kept of this client.

    Raises:
      ValueError: `personal` is no function; when called, as `per_client`.
    """
    fits = personal is None or callable(personal)
    require(fits, "personal", personal, "give a function, (state, client) -> its model")
    kind = HELD_OUT if on == HELD_OUT else PER_CLIENT
    if personal is not None:
        kind = PERSONAL if on == HELD_OUT else PERSONAL_PER_CLIENT

    def found(
        state: State, evaluated: Any, ids: jax.Array, number: Any, whose: Any = None
    ) -> OfClients:
        of = personal or _everybodys
        return _of_clients(score, of, kept, state, evaluated, ids, number, whose)

    @cache
    def compiled(strategy: Strategy) -> Callable[..., OfClients]:
        return Jitted(spmd(found))

    def found_of(
        state: State, federation: Any, choose: Callable[[int], np.ndarray]
    ) -> tuple[np.ndarray, OfClients]:
        evaluated = on if isinstance(on, Federation) else federation
        evaluated = evaluated.held_out if on == HELD_OUT else evaluated
        if personal is not None and evaluated.num_clients != federation.num_clients:
            raise ValueError(
                f"on: {evaluated.num_clients} clients, but there are personal models of {federation.num_clients}; give "
                "records of the same clients, in the same order"
            )
        ids = choose(evaluated.num_clients)
        if isinstance(evaluated, StreamedFederation):
            return ids, _streamed(compiled(current()), state, evaluated, ids)
        return ids, found(state, evaluated, jnp.asarray(ids), len(ids))

    return kind, found_of


def _everybodys(state: State, i: jax.Array) -> Params:
    return state.params


def _chosen(total: int, clients: int | None) -> np.ndarray:
    """i32[clients evaluated], in order."""
    if clients is None or clients >= total:
        return np.arange(total, dtype=np.int32)
    chosen = np.random.default_rng(0).choice(total, clients, replace=False)
    return np.sort(chosen).astype(np.int32)


def _of_clients(
    score: Score,
    personal: Personal,
    kept: Callable[[dict[str, jax.Array]], Any],
    state: State,
    evaluated: Federation | CohortFederation,
    ids: jax.Array,
    number: int | jax.Array,
    whose: jax.Array | None,
) -> OfClients:
    """What is found of each of `ids`.

    Args:
      number: i32[], how many of these are pooled, the first.
      whose: i32[clients, capacity], equal where records of one of `ids` share a person, unless the federation says it.
    """
    count, together = len(ids), max(1, BATCH // evaluated.capacity)
    rows = jnp.resize(ids, (-(-count // together), together))
    pooled = jnp.arange(rows.size).reshape(rows.shape) < number
    records = evaluated.records(ids, jnp.ones(count, bool))
    owner = _owner(evaluated, ids, whose)

    def client(i: jax.Array) -> tuple[dict[str, jax.Array], tuple[Any, OwnErrors]]:
        model = asked("personal", personal, "(state, client)", state, i)
        score.names(model, records(i))  # raises
        each = jax.vmap(score, in_axes=(None, 0))(model, records(i))
        there = jnp.arange(evaluated.capacity) < evaluated.size[i]
        own = summed(each, there)
        return own, (kept(own), own_errors(score, own, each, there, owner(i)))

    def several(some: jax.Array, pooled: jax.Array) -> tuple[dict[str, jax.Array], Any]:
        own, found = jax.vmap(client)(some)
        return summed(own, pooled), found

    every = jnp.ones(len(rows), bool)
    total, found = sum_over(several, every, rows, pooled)
    each, errors = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], found)
    return OfClients(each, errors, total)


def _owner(evaluated: Any, ids: jax.Array, whose: jax.Array | None) -> Callable[[jax.Array], Any]:
    """i -> i32[capacity], whose the records of client i are; None where each is a unit of its own."""
    if whose is not None:
        given = jnp.asarray(whose)
        return lambda i: given[jnp.argmax(ids == i)]
    number = owners(evaluated) if isinstance(evaluated, Federation) else None
    if number is None:
        return lambda i: None
    every = jnp.asarray(number)
    return lambda i: every[evaluated.client_rows.of_client(i)]


def _streamed(
    found: Callable[..., OfClients], state: State, evaluated: StreamedFederation, ids: np.ndarray
) -> OfClients:
    """As `_of_clients`, of records that are read some at a time."""
    owner, rows = owners(evaluated), evaluated.rows_on_host[0]
    start = np.cumsum(rows.size) - rows.size
    place = np.arange(evaluated.capacity)
    at_once = max(1, min(len(ids), STREAMED // evaluated.capacity))
    empty, parts = evaluated.empty(), list[OfClients]()
    for i, some in enumerate(np.resize(ids, (-(-len(ids) // at_once), at_once))):
        with jax.ensure_compile_time_eval():  # arrays, also where `simulate` asks for shapes alone
            read = distributed.replicate(evaluated.read(some), current().mesh)
        cohort = replace(empty, holders=read[0], holder_records=read[1])
        left = jnp.int32(len(ids) - i * at_once)
        if owner is None:
            parts.append(found(state, cohort, some, left))
            continue
        at = start[some][:, None] + np.where(place < rows.size[some][:, None], place, 0)
        whose = owner[rows.rows[np.minimum(at, len(rows.rows) - 1)]]
        parts.append(found(state, cohort, some, left, whose))
    found_of_each = [(part.each, part.errors) for part in parts]
    each, errors = jax.tree.map(lambda *x: jnp.concatenate(x)[: len(ids)], *found_of_each)
    pooled = jax.tree.map(lambda *x: sum(x), *(part.pooled for part in parts))
    return OfClients(each, errors, pooled)


def _summary(
    kind: str,
    score: Score,
    ids: jax.Array,
    own: OfClients,
    trained: jax.Array | None,
    bound: Mapping[str, float],
) -> dict[str, jax.Array | ClientValues]:
    """Every metric of each client, and what it is over the clients."""
    (records, metrics, finite), errors, total = own
    _check_bound(bound, [*metrics])
    pooled = score.metrics(total)
    there, found = records != 0, dict[str, jax.Array | ClientValues]()
    for name, values in metrics.items():
        undefined = there & finite & jnp.isnan(values)
        higher, stem = better_higher(name, score.higher), f"{kind}_{name}"
        standard = 0.5 if name.endswith("accuracy") else None
        counts, least = there & ~undefined, bound.get(name, standard)
        found |= _spread(stem, values, counts, pooled[name], higher, least)
        found |= over_trained(stem, values, counts, trained)
        if name in score.derived:  # a mean is never 0/0
            found[f"{stem}_{UNDEFINED}"] = jnp.sum(undefined).astype(values.dtype)
    shown = {name: jnp.where(jnp.isfinite(x), x, jnp.nan) for name, x in metrics.items()}
    return {**found, kind: ClientValues(ids, records, shown, errors)}


def trained_of(kind: str, state: State, ids: jax.Array) -> jax.Array | None:
    """bool[n], for measures of clients: which of these have trained models of their own; None where nothing says it."""
    trained: Any = getattr(state, "trained", None)
    known = isinstance(trained, jax.Array) and trained.dtype == jnp.bool_ and trained.ndim == 1
    return trained[ids] if known and kind in (PERSONAL, PERSONAL_PER_CLIENT) else None


def over_trained(
    stem: str, values: jax.Array, counts: jax.Array, trained: jax.Array | None
) -> dict[str, jax.Array]:
    """For measures of clients: the mean over those that count, and have trained, and how many these are."""
    if trained is None:
        return {}
    both = counts & trained
    return {
        f"{stem}_{MEAN_OF_TRAINED}": jnp.mean(values, where=both),
        f"{stem}_{TRAINED}": jnp.sum(both).astype(values.dtype),
    }


def _check_bound(bound: Mapping[str, float], metrics: Sequence[str]) -> None:
    for name, of in bound.items():
        if name not in metrics:
            known = ", ".join(metrics)
            raise ValueError(f"bound: there is no metric {name!r}; the score gives {known}")
        if is_fraction(name) and not 0 <= of <= 1:
            raise ValueError(f"bound: {of:g} is no {name}, which is in [0, 1]; 80 % is 0.8")


def _spread(
    stem: str,
    values: jax.Array,
    counts: jax.Array,
    pooled: jax.Array,
    higher: bool,
    bound: float | None,
) -> dict[str, jax.Array]:
    """Args: counts: bool[clients], who has records, and a metric that is not undefined."""
    sign = 1 if higher else -1
    ranked = jnp.where(jnp.isnan(values), -jnp.inf, sign * values)
    ranked = jnp.where(counts, ranked, jnp.nan)  # NaN is left out, and last in order
    worst = -(-jnp.sum(counts) // 10)
    tenth = jnp.where(jnp.arange(len(values)) < worst, jnp.sort(ranked), jnp.nan)
    statistics = {
        f"{stem}_mean": jnp.mean(values, where=counts),
        f"{stem}_pooled": pooled,
        f"{stem}_median": sign * jnp.nanmedian(ranked),
        f"{stem}_worst_decile": sign * jnp.nanmean(tenth),
    }
    if bound is not None:
        worse = jnp.mean(ranked < sign * bound, where=counts)
        statistics[f"{stem}_{'below' if higher else 'above'}_{bound:g}"] = worse
    return statistics


def together(*measures: Measure) -> Measure:
    """Combines several measures into one, with the numbers of all.

    Raises:
      ValueError: one of them is not a function.
    """
    for i, each in enumerate(measures):
        require(
            callable(each),
            f"measures[{i}]",
            each,
            "give one such as fp.measures.per_client(score)",
        )

    def measure(state: State, federation: Any) -> dict[str, Any]:
        measured: dict[str, Any] = {}
        for each in measures:
            own = each(state, federation)
            if twice := sorted(measured.keys() & own.keys()):
                raise ValueError(
                    f"measures: two of them give {twice[0]!r}; leave one out, or rename it"
                )
            measured |= own
        return measured

    return measure
