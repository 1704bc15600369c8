"""Released numbers that say less than what is known without them."""

from __future__ import annotations

import jax
import numpy as np

from fedpriv.core.callers import warn_where_called
from fedpriv.core.types import PyTree

_HALF = 0.5 / 1.96 * (1 - 1e-6)


def warn_of_noise(name: str, error: PyTree, span: PyTree, *, may_be_records: bool) -> None:
    """Warns where 1.96 standard errors reach half of what a number can range over.

    The middle of that range costs nothing, and is never further off.

    Args:
      name: of the statistic.
      error: standard errors, f64[...] each.
      span: how far the least and the largest value lie apart, in the same structure; arrays that go with the errors.
      may_be_records: whether records can be protected in place of clients.

    Warns:
      UserWarning: once, with the worst of them.
    """
    found = []
    leaves = jax.tree_util.tree_leaves_with_path(error)
    for (path, errors), spans in zip(leaves, jax.tree.leaves(span), strict=True):
        off, wide = (each.ravel() for each in np.broadcast_arrays(errors, spans))
        i = int(np.argmax(off / wide))
        found.append((off[i] / wide[i], off[i], wide[i], jax.tree_util.keystr(path, simple=True)))
    share, off, wide, which = max(found)
    if share < _HALF:
        return
    of = f" of the {which}" if which else ""
    remedy = "unit='record', " if may_be_records else ""
    warn_where_called(
        f"fp.statistics.{name}: the standard error{of} is {off:.3g} where numbers range over {wide:.3g}, so that "
        f"noise hides the number; take {remedy}a larger epsilon, or more clients",
        __name__,
    )
