"""python -m experiments.run [CONFIG] [--field value ...]: train, show, record.

CONFIG names a file in configs/ (default: quickstart); --list lists them; CONFIG --help explains every field. Exit code
2 means that something given was wrong, 1 that training failed, 130 that it was interrupted.

Several processes, on one host or many, train together: start each with the same arguments, --coordinator HOST:PORT
(where process 0 listens), --num-processes N and its own --process-id, or all at once by Slurm's srun.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

from experiments import compilation_cache, ending, processes
from experiments import config as configuration
from experiments.command_line import config_name, listing, one_line, parse
from experiments.config import Experiment, Run
from experiments.processes import Processes
from experiments.record import Privacy, Recorder, new_folder, plain
from experiments.show import Progress, picture, table
from fedpriv import distributed
from fedpriv.history import DivergedError, Evaluation, History
from fedpriv.privacy import calibrate_rounds, certify
from fedpriv.simulate import simulate
from fedpriv.strategy import Strategy, split_cpu


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if "--list" in args:
            print(listing())
            return 0
        options, args = processes.take_options(args)
        joined = Processes() if {"-h", "--help"} & set(args) else processes.join(options)
    except ValueError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    with joined:
        code = run(args, joined)
        if joined.others_gone:
            processes.leave(code)
    return code


def run(args: list[str], joined: Processes) -> int:
    """What `args` ask for; returns the exit code."""
    try:
        with joined.agreed():
            name = config_name(args)
            module = configuration.load(name)
            config = parse(module, name, args)
            strategy, experiment, planned = prepare(config, module)
        if joined.count > 1:
            same = replace(config, output=None, data_dir=None)
            distributed.check_equal(settings=plain(same), rounds=planned)
        with joined.agreed():
            recorder = Recorder(new_folder(config, name), name, config) if joined.first else None
    except ConnectionError as error:
        joined.others_gone = True
        complain(one_line(error), joined)
        return 1
    except (ValueError, OSError) as error:
        complain(one_line(error), joined)
        return 2
    except KeyboardInterrupt:
        complain("interrupted", joined)
        return 130
    return train(experiment, config, planned, strategy, recorder, joined)


def complain(text: str, joined: Processes) -> None:
    if joined.first:
        print(f"error: {text}", file=sys.stderr)


def check(experiment: Experiment) -> None:
    """Finds what the last algorithm's `init` refuses before the first one trains."""
    import jax

    params = jax.eval_shape(experiment.model.init, jax.random.key(0))
    for entry in experiment.entries.values():
        jax.eval_shape(partial(entry.algorithm.init, federation=entry.federations[0]), params)


def planned_rounds(experiment: Experiment, config: Run) -> dict[str, int]:
    """Rounds of each algorithm: the config's, or as many as the budget allows a private one.

    Raises:
      ValueError: the first round costs more than the budget.
    """
    planned = dict.fromkeys(experiment.entries, config.rounds)
    if config.stop_at_epsilon is None:
        return planned
    for name, entry in experiment.entries.items():
        first = certify(entry.algorithm, 1, experiment.delta).epsilon
        if first > config.stop_at_epsilon and math.isfinite(first):
            raise ValueError(
                f"stop_at_epsilon: {config.stop_at_epsilon} is less than the certified {first:.4g} (third party) of "
                f"the first round of {name}; raise it or the noise"
            )
        if math.isfinite(first):
            planned[name] = calibrate_rounds(
                entry.algorithm,
                epsilon=config.stop_at_epsilon,
                delta=experiment.delta,
                at_most=config.rounds,
            )
    return planned


def prepare(config: Run, module: ModuleType) -> tuple[Strategy, Experiment, dict[str, int]]:
    """Everything that can go wrong because of what was given does so here, before anything trains."""
    split_cpu(config.layout.devices)
    compilation_cache.enable()
    strategy = configuration.strategy(config.layout)
    experiment: Experiment = module.build(config)
    check(experiment)
    return strategy, experiment, planned_rounds(experiment, config)


