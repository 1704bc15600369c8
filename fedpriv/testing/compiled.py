"""Programs that are run once or twice: they compile fast, and need not be fast themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

_QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": True,
}
if jax.__version_info__[:2] == (0, 10):  # one that does not know an option refuses to compile
    _QUICK["xla_cpu_use_fusion_emitters"] = False


def compiled(fn: Callable[..., Any], *args: Any) -> jax.stages.Compiled:
    """`fn` for arguments like these, for measurements: compiled fast."""
    return jax.jit(fn).lower(*args).compile(compiler_options=_QUICK)
