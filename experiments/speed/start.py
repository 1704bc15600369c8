"""python -m experiments.benchmark start [--layers L] [--width W] [--tiny] [--json]: what a run waits for at first.

A DP-FedAvg round of LoRA on a transformer (12 layers, width 768, 256 tokens, vocabulary 8,192: 98 M parameters, not
trained), of rank 8, 20 clients x 4 steps x 4 texts; on one device, with as many clients side by side as by default.
Two processes, one after another, share an empty cache of programs: the first compiles, the second finds what the first
did. Of each: seconds of tracing (with it, how many clients fit is found), of compiling or of reading from the cache,
and of the first round; megabytes (10^6 bytes) of the round's arguments, which the base is one of, and of its temporary
values, by the compiler's own count, and of the process at most. And how large the cache is then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from experiments.speed.memory import peak_mb
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark start`."""

    layers: Number = 12
    """Of the transformer."""
    width: Number = 768
    """Of the transformer; a head has 64, or all of a smaller one."""
    length: Number = 256
    """Tokens of a text."""
    vocabulary: Number = 8192
    """Tokens there are."""
    clients: Number = 20
    """Of a round."""
    tiny: bool = False
    """Two layers of width 32, 16 tokens of 64, two clients: to try the command."""
    json: bool = False
    """Print one JSON object, nothing else."""


def main(options: Options) -> int:
    if options.tiny:
        options = replace(options, layers=2, width=32, length=16, vocabulary=64, clients=2)
    result = starts(options)
    say(json.dumps(result) if options.json else table(result))
    return 0


def starts(options: Options) -> dict[str, Any]:
    """What was found: "first" and "second", each as of `here`, and "cache_mb".

    Raises:
      ChildProcessError: a start failed; says why.
    """
    with tempfile.TemporaryDirectory() as cache:
        found = {name: _measured(options, cache) for name in ("first", "second")}
        size = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
    return {**found, "cache_mb": size / 1e6}


def _measured(options: Options, cache: str) -> dict[str, Any]:
    """`here`, in a fresh process."""
    command = [sys.executable, "-m", "experiments.speed.start", json.dumps(asdict(options)), cache]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],  # `experiments` is found from there
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:]
        raise ChildProcessError(f"exit code {done.returncode}: {''.join(said)}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def here(options: Options, cache: str) -> dict[str, Any]:
    """A start, with the programs that are kept in the folder `cache`."""
    import jax

    import fedpriv
    from experiments.speed.timing import device_memory_mb, machine
    from fedpriv.devices.closed_arrays import traced
    from fedpriv.devices.fitting import compiled_to_fit
    from fedpriv.devices.layout import default
    from fedpriv.engine.compilation_cache import cache_programs

    cache_programs(cache)
    algorithm, args, parameters = built(options)
    found: dict[str, Any] = {"parameters": parameters, **machine(), "compile_seconds": 0.0}
    began = time.perf_counter()

    def compiler(fn: Callable[..., Any], args: tuple, donated: Sequence[int]) -> Any:
        program = traced(fn, args, donated)
        before = time.perf_counter()
        run = program.compile()
        found["compile_seconds"] += time.perf_counter() - before
        return run

    def make() -> Callable[..., Any]:
        return fedpriv.one_round(algorithm)

    run: Any
    strategy = replace(default(), devices=1)
    run, layout = compiled_to_fit(make, args, [], strategy, compiler)
    found["trace_seconds"] = time.perf_counter() - began - found["compile_seconds"]
    began = time.perf_counter()
    jax.block_until_ready(run(*args))
    about = run.memory_analysis()
    return found | {
        "round_seconds": time.perf_counter() - began,
        "clients_side_by_side": layout.clients,
        "argument_mb": about.argument_size_in_bytes / 1e6,
        "temporary_mb": about.temp_size_in_bytes / 1e6,
        "peak_mb": device_memory_mb() or peak_mb(),
    }


def built(options: Options) -> tuple[Any, tuple, int]:
    """(algorithm, arguments of a round, parameters of the base), for a start."""
    import jax
    import numpy as np
    import optax

    import fedpriv

    rng, texts = np.random.default_rng(0), 4
    whole = language_model(options)
    shapes = jax.eval_shape(whole.init, jax.random.key(0))
    base = jax.tree.map(lambda s: 0.02 * rng.standard_normal(s.shape, np.float32), shapes)
    model = fedpriv.models.adapters(whole, base, rank=8)
    total = texts * options.clients
    tokens = rng.integers(0, options.vocabulary, (total, options.length + 1), np.int32)
    rows: Any = np.arange(total).reshape(options.clients, texts)
    federation = fedpriv.Federation.from_arrays({"text": tokens}, list(rows))
    algorithm = fedpriv.dp_fed_avg(
        model.loss,
        sampler=fedpriv.everyone(options.clients),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fedpriv.epochs(4, texts),
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    state = algorithm.init(model.init(jax.random.key(1)), federation)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    return algorithm, (jax.random.key(2), state, federation), parameters


def language_model(options: Options) -> Any:
    """The transformer that a start waits for, of examples {"text": i32[length + 1]}."""
    import jax
    import jax.numpy as jnp
    import optax

    import fedpriv
    from experiments.speed.transformer import Transformer

    width, length = options.width, options.length
    heads = max(1, width // 64)
    network = Transformer(options.vocabulary, length, width, heads, options.layers)

    def init(key: Any) -> Any:
        return network.init(key, jnp.zeros(length, jnp.int32))

    def loss(params: Any, example: Any) -> Any:
        logits: Any = network.apply(params, example["text"][:-1])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, example["text"][1:])
        return each.mean()

    def score(params: Any, example: Any) -> dict[str, jax.Array]:
        return {"loss": loss(params, example)}

    return fedpriv.models.Model(init, loss, score)


def table(result: dict[str, Any]) -> str:
    """Of both starts, side by side."""
    first, second = result["first"], result["second"]
    rows = {
        "tracing": ("trace_seconds", "s"),
        "compiling": ("compile_seconds", "s"),
        "first round": ("round_seconds", "s"),
        "arguments": ("argument_mb", "MB"),
        "temporary": ("temporary_mb", "MB"),
        "memory at most": ("peak_mb", "MB"),
    }
    lines = [f"{first['parameters']:,} parameters, {first['device']}, jax {first['jax']}"]
    lines += [f"clients side by side: {first['clients_side_by_side']}"]
    lines += [f"{'':<16}{'first start':>16}{'second start':>16}"]
    for name, (key, unit) in rows.items():
        cells = (f"{start[key]:.3g} {unit}" for start in (first, second))
        lines.append(f"{name:<16}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join([*lines, f"cache of programs: {result['cache_mb']:.3g} MB"])


if __name__ == "__main__":
    print(json.dumps(here(Options(**json.loads(sys.argv[1])), sys.argv[2])))
