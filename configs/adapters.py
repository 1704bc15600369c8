"""Ways to fine-tune under privacy, on text: a transformer that knows most plays (public) learns the others' roles.

    fedpriv run adapters --trained ffa_lora --target-epsilon 2 --base-dir BASES --data-dir DIR

A base of 1.2 M parameters is trained on the first 25 of Shakespeare's plays, in the open; the 348 roles of the other 12
then train by DP-FedAvg what `--trained` says: low-rank adapters, both factors at once (LoRA), the second one
(ffa_lora), in turns by rounds (rolora) or by steps (la_lora), or the second one with factors made anew by the server
(fed_svd); or biases and norms, a prompt, the head, or all parameters. Client-level privacy: a role joins or leaves. It
predicts next characters; the last fifth of each role's speeches is for testing. The first run trains the base and keeps
it in `--base-dir`. What came out: experiments/results/adapters.md.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import optax

import fedpriv as fp
from fedpriv import datasets, models
from fedpriv.core.types import Params
from fedpriv.data.datasets import Dataset
from fedpriv.data.datasets.shakespeare import (
    CHARACTERS,
    LENGTH,
    VOCABULARY,
    load_shakespeare,
)
from fedpriv.experiments.config import Experiment, Ledger, text
from fedpriv.experiments.config.fields import Number, NumberOrZero, check_each
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.papers.fed_smp import Local, experiment, natural_ledger
from fedpriv.experiments.papers.fine_tuning import (
    FineTuning,
    shortened,
    trained_openly,
    zeros,
)
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.models.kept_model import is_kept
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.scheduled_samplers import AnySampler

Way = Literal[
    "adapters", "ffa_lora", "rolora", "la_lora", "fed_svd", "biases", "prompt", "head", "all"
]
TURNS: dict[str, dict[str, Any]] = {
    "ffa_lora": {"turns": ("B$",)},
    "rolora": {"turns": ("B$", "A$")},
    "la_lora": {"turns": ("B$", "A$"), "by": "steps"},
    "fed_svd": {"turns": ("B$",), "after": models.refactored},
}
"""Ways that train a factor of the adapters at a time."""
LEAVES = {"biases": r"bias$|scale$", "prompt": "prompt$", "head": "Embed_0"}
"""Ways that train some leaves of the network; its embeddings are its head, too."""
PROMPT = "the end."
"""The prompt begins at the embeddings of these characters, one vector for each."""
TRANSFORMER = models.Transformer(VOCABULARY, width=160, heads=4, layers=4)


@dataclass(frozen=True)
class ToLastPlays(FineTuning):
    """DP-FedAvg of a part of a transformer that was trained on most plays."""

    NETWORK: ClassVar[models.Model] = models.next_character(TRANSFORMER)
    PUBLIC: ClassVar[str] = "the base was trained on some plays, which are taken to be public"

    algorithms: tuple[Literal["fed_avg", "dp_fed_avg"], ...] = ("dp_fed_avg",)
    """Algorithms to train, one after another; fed_avg is not private."""
    trained: Way = "adapters"  # type: ignore[assignment]
    """What the clients train of the network: both factors of low-rank adapters of its kernels (adapters), or one at a
    time (ffa_lora, rolora, la_lora, fed_svd); biases and norms; a prompt; its head; or all of it."""
    client_plays: int = 12
    """Each role of the last so many plays is a client; the base is trained on the others."""
    length: int = 64
    """Characters of a text, at most 80."""
    test_texts: int = 1500
    """How many of the clients' test texts are scored, evenly spaced; 0: all."""
    base_epochs: int = 1
    """Passes over the plays of the base."""
    base_dir: Path | None = None
    """Where the base is kept, and read from; by default it is trained anew."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Number, client_plays=self.client_plays, base_epochs=self.base_epochs)
        check_each(Number, length=self.length)
        check_each(NumberOrZero, test_texts=self.test_texts)
        if self.length > LENGTH:
            raise ValueError(f"length: {self.length} exceeds {LENGTH}; choose fewer")

    def model(self, base: Params | None = None) -> models.Model:
        """The network with `base` (zeros, which will do for accounting), and what is trained of it."""
        base = zeros(self.NETWORK) if base is None else base
        if self.trained == "all":
            return super().model(base)
        if self.trained == "prompt":
            return models.frozen(*prompted(self.NETWORK, base), LEAVES["prompt"])
        if self.trained in LEAVES:
            return models.frozen(self.NETWORK, base, LEAVES[self.trained])
        return models.adapters(self.NETWORK, base, self.rank, "kernel$", stacked="layers")

    def made(self, name: Any, model: models.Model, clients: int) -> Algorithm:
        """DP-FedAvg, or FedAvg, of the model or of parts of it in turns."""
        if self.trained not in TURNS:
            return super().made(name, model, clients)
        sampler = fed_smp.sampler(self, clients)
        return fp.fed_avg_alternating(
            model.loss,
            **TURNS[self.trained],
            sampler=sampler,
            optimizer=self.local.optimizer,
            batches=self.local.batches(),
            mechanism=self._noise(sampler) if name == "dp_fed_avg" else fp.unprotected(),
            server=self.server.made(),
            weighting=self.weighting.made(),
        )

    def _noise(self, sampler: AnySampler) -> Mechanism:
        if self.bits is None:
            return fp.gaussian(self.clip_norm, self.noise_multiplier)
        return self.mechanism(sampler, self.clip_norm, self.noise_multiplier)


settings = ToLastPlays(
    algorithms=("dp_fed_avg",),
    rounds=10,
    seeds=3,
    every=10,
    rank=1,
    clients=348,  # of the plays; counted in the data where it is at hand
    cohort=100,
    sampling="poisson",
    delta=1e-4,
    clip_norm=0.3,
    local=Local(steps=2, batch_size=2, learning_rate=0.3, momentum=0.0, decay=1.0),
)


def prompted(network: models.Model, base: Params) -> tuple[models.Model, Params]:
    """The network with a prompt before each text, and its parameters."""
    its = base["params"]
    ids = np.array([1 + CHARACTERS.index(character) for character in PROMPT])
    prompt = its["Embed_0"]["embedding"][ids]
    assert network.built is not None
    module = models.Prompted(network.built.module, *prompt.shape)
    return models.next_character(module), {"params": {"module": its, "prompt": prompt}}


@cache
def trained_on_plays(data_dir: Path, client_plays: int, epochs: int, length: int) -> Params:
    """The network's parameters after so many passes over the training speeches of all plays but the last, by Adam."""
    spoken = shortened(load_shakespeare(data_dir, slice(-client_plays)), length)
    batches = fp.epochs(epochs, batch_size=32)
    return trained_openly(ToLastPlays.NETWORK, spoken, batches, lambda t: optax.adam(1e-3))


def base_of(settings: ToLastPlays) -> Params:
    """The base, from its folder where it is kept there."""
    data_dir = settings.data_dir or datasets.default_data_dir()
    name = f"all_plays_but_{settings.client_plays}_{settings.base_epochs}_epochs_{settings.length}"
    folder = settings.base_dir
    if folder is not None and is_kept(folder, name, 0):
        return models.load_model(folder, name, model=ToLastPlays.NETWORK).params
    base = trained_on_plays(data_dir, settings.client_plays, settings.base_epochs, settings.length)
    if folder is not None:
        models.save_model(folder, name, 0, ToLastPlays.NETWORK, base)
    return base


def ledger(settings: ToLastPlays) -> Ledger:
    example = text(settings.length)
    return natural_ledger(settings, settings.model(), example, lambda: load(settings))


def load(settings: ToLastPlays) -> Dataset:
    data_dir = settings.data_dir or datasets.default_data_dir()
    data = load_shakespeare(data_dir, slice(-settings.client_plays, None))
    return shortened(data, settings.length, settings.test_texts)


def on(settings: ToLastPlays, data: Dataset) -> Experiment:
    return experiment(settings, data, settings.model(base_of(settings)))
