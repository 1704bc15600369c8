"""Who is hurt: metrics of groups of clients, or of public examples, by a public column. A diagnostic, not private."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, checked, is_name
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, State
from fedpriv.data.client_ids import are_missing
from fedpriv.data.federation import Federation
from fedpriv.data.validation import check_lengths, leaves_of, on_host
from fedpriv.engine.client_metric_names import TEST, of_group
from fedpriv.engine.client_metrics import (
    BATCH,
    Judged,
    Personal,
    each_client,
    judged,
    over_trained,
    trained_of,
)
from fedpriv.engine.compiled_rounds import Measured, ScoreFn
from fedpriv.engine.history import ClientValues
from fedpriv.engine.simulate import Measure
from fedpriv.models.score import GROUP_GAP, WORST_GROUP, Score, better_higher


def per_group(
    score: ScoreFn,
    groups: Sequence[str | int | None] | ArrayLike | str,
    *,
    clients: Count | None = None,
    on: Literal["train", "held_out"] | Federation | Example = "train",
    personal: Personal | None = None,
) -> Measure:
    """A `measure` for `simulate`: the score's metrics for each group of clients, the worst group, and the gap.

    For accuracy on held-out records, for example, it gives

    - `held_out[rural]_accuracy_mean`, for each group: over its clients, each counting equally;
    - `held_out_accuracy_worst_group`, that of the group that fares worst, and `held_out_accuracy_group_gap`, how far
      the best group's is from it.

    `Evaluation.clients` has the values of a group's clients, under "held_out[rural]". The other kinds are those of
    `per_client`, and "test" for public examples, of which a group counts as one client.

    With personal models, each group also has `mean_of_trained` and `trained`, as `per_client`.

    A group without a client that counts, as `per_client` counts them, is undefined (NaN); worst group and gap leave it
    out. They are NaN where a group has diverged.

    Args:
      score: as `simulate`'s.
      groups: a public label, text or whole number, for each client; None, NaN or "": in no group. Where `on` is
        examples, one for each of them, or the name of the column that has them, such as the score's own label; it
        sees none that has texts or gaps.
      clients: at most so many of each group, always the same ones, drawn once without replacement; None: all.
      on: as for `per_client`; or examples, leaves [n, ...], such as the test set.
      personal: as for `per_client`, for clients.

    Raises:
      ValueError: nobody is in a group; a label that is neither a text nor a whole number; clients below 1, or given for
        examples, as is `personal`; another number of labels than of examples, or, when called, of clients.
    """
    require(callable(score), "score", score, "give a function, (params, example) -> {name: number}")
    clients = checked("clients", clients, Count | None)
    scored = Score.of(score)
    examples = (
        isinstance(on, Mapping | list | tuple) or hasattr(on, "columns") or hasattr(on, "shape")
    )
    if examples:
        for name, given in {"clients": clients, "personal": personal}.items():
            require(given is None, name, given, "examples are no client's; leave it out")
        labels, on = _of_examples(groups, on)
        members = labels
        total = len(labels)
    else:
        fits = isinstance(on, Federation) or (isinstance(on, str) and on in ("train", "held_out"))
        require(fits, "on", on, "give 'train', 'held_out', a federation, or examples by name")
        labels = labels_of("groups", groups)
        total = len(labels)
        members = _drawn(labels, clients)
    of_each = partial(judged, scored)
    kind, found_of = each_client(scored, on, personal, dict if examples else of_each)
    kind = TEST if examples else kind
    evaluated = np.flatnonzero(members != "").astype(np.int32)
    places = {name: np.flatnonzero(members[evaluated] == name) for name in names_in(labels)}

    def choose(there: int) -> np.ndarray:
        require(total == there, "groups", f"{total} labels", f"give one to each of {there} clients")
        return evaluated

    def measure(state: State, federation: Any) -> Measured:
        ids, (found, *_) = found_of(state, federation, choose)
        each = {
            name: jax.tree.map(lambda leaf, at=at: leaf[at], found) for name, at in places.items()
        }
        numbers = {name: jnp.asarray(ids[at]) for name, at in places.items()}
        if examples:
            each = {
                n: jax.vmap(of_each)(jax.tree.map(lambda x: jnp.sum(x, 0, keepdims=True), x))
                for n, x in each.items()
            }
            numbers = {name: jnp.array([i], jnp.int32) for i, name in enumerate(each)}
        return _summary(kind, scored, numbers, each, state)

    return measure


def labels_of(name: str, labels: Any) -> np.ndarray:
    """The labels as texts, [n]; "" where one is missing.

    Raises:
      ValueError: no column; nobody has a label; one is neither a text in one line nor a whole number.
    """
    several = hasattr(labels, "__len__") and hasattr(labels, "__getitem__")
    several = several and not isinstance(labels, str | bytes | Mapping | jax.core.Tracer)
    require(several, name, labels, "give a label for each, in a list")
    given = on_host(name, labels if hasattr(labels, "dtype") else np.array([*labels], object))
    require(given.ndim == 1, name, labels, "give a list with one label for each")
    there = ~are_missing(given)
    require(
        bool(there.any()), name, labels, "nobody has a label; give one to each that has a group"
    )
    found = np.full(len(given), "", object)
    for i in np.flatnonzero(there):
        found[i] = _text(f"{name}[{i}]", given[i])
    return found


def _text(name: str, label: Any) -> str:
    label = label.item() if isinstance(label, np.generic) else label
    if (
        isinstance(label, float) and label.is_integer()
    ):  # as a column of whole numbers has it where some are missing
        label = int(label)
    known = isinstance(label, str | int) and not isinstance(label, bool) and is_name(str(label))
    require(known, name, label, "give a text in one line, or a whole number; None for no group")
    return str(label)


def names_in(labels: np.ndarray) -> list[str]:
    """The groups, in order of first appearance."""
    return [name for name in dict.fromkeys(labels.tolist()) if name]


def _drawn(labels: np.ndarray, clients: int | None) -> np.ndarray:
    """The labels of those who are evaluated, "" for others."""
    if clients is None:
        return labels
    rng, found = np.random.default_rng(0), np.full(len(labels), "", object)
    for name in names_in(labels):
        all_of_it = np.flatnonzero(labels == name)
        found[rng.choice(all_of_it, min(clients, len(all_of_it)), replace=False)] = name
    return found


def _of_examples(groups: Any, examples: Any) -> tuple[np.ndarray, Federation]:
    """Public examples of one group at a time: the group of each batch, and a federation whose clients are batches."""
    examples = leaves_of(examples)
    if isinstance(groups, str):
        known = isinstance(examples, Mapping) and groups in examples
        there = ", ".join(map(str, examples)) if isinstance(examples, Mapping) else "no names"
        require(known, "groups", groups, f"give a column of the examples, which has {there}")
        labels = labels_of(f"examples[{groups!r}]", examples[groups])
        if np.asarray(examples[groups]).dtype.kind not in "iu":
            examples = {name: leaf for name, leaf in examples.items() if name != groups}
    else:
        labels = labels_of("groups", groups)
    total = check_lengths(examples)
    require(
        len(labels) == total,
        "groups",
        f"{len(labels)} labels",
        f"give one to each of {total} examples",
    )
    batches: list[np.ndarray] = []
    own: list[str] = []
    for name in names_in(labels):
        rows = np.flatnonzero(labels == name)
        parts = np.split(rows, np.arange(BATCH, len(rows), BATCH))
        batches += parts
        own += [name] * len(parts)
    return np.array(own, object), Federation.from_arrays(examples, batches)


def _summary(
    kind: str,
    score: Score,
    clients: Mapping[str, jax.Array],
    each: Mapping[str, Judged],
    state: State,
) -> dict[str, jax.Array | ClientValues]:
    """Of each group's clients, its metrics, and what they are over the groups."""
    found: dict[str, jax.Array | ClientValues] = {}
    means: dict[str, list[jax.Array]] = {}
    counted: dict[str, list[jax.Array]] = {}
    for name, (records, metrics, finite) in each.items():
        trained = trained_of(kind, state, clients[name])
        for metric, values in metrics.items():
            counts = (records != 0) & ~(finite & jnp.isnan(values))
            mean = jnp.mean(values, where=counts)
            stem = f"{of_group(kind, name)}_{metric}"
            found[f"{stem}_mean"] = mean
            found |= over_trained(stem, values, counts, trained)
            means.setdefault(metric, []).append(mean)
            counted.setdefault(metric, []).append(jnp.any(counts))
        shown = {metric: jnp.where(jnp.isfinite(x), x, jnp.nan) for metric, x in metrics.items()}
        found[of_group(kind, name)] = ClientValues(clients[name], records, shown)
    for metric, of_groups in means.items():
        there, values = jnp.stack(counted[metric]), jnp.stack(of_groups)
        worst, best = _ends(values, there, better_higher(metric, score.higher))
        found[f"{kind}_{metric}_{WORST_GROUP}"] = worst
        found[f"{kind}_{metric}_{GROUP_GAP}"] = jnp.abs(best - worst)
    return found


def _ends(each: jax.Array, there: jax.Array, higher: bool) -> tuple[jax.Array, jax.Array]:
    """The worst and the best of f32[groups] where `there`; NaN where one is, or none is there."""
    ends: tuple[Callable[..., jax.Array], ...] = (jnp.min, jnp.max)
    low, high = (
        jnp.where(there.any(), end(each, where=there, initial=sign * jnp.inf), jnp.nan)
        for end, sign in zip(ends, (1, -1), strict=True)
    )
    return (low, high) if higher else (high, low)
