"""What an `Algorithm` owes the laboratory, as a check for tests of new ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fedpriv.codecs import Wire
from fedpriv.federation import Federation
from fedpriv.privacy import VIEWS, Claim, Release, certify
from fedpriv.types import Algorithm, Metrics, Params, State


def check_algorithm(
    algorithm: Algorithm, params: Params, federation: Federation, *, seed: int = 1
) -> None:
    """Runs a round of `algorithm` and asks for its privacy.

    Checked: the state begins with the model and round 0 and keeps its types, so that it can be scanned; a round is
    pure, needs nothing from the host and counts itself; its metrics are complete; every view is told what it sees,
    whatever the data; every view gets a certificate.

    Args:
      params: an initial model.
      federation: a small one, of as many clients as the algorithm was made for.
      seed: of the round.

    Raises:
      ValueError: what does not hold, in one line.
    """
    state = algorithm.init(params, federation)
    _check_start(state, params)
    key, run = jax.random.key(seed), jax.jit(algorithm.round)
    after, metrics = run(key, state, federation)
    _require(
        jax.tree.map(jax.typeof, after) == jax.tree.map(jax.typeof, state),
        "round: the state changes its structure, shapes or types; give back what `init` gave",
    )
    _require(int(after.round) == int(state.round) + 1, "round: the state's `round` must go up by 1")
    with jax.transfer_guard("disallow"):
        again = run(key, state, federation)
    _require(
        _identical((after, metrics), again),
        "round: the same key gives another result; draw everything from the key",
    )
    _check_metrics(metrics)
    _check_privacy(algorithm)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _identical(one: Any, other: Any) -> bool:
    same = jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), one, other)
    return all(jax.tree.leaves(same))


def _check_start(state: State, params: Params) -> None:
    for name in ("params", "round"):
        _require(hasattr(state, name), f"init: the state has no field `{name}`")
    _require(_identical(state.params, params), "init: `params` is not the model that was given")
    _require(int(state.round) == 0, f"init: `round` begins at {int(state.round)}, not at 0")


def _check_metrics(metrics: Metrics) -> None:
    known = {"cohort_size", "uplink", "downlink", "diagnostics"}
    for name in ("cohort_size", "uplink"):
        _require(name in metrics, f"metrics: there is no {name!r}")
    unknown = sorted(set(metrics) - known)
    _require(not unknown, f"metrics: {unknown} belong under 'diagnostics'")
    _require(int(metrics["cohort_size"]) >= 0, "metrics: 'cohort_size' is negative")
    for way in {"uplink", "downlink"} & set(metrics):
        _require(isinstance(metrics[way], Wire), f"metrics: {way!r} is not a `Wire`")
        _require(metrics[way].bits() >= 0, f"metrics: {way!r} has a negative number of bits")
    for name, value in metrics.get("diagnostics", {}).items():
        _require(np.shape(value) == (), f"metrics: diagnostic {name!r} is not a scalar")


def _check_privacy(algorithm: Algorithm, rounds: int = 2, delta: float = 1e-3) -> None:
    releases = algorithm.releases(rounds)
    _require(
        isinstance(releases, tuple) and all(isinstance(r, Release) for r in releases),
        "releases: not a tuple of `Release`",
    )
    missing = [view for view in VIEWS if view not in {release.view for release in releases}]
    _require(not missing, f"releases: nothing is said of what {', '.join(missing)} sees")
    for release in releases:
        _require(
            release.multiplier > 0 or bool(release.reason),
            f"releases: the multiplier towards {release.view} is 0 without a reason",
        )
    for view in VIEWS:
        none, some = (certify(algorithm, n, delta, view=view).epsilon for n in (0, rounds))
        _require(none == 0, f"releases: no rounds cost {view} an epsilon of {none}")
        _require(some >= 0, f"releases: {rounds} rounds cost {view} an epsilon of {some}")
    claim = algorithm.claim(rounds, delta)
    _require(claim is None or isinstance(claim, Claim), "claim: neither a `Claim` nor None")
