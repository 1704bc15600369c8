"""What `simulate` is given, checked before anything is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpriv.core.complaints import require
from fedpriv.core.parameters import check_values
from fedpriv.data.datasets import Dataset
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices.layout import Strategy
from fedpriv.engine.checkpoint import Checkpoints
from fedpriv.engine.hooks import Hooks
from fedpriv.models.networks import Model
from fedpriv.rounds.algorithm import require_algorithm

FEDERATIONS = Federation | StreamedFederation


def check_run(algorithm: Any, params: Any, federation: Any, test: Any, score: Any) -> None:
    """Raises ValueError: something else where a part of the run belongs, such as the whole that it is a part of."""
    require_algorithm(algorithm)
    require(not isinstance(params, Model), "params", params, "give its `init`, or parameters")
    check_values(params)
    require(not isinstance(score, Model), "score", score, "give its `score`")
    require(callable(score), "score", score, "give one such as model.score")
    require(not isinstance(test, Dataset), "test", test, "give its `test`")
    require(not isinstance(test, FEDERATIONS), "test", test, "give its `examples`, or others")
    several = federation if isinstance(federation, list | tuple) else [federation]
    remedy = "give fp.Federation.from_arrays(...) or a streamed federation, one for all seeds or one per seed"
    require(len(several) > 0, "federation", federation, remedy)
    for each in several:
        require(isinstance(each, FEDERATIONS), "federation", each, remedy)


def check_options(
    federation: Any,
    seeds: Sequence[int],
    strategy: Any,
    measure: Any,
    hooks: Hooks,
    checkpoints: Any,
    compiler: Any,
) -> None:
    """Raises ValueError: no seeds, or something else where an option belongs."""
    require(len(seeds) > 0, "seeds", seeds, "give at least one, as (0,)")
    several = federation if isinstance(federation, list | tuple) else [federation] * len(seeds)
    runs = [(seed, id(dealt)) for seed, dealt in zip(seeds, several, strict=False)]
    twice = len(set(runs)) < len(runs)
    require(not twice, "seeds", seeds, "give each once, as the same one gives the same run again")
    kinds = {"strategy": (strategy, Strategy), "checkpoints": (checkpoints, Checkpoints)}
    for name, (value, kind) in kinds.items():
        fits = value is None or isinstance(value, kind)
        require(fits, name, value, f"give fp.{kind.__name__}(...), or leave it out")
    hooks.check()
    functions = {"measure": measure, "compiler": compiler}
    functions |= {"on_evaluation": hooks.on_evaluation, "record": hooks.record}
    for name, value in functions.items():
        fits = callable(value) or (value is None and name != "compiler")
        remedy = "give one function (of several measures fp.measures.together), or leave it out"
        require(
            fits, name, value, remedy if name == "measure" else "give a function, or leave it out"
        )
