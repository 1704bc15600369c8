"""How the clients of a round are laid out on the machine: in time, on vector lanes and over devices.

An algorithm's code never sees this. `simulate` picks a strategy (per backend, unless one is given) and puts it in
force while the run is traced; `sum_over` looks it up there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from fedpriv.core.arguments import Count, LargeCount, check_fields, checked
from fedpriv.core.complaints import require
from fedpriv.core.trees import widened

PyTree = Any

UNFITTED = 8  # clients side by side where the memory was not looked at


@dataclass(frozen=True)
class Strategy:
    """Layout of the client axis. Results of all layouts agree up to rounding.

    Attributes:
      clients: `"map"` runs one client after another (fastest on CPU), an integer n runs equal chunks of at most n
        clients side by side, `"vmap"` the whole cohort at once, `"fit"` as many as fit the device's free memory.
      devices: number of devices that share the cohort, the same number in each process; 1 is this process's own.
      memory: bytes of each device that "fit" may count on, where others use it, too; by default what is free.

    Raises:
      ValueError: an unknown layout, a chunk or bytes below 1, more devices than there are, or a number that the
        processes cannot share equally.
    """

    clients: Literal["map", "vmap", "fit"] | Count = "map"
    devices: Count = 1
    memory: LargeCount | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        processes, most = jax.process_count(), most_devices()
        whose = "local device(s)" if processes == 1 else f"devices of {processes} processes"
        remedy = (
            f"give 1 to {most}, as there are {most} {whose}; on CPU call fp.distributed.split_cpu(n) "
            "before JAX starts (it sets jax_num_cpu_devices and a longer time-out)"
        )
        require(self.devices <= most, "devices", self.devices, remedy)
        even = self.devices == 1 or self.devices % processes == 0
        require(
            even, "devices", self.devices, f"give 1, or a multiple of the {processes} processes"
        )

    @property
    def order(self) -> dict[str, Any]:
        """The fields that decide in which order clients are added, and so how sums are rounded."""
        return {"clients": self.clients, "devices": self.devices}

    @property
    def mesh(self) -> Mesh:
        """The axis `clients` over the devices, process by process."""
        if self.devices == 1:
            return Mesh(np.array(jax.local_devices()[:1]), ("clients",))
        share = self.devices // jax.process_count()
        processes = range(jax.process_count())
        devices = [jax.local_devices(process_index=p)[:share] for p in processes]
        return Mesh(np.array(devices).ravel(), ("clients",))


def default() -> Strategy:
    """All devices of all processes; one client at a time on CPU, elsewhere as many as fit the memory."""
    clients: Literal["map", "fit"] = "map" if jax.default_backend() == "cpu" else "fit"
    return Strategy(clients, most_devices())


def most_devices() -> int:
    """Devices there are, counting for each process as many as the poorest one has."""
    processes = range(jax.process_count())
    return len(processes) * min(len(jax.local_devices(process_index=p)) for p in processes)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_XLA_FLAGS = {
    f"--xla_cpu_collective_call_{event}_timeout_seconds": "86400"
    for event in ("warn_stuck", "terminate")
}
if jax.__version_info__[:2] == (0, 10):  # an XLA that does not know a flag ends the process
    _XLA_FLAGS["--xla_cpu_experimental_ynn_fusion_type"] = (
        "-LIBRARY_FUSION_TYPE_ELTWISE,-LIBRARY_FUSION_TYPE_REDUCE"
    )
    _XLA_FLAGS["--xla_cpu_use_fusion_emitters"] = "false"


def split_cpu(devices: Count | None = None) -> None:
    """Splits the CPU into `devices` JAX devices, by default one per core; has no effect once JAX has started.

    By default XLA ends the process if one CPU device waits a minute for another (an uneven round of large clients, a
    busy or suspended machine); here it waits up to a day. XLA also hands fusions of elementwise operations to a library
    in which the steps of a recurrent network wait for each other. Here it uses its older code generator, whose programs
    are as fast and compile in half the time. XLA_FLAGS overrides both.

    Raises:
      ValueError: devices below 1.
    """
    devices = checked("devices", devices, Count | None)
    flags = os.environ.get("XLA_FLAGS", "")
    ours = {name: value for name, value in _XLA_FLAGS.items() if name not in flags}
    os.environ["XLA_FLAGS"] = " ".join([flags, *(f"{n}={v}" for n, v in ours.items())]).strip()
    with suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices or cores())


_current: ContextVar[Strategy | None] = ContextVar("strategy", default=None)
_axis: ContextVar[str | None] = ContextVar("axis", default=None)


def current() -> Strategy:
    """The strategy in force, or one that uses a single device."""
    return _current.get() or Strategy()


@contextmanager
def use(strategy: Strategy) -> Iterator[Strategy]:
    """Puts `strategy` in force for what is traced inside; functions that were jitted before keep theirs."""
    token = _current.set(strategy)
    try:
        yield strategy
    finally:
        _current.reset(token)


_widths: ContextVar[list[int] | None] = ContextVar("widths", default=None)


@contextmanager
def widths() -> Iterator[list[int]]:
    """How many elements are side by side in each of the sums that are traced inside; filled as they are."""
    seen: list[int] = []
    token = _widths.set(seen)
    try:
        yield seen
    finally:
        _widths.reset(token)


def spmd(fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`fn` run by every device of the current strategy's mesh on replicated arguments; `sum_over` divides the work.

    With one device, `fn` itself.
    """
    strategy = current()
    if strategy.devices == 1:
        return fn

    def on_each_device(*args: PyTree) -> PyTree:
        token = _axis.set("clients")
        try:
            return fn(*args)
        finally:
            _axis.reset(token)

    replicated = PartitionSpec()
    return jax.shard_map(
        on_each_device,
        mesh=strategy.mesh,
        in_specs=replicated,
        out_specs=replicated,
        check_vma=False,
    )


