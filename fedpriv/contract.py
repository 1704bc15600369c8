"""What an `Algorithm` owes the laboratory, as a check for tests of new ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.codecs import Wire
from fedpriv.federation import Federation
from fedpriv.privacy import VIEWS, Claim, Release, certify
from fedpriv.types import Algorithm, Metrics, Params, State

_ROUNDS, _DELTA = 2, 1e-3
_REMEDIES = {
    "cohort_size": "give `cohort.mask.sum()`",
    "uplink": "give `fp.Wire(values, bits_per_value)` of one client's message",
}


def check_algorithm(
    algorithm: Algorithm, params: Params, federation: Federation, *, seed: int = 1
) -> None:
    """Runs a few rounds of `algorithm` and asks for its privacy.

    Checked: the state begins with the model and round 0 and keeps its shapes and types, so that it can be scanned; a
    round is pure, needs nothing from the host and counts itself; its metrics are complete; every view is told what it
    sees of every round and of all clients, whatever the data; every view gets a certificate; where noise is declared,
    another key moves the model. Whether the noise is as loud as declared cannot be seen here.

    Args:
      params: an initial model.
      federation: a small one, of as many clients as the algorithm was made for.
      seed: of the round.

    Raises:
      ValueError: what does not hold, in one line.
    """
    releases = algorithm.releases(_ROUNDS)
    state = jax.tree.map(jnp.asarray, algorithm.init(params, federation))
    _check_start(state, params)
    run, key, other = jax.jit(algorithm.round), jax.random.key(seed), jax.random.key(seed + 1)
    after, metrics = _both(run(key, state, federation))
    _check_after(state, after)
    _require(
        _identical((after, metrics), _without_the_host(run, key, state, federation)),
        "round: the same key gives another result; draw everything from the key",
    )
    _check_metrics(metrics)
    _check_privacy(algorithm, releases)
    _check_population(releases, federation.num_clients)
    if any(0 < release.multiplier < math.inf for release in releases):
        elsewhere, _ = run(other, state, federation)
        _require(
            not _identical(after.params, elsewhere.params),
            "round: another key gives the same model, though noise is declared; draw it from the round's key",
        )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _identical(one: Any, other: Any) -> bool:
    def same(a: Any, b: Any) -> bool:
        if jnp.issubdtype(jnp.asarray(a).dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        return np.array_equal(a, b, equal_nan=True)

    return all(jax.tree.leaves(jax.tree.map(same, one, other)))


def _without_the_host(run: Callable[..., Any], *args: Any) -> Any:
    with jax.transfer_guard("disallow"):
        try:
            return run(*args)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(
                f"round: it moves data between host and device ({str(error).splitlines()[0]})"
            ) from None


def _both(given: Any) -> tuple[State, Metrics]:
    # A state of two fields would unpack as well, so that the metrics are looked at.
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict)
    _require(pair, "round: it does not give back (state, metrics) with a dict of metrics")
    return given


def _check_after(state: State, after: State) -> None:
    _require(
        len({jax.tree.structure(tree) for tree in (state, after)}) == 1,
        "round: the state changes its structure; give back what `init` gave",
    )
    now = jax.tree.leaves(after)
    for (path, was), became in zip(jax.tree.leaves_with_path(state), now, strict=True):
        _require(
            _kind(became) == _kind(was),
            f"round: the state changes: {jax.tree_util.keystr(path)} was {_kind(was)} and became {_kind(became)}; "
            "give back what `init` gave",
        )
    _require(int(after.round) == int(state.round) + 1, "round: the state's `round` must go up by 1")
    finite = all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(after.params))
    _require(finite, "round: the model is NaN or infinite after it")


def _kind(leaf: Any) -> str:
    return f"{jnp.asarray(leaf).dtype}{list(jnp.shape(leaf))}"


def _check_start(state: State, params: Params) -> None:
    for name in ("params", "round"):
        _require(hasattr(state, name), f"init: the state has no field `{name}`")
    _require(_identical(state.params, params), "init: `params` is not the model that was given")
    _require(int(state.round) == 0, f"init: `round` begins at {int(state.round)}, not at 0")


def _check_metrics(metrics: Metrics) -> None:
    known = {"cohort_size", "uplink", "downlink", "diagnostics"}
    for name in ("cohort_size", "uplink"):
        _require(name in metrics, f"metrics: there is no {name!r}; {_REMEDIES[name]}")
    unknown = sorted(set(metrics) - known)
    _require(not unknown, f"metrics: {unknown} belong under 'diagnostics'")
    size = jnp.asarray(metrics["cohort_size"])
    counted = size.shape == () and jnp.issubdtype(size.dtype, jnp.integer) and int(size) >= 0
    _require(counted, f"metrics: 'cohort_size' is {size}, not a number of clients")
    for way in {"uplink", "downlink"} & set(metrics):
        wire = metrics[way]
        _require(isinstance(wire, Wire), f"metrics: {way!r} is not a `Wire`; {_REMEDIES['uplink']}")
        whole = all(jnp.issubdtype(jnp.asarray(n).dtype, jnp.integer) for n in wire)
        _require(whole, f"metrics: {way!r} is {wire}, not of whole numbers; round them")
        _require(wire.bits() > 0, f"metrics: {way!r} has no bits")
    for name, value in metrics.get("diagnostics", {}).items():
        _require(np.shape(value) == (), f"metrics: diagnostic {name!r} is not a scalar")


def _check_privacy(algorithm: Algorithm, releases: tuple[Release, ...]) -> None:
    _require(
        isinstance(releases, tuple) and all(isinstance(r, Release) for r in releases),
        "releases: not a tuple of `Release`",
    )
    _require(
        algorithm.releases(_ROUNDS) == releases,
        "releases: they changed when a round was run; they must not depend on the data",
    )
    for view in VIEWS:
        seen = sum(release.steps for release in releases if release.view == view)
        _require(
            seen >= _ROUNDS,
            f"releases: of {_ROUNDS} rounds {view} is told of {seen}; tell each of `fp.VIEWS` of all",
        )
    for release in releases:
        _require(
            release.multiplier > 0 or bool(release.reason),
            f"releases: the multiplier towards {release.view} is 0 without a reason",
        )
    for view in VIEWS:
        nothing = certify(algorithm, 0, _DELTA, view=view).epsilon
        _require(nothing == 0, f"releases: no rounds cost {view} an epsilon of {nothing}")
        certify(algorithm, _ROUNDS, _DELTA, view=view)
    claim = algorithm.claim(_ROUNDS, _DELTA)
    _require(claim is None or isinstance(claim, Claim), "claim: neither a `Claim` nor None")


def _check_population(releases: tuple[Release, ...], clients: int) -> None:
    """Fewer clients than there are would make the certificate of a sampled cohort too small."""
    for release in releases:
        by_client = release.sampling if release.unit == "client" else None
        drawn = release.participation or by_client
        _require(
            drawn is None or drawn.population == clients,
            f"releases: {release.view} is told of {drawn}, but the federation has {clients} clients; make sampler and "
            "federation for the same number",
        )
