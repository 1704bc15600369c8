"""The algorithms of the wavelet experiments, made of a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import optax

import fedpriv as fp
from experiments.wavelet_config import Name, Wavelet
from fedpriv.algorithms.wavelet import Clip
from fedpriv.core.trees import dimension
from fedpriv.rounds.algorithm import Algorithm

Clipped: TypeAlias = Literal["gradient", "coefficients", "levels", "update"]
"""What a clip norm is for."""


class Maker:
    """Makes the algorithms of a config for a model and for clients who hold equally many records, R."""

    def __init__(
        self,
        config: Wavelet,
        model: fp.models.Model,
        federation: fp.Federation,
        norm: Callable[[Clipped], float],
    ):
        self.config, self.model, self.federation, self.norm = config, model, federation, norm
        self.records = federation.capacity
        if config.lot > self.records:
            raise ValueError(f"lot: {config.lot} exceeds the {self.records} records of a client")
        self.sampler = _poisson(config.clients, config.cohort / config.clients)
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        self.d, self.tensors = dimension(shapes), len(jax.tree.leaves(shapes))

    def make(self, name: Name) -> Algorithm:
        if name == "fed_avg":
            return self._averaged(fp.UNPROTECTED)
        if "fed_avg" in name:
            return self._of_clients(name)
        return self._of_records(name)

    def clipped(self, name: Name) -> Clipped:
        """What the algorithm clips."""
        if "fed_avg" in name:
            by_gradient = name in ("dp_fed_avg", "dp_fed_avg_wav")
            return "gradient" if by_gradient and self.config.bounded == "gradients" else "update"
        if name.endswith("sound"):
            return "levels"
        return self.config.clip if name.endswith("wav") else "gradient"

    def _of_records(self, name: Name) -> Algorithm:
        config = self.config
        wav = name.endswith("wav")
        each = wav and config.noise_on_each
        local = fp.LocalSteps(
            fp.per_example(self.model.loss),
            self._lots(exact=each),
            config.local_epochs * round(self.records / config.lot),
            self._local_optimizer(name),
            self._mechanism(name, config.noise_multiplier),
        )
        if wav:
            return fp.dp_sgd_wav(local, sampler=self.sampler, noise_on_each=each)
        if not name.startswith("dyn"):
            return fp.dp_sgd(local, sampler=self.sampler)

        def made(sigma: float) -> Algorithm:
            falling = local._replace(mechanism=self._dynamic(name, sigma))
            return fp.dp_sgd(falling, sampler=self.sampler)

        return self._solved(made, fp.dp_sgd(local, sampler=self.sampler))

    def _lots(self, *, exact: bool) -> fp.Sampler:
        if exact:
            return fp.subsets(self.records, self.config.lot)
        # Masked slots cost as much as records: four standard deviations, which the certificate counts, are enough.
        return _poisson(self.records, self.config.lot / self.records, room=4)

    def _local_optimizer(self, name: Name) -> fp.rounds.local_training.Schedule:
        rate = self.config.adaptive_rate
        if "adam" in name:
            return lambda t: optax.adam(rate)
        if "adagrad" in name:
            return lambda t: optax.adagrad(10 * rate)
        return lambda t: optax.sgd(self.config.learning_rate)

    def _of_clients(self, name: Name) -> Algorithm:
        sigma = self.config.noise_multiplier
        if name == "dp_fed_avg_adaptive":
            return self._adaptive()
        if name == "dyn_dp_fed_avg":
            plain = self._averaged(self._mechanism(name, sigma))
            return self._solved(lambda s: self._averaged(self._dynamic(name, s)), plain)
        by_gradient = self.clipped(name) == "gradient"
        if name == "dp_fed_avg_wav" or by_gradient:
            return fp.dp_fed_avg_wav(
                self.model.loss,
                d=self.d,
                **self._averaging(),
                clip_norm=self.norm(self.clipped(name)),
                noise_multiplier=sigma,
                bounded="gradients" if by_gradient else "update",
                noise=None if name.endswith("wav") else fp.noise.isotropic(),
            )
        return self._averaged(self._mechanism(name, sigma))

    def _adaptive(self) -> Algorithm:
        config = self.config
        return fp.adaptive_fed_avg(
            self.model.loss,
            **self._averaging(),
            quantile=config.quantile,
            clip_norm=self.norm("update"),
            noise_multiplier=config.noise_multiplier,
            # Andrew et al. take a twentieth of the cohort; where that is little, what still leaves noise for the sum.
            count_noise=max(config.cohort / 20, config.noise_multiplier),
        )

    def _averaged(self, mechanism: fp.Mechanism | fp.Dynamic) -> Algorithm:
        return fp.fed_avg(self.model.loss, **self._averaging(), mechanism=mechanism)

    def _averaging(self) -> dict[str, Any]:
        rate = self.config.learning_rate
        return {
            "sampler": self.sampler,
            "optimizer": lambda t: optax.sgd(rate),
            "batches": fp.epochs(self.config.local_epochs, self.config.lot),
        }

    def _mechanism(self, name: Name, sigma: float) -> fp.Mechanism:
        bound = self.norm(self.clipped(name))
        if "wav" in name:
            sound = name.endswith("sound")
            clip: Clip = "levels" if sound else self.config.clip
            return fp.wavelet_mechanism(
                self.d, clip_norm=bound, noise_multiplier=sigma, clip=clip, calibrated=sound
            )
        by_layer = self.config.per_layer
        clipping = fp.clipping.per_layer(self.tensors) if by_layer else fp.clipping.flat()
        noise = fp.noise.isotropic()
        return fp.mechanism(clipping, noise, clip_norm=bound, noise_multiplier=sigma)

    def _dynamic(self, name: Name, sigma: float) -> fp.Dynamic:
        dyn = self.config.dyn
        return fp.dynamic(
            self._mechanism(name, sigma),
            rounds=self.config.rounds,
            clip_decay=dyn.clip_decay,
            noise_decay=dyn.noise_decay,
            parts=dyn.parts,
        )

    def _solved(self, made: Callable[[float], Algorithm], plain: Algorithm) -> Algorithm:
        """`made` at the noise multiplier that has the certificate of `plain`."""
        rounds, delta = self.config.rounds, self.config.delta
        shapes = self.model.init, self.federation
        budget = fp.certify(plain, *shapes, rounds, delta).epsilon
        options = {"epsilon": budget, "rounds": rounds, "delta": delta, "tolerance": 1e-3}
        return made(fp.calibrate_noise(made, *shapes, **options))


def _poisson(population: int, rate: float, room: float = 6) -> fp.Sampler:
    """With room for so many standard deviations more than expected."""
    if rate == 1:
        return fp.everyone(population)
    size = population * rate
    return fp.poisson(population, rate, min(population, fp.capacity_for(size, rate, room)))
