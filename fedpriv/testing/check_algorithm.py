"""Thorough checks of a new algorithm: its rounds are run, and its parts made by hand are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.certification.certificate import check_twice
from fedpriv.certification.checks import check_launch, require_that
from fedpriv.certification.initial_state import unreadable
from fedpriv.certification.traced_round import TracedRound
from fedpriv.core.arguments import Count, Seed, checked
from fedpriv.core.jaxprs import as_compiled
from fedpriv.core.parameters import check_values
from fedpriv.core.types import Key, Params, State
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked
from fedpriv.data.federation import Federation
from fedpriv.privacy import VIEWS, Claim
from fedpriv.proof.stream import root_of
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.one_round import Carried, round_in_run
from fedpriv.rounds.samplers import parts_of
from fedpriv.rounds.scheduled_samplers import first_memories
from fedpriv.testing.compiled import compiled
from fedpriv.testing.correlated_measurements import check_correlated_noise
from fedpriv.testing.measurements import check_codec, check_mechanism, check_sampler, check_schedule
from fedpriv.testing.record_measurements import check_gradients

_DELTA = 1e-3


@names_user_code
@as_compiled()
def check_algorithm(
    algorithm: Algorithm,
    params: Params | Callable[[Key], Params],
    federation: Federation,
    *,
    rounds: Count = 100,
    seed: Seed = 1,
) -> None:
    """Checks `algorithm` by running some rounds and certifying them.

    Beyond the checks before every run, it checks that

    - a round is a function of its arguments alone, needs nothing from the host, and leaves the model finite: at the
      beginning of a run, in its middle and at its end, with the first model;
    - what clients send, and the gradients of their records, are finite;
    - every view gets a certificate;
    - samplers and mechanisms of your own do what they say: how loud noise is in some rounds throughout the run, and
      that it is the same around all sums that are tried, up to the largest of a cohort.

    Each statistical test refuses a correct part with probability 1e-6 at most. Noise that depends on the state, or is
    quieter in rounds or around sums that are not tried, is not seen.

    Args:
      params: an initial model, or key -> model.
      federation: a small one, with as many clients as the algorithm was made for.
      rounds: of the run; noise that is correlated over fewer rounds is looked at in those.
      seed: seed of the rounds.

    Raises:
      ValueError: a check fails; says which, in one line.
      LeakError: something private gets past the releases of a round; says what, and in which line.
    """
    rounds = checked("rounds", rounds, Count)
    seed = checked("seed", seed, Seed)
    if callable(params):
        params = params(jax.random.key(seed))
    check_values(params)
    traced = check_launch(algorithm, params, federation)
    init, private = unreadable(algorithm, federation)
    state = compiled(init, params, private)(params, private)
    check_twice(traced)
    federation = jax.device_put(
        federation
    )  # such as that of `Federation.blank`, which is the host's
    require_that(_identical(state.params, params), "init: `params` is not the model that was given")
    require_that(int(state.round) == 0, f"init: `round` begins at {int(state.round)}, not at 0")
    rounds = min(rounds, traced.most_rounds or rounds)
    _check_rounds(traced, state, federation, rounds, seed)
    _check_privacy(traced, rounds)
    measure_parts(traced, state, federation, rounds, seed)


def _check_rounds(
    traced: TracedRound, state: State, federation: Federation, rounds: int, seed: int
) -> None:
    algorithm, root = traced.algorithm, root_of(jax.random.key(seed))
    memories = traced.first_memory(rounds), first_memories(algorithm.sampler)

    def given(t: int) -> tuple:
        now = _in_round(state, t)
        return root, Carried(now, *memories), federation, now.round

    run = compiled(round_in_run(algorithm, traced.programs), *given(0))
    for t in sorted({0, 1, rounds // 2, rounds - 1} & {*range(rounds)}):
        ran = run(*given(t))
        (after, *_), metrics = ran
        if t == 0:
            require_that(
                _identical(ran, _without_the_host(run, *given(t))),
                "round: the same key gives another result; draw everything from the key",
            )
        require_that(int(after.round) == t + 1, "round: the state's `round` must go up by 1")
        leaves = map(np.asarray, jax.tree.leaves(after.params))
        finite = all(np.isfinite(leaf).all() for leaf in leaves)
        require_that(finite, f"round: the model is NaN or infinite after it (round {t})")
        for what, share in metrics["not_finite"].items():
            require_that(
                not float(share) > 0,
                f"round: {100 * float(share):.3g} % of its {what} are NaN or infinite at the given model (round {t}), "
                "and count as 0 where they are clipped; look for a log, root or division in the loss, or lower the "
                "learning rate",
            )


def _in_round(state: State, t: int) -> State:
    """The state, as if t rounds were done."""
    leaves, structure = jax.tree.flatten(state)
    place = jax.tree.unflatten(structure, range(len(leaves))).round
    leaves[place] = jnp.asarray(t, leaves[place].dtype)
    return jax.tree.unflatten(structure, leaves)


def measure_parts(
    traced: TracedRound, state: State, federation: Federation, rounds: int, seed: int = 1
) -> None:
    """Measures the samplers, mechanisms, codecs and gradients of a round that are made by hand.

    Args:
      state: the first one.
      rounds: of the run.

    Raises:
      ValueError: what one of them says and does not do, in one line.
    """
    algorithm = traced.algorithm
    means = [mean for stage in traced.stages for mean in stage.means]
    samplers = [sampler for _, sampler in parts_of(algorithm.sampler, 2)]
    samplers += [mean.step.sampling.places for mean in means]
    for sampler in samplers:
        check = check_schedule if sampler.accounting.turns is not None else check_sampler
        check(sampler, seed)
    for stage in traced.stages:
        for release in stage.releases:
            check_mechanism(release, rounds, seed)
            check_correlated_noise(release, rounds, seed)
        for release in stage.sums:
            check_codec(release, seed)
    for mean in means:
        check_gradients(mean, state.params, federation, seed)


def _identical(one: Any, other: Any) -> bool:
    def same(a: Any, b: Any) -> bool:
        if jnp.issubdtype(jnp.asarray(a).dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        return np.array_equal(a, b, equal_nan=True)

    return all(jax.tree.leaves(jax.tree.map(same, one, other)))


def _without_the_host(run: Any, *args: Any) -> Any:
    with jax.transfer_guard("disallow"):
        try:
            return run(*args)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(
                f"round: it moves data between host and device ({str(error).splitlines()[0]})"
            ) from None


def _check_privacy(traced: TracedRound, rounds: int) -> None:
    for seen in (each for kind in traced.kinds for each in traced.seen(rounds, kind)):
        why = seen.hidden or bool(seen.reason)
        require_that(why, f"seen: nothing hides a {seen.unit} from {seen.view}, without a reason")
    for view in VIEWS:
        nothing = traced.certify(0, _DELTA, view=view).epsilon
        require_that(nothing == 0, f"seen: no rounds cost {view} an epsilon of {nothing}")
        traced.certify(rounds, _DELTA, view=view)
    claim = asked("claim", traced.algorithm.claim, "(rounds, delta)", rounds, _DELTA)
    require_that(claim is None or isinstance(claim, Claim), "claim: neither a `Claim` nor None")
