"""Low-rank adapters that are factored anew.

S. Lee et al., "FedSVD: Adaptive Orthogonalization for Private Federated Learning with LoRA", 2025, arXiv:2505.12805.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from fedpriv.core.complaints import require
from fedpriv.core.trees import width
from fedpriv.core.types import Params


def refactored(params: Params) -> Params:
    """Adapters with the same products A B up to rounding, by the singular value decomposition A B = U S V^T.

    A becomes U, whose columns are orthonormal, and B becomes S V^T. As a function of released models it costs no
    privacy. (The paper's factors are transposed: its A are the right singular vectors.)

    Args:
      params: of a model of `adapters`.

    Raises:
      ValueError: other parameters.
    """
    require(isinstance(params, Mapping), "params", params, "give those of fp.models.adapters")
    return {path: _factored(path, adapter) for path, adapter in params.items()}


def _factored(path: str, adapter: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Of the product of [n, rank] and [rank, m], by matrices that are no larger."""
    fits = isinstance(adapter, Mapping) and set(adapter) == {"A", "B"}
    require(fits, f"params[{path!r}]", adapter, "give A and B alone, as fp.models.adapters does")
    kind = width(adapter)
    a, b = (jnp.asarray(adapter[name], kind) for name in "AB")
    q, r = jnp.linalg.qr(a)
    u, s, vt = jnp.linalg.svd(r @ b, full_matrices=False)
    return {
        "A": (q @ u).astype(adapter["A"].dtype),
        "B": (s[..., None] * vt).astype(adapter["B"].dtype),
    }
