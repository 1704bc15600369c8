"""Several processes, on one host or many, that train together: every one runs the same program with the same arguments.

The clients of a round are divided over the devices of all of them (`fedpriv.Strategy`); every process gets the results.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedpriv.core.arguments import Count, CountOrZero, Range, checked
from fedpriv.core.complaints import require
from fedpriv.devices.layout import split_cpu

__all__ = [
    "check_equal",
    "digest",
    "gather",
    "initialize",
    "local",
    "replicate",
    "slurm_step",
    "split_cpu",
]

PyTree = Any
Seconds: TypeAlias = Annotated[float, Range("seconds above 0, a month at most", 0, 2678400, (0,))]


def initialize(
    coordinator: str | None = None,
    num_processes: Count | None = None,
    process_id: CountOrZero | None = None,
    *,
    timeout: Seconds = 300,
) -> int:
    """Joins this process to the others by `jax.distributed`; comes before anything that starts JAX's backend.

    Without arguments, in a step of several tasks that Slurm's `srun` started, JAX takes all from Slurm's environment;
    elsewhere the process is alone, and nothing happens.

    Args:
      coordinator: "host:port" of process 0, where it listens; the same in every process.
      num_processes: how many there are.
      process_id: which of them this is, from 0.
      timeout: seconds until all have to be there; then the process says so in a line and ends with exit code 1.

    Returns:
      The number of processes.

    Raises:
      ValueError: only some of the arguments, or one that makes no sense; a host that is not found, a port in use.
      RuntimeError: JAX's backend has started, or the process has joined before.
    """
    text = coordinator is None or isinstance(coordinator, str)
    require(text, "coordinator", coordinator, 'give "HOST:PORT" of process 0')
    num_processes = checked("num_processes", num_processes, Count | None)
    process_id = checked("process_id", process_id, CountOrZero | None)
    timeout = checked("timeout", timeout, Seconds)
    given = (coordinator, num_processes, process_id)
    if given == (None, None, None):
        if not slurm_step():
            return 1
        num_processes = int(os.environ["SLURM_NTASKS"])
        with _patience(timeout, f"the {num_processes} tasks of the Slurm step"):
            jax.distributed.initialize(initialization_timeout=_later(timeout))
        return num_processes
    if coordinator is None or num_processes is None or process_id is None:
        names = ("coordinator", "num_processes", "process_id")
        missing = [name for name, value in zip(names, given, strict=True) if value is None]
        raise ValueError(f"{', '.join(missing)}: not given; give all three or none of them")
    _check(coordinator, num_processes, process_id)
    with _patience(timeout, f"{num_processes} processes at coordinator {coordinator}"):
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            cluster_detection_method="deactivate",
            initialization_timeout=_later(timeout),
        )
    return num_processes


def slurm_step() -> bool:
    """Whether this is one of several tasks of a Slurm step; in an allocation without `srun`, or with one task, not.

    SLURM_NTASKS, which JAX reads, is also set where an allocation of many tasks runs a single shell.
    """
    read_by_jax = ("JOB_ID", "STEP_NODELIST", "NTASKS", "PROCID", "LOCALID")
    if any(f"SLURM_{name}" not in os.environ for name in read_by_jax):
        return False
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def _check(coordinator: str, num_processes: int, process_id: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 2**16:
        raise ValueError(
            f"coordinator: {coordinator!r} is not HOST:PORT with a port from 1 to 65535"
        )
    remedy = f"give 0 to {num_processes - 1}"
    require(process_id < num_processes, "process_id", process_id, remedy)
    try:
        socket.getaddrinfo(host.strip("[]"), port)
    except OSError as error:
        raise ValueError(
            f"coordinator: host {host!r} is not found ({error.strerror}); name the host of process 0"
        ) from None
    if process_id == 0:
        try:  # JAX would crash
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise ValueError(
                f"coordinator: cannot listen on port {port} ({error.strerror}); choose another"
            ) from None


def _later(timeout: float) -> int:
    """JAX's own time-out, which aborts the process: only where `_patience` did not end it."""
    return int(timeout) + 60


@contextmanager
def _patience(timeout: float, whom: str) -> Iterator[None]:
    """Ends the process with one line after `timeout` seconds inside."""

    def give_up() -> None:
        print(
            f"error: waited {timeout:g} s for {whom}; check that all were started, with the same address and "
            "number, and can reach it",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)

    timer = threading.Timer(timeout, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def gather(row: np.ndarray) -> np.ndarray:
    """Every process's `row`, stacked ([processes, ...]); all have to call it, with one shape and type.

    Raises:
      ConnectionError: another process has ended.
    """
    processes = jax.process_count()
    firsts = [jax.local_devices(process_index=p)[0] for p in range(processes)]
    mesh = Mesh(np.array(firsts), ("processes",))
    rows = jax.make_array_from_process_local_data(
        NamedSharding(mesh, PartitionSpec("processes")), row[None], (processes, *row.shape)
    )
    together = jax.jit(_itself, out_shardings=NamedSharding(mesh, PartitionSpec()))
    try:
        return np.asarray(together(rows))
    except (ValueError, RuntimeError) as error:  # so JAX says that a collective has failed
        raise ConnectionError(f"another process ended: {error}") from None


def _itself(x: jax.Array) -> jax.Array:
    """Named, so that JAX finds what it has compiled before."""
    return x


def check_equal(**values: PyTree) -> None:
    """Raises ValueError, in every process, naming the first of the values that is not the same in all of them.

    Args:
      **values: pytrees of arrays, of numbers, or of typed keys.
    """
    digests = gather(np.stack([digest(value) for value in values.values()]))
    for name, each in zip(values, digests.swapaxes(0, 1), strict=True):
        if (each != each[0]).any():
            other = int(np.argmax((each != each[0]).any(1)))
            raise ValueError(
                f"{name}: process {other} has another than process 0; give every process the same"
            )


def digest(tree: PyTree) -> np.ndarray:
    """To compare processes, u8[32], of structure, types, shapes and values of arrays, of numbers, or of typed keys."""
    leaves, structure = jax.tree.flatten(tree)
    hashed = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        hashed.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return np.frombuffer(hashed.digest(), np.uint8)


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """The tree's arrays on every device of the mesh, whichever process has it; all processes have to hold the same."""
    sharding = NamedSharding(mesh, PartitionSpec())
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def everywhere(leaf: jax.Array) -> jax.Array:
        # `device_put` would gather every process's copy to compare them, and takes no typed keys.
        copies = [jax.device_put(leaf, device) for device in mesh.local_devices]
        return jax.make_array_from_single_device_arrays(np.shape(leaf), sharding, copies)

    return jax.tree.map(everywhere, tree)


def local(tree: PyTree) -> PyTree:
    """A tree of replicated arrays as this process's own, on one device, for computations of its own.

    A round that closes over them is traced for no mesh of devices, and can run on any.
    """
    return jax.tree.map(
        lambda leaf: leaf.addressable_data(0) if len(leaf.devices()) > 1 else leaf, tree
    )
