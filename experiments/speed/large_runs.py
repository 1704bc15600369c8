"""Workloads H, I and J: our steps and rounds of a transformer of 98 million parameters, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
import optax

import fedpriv
from experiments.speed import examples
from experiments.speed.attention_speed import Characters, steps
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.round_speed import compiled_products, compiled_round
from experiments.speed.workloads import parameters
from fedpriv.core.types import Example, Params
from fedpriv.devices.layout import Strategy, default, split_cpu
from fedpriv.engine import compilation_cache


@dataclass(frozen=True)
class LargeStep(Characters):
    """Workload H: DP-SGD's step."""

    lot: int = 16
    length: int = 256
    vocabulary: int = 8192
    width: int = 768
    heads: int = 12
    layers: int = 12
    micro: int = 16
    """Records at a time, where jax_privacy takes the lot in parts."""
    product: int = 8192
    """Rows and columns of the matrix product that is the limit."""

    def texts(self) -> int:
        """In a step, or a round."""
        return self.lot

    def model(self) -> fedpriv.models.Model:
        """What is trained."""
        return fedpriv.models.Model(self.init, self.loss, self.score)

    def score(self, params: Params, example: Example) -> dict[str, jax.Array]:
        return {"loss": self.loss(params, example)}


@dataclass(frozen=True)
class LargeRound(LargeStep):
    """Workload J: a round of DP-FedAvg in which clients train all parameters for an epoch, in batches of `lot`."""

    lot: int = 4
    clients: int = 20
    steps: int = 4

    def texts(self) -> int:
        return self.clients * self.steps * self.lot

    def flop(self) -> int:
        """Of a round's matrix products."""
        return self.clients * self.steps * super().flop()

    def flop_per_client(self) -> int:
        return self.flop() // self.clients

    def algorithm(self, clients: int) -> fedpriv.Algorithm:
        return fedpriv.dp_fed_avg(
            self.model().loss,
            sampler=fedpriv.everyone(clients),
            optimizer=lambda t: optax.sgd(0.1),
            batches=fedpriv.epochs(1, self.lot),
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
        )

    def federation(self, clients: int) -> fedpriv.Federation:
        count = self.steps * self.lot
        text = examples.texts(self, clients * count)
        rows = list(np.arange(clients * count).reshape(clients, count))
        given = {"text": text[:, :-1], "label": text[:, 1:]}
        return fedpriv.Federation.from_arrays(given, rows, num_classes=self.vocabulary)


@dataclass(frozen=True)
class AdapterRound(LargeRound):
    """Workload I: the round in which clients train adapters (LoRA) of all kernels, on a random base."""

    rank: int = 8

    def flop(self) -> int:
        """Forward and by the inputs: nothing needs the gradient of the base."""
        return 2 * super().flop() // 3

    def model(self) -> fedpriv.models.Model:
        return self._adapted

    @cached_property
    def _adapted(self) -> fedpriv.models.Model:
        base = self.init(jax.random.key(0))
        return fedpriv.models.adapters(super().model(), base, self.rank, where="kernel")


LARGE: dict[str, LargeStep] = {"H": LargeStep(), "I": AdapterRound(), "J": LargeRound()}

_NETWORK: dict[str, Any] = {"length": 32, "vocabulary": 256, "width": 128, "heads": 4, "layers": 2}
_NETWORK |= {"lot": 4, "micro": 2, "product": 2048}
SMALL: dict[str, LargeStep] = {
    "H": LargeStep(**_NETWORK),
    "I": AdapterRound(**_NETWORK, clients=4, steps=2),
    "J": LargeRound(**_NETWORK, clients=4, steps=2),
}
"""What a CPU runs in seconds, of 0.5 million parameters."""


def step(settings: Settings) -> Baseline:
    """DP-SGD's step ("dp_sgd"), the gradient without privacy ("gradient"), the matrix product ("product")."""
    _prepare(settings, devices=1)
    workload = LargeStep(**vars(settings.workload))
    if settings.run == "product":
        return _product(workload)
    return _baseline(workload, **steps(workload, workload.init(jax.random.key(0))))


def training(settings: Settings) -> Baseline:
    """A round ("round") on all devices, the matrix product ("product") on one."""
    product = settings.run == "product"
    _prepare(settings, 1 if product else settings.threads)
    kind = AdapterRound if settings.name == "I" else LargeRound
    workload = kind(**vars(settings.workload))
    if product:
        return _product(workload)
    return _baseline(workload, round=compiled_round(workload, workload.clients, default()).run)


def _prepare(settings: Settings, devices: int) -> None:
    compilation_cache.keep_no_programs()
    split_cpu(devices)
    known: Any = jax.config
    known.update("jax_default_matmul_precision", settings.precision)


def _product(workload: LargeStep) -> Baseline:
    return _baseline(workload, product=compiled_products(workload.product, Strategy()))


def _baseline(workload: LargeStep, **runs: Any) -> Baseline:
    return Baseline(runs, parameters(workload), ("jax", "jaxlib"))


WORKLOADS = {"H": step, "I": training, "J": training}
