"""Part of experiments.benchmark growth: one round of a given size, measured in a process of its own.

A process's peak memory never falls, so that the sizes cannot share one; and what its imports need is taken off.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.speed.memory import peak_mb

Name = Literal["dp_fed_avg", "fed_smp", "dp_scaffold"]

RECORDS = 4  # of each client
SIDE = 8  # of an image in pixels
CLASSES = 10
AT_LEAST = 0.02  # seconds of rounds in a turn


@dataclass(frozen=True)
class Point:
    """A growth point: the size of a round.

    Attributes:
      algorithm: of those below.
      clients: n, with RECORDS images of SIDE x SIDE bytes each.
      cohort: r, drawn without replacement.
      parameters: d, or a little less.
    """

    algorithm: Name
    clients: int
    cohort: int
    parameters: int


def measured(point: Point, turns: int) -> dict[str, Any]:
    """`here`, a growth point, in a fresh process.

    Raises:
      ChildProcessError: it failed; says why, but not of which point.
    """
    command = [
        sys.executable,
        "-m",
        "experiments.speed.growth_point",
        json.dumps(asdict(point)),
    ]
    here = Path(__file__).parents[2]  # `experiments` is found from there
    done = subprocess.run(
        [*command, str(turns)], cwd=here, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ChildProcessError(_why(done))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _why(ended: subprocess.CompletedProcess[str]) -> str:
    if ended.returncode == -signal.SIGKILL:
        return "killed; too little memory?"
    said = ended.stderr.strip().splitlines()
    return said[-1] if said else f"its process ended with exit code {ended.returncode}"


def here(point: Point, turns: int) -> dict[str, Any]:
    """Compiles a round, runs it once, then `turns` times; the device's one, the model's state given up to each round.

    Returns:
      parameters: d exactly; compile_seconds; seconds: of a round, for each turn; peak_mb: of the process, above what it
      had with everything imported and JAX started, compilation included; xla_mb: what the compiled round asks for,
      arguments, results and temporaries.
    """
    import jax

    from fedpriv.devices.layout import Strategy, use
    from fedpriv.engine.compilation_cache import keep_no_programs
    from fedpriv.rounds.one_round import one_round

    keep_no_programs()
    key = jax.block_until_ready(jax.random.key(1))
    idle = peak_mb()
    with use(Strategy()):
        algorithm, state, federation = built(point)
        d = sum(leaf.size for leaf in jax.tree.leaves(state.params))
        began = time.perf_counter()
        lowered = jax.jit(one_round(algorithm), donate_argnums=1).lower(key, state, federation)
        compiled = lowered.compile()
        compile_seconds = time.perf_counter() - began

    def run(times: int) -> float:
        nonlocal state
        began = time.perf_counter()
        for _ in range(times):
            state, _ = compiled(key, state, federation)
        jax.block_until_ready(state)
        return (time.perf_counter() - began) / times

    run(1)
    times = max(1, round(AT_LEAST / run(1)))
    return {
        "parameters": d,
        "compile_seconds": compile_seconds,
        "seconds": [run(times) for _ in range(turns)],
        "peak_mb": peak_mb() - idle,
        "xla_mb": xla_mb(compiled),
    }


def built(point: Point) -> tuple[Any, Any, Any]:
    """Of a growth point: (algorithm, initial state, federation)."""
    import jax
    import numpy as np
    import optax

    import fedpriv as fp

    rng = np.random.default_rng(0)
    total = point.clients * RECORDS
    images = rng.integers(0, 256, (total, SIDE, SIDE, 1), np.uint8)
    examples = {"image": images, "label": rng.integers(0, CLASSES, total, np.int32)}
    rows: Any = np.arange(total, dtype=np.int32).reshape(point.clients, RECORDS)
    federation = fp.Federation.from_arrays(examples, rows, num_classes=CLASSES)
    model = fp.models.classifier(network(point.parameters), (SIDE, SIDE, 1))
    sampler = fp.fixed_size(point.clients, point.cohort)
    common: dict[str, Any] = {
        "sampler": sampler,
        "optimizer": lambda t: optax.sgd(0.1, momentum=0.5),
        "batches": fp.epochs(1, 2),
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
    }
    make: dict[Name, Callable[[], fp.Algorithm]] = {
        "dp_fed_avg": lambda: fp.dp_fed_avg(model.loss, **common),
        "fed_smp": lambda: fp.fed_smp(
            model.loss, **common, sparsifier=fp.papers.select_rand_k(0.1)
        ),
        "dp_scaffold": lambda: fp.dp_scaffold(
            fp.LocalSteps(
                fp.per_example(model.loss),
                fp.fixed_size(RECORDS, 2),
                2,
                lambda t: optax.sgd(0.1),
                fp.gaussian(1.0, 2.0),
            ),
            sampler=sampler,
        ),
    }
    algorithm = make[point.algorithm]()
    state = algorithm.init(model.init(jax.random.key(0)), federation)
    return algorithm, state, federation


def network(parameters: int) -> Any:
    """A growth point's network: an MLP of about so many parameters, a hidden unit at least."""
    from fedpriv.models.modules import MLP

    per_unit = SIDE**2 + 1 + CLASSES
    return MLP((max(1, round((parameters - CLASSES) / per_unit)),), CLASSES)


def xla_mb(compiled: Any) -> float:
    """Of a growth point: megabytes (10^6 bytes) that XLA allots a program; what it may overwrite counts once."""
    need = compiled.memory_analysis()
    total = need.argument_size_in_bytes + need.output_size_in_bytes + need.temp_size_in_bytes
    return (total - need.alias_size_in_bytes) / 1e6


if __name__ == "__main__":
    print(json.dumps(here(Point(**json.loads(sys.argv[1])), int(sys.argv[2]))))
