"""What a server learns from the visible submodels of MSP-FL alone.

Y. Wang, X. Cao, S. Jin, M.-Y. Chow, "A Novel Privacy Enhancement Scheme with Dynamic Quantization for Federated
Learning", keep secret the number m of a client's invisible submodels, their weights, and with them the trained model
(Lemma 2 and Theorem 1; eq. 8). But weights fall in a public way, alpha_n[k] = a_n c_k with c_k such as 1 / (k + 1), so
that what is secret enters the messages through few numbers. Up to K - 1 a server computes from them

    x[k] = a[k + 1] - a[k] - e (w[k] - a[k]) = c_k sum_n a_n (b_n[k] - a[k]),
    while b_n[k + 1] = b_n[k] - a_n c_k (b_n[k] - a[k]).

Let (L f)[k] = (f[k] - f[k + 1]) / c_k, and let r of the a_n be different, the roots of 1 + h_1 z + ... + h_r z^r. As L
takes sum_n a_n^p b_n to the same with p + 1, less (sum_n a_n^(p + 1)) a, this polynomial's sum is linear in 2 r
unknowns, whatever m:

    x[k] / c_k + sum_{j = 1..r} (L^j (h_j x / c + q_j a))[k] = 0,  q_1 = -m,
    sum_n b_n[0] = -sum_{j = 1..r} (L^(j - 1) (h_j x / c + q_j a))[0]

with d equations for each of K - r exchanges. So K > r gives m and the trained model (a[0] + sum_n b_n[0]) / (1 + m). A
client that weighs all its submodels alike has r = 1: that its weight is its own secret changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Positive, Range, checked
from fedpriv.core.array_arguments import check_numbers
from fedpriv.core.complaints import require
from fedpriv.core.user_code import names_user_code

Gamma: TypeAlias = Annotated[float, Range("a weight from 1e-7 to 1", 1e-7, 1)]
Decay = Callable[[jax.Array], jax.Array]


class Recovered(NamedTuple):
    """What was found of each client by its visible submodels.

    Attributes:
      model: f64[M, d], the trained model.
      number: f64[M], m before it is rounded.
      weights: f64[M, r], the different a_n, from the least on; of complex ones the real parts.
    """

    model: np.ndarray
    number: np.ndarray
    weights: np.ndarray


@names_user_code
def least_squares(
    messages: jax.Array, step: Positive, decay: Decay, different: Count = 1
) -> Recovered:
    """This file's attack on visible submodels (ours); approximate where messages are rounded or quantized.

    Args:
      messages: f32[K + 1, M, d], the visible submodels as sent.
      step: e.
      decay: k -> c_k, see `fedpriv.papers.consensus.DECAYS`.
      different: r, how many different weights a client is taken to have.

    Raises:
      ValueError: no more exchanges than different weights.
    """
    check_numbers("messages", messages, 3)
    step = checked("step", step, Positive)
    different = checked("different", different, Count)
    seen, moved, public = _public(messages, step, decay, different)
    solutions = [
        _solve(seen[:-1, i], moved[:, i] / public[:, None], public, different)
        for i in range(seen.shape[1])
    ]
    return Recovered(*map(np.stack, zip(*solutions, strict=True)))


def _solve(a: np.ndarray, x: np.ndarray, public: np.ndarray, r: int) -> tuple[Any, ...]:
    """Of one client; x is divided by c."""
    powers = [_powers(f, public, r) for f in (x, a)]
    rows = len(public) - r
    even = public[:rows, None] ** r  # rounding errs alike in all equations
    columns = np.stack([(f[:rows] * even).ravel() for of in powers for f in of[1:]], 1)
    length = np.maximum(np.linalg.norm(columns, axis=0), np.finfo(np.float32).tiny)
    solution = np.linalg.lstsq(columns / length, -(x[:rows] * even).ravel())[0] / length
    number = -solution[r]
    hidden = -solution @ np.stack([f[0] for of in powers for f in of[:-1]])
    model = (a[0] + hidden) / (1 + max(round(number), 1))  # a client has at least one
    return model, number, np.sort(np.roots([*solution[r - 1 :: -1], 1]).real)


def _powers(f: np.ndarray, public: np.ndarray, most: int) -> list[np.ndarray]:
    """L^0 f to L^most f, each shorter by one."""
    powers = [f]
    for _ in range(most):
        powers.append(-np.diff(powers[-1], axis=0) / public[: len(powers[-1]) - 1, None])
    return powers


@names_user_code
def fit_weights(
    messages: jax.Array, step: Positive, decay: Decay, number: Count, largest: Gamma
) -> Recovered:
    """The same for `number` submodels with a weight each, whose weights are searched: it bears rounding better.

    Given the weights, x is linear in the b_n[0] (variable projection: Golub and Pereyra 1973).

    Args:
      messages, step, decay: as `least_squares`.
      number: m.
      largest: gamma, about which the search begins.

    Raises:
      ValueError: no more exchanges than submodels.
    """
    check_numbers("messages", messages, 3)
    step = checked("step", step, Positive)
    number = checked("number", number, Count)
    largest = checked("largest", largest, Gamma)
    seen, moved, public = _public(messages, step, decay, number)
    start = np.log(largest * np.geomspace(0.2, 1, number + 1)[1:])
    fits = [_fit(seen[:-1, i], moved[:, i], public, start) for i in range(seen.shape[1])]
    models, weights = map(np.stack, zip(*fits, strict=True))
    return Recovered(models, np.full(len(models), float(number)), weights)


def _fit(
    a: np.ndarray, x: np.ndarray, public: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Model and weights of one client."""
    from scipy.optimize import least_squares

    # A rotation of the d coordinates leaves 2 K of them.
    few_x, few_a = np.split(np.asarray(np.linalg.qr(np.concatenate([x, a]).T, mode="r")).T, 2)
    unit = np.finfo(np.float32).eps * np.linalg.norm(few_a)

    def unexplained(logs: np.ndarray) -> np.ndarray:
        of_hidden, of_visible = _responses(np.exp(logs), public)
        left, basis = few_x - of_visible @ few_a, np.linalg.qr(of_hidden)[0]
        return (left - basis @ (basis.T @ left)).ravel() / unit

    weights = np.exp(least_squares(unexplained, start, x_scale="jac", bounds=(-20, 0)).x)
    of_hidden, of_visible = _responses(weights, public)
    hidden = np.linalg.lstsq(of_hidden, x - of_visible @ a)[0]
    return (a[0] + hidden.sum(0)) / (1 + len(weights)), np.sort(weights)


