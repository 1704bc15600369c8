"""The algorithms of the wavelet experiments: what each is made of, and how a config makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import optax

import fedpriv as fp
from fedpriv.algorithms.wavelet import Clip
from fedpriv.core.trees import dimension
from fedpriv.experiments.papers.wavelet_settings import Name, Wavelet
from fedpriv.rounds.algorithm import Algorithm

Clipped: TypeAlias = Literal["gradient", "coefficients", "levels", "update"]
"""What a clip norm is for."""


class Method(NamedTuple):
    """What an algorithm of the wavelet experiments protects, and how.

    Attributes:
      unit: whose contribution is clipped: a record's at every step, or a client's.
      wavelet: noise on Haar coefficients: the paper's, or calibrated until its certificate is that of sigma.
      dynamic: clip norm and noise fall over the run.
      adaptive: the clip norm follows a quantile of the norms.
      local: the clients' optimizer.
    """

    unit: Literal["record", "client"]
    wavelet: Literal["paper", "sound"] | None = None
    private: bool = True
    dynamic: bool = False
    adaptive: bool = False
    local: Literal["sgd", "adam", "adagrad"] = "sgd"


METHODS: dict[Name, Method] = {
    "fed_avg": Method("client", private=False),
    "dp_sgd": Method("record"),
    "dyn_dp_sgd": Method("record", dynamic=True),
    "dp_sgd_wav": Method("record", "paper"),
    "dp_sgd_wav_sound": Method("record", "sound"),
    "dp_adam": Method("record", local="adam"),
    "dp_adam_wav": Method("record", "paper", local="adam"),
    "dp_adagrad": Method("record", local="adagrad"),
    "dp_adagrad_wav": Method("record", "paper", local="adagrad"),
    "dp_fed_avg": Method("client"),
    "dyn_dp_fed_avg": Method("client", dynamic=True),
    "dp_fed_avg_wav": Method("client", "paper"),
    "dp_fed_avg_wav_sound": Method("client", "sound"),
    "dp_fed_avg_adaptive": Method("client", adaptive=True),
}


class Maker:
    """Makes the algorithms of a wavelet config for a model and for clients who hold equally many records, R."""

    def __init__(
        self,
        settings: Wavelet,
        model: fp.models.Model,
        federation: fp.Federation,
        norm: Callable[[Clipped], float],
    ):
        self.settings, self.model, self.federation, self.norm = settings, model, federation, norm
        self.records = federation.capacity
        if settings.lot > self.records:
            raise ValueError(f"lot: {settings.lot} exceeds the {self.records} records of a client")
        self.sampler = _poisson(settings.clients, settings.cohort / settings.clients)
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        self.d, self.tensors = dimension(shapes), len(jax.tree.leaves(shapes))

    def make(self, method: Method) -> Algorithm:
        if not method.private:
            return self._averaged(fp.unprotected())
        return self._of_clients(method) if method.unit == "client" else self._of_records(method)

    def bound(self, method: Method) -> float:
        """The clip norm of what the algorithm clips."""
        return self.norm(self._clipped(method))

    def _clipped(self, method: Method) -> Clipped:
        if method.unit == "client":
            return "gradient" if self._by_gradient(method) else "update"
        if method.wavelet is None:
            return "gradient"
        return self._clip(method)

    def _by_gradient(self, method: Method) -> bool:
        """Whether a client's gradients are clipped in place of its update, as in the paper."""
        plain = not (method.dynamic or method.adaptive or method.wavelet == "sound")
        return plain and self.settings.bounded == "gradients"

    def _clip(self, method: Method) -> Clip:
        return "levels" if method.wavelet == "sound" else self.settings.clip

    def _of_records(self, method: Method) -> Algorithm:
        settings, sigma = self.settings, self.settings.noise_multiplier
        wavelet = method.wavelet == "paper"
        each = wavelet and settings.noise_on_each
        mechanism = self._mechanism(method, sigma)
        local = fp.LocalSteps(
            fp.per_example(self.model.loss),
            self._lots(exact=each),
            settings.local_epochs * round(self.records / settings.lot),
            self._local_optimizer(method),
            mechanism,
        )
        if wavelet:
            return fp.papers.dp_sgd_wav(local, sampler=self.sampler, noise_on_each=each)

        def made(mechanism: fp.Mechanism | fp.types.Dynamic) -> Algorithm:
            return fp.dp_sgd(local._replace(mechanism=mechanism), sampler=self.sampler)

        return self._solved(method, made) if method.dynamic else made(mechanism)

    def _lots(self, *, exact: bool) -> fp.Sampler:
        if exact:
            return fp.fixed_size(self.records, self.settings.lot)
        # Masked slots cost as much as records: four standard deviations, which the certificate counts, are enough.
        return _poisson(self.records, self.settings.lot / self.records, room=4)

    def _local_optimizer(self, method: Method) -> fp.rounds.local_training.Schedule:
        settings = self.settings
        made: dict[str, optax.GradientTransformation] = {
            "sgd": optax.sgd(settings.learning_rate),
            "adam": optax.adam(settings.adaptive_rate),
            "adagrad": optax.adagrad(10 * settings.adaptive_rate),
        }
        return lambda t: made[method.local]

    def _of_clients(self, method: Method) -> Algorithm:
        sigma, by_gradient = self.settings.noise_multiplier, self._by_gradient(method)
        if method.adaptive:
            return self._adaptive(method)
        if method.dynamic:
            return self._solved(method, self._averaged)
        if method.wavelet == "paper" or by_gradient:
            return fp.papers.dp_fed_avg_wav(
                self.model.loss,
                d=self.d,
                **self._averaging(),
                clip_norm=self.bound(method),
                noise_multiplier=sigma,
                bounded="gradients" if by_gradient else "update",
                noise=None if method.wavelet else fp.noise.isotropic(),
            )
        return self._averaged(self._mechanism(method, sigma))

    def _adaptive(self, method: Method) -> Algorithm:
        settings = self.settings
        return fp.adaptive_fed_avg(
            self.model.loss,
            **self._averaging(),
            quantile=settings.quantile,
            clip_norm=self.bound(method),
            noise_multiplier=settings.noise_multiplier,
            # Andrew et al. take a twentieth of the cohort; where that is little, what still leaves noise for the sum.
            count_noise=max(settings.cohort / 20, settings.noise_multiplier),
        )

    def _averaged(self, mechanism: fp.Mechanism | fp.types.Dynamic) -> Algorithm:
        return fp.fed_avg(self.model.loss, **self._averaging(), mechanism=mechanism)

    def _averaging(self) -> dict[str, Any]:
        rate = self.settings.learning_rate
        return {
            "sampler": self.sampler,
            "optimizer": lambda t: optax.sgd(rate),
            "batches": fp.epochs(self.settings.local_epochs, self.settings.lot),
        }

    def _mechanism(self, method: Method, sigma: float) -> fp.Mechanism:
        noisy: dict[str, Any] = {"clip_norm": self.bound(method), "noise_multiplier": sigma}
        if method.wavelet:
            sound = method.wavelet == "sound"
            return fp.papers.haar_mechanism(
                self.d, **noisy, clip=self._clip(method), calibrated=sound
            )
        by_layer = self.settings.per_layer
        clipping = fp.clipping.per_layer(self.tensors) if by_layer else fp.clipping.flat()
        return fp.mechanism(clipping, fp.noise.isotropic(), **noisy)

    def _solved(
        self, method: Method, made: Callable[[fp.Mechanism | fp.types.Dynamic], Algorithm]
    ) -> Algorithm:
        """With falling noise that has the certificate of the constant noise multiplier."""
        dyn, rounds, delta = self.settings.dyn, self.settings.rounds, self.settings.delta
        shapes = self.model.init, self.federation

        def falling(sigma: float) -> Algorithm:
            constant = self._mechanism(method, sigma)
            decays = {"clip_decay": dyn.clip_decay, "noise_decay": dyn.noise_decay}
            return made(fp.dynamic(constant, rounds=rounds, parts=dyn.parts, **decays))

        plain = made(self._mechanism(method, self.settings.noise_multiplier))
        budget = fp.certify(plain, *shapes, rounds, delta).epsilon
        options: dict[str, Any] = {
            "epsilon": budget,
            "rounds": rounds,
            "delta": delta,
            "tolerance": 1e-3,
        }
        return falling(fp.calibrate_noise(falling, *shapes, **options))


def _poisson(population: int, rate: float, room: float = 6) -> fp.Sampler:
    """With room for so many standard deviations more than expected."""
    if rate == 1:
        return fp.everyone(population)
    size = population * rate
    return fp.poisson(population, rate, min(population, fp.capacity_for(size, rate, room)))