def train(
    experiment: Experiment,
    config: Run,
    planned: dict[str, int],
    strategy: Strategy,
    recorder: Recorder | None,
    joined: Processes,
) -> int:
    """Trains every algorithm of the experiment, shows and records it; returns the exit code."""
    if joined.count == 1:  # a stopped run still gets its summary
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    histories: dict[str, History] = {}
    status, code = "complete", 0
    try:
        for algorithm in experiment.entries:
            histories[algorithm] = History(tuple(range(config.seeds)))
            one = replace(config, rounds=planned[algorithm])
            history = histories[algorithm]
            train_one(algorithm, experiment, one, strategy, recorder, history, joined=joined)
    except DivergedError as error:
        status, code = f"diverged: {algorithm}: {error}", 1
    except KeyboardInterrupt:
        status, code = "interrupted", 130
    # By these, among others, JAX says that another process is gone; what it was must be seen all the same.
    except (ValueError, RuntimeError, OSError, MemoryError) as error:
        said = ending.outside(error)
        if joined.count == 1 and not said:
            raise
        status, code = f"failed: {said}", 1
        if joined.count > 1:
            traceback.print_exception(error)
            joined.others_gone = True
            status = f"failed, perhaps because another process ended: {one_line(error)}"
    if recorder:
        code = _finish(recorder, histories, experiment, planned, status, code)
    if not joined.others_gone:
        with contextlib.suppress(KeyboardInterrupt, ConnectionError):  # the run is over
            joined.meet()  # the others wait while the first one writes
    return code


def _finish(
    recorder: Recorder,
    histories: dict[str, History],
    experiment: Experiment,
    planned: dict[str, int],
    status: str,
    code: int,
) -> int:
    """Writes and shows what there is; returns the exit code, which a full disk may change."""
    problems, summary = [status] if code else [], None
    try:
        with ending.undisturbed():
            summary = recorder.summary(histories, experiment, planned, status)
        if summary["rounds"]:
            picture(histories, recorder.folder / "accuracy.png")
    except KeyboardInterrupt:
        problems, code = problems or ["interrupted"], code or 130
    except OSError as error:
        problems, code = [*problems, f"not all is recorded: {ending.outside(error)}"], code or 1
    if summary and summary["rounds"]:
        print(table(summary))
    if problems:
        print(f"error: {'; '.join(problems)}", file=sys.stderr)
    print(f"run folder: {Path(recorder.folder)}")
    return code


def train_one(
    algorithm: str,
    experiment: Experiment,
    config: Run,
    strategy: Strategy,
    recorder: Recorder | None,
    history: History,
    simulation: Callable[..., History] | None = None,
    joined: Processes | None = None,
) -> None:
    """Trains one algorithm; what it has recorded is in `history` however it ends.

    Args:
      recorder: None in a process that leaves recording to another.
      simulation: what trains, by default `simulated`.
      joined: the processes that train together, if there are several.
    """
    privacy = Privacy(experiment.entries[algorithm].algorithm, experiment.delta)
    progress = Progress(algorithm, config.rounds) if recorder else None

    def on_evaluation(e: Evaluation) -> None:
        history.evaluations.append(e)
        if recorder and progress:
            recorder.evaluation(algorithm, e, privacy)
            progress.update(e, privacy.certificate(e.round, "third_party"))
        if joined:
            joined.meet()

    try:
        done = (simulation or simulated)(algorithm, experiment, config, strategy, on_evaluation)
        history.compile_seconds = done.compile_seconds
    except DivergedError as error:
        history.compile_seconds = error.history.compile_seconds
        raise
    finally:
        if progress:
            progress.close()


def simulated(
    algorithm: str,
    experiment: Experiment,
    config: Run,
    strategy: Strategy,
    on_evaluation: Callable[[Evaluation], object] | None = None,
) -> History:
    """`simulate` with the experiment's and the config's settings."""
    entry = experiment.entries[algorithm]
    return simulate(
        entry.algorithm,
        experiment.model.init,
        entry.federations,
        experiment.test,
        score=experiment.model.score,
        rounds=config.rounds,
        every=config.every,
        seeds=range(config.seeds),
        strategy=strategy,
        measure=experiment.measure and experiment.measure(),
        on_evaluation=on_evaluation,
    )


if __name__ == "__main__":
    sys.exit(main())
