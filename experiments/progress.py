"""What is shown while an algorithm trains: a heading, then a bar in a terminal, elsewhere a line per evaluation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from experiments.show import epsilon_means, label, not_private, short, width, wrapped
from fedpriv.engine.history import Evaluation
from fedpriv.engine.training_loop import Compiler
from fedpriv.privacy import Certificate, Claim


class Progress:
    """Of one algorithm, on standard error.

    Args:
      rounds: that it is to train for.
      certified: of so many rounds; unit, view, adjacency and delta stand in the heading alone.
      claim: the paper's of as many.
      solved: the noise that was found for it.
    """

    def __init__(
        self,
        algorithm: str,
        rounds: int,
        certified: Certificate,
        claim: Claim | None,
        solved: Mapping[str, Any],
    ):
        self._name, self._rounds = label(algorithm), rounds
        self._private = not not_private([certified], claim)
        head = ", ".join(
            [f"{rounds} rounds", *(f"{field} {value:.4g}" for field, value in solved.items())]
        )
        means = f"eps: {epsilon_means(certified)}" if self._private else "not private"
        _say(f"{self._name}: {head}; {means}")
        self._bar = _bar(self._name, rounds) if sys.stderr.isatty() else None
        self._began = time.perf_counter()
        self._show("compiling", 0)

    def timed(self, compiler: Compiler) -> Compiler:
        """The compiler, which says when it is done."""

        def compile(fn: Callable[..., Any], args: tuple, donated: Any) -> Any:
            done = compiler(fn, args, donated)
            self._show(f"compiled in {time.perf_counter() - self._began:.1f} s", 0)
            return done

        return compile

    def update(self, e: Evaluation, so_far: Certificate) -> None:
        eps = f"eps {short(so_far.epsilon)}" if self._private else "not private"
        self._show(f"accuracy {100 * e.accuracy.mean():.1f} % {eps}", e.round)

    def _show(self, text: str, done: int) -> None:
        if self._bar is None:
            at = f" {done}/{self._rounds}" if done else ""
            _say(f"{self._name}{at} {text}")
            return
        self._bar.update(max(done - self._bar.n, 0))
        self._bar.set_postfix_str(text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(name: str, rounds: int) -> Any:
    from tqdm import tqdm

    return tqdm(total=rounds, desc=f"{name:<15}", unit="round", ncols=min(width(sys.stderr), 100))


def _say(text: str) -> None:
    print(wrapped(text, width(sys.stderr)), file=sys.stderr, flush=True)