def sum_over(
    fn: Callable[..., tuple[PyTree, PyTree]], valid: jax.Array, *xs: PyTree
) -> tuple[PyTree, PyTree]:
    """Sums `fn(*x)[0]` and stacks `fn(*x)[1]` over the leading axis of `xs`, laid out by the strategy in force.

    The sum is streamed: its memory grows with the chunk, not with the axis. It has 32 bits or more, whatever the
    contributions have.

    Args:
      fn: takes one element of each of `xs`, returns `(contribution, kept)`, both pytrees of arrays.
      valid: bool[n]; where False, `fn` contributes zeros and keeps zeros.
      *xs: pytrees whose leaves have leading axis n.
    """
    strategy, axis, n = current(), _axis.get(), valid.shape[0]
    devices = strategy.devices if axis else 1
    share = -(-n // devices)
    width = side_by_side(strategy, share)
    if (seen := _widths.get()) is not None:
        seen.append(width)
    share = -(-share // width) * width
    valid, xs = _pad((valid, xs), share * devices)
    if axis is None:
        total, kept = _stream(fn, width, valid, xs)
    else:
        start = lax.axis_index(axis) * share
        mine = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, share), (valid, xs))
        total, kept = _stream(fn, width, *mine)
        total = lax.psum(total, axis)
        kept = jax.tree.map(lambda x: lax.all_gather(x, axis, tiled=True), kept)
    return total, jax.tree.map(lambda leaf: leaf[:n], kept)


def side_by_side(strategy: Strategy, share: int) -> int:
    """Elements at a time on a device that has `share` of them: chunks of equal size, so that few places stay empty."""
    if strategy.clients in ("map", "vmap"):
        return 1 if strategy.clients == "map" else share
    most = strategy.clients if isinstance(strategy.clients, int) else UNFITTED
    return -(-share // -(-share // most))


def _pad(tree: PyTree, length: int) -> PyTree:
    def pad(leaf: jax.Array) -> jax.Array:
        widths = [(0, length - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, widths)

    return jax.tree.map(pad, tree)


def _stream(
    fn: Callable[..., Any], width: int, valid: jax.Array, xs: tuple
) -> tuple[PyTree, PyTree]:
    """Scans over chunks of `width` elements with a running total.

    `fn` is traced once: JAX keeps the program of what it has jitted, for its shapes here and in the loop.
    """
    fn = jax.jit(fn)
    shapes = jax.eval_shape(fn, *jax.tree.map(lambda leaf: leaf[0], xs))

    def one(valid: jax.Array, *x: PyTree) -> tuple[PyTree, PyTree]:
        zeros = jax.tree.map(jnp.zeros_like, shapes)
        return lax.cond(valid, lambda: fn(*x), lambda: zeros)

    def beside_others(valid: jax.Array, *x: PyTree) -> tuple[PyTree, PyTree]:
        """As `one`, whose branch `vmap` would hand a copy for each element of all that `fn` closes over."""
        return jax.tree.map(lambda leaf: jnp.where(valid, leaf, jnp.zeros_like(leaf)), fn(*x))

    def chunk(total: PyTree, element: tuple) -> tuple[PyTree, PyTree]:
        if width == 1:
            add, kept = one(*jax.tree.map(lambda leaf: leaf[0], element))
            add, kept = widened(add), jax.tree.map(lambda leaf: leaf[None], kept)
        else:
            adds, kept = jax.vmap(beside_others)(*element)
            add = jax.tree.map(lambda leaf: leaf.sum(0), widened(adds))
        return jax.tree.map(jnp.add, total, add), kept

    chunks = jax.tree.map(lambda x: x.reshape(-1, width, *x.shape[1:]), (valid, *xs))
    zeros = widened(jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[0]))
    total, kept = lax.scan(chunk, zeros, chunks)
    return total, jax.tree.map(lambda x: x.reshape(math.prod(x.shape[:2]), *x.shape[2:]), kept)
