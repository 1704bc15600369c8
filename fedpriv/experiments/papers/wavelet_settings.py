"""The settings of the wavelet paper's experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedpriv.algorithms.wavelet import Clip
from fedpriv.core.arguments import Probability
from fedpriv.experiments.config.fields import Number, Single, check_each, each_once, mechanism
from fedpriv.experiments.config.settings import Settings

Name = Literal[
    "fed_avg",
    "dp_sgd",
    "dyn_dp_sgd",
    "dp_sgd_wav",
    "dp_sgd_wav_sound",
    "dp_adam",
    "dp_adam_wav",
    "dp_adagrad",
    "dp_adagrad_wav",
    "dp_fed_avg",
    "dyn_dp_fed_avg",
    "dp_fed_avg_wav",
    "dp_fed_avg_wav_sound",
    "dp_fed_avg_adaptive",
]


@dataclass(frozen=True)
class Dyn:
    """The schedules of Dyn-DP-SGD and Dyn-DP-FedAvg."""

    clip_decay: float = 2.0
    """The clip norm of the first round over what it would be in round T."""
    noise_decay: float = 1.5
    """The noise multiplier of the first round over that of round T; the first is solved for, so that the certificate
    of all rounds, towards a third party, is that of the constant multiplier."""
    parts: int = 5
    """Pieces of the run, each with constant values."""

    def __post_init__(self) -> None:
        check_each(Number, parts=self.parts)
        check_each(Single, clip_decay=self.clip_decay, noise_decay=self.noise_decay)


@dataclass(frozen=True)
class Wavelet(Settings):
    """DP-SGD and DP-FedAvg with and without wavelets, and the private baselines that adapt."""

    algorithms: tuple[Name, ...] = ("fed_avg", "dp_sgd", "dp_sgd_wav")
    """Algorithms to train, one after another. *_sgd, *_adam and *_adagrad protect records, dp_fed_avg* clients; *_sound
    have noise until their certificate is that of sigma; so have dyn_*, for which the ledger solves half a minute;
    fed_avg is not private."""
    clients: int = 100
    """Clients, who share the training images evenly (i.i.d.)."""
    cohort: int = 20
    """Clients per round, expected: each takes part on its own with probability cohort / clients."""
    local_epochs: int = 1
    """Passes over a client's records per round (the paper: 50)."""
    lot: int = 60
    """Records per step L, expected: each is in it on its own with probability L over the client's records."""
    learning_rate: float = 0.2
    """Of SGD; the model's mean update is taken as it is."""
    adaptive_rate: float = 0.005
    """Of Adam; ten times that for AdaGrad."""
    noise_multiplier: float = 1.0
    """sigma: the small (1), medium (1.5) or large (3) noise of the paper."""
    clip_norm: float | Literal["proxy"] = "proxy"
    """C; `proxy`: the median norm at the initial model, over a public proxy set, of what the algorithm clips:
    gradients, their coefficients, or updates (of pseudo-clients of about a client's size)."""
    proxy: int = 600
    """Public records, which no client holds."""
    clip: Clip = "coefficients"
    """What DP-SGD-WAV clips: all coefficients (Algorithm 1), each `levels` (Section 4.3), or the `gradient`."""
    per_layer: bool = False
    """Clip every tensor to C / sqrt(p) by itself, instead of all together (algorithms without wavelets)."""
    noise_on_each: bool = False
    """DP-SGD-WAV with noise on each record, as the pseudo-code is indented; lots are exact subsets then."""
    bounded: Literal["update", "gradients"] = "update"
    """What dp_fed_avg and dp_fed_avg_wav clip: the client's whole update (ours), or single gradients, as in the paper,
    which does not bound it."""
    quantile: float = 0.5
    """Of the update norms, which adaptive clipping (Andrew et al. 2021) follows with a private count."""
    dyn: Dyn = Dyn()
    delta: float = 1e-5
    """delta of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(
            Number,
            clients=self.clients,
            cohort=self.cohort,
            local_epochs=self.local_epochs,
            lot=self.lot,
            proxy=self.proxy,
        )
        if self.cohort > self.clients:
            raise ValueError(f"cohort: {self.cohort} exceeds the {self.clients} clients")
        each_once(self.algorithms)
        check_each(
            Single,
            learning_rate=self.learning_rate,
            adaptive_rate=self.adaptive_rate,
            noise_multiplier=self.noise_multiplier,
            clip_norm=None if isinstance(self.clip_norm, str) else self.clip_norm,
        )
        mechanism(self.clip_norm, self.noise_multiplier)
        check_each(Probability, delta=self.delta, quantile=self.quantile)
