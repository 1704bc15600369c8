"""Arrays that are the same, kept once: experiments that are built one by one share their data on the device."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.data.streaming import StreamedFederation
from fedpriv.experiments.config.experiment import Experiment


class SharedArrays:
    """Keeps arrays that are the same once, so that experiments share their data on the device."""

    def __init__(self) -> None:
        self._arrays: dict[bytes, Any] = {}
        self._kept: set[int] = set()  # their ids

    def experiment(self, experiment: Experiment) -> Experiment:
        entries = {
            name: entry._replace(federations=[self._tree(f) for f in entry.federations])
            for name, entry in experiment.entries.items()
        }
        return replace(experiment, entries=entries, test=self._tree(experiment.test))

    def _tree(self, tree: Any) -> Any:
        if isinstance(tree, StreamedFederation):  # its records stay on the host
            return tree
        return jax.tree.map(self._one, tree)

    def _one(self, array: Any) -> Any:
        if id(array) in self._kept:
            return array
        digest = hashlib.sha256(type(array).__name__.encode() + as_bytes(array)).digest()
        same = self._arrays.setdefault(digest, array)
        self._kept.add(id(same))
        return same


def as_bytes(value: Any) -> bytes:
    """What makes two numbers or arrays the same: neither 0.0 and -0.0, nor different types."""
    array = np.asarray(jax.random.key_data(value) if is_key(value) else value)
    return f"{array.dtype} {array.shape} ".encode() + array.tobytes()


def is_key(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.extended)
