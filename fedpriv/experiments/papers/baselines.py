"""What the field's baselines add to federated averaging: the server's optimiser, and clients' weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import optax

import fedpriv as fp
from fedpriv.core.arguments import Decay, Rate
from fedpriv.experiments.config.fields import Single, check_each

Optimizer = Literal["sgd", "momentum", "adagrad", "adam", "yogi"]
RATES: dict[Optimizer, float] = {
    "sgd": 1.0,
    "momentum": 1.0,
    "adagrad": 0.1,
    "adam": 0.01,
    "yogi": 0.01,
}
FedOpt = Literal["fed_avg_m", "fed_adagrad", "fed_adam", "fed_yogi"]
DpFedOpt = Literal["dp_fed_avg_m", "dp_fed_adagrad", "dp_fed_adam", "dp_fed_yogi"]
ROWS: dict[str, Optimizer] = {
    "fed_avg_m": "momentum",
    "fed_adagrad": "adagrad",
    "fed_adam": "adam",
    "fed_yogi": "yogi",
}
"""FedAvg with an optimiser at the server, by its name as an algorithm; DP-FedAvg with a `dp_` before it."""


@dataclass(frozen=True)
class Server:
    """A baseline's server optimiser, which takes one step a round along the mean update (FedOpt)."""

    optimizer: Optimizer = "sgd"
    """Of every algorithm that does not name one: SGD; momentum (FedAvgM); adagrad, adam or yogi (Reddi et al.).
    Rows keep their names."""
    learning_rate: float | None = None
    """eta; by default 1 for sgd and momentum, 0.1 for adagrad, 0.01 for adam and yogi."""
    momentum: float = 0.9
    """beta of momentum, beta_1 of adam and yogi."""
    second_momentum: float = 0.99
    """beta_2 of adam and yogi."""
    adaptivity: float = 1e-3
    """tau of adagrad, adam and yogi; the smaller, the more the rates of coordinates differ."""
    decay: float = 1.0
    """Factor by which the learning rate changes every round."""

    def __post_init__(self) -> None:
        check_each(Single, learning_rate=self.learning_rate, adaptivity=self.adaptivity)
        check_each(Decay, momentum=self.momentum, second_momentum=self.second_momentum)
        check_each(Rate, decay=self.decay)

    def made(self, optimizer: Optimizer | None = None) -> optax.GradientTransformation:
        """The optimiser, or another one with these settings."""
        which = optimizer or self.optimizer
        eta = RATES[which] if self.learning_rate is None else self.learning_rate
        rate = eta if self.decay == 1 else optax.exponential_decay(eta, 1, self.decay)
        if which in ("sgd", "momentum"):
            return optax.sgd(rate, momentum=self.momentum if which == "momentum" else None)
        if which == "adagrad":
            return fp.fed_opt.adagrad(rate, adaptivity=self.adaptivity)
        make = {"adam": fp.fed_opt.adam, "yogi": fp.fed_opt.yogi}[which]
        betas = {"momentum": self.momentum, "second_momentum": self.second_momentum}
        return make(rate, adaptivity=self.adaptivity, **betas)


@dataclass(frozen=True)
class Weighting:
    """A baseline's weights of the clients."""

    cap: float | None = None
    """w_hat: a client with n examples has the weight min(n / cap, 1); by default all count equally."""
    mean: float = 1.0
    """Mean weight W / n of all clients, or a lower bound for the clipped estimator; a public number."""
    estimator: Literal["fixed", "clipped"] = "fixed"
    """Divisor of the weighted sum: the expected weight, or the realised one but no less than `mean` implies."""

    def __post_init__(self) -> None:
        if self.cap is not None:
            fp.ByExamples(self.cap, self.mean, self.estimator)  # raises
        elif (self.mean, self.estimator) != (1.0, "fixed"):
            raise ValueError(
                "cap: none is given, so that nothing bounds the weights; give the most examples that count"
            )

    def made(self) -> fp.types.Weighting:
        """As the library takes it."""
        if self.cap is None:
            return fp.types.Weighting()
        return fp.ByExamples(self.cap, self.mean, self.estimator)
