"""Whole training runs: a compiled scan over rounds, evaluation every n of them, a leading axis of seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv.certification.certificate import check_twice
from fedpriv.certification.checks import check_launch
from fedpriv.certification.data_checks import check_data
from fedpriv.core import large_pages
from fedpriv.core.arguments import Count, Probability, Seed, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, Key, Params, State
from fedpriv.core.user_code import names_user_code
from fedpriv.core.waiting import LOG, waiting_for
from fedpriv.data.federation import Federation
from fedpriv.data.held_out_persons import warn_of_tested
from fedpriv.data.repeated import warn_of_trained
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices import distributed
from fedpriv.devices.fitting import Compiler, compiled, compiled_to_fit
from fedpriv.devices.layout import Strategy, default, use
from fedpriv.engine import not_finite_warning, rising_loss_warning
from fedpriv.engine.beginning import (
    held,
    initial_states,
    of_each_seed,
    per_seed,
    roots_of_seeds,
    stacked,
)
from fedpriv.engine.checkpoint import Checkpoints, Keeper
from fedpriv.engine.compiled_rounds import (
    Measure,
    ScoreFn,
    Training,
    evaluate,
    measured,
    next_evaluation,
    numbered_round,
    rounds_of_seeds,
)
from fedpriv.engine.example_fit import check_examples, examples_of_test, rows_trained_on
from fedpriv.engine.fingerprint import identity, records_of
from fedpriv.engine.history import (
    SHARES,
    ClientValues,
    Evaluation,
    History,
    PublicEvaluation,
)
from fedpriv.engine.hooks import Hooks, names_of_hooks
from fedpriv.engine.own_progress import Certified, OwnProgress
from fedpriv.engine.prefetch import streamed_chunk
from fedpriv.engine.run_arguments import check_options, check_run
from fedpriv.engine.run_state import RunState, Snapshot
from fedpriv.engine.secret_seeds import check_value, checked_secret
from fedpriv.engine.serialization import to_device, to_host
from fedpriv.proof.seen import View
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.one_round import Carried
from fedpriv.rounds.scheduled_samplers import first_memories


class Chunks(NamedTuple):
    """Training in pieces, from one evaluation to the next.

    Attributes:
      carried: leaves [seeds, ...], or a list of what each seed carries; the first call's.
      run: (carried, rounds done, rounds done then) -> (carried, (metrics, finite, scores, measures)); it donates what
        is carried.
      layout: the strategy, with the number of clients that fit; called after the first chunk.
    """

    carried: Any
    run: Callable[[Any, int, int], tuple[Any, tuple]]
    layout: Callable[[], Strategy]


@names_user_code
def simulate(
    algorithm: Algorithm,
    params: Callable[[Key], Params] | Params,
    federation: Federation | StreamedFederation | Sequence[Federation | StreamedFederation],
    test: Example,
    *,
    score: ScoreFn,
    rounds: Count,
    every: Count = 1,
    seeds: Sequence[Seed] = (0,),
    secret_seed: Seed | None = None,
    strategy: Strategy | None = None,
    measure: Measure | None = None,
    on_evaluation: Callable[[PublicEvaluation], object] | None = None,
    not_covered: Sequence[str] = (),
    record: Callable[[Evaluation], object] | None = None,
    checkpoints: Checkpoints | None = None,
    compiler: Compiler = compiled,
    programs: tuple[str, ...] | None = None,
    progress: bool | None = None,
    delta: Probability | None = None,
    view: View = "third_party",
) -> History:
    """Trains `algorithm` for `rounds` rounds with every seed; evaluates every `every` rounds and at the end.

    Seed s, of up to 63 bits, has the root key `jax.random.key(s)` of 64-bit JAX, by threefry. With a secret seed, s is
    a name alone: its root is the secret's key, folded by the low and then by the high 32 bits of s. What parts of a
    run draw from keys of their own, and what its certificate rests on, are two streams of the root, see
    `fedpriv.proof.stream`. With several processes (`fedpriv.distributed`) all call it with the same arguments,
    and all get the results. Python's logger `fedpriv.engine` says at level INFO what is being waited for.

    Args:
      algorithm: what to train.
      params: key -> initial parameters, or the parameters.
      federation: one for all seeds, or one per seed (with equal examples, unless they are streamed).
      seeds: no two alike, unless each has a federation of its own.
      test: test examples, leaves [n, ...], or a table with a column for each.
      score: (params, example) -> {name: f32[]} for ONE example, as `Model.score`. A metric is its sum over the test
        examples, divided by the sum of "weight" (1 each by default).
      secret_seed: what all random numbers come from, as `fp.secret_seed` draws it; nothing here shows or keeps it.
        None: the seeds themselves, which can be guessed.
      strategy: layout of the clients; by default `fedpriv.devices.layout.default()`.
      measure: (state, federation) -> {name: f32[]}, further numbers for every evaluation, such as
        `measures.heterogeneity`, and a `ClientValues` by the name of its kind, as `measures.per_client`; runs on the
        device. From a streamed federation it reads what it needs, as `measures.per_client` does.
      on_evaluation: called with each new `PublicEvaluation`: round and metrics. If it returns True (Python's or
        NumPy's; nothing else counts) in any process, training ends in all. The checkpoint records this, and the same
        call returns that history. If it raises KeyboardInterrupt, the run ends there, with a checkpoint to resume from.
        The certificate holds if the test examples are public, and if the function looks at nothing else that depends on
        private records: what it remembers of `record`, say, which nothing here can see.
      not_covered: names of measures and diagnostics that `on_evaluation` gets, too. They are private, so that no
        certificate covers the last round that it chooses: `History.not_covered` names them, and
        `certificate.not_covered(history.not_covered)` has an infinite epsilon that says so.
      record: called with each new `Evaluation`, to keep or show it. What it returns ends nothing. An error that it
        raises does, and the certificate does not know of that.
      checkpoints: where to keep checkpoints, and how often to take one. The same call resumes from the last one, with
        the same results, bit for bit; the history includes earlier evaluations. With more rounds it goes on to the
        state that a run of so many has; an evaluation where the earlier call ended stays in the history, and the
        diagnostics of the next one are those of the rounds since. One that `on_evaluation` has ended stays so.
      compiler: compiles the rounds (only of a federation in memory), by default `jax.jit`.
      programs: what was certified, `certificate.programs`: other rounds are refused. None: whatever is given.
      progress: whether to show, on standard error, the rounds done, the main metric, and the epsilon so far if `delta`
        is given. None: in a notebook or a terminal.
      delta: probability, in (0, 1), at which all `rounds` are certified: `History.certificate`. So they are where
        `on_evaluation` ends the run, as the models choose the end; where several seeds choose it together, none
        covers the choice. Of persons it is of those of every seed's federation. None: nothing is certified.
      view: of that certificate, as `certify`.

    Raises:
      ValueError: an argument out of range or of the wrong kind; errors of `init`, `check_launch`, `check_examples` or
        of reading a streamed federation; arguments that differ between processes; checkpoints of another run, with
        other settings, data, secret, noise, cohorts, layout of clients, or shapes of the state; fewer rounds than are
        done.
      LeakError: something private gets past the releases of a round; says what, and in which line.
      DivergedError: a model, or its loss on the test examples (any metric, if there is no loss), became NaN or
        infinite; says in which round, with the likely cause. A metric of 0/0 (a recall without a positive example) is
        NaN, and no divergence.

    Warns:
      RuntimeWarning: once, for the first round in which a clipped value was NaN or infinite, with the likely cause;
        `Evaluation.diagnostics` has the shares.
      UserWarning: once, with their number, of test records that are equal to one that is trained on; and of persons who
        are trained on, where test records have the column that the federation was given as `person`. And at the end,
        of four evaluations or more, if the test loss (or the perplexity), the mean over the seeds, rose by more than
        the noise of its evaluations explains, and the accuracy, if there is one, did not rise. That warning's
        `history` is what `simulate` returns, for one who has made warnings errors.
    """
    check_run(algorithm, params, federation, test, score)
    rounds, every = checked("rounds", rounds, Count), checked("every", every, Count)
    seeds = checked("seeds", seeds, Sequence[Seed])
    secret_seed = checked_secret(secret_seed)
    hooks = Hooks(record, on_evaluation, names_of_hooks(not_covered))
    progress = checked("progress", progress, bool | None)
    delta, view = checked("delta", delta, Probability | None), checked("view", view, View)
    check_options(federation, seeds, strategy, measure, hooks, checkpoints, compiler)
    test = examples_of_test(test, federation)
    each = [federation] if isinstance(federation, Federation | StreamedFederation) else federation
    warn_of_trained(test, [(one.examples, rows_trained_on(one)) for one in each])
    for one in {id(one): one for one in each}.values():
        warn_of_tested(test, one)
    if jax.default_backend() == "cpu" and large_pages.missing():
        LOG.info("%s", large_pages.ADVICE)
    with use(strategy or default()) as strategy, ExitStack() as cleanup:
        federations = per_seed(federation, len(seeds))
        roots = roots_of_seeds(seeds, secret_seed)
        secret_check = None if secret_seed is None else check_value(roots)
        first = held(federations, 0)
        with waiting_for("tracing and checking the round"):
            traced = check_launch(algorithm, params, first)
        if not isinstance(federation, Federation | StreamedFederation):
            for s in range(1, len(seeds)):
                own = held(federations, s)
                check_data(traced.stages, traced.init_arrays, algorithm, own)
        in_memory = federations.examples if isinstance(federations, Federation) else None
        check_examples(score, traced.before.params, test, in_memory)
        state = initial_states(algorithm, params, federations, roots)
        with waiting_for("tracing the round again"):
            check_twice(traced)
        same = programs is None or programs == traced.digests
        remedy = f"these are {traced.digests}; certify the algorithm, model and federation that are trained"
        require(same, "programs", programs, remedy)
        training = Training(
            algorithm, traced.programs, federations, roots, test, score, measure, rounds, every
        )
        remembered = traced.first_memory(rounds), first_memories(algorithm.sampler)
        carried = Carried(state, *of_each_seed(remembered, len(seeds)))
        if strategy.mesh.is_multi_process:
            settings = (rounds, every, list(seeds))
            records = records_of(federations, seeds)
            distributed.check_equal(
                settings=settings,
                secret_seed=secret_check,
                federation=records,
                test=test,
                initial_state=state,
                programs=traced.digests,
            )
        keeper, saved = None, None
        if checkpoints:
            run_identity = identity(training, traced, seeds, strategy, secret_check)
            keeper = cleanup.enter_context(checkpoints.opened(run_identity, rounds))
            saved = _begun(keeper, carried)
        if hooks.not_covered:
            hooks.check_names(_private_names(traced, measure, state, federations))
        run = RunState(seeds, first.num_clients, saved, hooks.not_covered)
        run.history.programs = traced.digests
        asked = rounds, delta, view
        certified = Certified(traced, *asked, run.history.not_covered, federations)
        if saved:
            strategy = cleanup.enter_context(use(saved.layout))
            if saved.round == rounds or saved.stopped:
                run.history.state = to_device(saved.carried, carried).state
                # One that had more to train, but for its models, which chose the end.
                planned = max(rounds, keeper.planned) if keeper and saved.stopped else rounds
                run.history.certificate = certified.of(planned)
                return run.history
        shown = OwnProgress(progress, traced, certified, run.round, len(seeds))
        cleanup.callback(shown.close)
        hooks, compiler = hooks._replace(show=shown.evaluated), shown.timed(compiler)
        chunks = cleanup.enter_context(_chunks(training, carried, strategy, run, saved, compiler))
        _train(training, chunks, run, keeper, hooks)
        # Of all rounds also where `on_evaluation` ended it: the models chose the end.
        run.history.certificate = certified.of(rounds)
    rising_loss_warning.warn(run.history)
    return run.history


def _private_names(
    traced: Any, measure: Measure | None, state: State, federations: Any
) -> set[str]:
    """What an evaluation has beside the score: measures and diagnostics, found by tracing alone."""
    names = {*SHARES, *traced.after[1].get("diagnostics", {})}
    if measure:
        given = partial(measured, measure, federation=held(federations, 0))
        first = jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), state)
        found = jax.eval_shape(lambda state: given(state=state), first)
        names |= {name for name, each in found.items() if not isinstance(each, ClientValues)}
    return names


def _train(
    training: Training,
    chunks: Chunks,
    run: RunState,
    keeper: Keeper | None,
    hooks: Hooks,
) -> None:
    """The rounds that are left, from evaluation to evaluation."""
    carried, rounds, every = chunks.carried, training.rounds, training.every
    begun = run.round

    def snapshot() -> Snapshot:
        return run.snapshot(to_host(_whole(carried)), chunks.layout(), stopped)

    stopped = False
    while run.round < rounds and not stopped:
        began, start = time.perf_counter(), run.round
        end = next_evaluation(start, rounds, every)
        with waiting_for("first rounds") if run.round == begun else nullcontext():
            carried, seen = chunks.run(carried, start, end)
            seen = jax.device_get(seen)
        evaluation = run.add(seen, end, time.perf_counter() - began)
        if run.news:
            not_finite_warning.warn(training, carried, run.news, start, run.history.seeds)
        try:
            stopped = _in_any_process(hooks.answer(evaluation), chunks.layout())
        except KeyboardInterrupt:
            if keeper:
                keeper.offer(end, snapshot, now=True)
            raise
        if keeper:
            keeper.offer(end, snapshot, now=stopped)
    run.history.state = _whole(carried).state


def _in_any_process(answer: object, layout: Strategy) -> bool:
    """Whether `on_evaluation` said in one of the processes that train together that it is enough."""
    enough = isinstance(answer, bool | np.bool_) and bool(answer)
    together = layout.mesh.is_multi_process
    return bool(distributed.gather(np.array(enough)).any()) if together else enough


def _whole(carried: Any) -> Carried:
    """This process's own, with a leading axis of seeds."""
    return distributed.local(stacked(carried) if isinstance(carried, list) else carried)


@contextmanager
def _chunks(
    training: Training,
    carried: Carried,
    strategy: Strategy,
    run: RunState,
    saved: Snapshot | None,
    compiler: Compiler,
) -> Iterator[Chunks]:
    """Compiled for what is carried first, which the saved then replaces: so the programs are the same."""
    began = time.perf_counter()
    algorithm, programs, federations, roots, test, score, measure, rounds, every = training
    measure = measure or (lambda state, federation: {})
    carried, roots, test = distributed.replicate((carried, roots, test), strategy.mesh)
    first = carried
    if saved:
        first = distributed.replicate(to_device(saved.carried, carried), strategy.mesh)
    if isinstance(federations, Federation):
        federation = distributed.replicate(federations, strategy.mesh)
        make = partial(rounds_of_seeds, algorithm, programs, score, measure, every)
        given = carried, federation, roots, test, 0, every
        chunk, layout = compiled_to_fit(make, given, [0], strategy, compiler)
        run.history.compile_seconds = time.perf_counter() - began
        yield Chunks(
            first,
            lambda carried, start, end: chunk(carried, federation, roots, test, start, end),
            lambda: layout,
        )
        return
    each = [jax.tree.map(lambda leaf, s=s: leaf[s], first) for s in range(len(roots))]
    # Before training: one that needs what a streamed federation cannot give is refused.
    jax.eval_shape(lambda state: measured(measure, state, federations[0]), each[0].state)
    ends = run.round, rounds, every
    with streamed_chunk(
        lambda: partial(numbered_round, algorithm, programs),
        algorithm.sampler,
        (partial(evaluate, score), partial(measured, measure)),
        federations,
        roots,
        [own.participation for own in each],
        ends,
        strategy.mesh,
    ) as (chunk, fitted):
        yield Chunks(each, lambda carried, *ends: chunk(carried, test, *ends), fitted)


def _begun(keeper: Keeper, carried: Carried) -> Snapshot | None:
    """The snapshot to go on from, if any: the same one in all processes.

    Raises:
      ValueError: it is of another run, or not the same everywhere.
    """
    saved = keeper.load(carried)
    if jax.process_count() > 1:
        checkpoint = (saved.round, saved.carried) if saved else (0, ())
        distributed.check_equal(checkpoint=checkpoint)
    keeper.begin(saved)
    return saved
