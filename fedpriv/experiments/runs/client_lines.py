"""clients.jsonl: what each evaluation measured on single clients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fedpriv.core.json_values import MARK, PRIVATE, typed
from fedpriv.engine.history import ClientValues, Evaluation
from fedpriv.engine.own_errors import OwnErrors
from fedpriv.experiments.base.files import opened

if TYPE_CHECKING:
    import pandas

CLIENTS = "clients.jsonl"


@dataclass(frozen=True, eq=False)
class ClientLine:
    """A line of clients.jsonl: one kind of values per client, at an evaluation. Not private, as its keys say.

    Attributes:
      kind: "held_out", "per_client", "personal" or "personal_per_client": of which records and models.
      clients: their numbers in the federation.
      records: a list for each seed, with the weight of the records that each client was evaluated on.
      metrics: by name, likewise; "nan" where a metric is undefined, such as a recall without a positive record.
      units, errors, shares: likewise, see `fedpriv.engine.own_errors.OwnErrors`; empty where intervals over a client's
        own records were not measured, as in runs of older versions.
    """

    algorithm: str
    round: int
    kind: str
    clients: Any
    records: Any = field(metadata=PRIVATE)
    metrics: dict[str, Any] = field(metadata=PRIVATE)
    units: Any = field(metadata=PRIVATE, default=())
    errors: dict[str, Any] = field(metadata=PRIVATE, default_factory=dict)
    shares: dict[str, Any] = field(metadata=PRIVATE, default_factory=dict)

    def __post_init__(self) -> None:
        clients = _array("clients", self.clients, 1)
        records = _array("records", self.records, 2)
        held: dict[str, Any] = {
            of: {name: _array(f"{of}.{name}", x, 2) for name, x in getattr(self, of).items()}
            for of in ("metrics", "errors", "shares")
        }
        units = {"units": _array("units", self.units, 2)} if self.own else {}
        named = {f"{of}.{name}": x for of, each in held.items() for name, x in each.items()}
        for name, each in {"records": records, **units, **named}.items():
            if each.shape != (len(records), len(clients)):
                raise ValueError(f"{name}: {list(each.shape)} is not seeds by clients")
        if (
            self.own
            and not held["metrics"].keys() == held["errors"].keys() == held["shares"].keys()
        ):
            raise ValueError("errors: they are not of the metrics")
        whole = {"clients": clients.astype(int), "records": records, **units, **held}
        for name, each in whole.items():
            object.__setattr__(self, name, each)

    @classmethod
    def of(cls, algorithm: str, e: Evaluation) -> list[ClientLine]:
        """One for each kind."""
        return [
            cls(algorithm, e.round, kind, of.clients, of.records, dict(of.metrics), *(of.own or ()))
            for kind, of in e.clients.items()
        ]

    @property
    def own(self) -> bool:
        """Whether it is known what intervals over a client's own records are."""
        return bool(len(self.units))

    @property
    def values(self) -> ClientValues:
        """As `simulate` gave them."""
        precision = jax.dtypes.canonicalize_dtype(float)  # in which they were computed
        named = (self.metrics, self.errors, self.shares)
        metrics, *own = ({name: x.astype(precision) for name, x in of.items()} for of in named)
        found = ClientValues(self.clients.astype(np.int32), self.records.astype(precision), metrics)
        return (
            found._replace(own=OwnErrors(self.units.astype(precision), *own)) if self.own else found
        )


def _array(name: str, value: Any, axes: int) -> np.ndarray:
    try:
        found = np.array(value, float)
    except (TypeError, ValueError):
        found = np.zeros(())
    if found.ndim != axes:
        raise ValueError(f"{name}: it is not a list of numbers" + " for each seed" * (axes == 2))
    return found


def with_clients(evaluation: Evaluation, own: Sequence[ClientLine]) -> Evaluation:
    """The evaluation with what its client lines say of single clients."""
    return evaluation._replace(clients={line.kind: line.values for line in own})


def read_client_lines(folder: Path, *, tolerant: bool = False) -> tuple[list[ClientLine], bool]:
    """The lines of clients.jsonl, the last of equal ones, and whether any is damaged, which is left out.

    Args:
      tolerant: whether to stop at any damaged line, and not only at a last one that was cut off.

    Raises:
      ValueError: a line is damaged, or the file cannot be read.
    """
    path, found = folder / CLIENTS, dict[tuple[str, int, str], ClientLine]()
    if not path.exists():
        return [], False
    with opened(path, "repair it, or move it away") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                line = typed(ClientLine, json.loads(text.decode()))
            except (ValueError, RecursionError, OverflowError) as error:
                if not tolerant and text.endswith(b"\n"):
                    said = f"{path}, line {number}, is damaged ({error}); remove the line"
                    raise ValueError(said) from None
                return [*found.values()], True
            found[line.algorithm, line.round, line.kind] = line
    return [*found.values()], False


def by_evaluation(lines: Sequence[ClientLine]) -> Mapping[tuple[str, int], list[ClientLine]]:
    """(Algorithm, round) -> its client lines."""
    found: dict[tuple[str, int], list[ClientLine]] = {}
    for line in lines:
        found.setdefault((line.algorithm, line.round), []).append(line)
    return found


def frame(lines: Sequence[ClientLine]) -> pandas.DataFrame:
    """Client lines as a frame: algorithm, round, kind, seed, client, records, metric and value; not private."""
    import pandas

    about = ("algorithm", "round", "kind", "seed", "client")
    columns = (*about, f"records{MARK}", "metric", f"value{MARK}")
    parts: dict[str, list[np.ndarray]] = {column: [] for column in columns}
    for line in lines:
        seeds, clients = np.indices(line.records.shape).reshape(2, -1)
        for name, values in line.metrics.items():
            of = (line.algorithm, line.round, line.kind, seeds, line.clients[clients])
            own = (*of, line.records.ravel(), name, values.ravel())
            for column, each in zip(columns, own, strict=True):
                whole = (
                    each
                    if isinstance(each, np.ndarray)
                    else np.repeat(np.array([each]), len(seeds))
                )
                parts[column].append(whole)
    joined = {n: np.concatenate(each) if each else np.array([]) for n, each in parts.items()}
    return pandas.DataFrame(joined)