def _responses(weights: np.ndarray, public: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f64[K, m], f64[K, K]: x of the b_n[0], and of the a[k]."""
    exchanges, m = len(public), len(weights)
    of_hidden, of_visible = np.zeros((exchanges, m)), np.zeros((exchanges, exchanges))
    kept, learnt = np.ones(m), np.zeros((m, exchanges))  # b_n[k] = kept b_n[0] + learnt a
    for k, c in enumerate(public):
        part = weights * c
        of_hidden[k], of_visible[k] = part * kept, part @ learnt
        of_visible[k, k] -= part.sum()
        kept, learnt = kept * (1 - part), learnt * (1 - part)[:, None]
        learnt[:, k] += part
    return of_hidden, of_visible


def nearest(received: jax.Array, found: list[Recovered]) -> np.ndarray:
    """f64[M, d]: of what several attacks on a transcript found, for each client the model that is nearest to theta.

    A wrong one still has random parts of the weights themselves, which are far larger than an update.
    """
    models = np.stack([one.model for one in found])
    best = np.linalg.norm(models - np.asarray(received), axis=2).argmin(0)
    return models[best, np.arange(models.shape[1])]


def state_sum(messages: jax.Array, step: Positive, number: jax.Array | Positive) -> jax.Array:
    """f32[M, d]: the naive attack, eq. 8 cut off after K exchanges, for an assumed m; right for the true m alone.

    ((1 + m) a[K] - e sum_k (w[k] - a[k])) / (1 + m), up to what is left of the consensus.

    Args:
      messages: f32[K + 1, M, d].
      step: e.
      number: m, one for all or f32[M].

    Raises:
      ValueError: a step or number that is not positive.
    """
    check_numbers("messages", messages, 3)
    step = checked("step", step, Positive)
    number = checked("number", number, jax.Array | Positive)
    drift = jnp.sum(messages.mean(1, keepdims=True) - messages, 0)
    drift -= messages[-1].mean(0) - messages[-1]  # up to k = K - 1
    with np.errstate(over="ignore"):  # numbers beyond float32 are infinite
        mixed = 1 + jnp.broadcast_to(number, messages.shape[1:2])[:, None]
        return messages[-1] - step * drift / mixed


def unmixed(
    messages: jax.Array, received: jax.Array, step: Positive, number: jax.Array | Positive = 1.0
) -> jax.Array:
    """f32[M, d]: theta - w of each client up to its length, where quantization leaves `least_squares` nothing.

    `state_sum` undoes the mixing with the others' submodels exactly. What it leaves of the first message, an unknown
    multiple of a[0] - w, is taken out as the part along a[0] - theta, on which a model close to theta has hardly any.

    Args:
      messages, step, number: as `state_sum`.
      received: f32[d], theta, the model that clients trained from.

    Raises:
      ValueError: as `state_sum`.
    """
    check_numbers("received", received, 1)
    total = state_sum(messages, step, number)
    fits = received.shape == total.shape[-1:]
    require(fits, "received", received, f"give the {total.shape[-1]} numbers of a model")
    update = received - total
    start = received - messages[0]
    tiny = jnp.finfo(jnp.float32).tiny
    share = jnp.sum(update * start, 1) / jnp.maximum(jnp.sum(start**2, 1), tiny)
    return update - share[:, None] * start


def _public(
    messages: jax.Array, step: float, decay: Decay, unknowns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(messages a f64[K + 1, M, d], x f64[K, M, d], c f64[K]), x[k] = a[k + 1] - a[k] - e (w[k] - a[k]).

    Raises:
      ValueError: K is not above the unknowns.
    """
    remedy = "give a function of the exchange, such as fp.papers.consensus.DECAYS['linear']"
    require(callable(decay), "decay", decay, remedy)
    exchanges = len(messages) - 1
    if not 1 <= unknowns < exchanges:
        raise ValueError(
            f"messages: of {exchanges} exchange(s); {unknowns} different weight(s) need at least {unknowns + 1}"
        )
    seen = np.asarray(messages, np.float64)
    public = np.asarray(jax.vmap(decay)(jnp.arange(exchanges)), np.float64)
    now = seen[:-1]
    moved = seen[1:] - now - step * (now.mean(1, keepdims=True) - now)
    return seen, moved, public
