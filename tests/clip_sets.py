"""The sets into which contributions are clipped, in NumPy: lengths of parts of a linear map of the contribution."""

from typing import NamedTuple

import numpy as np
from haar import haar


class Set(NamedTuple):
    """All vectors u of which no part of `map` u, padded with zeros, is longer than C.

    Attributes:
      map: f64[m, m], invertible.
      parts: of m numbers.
      order: of the norm.
    """

    map: np.ndarray
    parts: list[slice]
    order: int = 2

    def mapped(self, u):
        """f64[n, m], of f[n, d]."""
        padded = np.pad(np.asarray(u, np.float64), ((0, 0), (0, len(self.map) - u.shape[1])))
        return padded @ self.map.T

    def lengths(self, u):
        """f64[n, parts]"""
        mapped = self.mapped(u)
        return np.stack([np.linalg.norm(mapped[:, p], self.order, axis=1) for p in self.parts], 1)

    def told(self, u):
        """f64[n]: the norm that clipping tells: of the only part, or of the contribution."""
        whole = np.linalg.norm(np.asarray(u, np.float64), axis=1)
        return self.lengths(u)[:, 0] if len(self.parts) == 1 else whole

    def clip(self, u, bound):
        """f64[n, d]: each part scaled down to its bound."""
        mapped, lengths = self.mapped(u), self.lengths(u)
        for part, length in zip(self.parts, lengths.T, strict=True):
            mapped[:, part] *= (bound / np.maximum(length, bound))[:, None]
        return np.linalg.solve(self.map, mapped.T).T[:, : u.shape[1]]

    def saturated(self, d):
        """f64[d]: every part at its bound for C = 1, in a random direction."""
        mapped = np.random.default_rng(1).normal(size=len(self.map))
        for part in self.parts:
            mapped[part] /= np.linalg.norm(mapped[part], self.order)
        return np.linalg.solve(self.map, mapped)[:d]


def leaves_of(size):
    """Where each leaf of a contribution lies in its vector."""
    ends = np.cumsum([len(x) for x in np.array_split(np.arange(size.d), size.tensors)])
    return [slice(*both) for both in zip([0, *ends[:-1]], ends, strict=True)]


def padded_haar(size):
    return haar(1 << (size.d - 1).bit_length())


def flat(size):
    return Set(np.eye(size.d), [slice(0, size.d)])


def in_l1(size):
    return Set(np.eye(size.d), [slice(0, size.d)], 1)


def separately(size):
    return Set(np.eye(size.d), leaves_of(size))


def per_layer(size):
    return Set(size.tensors**0.5 * np.eye(size.d), leaves_of(size))


def coefficients(size):
    transform, _ = padded_haar(size)
    return Set(transform, [slice(0, len(transform))])


def per_level(size):
    transform, weights = padded_haar(size)
    levels = (len(weights) - 1).bit_length()
    parts = [slice(0, 1), *(slice(1 << k, 2 << k) for k in range(levels))]
    return Set(weights[:, None] * transform, parts)
