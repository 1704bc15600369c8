"""As many clients side by side as fit into a device's memory, looked at without a program made for that alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from fedpriv.core.jaxprs import equations
from fedpriv.core.waiting import waiting_for
from fedpriv.devices import closed_arrays, distributed, memory
from fedpriv.devices.layout import UNFITTED, Strategy, spmd, use, widths

# Shares of the free memory that a program may need, as allocators do not use the last of it:
BY_TRACE, BY_COMPILER = 0.8, 0.9
AIM = 0.75  # where not all fit

Compiler = Callable[[Callable[..., Any], tuple, Sequence[int]], Callable[..., Any]]
"""(function, arguments of the shapes to come, positions of those that are donated) -> the compiled function."""


def compiled(fn: Callable[..., Any], args: tuple, donated: Sequence[int]) -> Callable[..., Any]:
    """`fn` by `jax.jit`, ahead of the first call; `fn` itself where JAX_DISABLE_JIT asks to see every step."""
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return fn
    with waiting_for("tracing the rounds"):
        traced = closed_arrays.traced(fn, args, donated)
    count = sum(1 for _ in equations(traced.program.jaxpr))
    with waiting_for(f"compiling {count:,} equations"):
        return traced.compile()


def compiled_to_fit(
    make: Callable[[], Callable[..., Any]],
    args: tuple,
    donated: Sequence[int],
    strategy: Strategy,
    compiler: Compiler = compiled,
) -> tuple[Callable[..., Any], Strategy]:
    """What `make` makes, for every device of the strategy, compiled for `args`; and its layout.

    If the strategy leaves the number of clients open (`clients="fit"`), it follows from the traced program. Where the
    compiler tells that its program needs more than there is, another is compiled, with fewer.

    Args:
      make: makes the function anew for every layout, as JAX keeps the trace of one that it has seen.
    """
    if strategy.clients != "fit" or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        chosen = replace(strategy, clients=UNFITTED) if strategy.clients == "fit" else strategy
        with use(chosen):
            return compiler(spmd(make()), args, donated), chosen
    fn: Callable[..., Any]

    def program() -> ClosedJaxpr:
        nonlocal fn
        fn = spmd(make())
        found: ClosedJaxpr = jax.jit(fn, donate_argnums=donated).trace(*args).jaxpr
        return found

    free = _free(strategy)
    width = _by_trace(replace(strategy, clients="vmap"), program, free)
    while True:
        layout = replace(strategy, clients=width)
        with use(layout):
            run = compiler(fn, args, donated)  # of the trace that there is
        need = _needed(run)
        if need <= BY_COMPILER * free or width == 1:
            return run, layout
        fewer = _narrower(width, need, free)
        width = _by_trace(replace(strategy, clients=fewer), program, free)


def fitted(strategy: Strategy, program: Callable[[], ClosedJaxpr]) -> Strategy:
    """`strategy` with as many clients side by side as fit, by the trace alone, if it leaves that open.

    Args:
      program: traces it anew, under the strategy in force.
    """
    if strategy.clients != "fit":
        return strategy
    width = _by_trace(replace(strategy, clients="vmap"), program, _free(strategy))
    return replace(strategy, clients=width)


def _by_trace(layout: Strategy, program: Callable[[], ClosedJaxpr], free: float) -> int:
    """As many clients side by side as there may be in the layout, or fewer, so that the traced program fits."""
    while True:
        with use(layout), widths() as seen:
            need = memory.live_bytes(program())
        widest = max(seen, default=1)
        if need <= BY_TRACE * free or widest == 1:
            return widest
        layout = replace(layout, clients=_narrower(widest, need, free))


def _narrower(width: int, need: float, free: float) -> int:
    return max(1, min(width - 1, int(width * AIM * free / need)))


def _free(strategy: Strategy) -> float:
    own = memory.free_memory() if strategy.memory is None else strategy.memory
    return float(_of_all(own).min())


def _needed(run: Any) -> float:
    """Bytes for temporary values and new results; 0 where nobody tells."""
    tells = getattr(run, "memory_analysis", None)
    about = tells() if tells else None
    own = 0
    if about is not None:
        new = about.output_size_in_bytes - about.alias_size_in_bytes
        own = about.temp_size_in_bytes + max(new, 0)
    return float(_of_all(own).max())


def _of_all(own: int) -> np.ndarray:
    """Of each process, as all have to run the same program."""
    if jax.process_count() == 1:
        return np.array([own])
    return distributed.gather(np.array([own], np.float32))  # 64-bit integers need not be enabled
