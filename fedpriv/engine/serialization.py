"""Snapshots as named arrays and JSON, to the bit, in one file."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from fedpriv.core.types import PyTree
from fedpriv.devices.layout import Strategy
from fedpriv.engine.history import ClientValues, Evaluation, above_zero
from fedpriv.engine.own_errors import OwnErrors
from fedpriv.engine.run_state import Snapshot
from fedpriv.rounds.one_round import Carried

ARRAYS = ("uplink_mb", "downlink_mb", "seconds")
NAMED = ("metrics", "diagnostics", "measures")


def to_host(tree: PyTree) -> PyTree:
    """Copies of a snapshot's leaves as NumPy arrays, of typed keys their data; the tree itself may be donated then."""

    def copied(leaf: jax.Array) -> np.ndarray:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.array(leaf)

    return jax.tree.map(copied, tree)


def to_device(tree: PyTree, like: PyTree) -> PyTree:
    """The inverse of `to_host`, for a tree of the structure, shapes, types and kinds of keys of `like`."""

    def restored(leaf: np.ndarray, like: jax.Array) -> jax.Array:
        if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jax.numpy.asarray(leaf), impl=jax.random.key_impl(like))
        return jax.numpy.asarray(leaf)

    return jax.tree.map(restored, tree, like)


def packed(snapshot: Snapshot) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A snapshot's arrays [...] of any data type by name, and the rest as JSON."""
    done = snapshot.evaluations
    named = _named(snapshot.carried)
    none = np.zeros(len(snapshot.sent), np.float32)  # of what was not finite
    named |= {f"evaluations.{n}": np.array([getattr(e, n) for e in done]) for n in ARRAYS}
    of_each = {
        kind: list(dict.fromkeys(n for e in done for n in getattr(e, kind))) for kind in NAMED
    }
    for kind, names in of_each.items():
        for name in names:
            named[f"{kind}.{name}"] = np.array([getattr(e, kind).get(name, none) for e in done])
    of_clients, values = _packed_clients(done)
    named |= values
    about: dict[str, Any] = {
        "round": snapshot.round,
        "sent": snapshot.sent,
        "received": snapshot.received,
        "stopped": snapshot.stopped,
        "not_covered": list(snapshot.not_covered),
        "evaluated": [e.round for e in done],
        "clients": of_clients,
        **of_each,
    }
    return named, about


def _packed_clients(done: Sequence[Evaluation]) -> tuple[list[dict], dict[str, np.ndarray]]:
    """Values of single clients: as JSON, what the arrays [evaluations, ...] are of; and the arrays by name."""
    groups: dict[Any, list[int]] = {}
    for i, e in enumerate(done):
        for kind, values in e.clients.items():
            of = kind, tuple(values.metrics), values.own is not None, len(values.clients)
            groups.setdefault(of, []).append(i)
    about, named = [], {}
    for g, ((kind, metrics, own, _), places) in enumerate(groups.items()):
        each = [done[i].clients[kind] for i in places]
        about.append({"kind": kind, "evaluations": places, "metrics": metrics})
        named[f"clients.{g}.clients"] = np.array([v.clients for v in each])
        named[f"clients.{g}.records"] = np.array([v.records for v in each])
        for m in metrics:
            named[f"clients.{g}.metrics.{m}"] = np.array([v.metrics[m] for v in each])
        if own:
            named[f"clients.{g}.own"] = np.array([_columns(v.own, metrics) for v in each if v.own])
    return about, named


def _unpacked_clients(
    named: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> list[dict[str, ClientValues]]:
    """The inverse, for each evaluation; of checkpoints that have none, nothing."""
    each: list[dict[str, ClientValues]] = [{} for _ in about["evaluated"]]
    for g, of in enumerate(about.get("clients", [])):
        for at, i in enumerate(of["evaluations"]):
            metrics = {m: named[f"clients.{g}.metrics.{m}"][at] for m in of["metrics"]}
            ids, records = (named[f"clients.{g}.{field}"][at] for field in ("clients", "records"))
            table = named.get(f"clients.{g}.own")  # checkpoints of older versions have none
            own = None if table is None else _own(table[at], of["metrics"])
            each[i][of["kind"]] = ClientValues(ids, records, metrics, own)
    return each


def _columns(own: OwnErrors, metrics: Sequence[str]) -> np.ndarray:
    """f32[seeds, clients, 1 + 2 * metrics]: units, each metric's error, each one's share."""
    parts = [own.errors[m] for m in metrics], [own.shares[m] for m in metrics]
    return np.stack([own.units, *parts[0], *parts[1]], axis=-1)


def _own(table: np.ndarray, metrics: Sequence[str]) -> OwnErrors:
    """The inverse."""
    units, *others = np.moveaxis(table, -1, 0)
    errors, shares = others[: len(metrics)], others[len(metrics) :]
    by_name = [dict(zip(metrics, of, strict=True)) for of in (errors, shares)]
    return OwnErrors(units, *by_name)


def unpacked(
    named: Mapping[str, np.ndarray], about: Mapping[str, Any], like: Carried, layout: Strategy
) -> Snapshot:
    """The inverse of `packed`, which leaves out the layout.

    Args:
      named, about: as `packed` gives them.
      like: what is carried, of the same structure, with its leading axis of seeds.

    Raises:
      ValueError: the state has other leaves, shapes or types than `like`; names the first.
    """
    wanted = _named(to_host(like))
    there = {name: array for name, array in named.items() if name.startswith(Carried._fields)}
    for name in dict.fromkeys([*wanted, *there]):
        a, b = _kind(there.get(name)), _kind(wanted.get(name))
        if a != b:
            raise ValueError(f"{name}: {a} there, {b} here")
    leaves = [there[name] for name in wanted]
    evaluations, clients = [], _unpacked_clients(named, about)
    for i, round in enumerate(about["evaluated"]):
        up, down, seconds = (named[f"evaluations.{n}"][i] for n in ARRAYS)
        metrics, diagnostics, measures = (
            {name: named[f"{kind}.{name}"][i] for name in about[kind]} for kind in NAMED
        )
        found = above_zero(diagnostics), float(seconds), measures, clients[i]
        evaluations.append(Evaluation(round, metrics, up, down, *found))
    return Snapshot(
        about["round"],
        jax.tree.unflatten(jax.tree.structure(like), leaves),
        about["sent"],
        about["received"],
        evaluations,
        layout,
        about["stopped"],
        tuple(about.get("not_covered", ())),  # earlier versions did not ask
    )


def write(file: BinaryIO, named: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """A snapshot's arrays [...] by name and JSON as one .npz, whose checksums tell damage."""
    kinds = {name: array.dtype.name for name, array in named.items()}  # NumPy's own lack bfloat16
    arrays = {f"arr_{i}": array for i, array in enumerate(named.values())}
    arrays["about"] = np.array(json.dumps([kinds, about]))
    with zipfile.ZipFile(
        file, "w"
    ) as archive:  # np.savez leaves its own open where the disk is full
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The inverse of `write`: a snapshot's arrays [...] by name and JSON."""
    with path.open("rb") as file, np.load(file) as found:
        kinds, about = json.loads(str(found["about"]))
        arrays = [found[f"arr_{i}"] for i in range(len(kinds))]
    named = {name: a.view(kind) for (name, kind), a in zip(kinds.items(), arrays, strict=True)}
    return named, about


def _named(carried: Carried) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(carried)
    return {jax.tree_util.keystr(path).removeprefix("."): leaf for path, leaf in leaves}


def _kind(array: np.ndarray | None) -> str:
    return "nothing" if array is None else f"{array.dtype.name}{list(array.shape)}"
