"""python -m experiments.benchmark large [--workload W] [--sizes small] [--lot N] [--peers] [--json]: large networks.

Of a transformer of 97.8 million parameters (12 layers, width 768, 12 heads, 256 tokens, vocabulary 8,192). Workload H:
DP-SGD's step on `lot` texts, beside the gradient without privacy. Workload I: a round of DP-FedAvg in which 20 clients
train adapters (LoRA, rank 8) in 4 steps on 4 texts each; J: the round in which they train all parameters. --sizes
small is 2 layers of width 128, 32 tokens, 4 clients and 2 steps, for a look on a CPU.

--peers sets H against PyTorch (gradient, and gradients of single records by vmap), Opacus (gradients of single
records, ghost clipping) and jax_privacy (all records at once, and of a larger lot 16 at a time); see
experiments.benchmark rounds --help.

Each run has a process of its own, so that its peak of memory is its own: on a GPU of the tensors there, on CPU of the
process, compiling included. Small ones on CPU take turns; elsewhere each has the machine alone, one after another. One
that fails, as where its memory does not suffice, is left out with a word why. The limit is a product of two 8192^2
matrices on one device (small: 2048^2).

In the object of --json, "runs" has for each {"versions", "ready_seconds", "ms", "peak_memory_mb", "tokens_per_second",
"tflops", "ratio"} or {"unavailable"}. ready_seconds are from the start of the process to the end of its first run;
"ratio" is how many times as long it took as our run of that name, or else our step, turn by turn. A spread is
{"median", "min", "max", "all"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import jax

from experiments.speed.large_runs import LARGE, SMALL, LargeStep
from experiments.speed.rivals.runner import Rival, Settings, python_of
from experiments.speed.timing import lines, machine, place, ratios, show, spread
from fedpriv.devices.layout import cores
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number

OURS = {
    "H": ("dp_sgd", "gradient", "product"),
    "I": ("round", "product"),
    "J": ("round", "product"),
}
PEERS = {
    "torch": ("gradient", "dp_sgd"),
    "opacus": ("dp_sgd", "ghost"),
    "jax_privacy": ("dp_sgd", "micro"),
}
"""Their runs of workload H."""


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark large`."""

    workload: Literal["H", "I", "J"] = "H"
    """See above."""
    sizes: Literal["large", "small"] = "large"
    """See above."""
    lot: Number | None = None
    """Texts of a step; by default 16 of H, 4 of I and J, and of small ones 4."""
    peers: bool = False
    """Also time PyTorch, Opacus and jax_privacy, in H."""
    repeats: Number = 5
    """Timed runs of each."""
    json: bool = False
    """Print one JSON object, nothing else."""


def main(options: Options) -> int:
    result = measure(options)
    say(json.dumps(result) if options.json else table(result))
    return int(all("unavailable" in run for run in result["runs"].values()))


