"""Every mechanism, for contributions of any size: a new one gets one entry, and is held to all laws that it fits."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import clip_sets

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
      joint: the names of the mechanisms of a tuple of contributions, the last of which is a bit.
    """

    clipping: Callable = flat
    noise: Callable = isotropic
    longest: Callable[[Size], float] = lambda size: 1.0
    white: bool = True
    calibrated: bool = False
    whole: Callable | None = None
    joint: tuple[str, ...] = ()

    @property
    def kind(self):
        """Which code bounds, and what noise hides."""
        return "joint" if self.joint else (self.whole or self.clipping, self.white, self.calibrated)

    @property
    def clips(self):
        """Which code bounds, whatever hides: Laplace's, or that of a set."""
        return fp.laplace if self.whole is fp.laplace else self.clipping

    @property
    def set(self) -> Callable[[Size], clip_sets.Set]:
        """The set in NumPy."""
        return clip_sets.in_l1 if self.whole is fp.laplace else SETS[self.clipping]

    def parts(self, size: Size, clip_norm: float, noise_multiplier: float) -> list:
        """What `make` is given, for each contribution of the tuple."""
        first, *more = (ENTRIES[name] for name in self.joint)
        others = [(each, size, clip_norm / 3.5, 2 * noise_multiplier) for each in more]
        bit = (ENTRIES["gaussian"], Size(1, 1), 0.5, 3.0)
        return [(first, size, clip_norm, noise_multiplier), *others, bit]

    def make(self, size: Size, clip_norm: float, noise_multiplier: float):
        """The mechanism for contributions of that size."""
        if self.whole:
            return self.whole(clip_norm, noise_multiplier)
        if self.joint:
            given = self.parts(size, clip_norm, noise_multiplier)
            return fp.joint(*(entry.make(*values) for entry, *values in given))
        parts = of_size(self.clipping, size), of_size(self.noise, size)
        levels = {"clip_norm": clip_norm, "noise_multiplier": noise_multiplier}
        return fp.mechanism(*parts, calibrated=self.calibrated, **levels)


def padded(size: Size) -> float:
    """sqrt(m), m being the next power of two: the length of a constant vector of Haar norm 1."""
    return float(2 ** (size.d - 1).bit_length()) ** 0.5


def changing(clip_norm, noise_multiplier):
    start = fp.gaussian(clip_norm, noise_multiplier)
    return fp.dynamic(start, rounds=9, noise_decay=2.0, parts=3)


SETS = {
    flat: clip_sets.flat,
    per_layer: clip_sets.per_layer,
    separately: clip_sets.separately,
    coefficients: clip_sets.coefficients,
    per_level: clip_sets.per_level,
}
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
    "update and bit": Entry(joint=("gaussian",)),
    "haar and bit": Entry(joint=("haar levels",)),
    "layers, updates, bit": Entry(joint=("per layer", "gaussian")),
}


def that(fit: Callable[[Entry], bool]) -> dict[str, Entry]:
    """Those that fit."""
    return {name: entry for name, entry in ENTRIES.items() if fit(entry)}
