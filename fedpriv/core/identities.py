"""Operations that are the identity, whatever their parameters say: they only name a place, or mark what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


class Identity(Primitive):
    """The identity on its operands: as it runs, compiled, batched and derived."""

    multiple_results = True

    def __init__(self, name: str):
        super().__init__(name)
        self.def_impl(_same)
        self.def_abstract_eval(_same)
        mlir.register_lowering(self, mlir.lower_fun(_same, multiple_results=True))
        batching.primitive_batchers[self] = self._batched
        ad.primitive_jvps[self] = self._derived

    def _batched(self, leaves: Sequence[Any], axes: Sequence[Any], **how: Any) -> tuple[Any, Any]:
        return self.bind(*leaves, **how), axes

    def _derived(self, leaves: Sequence[Any], tangents: Sequence[Any], **how: Any) -> tuple:
        return self.bind(*leaves, **how), list(tangents)


def _same(*leaves: Any, **_: Any) -> list[Any]:
    return list(leaves)
