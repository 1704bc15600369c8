"""Shapes of Gaussian noise on a sum of bounded contributions, and how well each hides one contribution.

On Haar coefficients: K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced Approach".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from fedpriv.core.arguments import Count, checked
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.trees import dimension, flatten, real, unflatten, width
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.clipping import Clipping
from fedpriv.mechanisms.haar import Form, haar, inverse_haar, padded_length


@checking_fields
class Noise(NamedTuple):
    """A Gaussian distribution of scale 1, for the noise on a sum.

    Attributes:
      draw: (key, like) -> noise in the shapes of `like`, f32, or f64 where `like` is f64. One that computes with values
        of `like`, which is the sum, is refused.
      reach: clipping -> the whitened sensitivity sup ||Sigma^-1/2 u|| over its set for C = 1.
      whiten: u -> Sigma^-1/2 u, f32[...]; if u is such noise, its entries are independent and of variance 1.
      dimension: the number of coordinates, if the noise requires a fixed one.
      seal: see `fedpriv.core.provenance`; leave it out of a noise of your own.
    """

    draw: Callable[[Key, PyTree], PyTree]
    reach: Callable[[Clipping], float]
    whiten: Callable[[PyTree], jax.Array]
    dimension: Count | None = None
    seal: tuple = ()

    def drawn(self, key: Key, like: PyTree) -> PyTree:
        """As `draw`.

        Raises:
          ValueError: it is made by hand, and computes with values of `like`.
        """
        if not constructed(self):
            program = jax.make_jaxpr(self.draw)(key, like)
            _, used = partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))
            if any(used[1:]):
                raise ValueError(
                    "noise: `draw` computes with the values of the sum, on which noise must not depend; draw from the "
                    "key and from shapes and types alone"
                )
        return self.draw(key, like)


def isotropic() -> Noise:
    """N(0, 1) on every coordinate: the Gaussian mechanism (Dwork and Roth 2014, Appendix A)."""

    def draw(key: Key, like: PyTree) -> PyTree:
        return unflatten(jax.random.normal(key, (dimension(like),), width(like)), real(like))

    return sealed(Noise(draw, lambda clipping: clipping.length, flatten))


def haar_noise(d: Count, form: Form = "averaging") -> Noise:
    """Noise on the Haar coefficients of all d coordinates together, seen after the inverse transform.

    In averaging form it is the paper's N(0, 1 / W^2) (Ranaweera et al., Algorithms 1 and 2), after whose inverse every
    coordinate has the variance 1/3 + 2 / (3 m^2). In orthonormal form it is N(0, 1), which stays N(0, 1): `isotropic`
    in distribution. As the transform is linear, only the noise is inverted.

    Args:
      d: number of coordinates, padded to m = 2^L.

    Raises:
      ValueError: an unknown form; when used, another number of coordinates than d.
    """
    d = checked("d", d, Count)
    form = checked("form", form, Form)
    m, averaging = padded_length(d), form == "averaging"

    def draw(key: Key, like: PyTree) -> PyTree:
        if dimension(like) != d:
            raise ValueError(f"d: {d}, but the sum has {dimension(like)} coordinates; give that")
        z = jax.random.normal(key, (m,), width(like))
        return unflatten(inverse_haar(_weighted(z) if averaging else z, d, form), real(like))

    def reach(clipping: Clipping) -> float:
        if not averaging:
            return clipping.length
        return min(clipping.weighted_length, math.sqrt(m) * clipping.length)  # ||W H|| = sqrt(m)

    def whiten(u: PyTree) -> jax.Array:
        z = haar(flatten(u), form)
        return z / _weighted(jnp.ones(m, z.dtype)) if averaging else z

    return sealed(Noise(draw, reach, whiten, d))


def _weighted(z: jax.Array) -> jax.Array:
    """z / W: m for the overall mean and the coarsest detail, half as much with every level."""
    m = len(z)
    starts = [1 << level for level in range(m.bit_length() - 1)]
    groups = jnp.split(z, starts)
    return jnp.concatenate([g / (m / max(1, s)) for g, s in zip(groups, [0, *starts], strict=True)])
