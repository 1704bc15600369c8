"""What a client sends in a round, as rounds of each kind report it, and what protocols of secure aggregation add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from fedpriv.experiments.accounting.secure_aggregation import Traffic, degree, downlink, uplink
from fedpriv.experiments.base.formats import markdown_table
from fedpriv.mechanisms.rotation import padded
from fedpriv.rounds.algorithm import Algorithm

_Make: TypeAlias = "Callable[[Messages, Any], Algorithm]"
"""(messages, bits, None for floats) -> an algorithm that sends them."""


@dataclass(frozen=True)
class Messages:
    """What all messages have in common.

    Attributes:
      dimension: d, values of a model.
      clients: n, in a round.
      kept: k / d, of sparse ones.
      noise_multiplier: of the noise of a sum.
      exchanges: K, of MSPDQ-FL in a round.
    """

    dimension: int
    clients: int
    kept: float
    noise_multiplier: float
    exchanges: int

    def mechanism(self, bits: int | None) -> Any:
        """Integers of so many bits, or floats."""
        if bits is None:
            return fp.gaussian(1.0, self.noise_multiplier)
        return fp.discrete_gaussian(1.0, self.noise_multiplier, bits=bits)

    @property
    def trained(self) -> dict[str, Any]:
        """Arguments of all algorithms."""
        batches, optimizer = fp.full_batch(), lambda t: optax.sgd(0.1)
        return {"sampler": fp.everyone(self.clients), "optimizer": optimizer, "batches": batches}

    def reported(self, make: _Make, bits: int | None) -> str:
        """The bits of a client's message, as a round says that is traced, not run; "too few" for a sum, or a codec."""
        federation = fp.Federation.blank(np.zeros(1, np.float32), self.clients, 1, public=1)
        params = jax.ShapeDtypeStruct((self.dimension,), jnp.float32)
        try:
            (stage,) = fp.trace_round(make(self, bits), params, federation).stages
        except ValueError as error:
            if not str(error).startswith("bits: "):
                raise
            return "too few"
        return f"{stage.uplink:,.0f}"


def _loss(w: jax.Array, example: jax.Array) -> jax.Array:
    return jnp.sum(w) * example[0]


def _sparse(messages: Messages, bits: int | None, sparsifier: Any) -> Algorithm:
    mechanism = messages.mechanism(bits)
    return fp.papers.fed_avg_sparse(
        _loss, sparsifier=sparsifier, mechanism=mechanism, **messages.trained
    )


def _coded(messages: Messages, codec: fp.types.Codec) -> Algorithm:
    return fp.fed_avg(_loss, mechanism=messages.mechanism(None), codec=codec, **messages.trained)


def _jopeq(messages: Messages, bits: int, noise: Any) -> Algorithm:
    options: dict[str, Any] = {"bits": bits, "bound": 1.0, "epsilon": 1.0, "noise": noise}
    return fp.papers.jopeq(_loss, **options, **messages.trained)


def _mspdq(messages: Messages, bits: int) -> Algorithm:
    return fp.papers.mspdq_fl(
        _loss,
        bits=bits,
        splitting=fp.papers.splitting.uniform(0.3),
        coupling=fp.papers.consensus.coupling(1 / (messages.clients + 1), 0.1),
        exchanges=fp.papers.consensus.constant(messages.exchanges),
        **messages.trained,
    )


ADDED_UP: dict[str, _Make] = {
    "DP-FedAvg": lambda m, bits: fp.fed_avg(_loss, mechanism=m.mechanism(bits), **m.trained),
    "Fed-SMP rand_k": lambda m, bits: _sparse(m, bits, fp.papers.select_rand_k(m.kept)),
    "Fed-SMP top_k": lambda m, bits: _sparse(
        m, bits, fp.papers.select_top_k(m.kept, fp.full_batch())
    ),
}
"""Sums of floats, or of integers."""
FLOATS: dict[str, _Make] = {
    "each its own top_k, with places": lambda m, bits: _coded(
        m, fp.top_k(round(m.kept * m.dimension))
    )
}
DECODED: dict[str, _Make] = {
    "QSGD": lambda m, bits: _coded(m, fp.qsgd(bits)),
    "JoPEQ, Laplace": lambda m, bits: _jopeq(m, bits, "laplace"),
    "JoPEQ, t": lambda m, bits: _jopeq(m, bits, "t"),
    "MSPDQ-FL": _mspdq,
}
"""Messages that the server decodes one by one, so that secure aggregation cannot add them up."""


def table(messages: Messages, bits: Sequence[int]) -> str:
    """Bits of one client's messages in a round, and what SecAgg and SecAgg+ add, as Markdown tables.

    Args:
      bits: per value, a column each.

    Raises:
      ValueError: arguments out of range.
    """
    d, n, k = messages.dimension, messages.clients, round(messages.kept * messages.dimension)
    rows = [["message", "floats", *(f"{b} bits" for b in bits)]]
    for makes, widths in ((ADDED_UP, [None, *bits]), (FLOATS, [None]), (DECODED, [*bits])):
        for name, make in makes.items():
            cells = {width: messages.reported(make, width) for width in widths}
            rows.append([name, *(cells.get(width, "-") for width in (None, *bits))])
    notes = [
        f"Bits of a client in a round, as the round reports them: d = {d:,}, n = {n:,}, k = {k:,}, MSPDQ-FL with "
        f"{messages.exchanges} exchanges.",
        f"Sums of integers fill blocks of a rotation: {padded(d):,} integers for d values, {padded(k):,} for k. Their "
        f"noise is {messages.noise_multiplier:g} times a member's norm; where their bits are too few for it, it says "
        "so. Masks of secure aggregation are as long as what they hide, and only integers can be masked: a server "
        "decodes all other messages one by one.",
        "Which coordinates Fed-SMP keeps, and the signs of the rotation, come from the server, in a public seed or "
        "with the model: nothing travels up for them.",
    ]
    return markdown_table(rows, notes) + "\n\n" + _protocols(n)


def _protocols(clients: int) -> str:
    head = ["added, by formula", "neighbours", "keys", "shares", "sealing", "bits up", "bits down"]
    rows = [head]
    for name, neighbours in (("SecAgg", clients - 1), ("SecAgg+", degree(clients))):
        up: Traffic = uplink(neighbours, 0)
        cells = neighbours, up.keys, up.shares, up.sealing, up.added, downlink(neighbours, 0).added
        rows.append([name, *(f"{cell:,}" for cell in cells)])
    notes = [
        "To each message that is added up: Bonawitz et al., CCS 2017, and Bell et al., CCS 2020, with keys and shares "
        "of 256 bits and AES-GCM; a third of the clients may collude, and a third vanish.",
    ]
    return markdown_table(rows, notes)