def measure(options: Options) -> dict[str, Any]:
    """The object of `large --json`."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # of one GPU all need some
    workload = (SMALL if options.sizes == "small" else LARGE)[options.workload]
    workload = replace(workload, lot=options.lot or workload.lot)
    cpu = jax.default_backend() == "cpu"
    known: Any = jax.config
    precision = "default" if cpu else known.jax_default_matmul_precision or "highest"
    device = "cpu" if cpu else "cuda"
    settings = Settings(options.workload, asdict(workload), 1, cores(), device, precision)
    processes = [("ours", run) for run in OURS[options.workload]]
    if options.peers and options.workload == "H":
        processes += [(name, run) for name, runs in PEERS.items() for run in runs]
        if workload.micro >= workload.lot:
            processes.remove(("jax_privacy", "micro"))
    measured = in_turns if cpu and options.sizes == "small" else one_by_one
    found = measured(processes, settings, options.repeats)
    return {
        "workload": options.workload,
        "sizes": options.sizes,
        "lot": workload.lot,
        "tokens": workload.texts() * workload.length,
        "gflop": workload.flop() / 1e9,
        "precision": precision,
        **machine(),
        "repeats": options.repeats,
        "runs": described(found, workload),
    }


class Measured:
    """A run in a process of its own: what it says about itself, its times and its memory, or why it failed."""

    def __init__(self, name: str, run: str, settings: Settings, within: ExitStack):
        self.name, self.run = name, run
        self.times: list[float] = []
        self.about: dict[str, Any] = {}
        began = time.monotonic()
        try:
            module = "large_runs" if name == "ours" else f"rivals.{name}"
            python = sys.executable if name == "ours" else python_of(name, settings.device)
            asked = settings._replace(run=run)
            rival = Rival(f"{__package__}.{module}", asked, python)
            self._rival = within.enter_context(closing(rival))
            about = rival.about()
            self.about = {key: about[key] for key in ("versions", "threads", "parameters", "notes")}
            self.about["ready_seconds"] = time.monotonic() - began
        except ChildProcessError as error:
            self.about = {"unavailable": str(error)}
        self._tell(f"ready after {time.monotonic() - began:.1f} s")

    def once(self) -> None:
        """Runs it once more, unless it has failed."""
        if "unavailable" in self.about:
            return
        try:
            answer = self._rival.run(self.run)
            self.times.append(answer["seconds"])
            self.about["peak_memory_mb"] = answer["peak_memory_mb"]
            self._tell(f"{1e3 * answer['seconds']:.4g} ms, {answer['peak_memory_mb']:.0f} MB")
        except ChildProcessError as error:
            self.about = {"unavailable": str(error)}

    def _tell(self, what: str) -> None:
        said = self.about.get("unavailable", what)
        print(f"{self.name} {self.run}: {said}", file=sys.stderr, flush=True)


def in_turns(processes: list[tuple[str, str]], settings: Settings, repeats: int) -> list[Measured]:
    """All wait for their turns, so that other load on the machine hits all alike."""
    with ExitStack() as alive:
        found = [Measured(name, run, settings, alive) for name, run in processes]
        for _ in range(repeats):
            for each in found:
                each.once()
    return found


def one_by_one(
    processes: list[tuple[str, str]], settings: Settings, repeats: int
) -> list[Measured]:
    """Each has the machine alone, as several do not fit its memory."""
    found = []
    for name, run in processes:
        with ExitStack() as alive:
            found.append(Measured(name, run, settings, alive))
            for _ in range(repeats):
                found[-1].once()
    return found


def described(found: list[Measured], workload: LargeStep) -> dict[str, dict[str, Any]]:
    """Numbers by "NAME RUN"."""
    tokens, work = workload.texts() * workload.length, workload.flop() / 1e12
    ours = {each.run: each.times for each in found if each.name == "ours"}
    runs = {}
    for each in found:
        numbers = dict(each.about)
        if each.times and "unavailable" not in numbers:
            done = 2 * workload.product**3 / 1e12 if each.run == "product" else work
            numbers["ms"] = spread([1e3 * t for t in each.times])
            numbers["tflops"] = spread([done / t for t in each.times])
            if each.run != "product":
                numbers["tokens_per_second"] = spread([tokens / t for t in each.times])
                beside = ours.get(each.run, found[0].times)
                if len(beside) == len(each.times):
                    numbers["ratio"] = ratios(each.times, beside)
        runs[f"{each.name} {each.run}"] = numbers
    return runs


def table(result: dict[str, Any]) -> str:
    """What `benchmark large` measured, for a reader."""
    texts = {
        "workload": f"{result['workload']}, {result['tokens']:,} tokens, {result['gflop']:.3g} GFLOP",
        "machine": f"{place(result)}; precision {result['precision']}",
        "versions": f"jax {result['jax']}, jaxlib {result['jaxlib']}",
    }
    for name, run in result["runs"].items():
        if "unavailable" in run:
            texts[name] = f"left out: {run['unavailable']}"
            continue
        texts[name] = (
            f"{show(run['ms'], 'ms')}; {show(run['tflops'], 'TFLOP/s')}; {run['peak_memory_mb']:.0f} MB; "
            f"ready after {run['ready_seconds']:.1f} s"
        )
        if "ratio" in run:
            texts[name] += f"; {show(run['ratio'])} times ours"
    return lines(texts)
