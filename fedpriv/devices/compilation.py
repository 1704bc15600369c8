"""How a run's program is compiled: on its own, unless whoever starts several runs puts another way in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

Compiler = Callable[[Callable[..., Any], tuple, Sequence[int]], Callable[..., Any]]
"""(function, arguments of the shapes to come, positions of those that are donated) -> the compiled function."""


def on_its_own(
    fn: Callable[..., Any], args: tuple, donate_argnums: Sequence[int] = ()
) -> jax.stages.Compiled:
    """`jax.jit`, ahead of the first call."""
    return jax.jit(fn, donate_argnums=donate_argnums).lower(*args).compile()


_compiler: ContextVar[Compiler] = ContextVar("compiler", default=on_its_own)


def compiled(
    fn: Callable[..., Any], args: tuple, donate_argnums: Sequence[int] = ()
) -> Callable[..., Any]:
    """`fn` compiled for arguments like `args` by the compiler in force."""
    return _compiler.get()(fn, args, donate_argnums)


@contextmanager
def compiling_with(compiler: Compiler) -> Iterator[None]:
    """Puts `compiler` in force."""
    token = _compiler.set(compiler)
    try:
        yield
    finally:
        _compiler.reset(token)
