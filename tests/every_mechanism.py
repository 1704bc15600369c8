"""Every mechanism, for contributions of any size: a new one gets one entry, and is held to all laws that it fits."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import fedpriv as fp
from fedpriv.mechanisms.clipping import coefficients, flat, per_layer, per_level, separately
from fedpriv.mechanisms.noise import haar_noise, isotropic


class Size(NamedTuple):
    """Of a contribution: how many coordinates, in how many leaves."""

    d: int
    tensors: int


def of_size(make, size: Size):
    """`make` with what it asks of the size."""
    return make(**{name: n for name, n in size._asdict().items() if name in _asked(make)})


def _asked(make) -> set[str]:
    return set(inspect.signature(make).parameters)


class Entry(NamedTuple):
    """A mechanism, and what laws ask of it.

    Attributes:
      clipping: size -> the set into which a contribution is clipped.
      noise: size -> the shape of the noise.
      longest: size -> the longest contribution in l2 for C = 1.
      white: whether the noise is equal and independent in all coordinates.
      calibrated: whether it is louder by what the noise's shape lets through.
      whole: (clip norm, noise multiplier) -> the mechanism, where it is not put together of those two.
      joint: (size, clip norm, noise multiplier) -> the mechanism of a tuple of contributions.
    """

    clipping: Callable = flat
    noise: Callable = isotropic
    longest: Callable[[Size], float] = lambda size: 1.0
    white: bool = True
    calibrated: bool = False
    whole: Callable | None = None
    joint: Callable | None = None

    @property
    def kind(self):
        """Which code bounds and hides: of one kind are sets and shapes that differ in their numbers alone."""
        return "joint" if self.joint else self.whole or (self.white, self.calibrated)

    def make(self, size: Size, clip_norm: float, noise_multiplier: float):
        """The mechanism for contributions of that size."""
        if self.whole:
            return self.whole(clip_norm, noise_multiplier)
        if self.joint:
            return self.joint(size, clip_norm, noise_multiplier)
        parts = of_size(self.clipping, size), of_size(self.noise, size)
        levels = {"clip_norm": clip_norm, "noise_multiplier": noise_multiplier}
        return fp.mechanism(*parts, calibrated=self.calibrated, **levels)


def padded(size: Size) -> float:
    """sqrt(m), m being the next power of two: the length of a constant vector of Haar norm 1."""
    return float(2 ** (size.d - 1).bit_length()) ** 0.5


def changing(clip_norm, noise_multiplier):
    start = fp.gaussian(clip_norm, noise_multiplier)
    return fp.dynamic(start, rounds=9, noise_decay=2.0, parts=3)


def with_a_bit(*names):
    """The update, by each of the mechanisms, and a bit."""

    def make(size, clip_norm, noise_multiplier):
        first, *more = (ENTRIES[name] for name in names)
        parts = [first.make(size, clip_norm, noise_multiplier)]
        parts += [each.make(size, clip_norm / 3.5, 2 * noise_multiplier) for each in more]
        return fp.joint(*parts, fp.gaussian(0.5, 3.0))

    return make


ENTRIES = {
    "gaussian": Entry(whole=fp.gaussian),
    "per layer": Entry(per_layer),
    "separately": Entry(separately, longest=lambda size: size.tensors**0.5),
    "levels": Entry(per_level),
    "coefficients": Entry(coefficients, longest=padded),
    "laplace": Entry(whole=fp.laplace),
    "changing": Entry(whole=changing),
    "haar flat": Entry(noise=haar_noise, white=False),
    "haar coefficients": Entry(coefficients, haar_noise, padded, white=False),
    "haar levels": Entry(per_level, haar_noise, white=False),
    "haar orthonormal": Entry(noise=partial(haar_noise, form="orthonormal")),
    "haar calibrated": Entry(coefficients, haar_noise, padded, white=False, calibrated=True),
    "update and bit": Entry(joint=with_a_bit("gaussian")),
    "haar and bit": Entry(joint=with_a_bit("haar levels")),
    "layers, updates, bit": Entry(joint=with_a_bit("per layer", "gaussian")),
}


def that(fit: Callable[[Entry], bool]) -> dict[str, Entry]:
    """Those that fit."""
    return {name: entry for name, entry in ENTRIES.items() if fit(entry)}
