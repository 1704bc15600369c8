"""Checks of an `Algorithm`: cheap ones before every run, thorough ones for tests of new algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import partial_eval

from fedpriv.certification.certificate import TracedRound, check_twice, trace_round
from fedpriv.certification.compiled import compiled
from fedpriv.certification.correlated_measurements import check_correlated_noise
from fedpriv.certification.information_flow import as_compiled
from fedpriv.certification.initial_state import unreadable
from fedpriv.certification.measurements import (
    check_codec,
    check_declared,
    check_mechanism,
    check_sampler,
    check_schedule,
)
from fedpriv.certification.noise_keys import noise_keys
from fedpriv.certification.record_measurements import check_gradients
from fedpriv.compression.codecs import Wire
from fedpriv.core.arguments import Seed, checked
from fedpriv.core.trees import check_values
from fedpriv.core.types import Key, Params, State
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked
from fedpriv.data.federation import Federation
from fedpriv.privacy import VIEWS, Claim, Release
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.one_round import Carried, round_in_run, schedule_key
from fedpriv.rounds.samplers import Sampler, parts_of
from fedpriv.rounds.scheduled_samplers import ScheduledSampler, first_memories

_ROUNDS, _DELTA = 2, 1e-3
_KNOWN = {"uplink", "downlink", "diagnostics"}


@names_user_code
def check_launch(algorithm: Algorithm, params: Any, federation: Any) -> TracedRound:
    """The checks that `simulate` makes before the first round; they trace the round, and run nothing of it.

    Checked: the state begins with the model and round 0, keeps its shapes and types, and counts its rounds; metrics
    are complete and known; nothing private reaches state or metrics past the releases; traced again, the round is the
    same program.

    Args:
      params, federation: as `trace_round`.

    Raises:
      ValueError: a check fails; says which, in one line.
      LeakError: something private gets past the releases of a round; says what, and in which line.
    """
    traced = trace_round(algorithm, params, federation)
    model = jax.eval_shape(params, jax.random.key(0)) if callable(params) else params
    same = _kinds(traced.before.params) == _kinds(model)
    _require(same, "init: `params` is not the model that was given")
    after, metrics = traced.after
    for (path, was), became in zip(
        jax.tree.leaves_with_path(traced.before), jax.tree.leaves(after), strict=True
    ):
        _require(
            _kind(became) == _kind(was),
            f"round: the state changes: {jax.tree_util.keystr(path)} was {_kind(was)} and became {_kind(became)}; "
            "return what `init` gave",
        )
    _check_metrics(metrics)
    _check_counter(traced)
    check_twice(traced)
    return traced


@names_user_code
@as_compiled()
def check_algorithm(
    algorithm: Algorithm,
    params: Params | Callable[[Key], Params],
    federation: Federation,
    *,
    seed: Seed = 1,
) -> None:
    """Checks `algorithm` by running a few rounds and certifying them.

    Beyond the checks before every run, it checks that

    - a round is a function of its arguments alone, needs nothing from the host, and leaves the model finite;
    - what clients send, and the gradients of their records, are finite;
    - every view gets a certificate;
    - samplers, mechanisms of your own and declared releases do what they say.

    Each of these tests refuses a correct part with probability 1e-6.

    Args:
      params: an initial model, or key -> model.
      federation: a small one, with as many clients as the algorithm was made for.
      seed: seed of the rounds.

    Raises:
      ValueError: a check fails; says which, in one line.
      LeakError: something private gets past the releases of a round; says what, and in which line.
    """
    seed = checked("seed", seed, Seed)
    if callable(params):
        params = params(jax.random.key(seed))
    check_values(params)
    traced = check_launch(algorithm, params, federation)
    init, private = unreadable(algorithm, federation)
    state = compiled(init, params, private)(params, private)
    _require(_identical(state.params, params), "init: `params` is not the model that was given")
    _require(int(state.round) == 0, f"init: `round` begins at {int(state.round)}, not at 0")
    key = jax.random.key(seed)
    carried = Carried(state, traced.first_memory(1), first_memories(algorithm.sampler))
    given = key, schedule_key(key), carried, federation, state.round
    run = compiled(round_in_run(algorithm), *given)
    ran = run(*given)
    (after, *_), metrics = ran
    _require(
        _identical(ran, _without_the_host(run, *given)),
        "round: the same key gives another result; draw everything from the key",
    )
    _require(int(after.round) == int(state.round) + 1, "round: the state's `round` must go up by 1")
    leaves = map(np.asarray, jax.tree.leaves(after.params))
    finite = all(np.isfinite(leaf).all() for leaf in leaves)
    _require(finite, "round: the model is NaN or infinite after it")
    for what, share in metrics["not_finite"].items():
        _require(
            not float(share) > 0,
            f"round: {100 * float(share):.3g} % of its {what} are NaN or infinite at the given model, and count as 0 "
            "where they are clipped; look for a log, root or division in the loss, or lower the learning rate",
        )
    check_keys(traced, state, seed)
    _check_privacy(traced)
    check_parts(traced, state, federation, seed)


def check_keys(traced: TracedRound, state: State, seed: int = 1) -> None:
    """Computes the keys of two rounds' noises.

    Args:
      state: the first one.

    Raises:
      ValueError: two of them are the same.
    """
    programs = [stage.program for stage in traced.stages]
    root = jax.random.key(seed)
    for keys in noise_keys(programs, root, jax.tree.leaves(state), _ROUNDS):
        _require(
            len(set(keys)) == len(keys),
            "round: two of its noises are drawn from one key, so that their difference has none; derive a key for each "
            "(fold_in(key, i + j) is the same for many i and j)",
        )


def check_parts(traced: TracedRound, state: State, federation: Federation, seed: int = 1) -> None:
    """Measures the samplers, mechanisms, codecs, gradients and declared releases of a round that are made by hand.

    Args:
      state: the first one.

    Raises:
      ValueError: what one of them says and does not do, in one line.
    """
    algorithm = traced.algorithm
    means = [mean for stage in traced.stages for mean in stage.means]
    samplers = [sampler for _, sampler in parts_of(algorithm.sampler, 2)]
    samplers += [mean.records for mean in means if isinstance(mean.records, Sampler)]
    for sampler in samplers:
        check = check_schedule if isinstance(sampler, ScheduledSampler) else check_sampler
        check(sampler, seed)
    for stage in traced.stages:
        for release in stage.releases:
            check_mechanism(release, seed)
            check_correlated_noise(release, seed)
        for release in stage.sums:
            check_codec(release, seed)
    for mean in means:
        check_gradients(mean, state.params, federation, seed)
    if algorithm.releases is not None:
        check_declared(algorithm, traced, state, federation)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _identical(one: Any, other: Any) -> bool:
    def same(a: Any, b: Any) -> bool:
        if jnp.issubdtype(jnp.asarray(a).dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        return np.array_equal(a, b, equal_nan=True)

    return all(jax.tree.leaves(jax.tree.map(same, one, other)))


def _kinds(tree: Any) -> list[str]:
    return [str(jax.tree.structure(tree)), *map(_kind, jax.tree.leaves(tree))]


def _kind(leaf: Any) -> str:
    return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"


def _check_metrics(metrics: Any) -> None:
    remedy = "return the metrics of cohort.sum, or `fp.Wire(values, bits_per_value)` of a message"
    _require("uplink" in metrics, f"metrics: there is no 'uplink'; {remedy}")
    unknown = sorted(set(metrics) - _KNOWN, key=str)
    _require(
        not unknown,
        f"metrics: {unknown} belong under 'diagnostics', where numbers of your own are recorded for you and never "
        "released; return metrics | {'diagnostics': metrics['diagnostics'] | {'name': value}}",
    )
    for way in {"uplink", "downlink"} & set(metrics):
        wire = metrics[way]
        _require(isinstance(wire, Wire), f"metrics: {way!r} is not a `Wire`; {remedy}")
        whole = all(jnp.issubdtype(jnp.result_type(n), jnp.integer) for n in wire)
        _require(whole, f"metrics: {way!r} is not of whole numbers; round them")
    for name, value in metrics.get("diagnostics", {}).items():
        _require(np.shape(value) == (), f"metrics: diagnostic {name!r} is not a scalar")


def _check_counter(traced: TracedRound) -> None:
    """Computes the counter alone, where that takes a few equations."""
    leaves, structure = jax.tree.flatten(traced.before)
    program = traced.stages[-1].program
    place = jax.tree.unflatten(structure, range(len(leaves))).round
    used = [i == place for i in range(len(program.jaxpr.outvars))]
    counter, needed = partial_eval.dce_jaxpr(program.jaxpr, used)
    if (
        len(counter.eqns) > 100
        or counter.constvars
        or counter.effects
        or sum(needed) != needed[1 + place]
    ):
        return  # by other means; a full check runs it
    _require(bool(needed[1 + place]), "round: the state's `round` must go up by 1")
    count = jaxpr_as_fun(jax.extend.core.ClosedJaxpr(counter, ()))
    for now in (5, 10**6 + 5):
        (after,) = count(jnp.asarray(now, leaves[place].dtype))
        _require(int(after) == now + 1, "round: the state's `round` must go up by 1")


def _without_the_host(run: Any, *args: Any) -> Any:
    with jax.transfer_guard("disallow"):
        try:
            return run(*args)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(
                f"round: it moves data between host and device ({str(error).splitlines()[0]})"
            ) from None


def _check_privacy(traced: TracedRound) -> None:
    releases = traced.releases(_ROUNDS)
    _require(all(isinstance(r, Release) for r in releases), "releases: not a tuple of `Release`")
    _require(
        traced.releases(_ROUNDS) == releases,
        "releases: they changed when they were asked for again; they must not depend on the data",
    )
    for view in VIEWS if traced.algorithm.releases else ():
        declared = sum(release.steps for release in releases if release.view == view)
        _require(
            declared >= _ROUNDS,
            f"releases: they declare {declared} of {_ROUNDS} rounds for {view}; declare all rounds for each of "
            "`fp.VIEWS`",
        )
    for release in releases:
        _require(
            release.multiplier > 0 or bool(release.reason),
            f"releases: the multiplier towards {release.view} is 0 without a reason",
        )
    for view in VIEWS:
        nothing = traced.certify(0, _DELTA, view=view).epsilon
        _require(nothing == 0, f"releases: no rounds cost {view} an epsilon of {nothing}")
        traced.certify(_ROUNDS, _DELTA, view=view)
    claim = asked("claim", traced.algorithm.claim, "(rounds, delta)", _ROUNDS, _DELTA)
    _require(claim is None or isinstance(claim, Claim), "claim: neither a `Claim` nor None")
