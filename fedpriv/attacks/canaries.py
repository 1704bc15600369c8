"""Audit of whole training runs by canaries.

M. Nasr et al., "Tight Auditing of Differentially Private Machine Learning", USENIX Security 2023, arXiv:2302.07956:
many runs, half of them with a canary at the clip norm, seen by an adversary who knows all else. G. Andrew et al.,
"One-shot Empirical Privacy Estimation for Federated Learning", ICLR 2024, arXiv:2302.03098, and T. Steinke, M. Nasr,
M. Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023, arXiv:2305.08846: many canaries in one run,
nearly orthogonal to each other and to all else, each there by a fair coin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.attacks.canary_messages import FAR, Canaries, Data
from fedpriv.attacks.canary_places import places_of, with_places
from fedpriv.attacks.canary_rules import AmongClients, AmongRecords
from fedpriv.attacks.injected import Injected
from fedpriv.attacks.play import mixed
from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, CountOrZero, Seed, checked
from fedpriv.core.complaints import require
from fedpriv.core.trees import flatten
from fedpriv.core.types import Key, Metrics, Params, PyTree, State
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.described import worst_case_of
from fedpriv.mechanisms.noise_matrices import identity
from fedpriv.mechanisms.noise_matrices.factorization import Factorization
from fedpriv.privacy.played import Plays, plays_of
from fedpriv.privacy.sampling.asked import joining
from fedpriv.proof.program import RoundProgram
from fedpriv.proof.seen import Seen
from fedpriv.rounds.algorithm import Algorithm, after_round, initial_state, require_algorithm
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.played import Played
from fedpriv.rounds.running import Ran, RoundToRun, run_by

SCORED_VIEWS = ("third_party", "server_secagg", "last_model")
"""Whose scores are kept: who sees every model, who also knows the cohorts, who sees the last model alone."""


class CanaryState(NamedTuple):
    """State of the algorithm under audit, and what was seen of the canaries.

    Attributes:
      params, round: as the algorithm's.
      inner: its own state.
      present: bool[k], by fair coins that are thrown in the first round.
      scores: f32[3, k], for each of `VIEWS`; the last are zeros but for a single canary.
      begin: f32[d], the initial model.
      path: f32[d], where a single canary would have moved it by now if it had been drawn always; of an honest one,
        where it would have moved the initial model first.
      whitening: the memory that makes independent what correlated noise did to the canaries.
      turn: f32[k], a third party's log-likelihood ratio of all rounds since a canary could last be drawn, if it was.
    """

    params: Params
    round: jax.Array
    inner: State
    present: jax.Array
    scores: jax.Array
    begin: jax.Array
    path: jax.Array
    whitening: PyTree
    turn: jax.Array


def with_canaries(
    algorithm: Algorithm,
    count: Count,
    seen: Seen,
    *,
    per_client: CountOrZero = 0,
    seed: Seed = 0,
    data: Data | None = None,
) -> Algorithm:
    """`algorithm` in which `count` canaries take the places of clients or of records.

    Canary j takes the place of client j; or, with `per_client` = q > 0, of the record at position j mod q of client j
    div q. Tossed heads, it sends an update (has a gradient) far beyond the clip norm in its own direction, which the
    algorithm bounds, codes and perturbs as any other; tossed tails, it does not contribute, or sends no more than its
    own noise where clients add that themselves. So the runs differ by a unit that becomes zero, and its weight with it.
    A single canary has the mechanism's worst direction.

    Scores are log-likelihood ratios, summed over the rounds, of how far noise and canaries moved the model along a
    canary's direction: an adversary is taken to know the data and cohorts of all others, but not the canaries'. They
    are exact where the model follows a round's sum linearly; elsewhere they tell less than could be told, also of sums
    of integers, whose noise is taken for real noise of its deviation. The last
    view's is the move of the last model along the canary's path, no likelihood ratio.

    With `data` a single canary is weaker: it sends (has for a gradient) what honest training on data of the adversary's
    choice gives, such as its own, or with other labels. Whoever sees every model knows that message m_t of each round
    from the models before, and by which random numbers a client trains. So where sums y_t have noise of one deviation s
    in all directions, the score is still the exact ratio: the sum of (<y_t - k_t, m_t> - |m_t|^2 / 2) / s^2, of which
    k_t is known; a third party's is the mixture over the draw. Of a record that takes several steps of a round the mean
    gradient stands for all of them, and of a random loss's gradient another draw. Whoever sees the last model alone
    knows only the first message, along which the move is scored.

    Args:
      seen: what the canaries are looked for in, one of `fp.trace_round(...).seen(rounds)`.
      seed: of the directions, which are those of all runs.
      data: records of a client (leaves [n, ...]) -> those that the canary has instead, each by itself where records are
        protected; `lambda examples: examples` leaves it its own. None: the worst.

    Raises:
      ValueError: `data` with more than one canary, or with noise that is correlated over rounds; at `init`, more
        canaries than places; in a round, more of a client than it has records.
      NoPlaceError: in a round, an algorithm that protects no client in a cohort's sum, or no record in a private
        mean; `data`, and a federation that is streamed, or clients that keep something and take part in secret: what
        they send would tell when they took part.
    """
    require_algorithm(algorithm)
    count = checked("count", count, Count)
    remedy = "give one of fp.trace_round(...).seen(rounds)"
    plays: Any = plays_of(seen) if isinstance(seen, Seen) else None
    require(plays is not None, "seen", seen, remedy)
    per_client = checked("per_client", per_client, CountOrZero)
    seed = checked("seed", seed, Seed)
    length, worst = FAR * _clip_norm(plays), _worst(plays)
    correlation = getattr(plays.used, "correlation", None)
    _check_data(data, count, correlation)
    factorization = identity() if correlation is None else correlation.factorization

    def init(params: Params, federation: Federation) -> CanaryState:
        places = federation.num_clients * max(per_client, 1)
        require(count <= places, "count", count, f"give 1 to {places}, as there are so many places")
        inner = initial_state(algorithm, params, federation)
        begin, none = flatten(inner.params), jnp.zeros(count)
        return CanaryState(
            inner.params,
            inner.round,
            inner,
            present=none.astype(bool),
            scores=jnp.zeros((len(SCORED_VIEWS), count)),
            begin=begin,
            path=jnp.zeros_like(begin),
            whitening=factorization.init((none, none, none)),
            turn=none,
        )

    def of_round(key: Key, state: CanaryState) -> Canaries:
        coins = jax.random.bernoulli(
            jax.random.fold_in(key, random_streams.CANARIES), 0.5, (count,)
        )
        present = jnp.where(state.round == 0, coins, state.present)
        return Canaries(jax.random.key(seed), present, length, per_client, worst, data, plays.drawn)

    def certified(key: Key, state: CanaryState, cohort: Cohort) -> tuple[CanaryState, Metrics]:
        """Without canaries, which rules put in, and without scores, which no certificate covers."""
        canaries = of_round(key, state)
        inner, metrics = after_round(algorithm, key, state.inner, cohort)
        present = with_places(cohort._calls.marks, canaries, cohort.round, canaries.present)
        return _followed(state, inner, present), metrics

    def play(program: RoundProgram, of: RoundToRun) -> Ran:
        state, drawn, canaries = of.state, of.drawn, of_round(of.key, of.state)
        ran, found = _observed(program, of, canaries, plays)
        clients = np.arange(count) // max(per_client, 1)
        everyone = jnp.zeros(of.federation.num_clients, bool)
        there = everyone.at[drawn.ids].max(drawn.mask, mode="drop")[clients]
        may, rate = _may_take_part(of, clients, there, correlation is not None)
        after = ran.state.inner
        scored = _scored(state, after.params, found, there, may, rate, plays, data is not None)
        return ran._replace(state=_followed(scored, after, canaries.present))

    def personal(state: CanaryState, i: jax.Array) -> Any:
        assert algorithm.personal is not None
        return algorithm.personal(state.inner, i)

    own = personal if algorithm.personal else None
    return algorithm._replace(init=init, round=Played(certified, play), personal=own)


def _check_data(data: Data | None, count: int, correlation: Any) -> None:
    """Raises ValueError: no function; more than one honest canary, or noise correlated over rounds."""
    if data is None:
        return
    require(callable(data), "data", data, "give a function, examples -> those of the canary")
    require(count == 1, "count", count, "give 1, as honest canaries hide each other")
    if correlation is not None:
        raise ValueError(
            "data: noise that is correlated over rounds hides an honest canary's changing direction otherwise than is "
            "scored; leave it out"
        )


def _clip_norm(plays: Plays) -> float:
    """The largest of the mechanism's; 1 where there is none."""
    bounds = np.asarray(jax.tree.leaves(getattr(plays.used, "clip_norm", ())), float)
    return float(np.max(bounds[np.isfinite(bounds)], initial=0)) or 1.0


def _worst(plays: Plays) -> Callable[[int], PyTree] | None:
    """As `WorstCase.worst`, of one round."""
    used = plays.used
    if used is not None and used.correlation is not None:
        used = used.correlation.mechanism
    hardest = worst_case_of(used)
    return hardest and hardest.worst


def _followed(state: CanaryState, inner: State, present: jax.Array) -> CanaryState:
    return state._replace(params=inner.params, round=inner.round, inner=inner, present=present)


class _Seen(NamedTuple):
    """What a round shows of the canaries.

    Attributes:
      hits: f32[k], how far the model moved along what a canary adds in one step, in units of that.
      precision: f32[k], one over the variance of the noise in them.
      step: f32[d], how far a single canary moves the model.
    """

    hits: jax.Array
    precision: jax.Array
    step: jax.Array

    def ratio(self, plays: Plays) -> jax.Array:
        """f32[k]: log-likelihood ratio of a canary whose client takes part, against one that contributes nothing."""
        steps, rate = (plays.steps, plays.drawn.inclusion) if plays.of_records else (1, 1.0)
        return jax.vmap(partial(_ratio, steps=steps, rate=rate))(self.hits, self.precision)


def _observed(
    program: RoundProgram, of: RoundToRun, canaries: Canaries, plays: Plays
) -> tuple[Ran, _Seen]:
    """(What a round with canaries gives back, what it shows)."""
    places, steps, times = places_of(program, canaries), 1, jnp.int32(1)
    if canaries.per_client:
        # The members of the cohort move the model as far as the canary's client, and add as much noise.
        members = jnp.sum(of.drawn.mask)
        places, steps, times = places[:1], plays.steps, plays.steps * jnp.maximum(members, 1)
    among = AmongRecords if canaries.per_client else AmongClients

    def run(*zeros: Any) -> tuple[Params, tuple[Ran, dict[str, list[Any]]]]:
        rule = among(program, of, canaries, Injected(*zeros), places)
        ran = run_by(rule, program, of)
        return ran.state.params, (ran, rule.made_of)

    zero, one = jnp.zeros(()), jnp.ones(())
    likes = [place.release.like for place in places]
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), likes)
    _, moved, (out, made_of) = jax.linearize(run, zero, zeros, zero, has_aux=True)
    unknown = flatten(moved(one, zeros, zero))

    def of_canary(j: jax.Array) -> _Seen:
        each = [p.added(made_of[p.name], canaries.direction(j, p.release.like)) for p in places]
        step = flatten(moved(zero, [contribution for contribution, _ in each], zero)) / times
        square = sum(reach**2 for _, reach in each)
        return _seen_along(unknown, step, square / times)

    if canaries.data is not None:
        worst, step = of_canary(jnp.int32(0)), flatten(moved(zero, zeros, one)) / steps
        longer = _over(jnp.linalg.norm(step), jnp.linalg.norm(worst.step))
        return out, _single(_seen_along(unknown, step, worst.precision * longer**2))
    if len(canaries.present) == 1:
        return out, _single(of_canary(jnp.int32(0)))
    hits, precision = lax.map(lambda j: of_canary(j)[:2], jnp.arange(len(canaries.present)))
    return out, _Seen(hits, precision, jnp.zeros_like(unknown))


def _seen_along(unknown: jax.Array, step: jax.Array, precision: jax.Array) -> _Seen:
    """Of one canary, whose step is zero where nobody is drawn, or all is left as it is."""
    moves = jnp.any(step != 0)
    hits = _over(_along(unknown, step), jnp.linalg.norm(step))
    return _Seen(hits, jnp.where(moves, precision, 0.0), step)


def _single(seen: _Seen) -> _Seen:
    return _Seen(seen.hits[None], seen.precision[None], seen.step)


def _scored(
    state: CanaryState,
    model: Params,
    seen: _Seen,
    there: jax.Array,
    may: jax.Array,
    rate: float,
    plays: Plays,
    honest: bool,
) -> CanaryState:
    """The state before a round, with what the round adds to the scores.

    Args:
      model: after it.
      there, may: bool[count], whether a canary's client takes part, and whether it may, as a third party knows.
      rate: with which probability one that may takes part.
    """
    correlation = getattr(plays.used, "correlation", None)
    if correlation is None:
        ratios, whitening = seen.ratio(plays), state.whitening
        known, blind = (jnp.where(times, ratios, 0.0) for times in (there, may))
    else:
        noise = seen.hits, there.astype(jnp.float32), may.astype(jnp.float32)
        of_noise = correlation.factorization
        (hits, *each), whitening = _whitened(of_noise, state.whitening, noise, state.round)
        known, blind = (seen.precision * (hits * times - times**2 / 2) for times in each)
    before = jnp.where(may, 0.0, state.turn)
    turn = before + blind
    third = mixed(turn, rate) - mixed(before, rate)
    begun = jnp.any(state.path != 0) & honest
    path = jnp.where(begun, state.path, state.path + seen.step)
    count = len(there)
    last = _along(flatten(model) - state.begin, path) * (count == 1)
    scores = jnp.stack([*(state.scores[:2] + jnp.stack([third, known])), jnp.full(count, last)])
    return state._replace(scores=scores, path=path, whitening=whitening, turn=turn)


def _whitened(
    factorization: Factorization, memory: PyTree, noise: PyTree, t: jax.Array
) -> tuple[PyTree, PyTree]:
    """(z of round t, of which `noise` is row t of C^-1 z, the memory after it)."""
    nothing, _ = factorization.next(memory, jax.tree.map(jnp.zeros_like, noise), t)
    one, _ = factorization.next(memory, jax.tree.map(jnp.ones_like, noise), t)
    z = jax.tree.map(lambda x, a, b: (x - a) / (b - a), noise, nothing, one)
    return z, factorization.next(memory, z, t)[1]


def _over(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b, or 0 where b is 0."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), 0.0)


def _along(v: jax.Array, direction: jax.Array) -> jax.Array:
    return _over(jnp.vdot(v, direction), jnp.linalg.norm(direction))


def _ratio(hits: jax.Array, precision: jax.Array, steps: int, rate: float) -> jax.Array:
    """log of N(k, 1 / precision) at `hits` over N(0, 1 / precision), in the mean over k ~ Bin(steps, rate)."""
    from scipy.stats import binom

    if steps == 1 and rate >= 1:
        return precision * (hits - 0.5)
    k = np.arange(steps + 1)
    likely = binom.logpmf(k, steps, rate)
    return jax.nn.logsumexp(likely + precision * (k * hits - k**2 / 2))


def _may_take_part(
    of: RoundToRun, clients: np.ndarray, there: jax.Array, correlated: bool
) -> tuple[jax.Array, float]:
    """(Who may take part in the round, bool[k], how probably such a one does), as a third party knows it.

    It may know no more than its certificate says: a draw that amplifies is secret, but not whose turn it is.
    """
    drawn: Any = of.sampler.accounting
    if drawn.group_names:
        drawn, own = drawn.of_clients(clients.tolist())
        clients = np.array(own)
    turn = drawn.turn(jnp.asarray(clients), of.t)
    blocks = drawn.turns and drawn.turns.block
    if turn is None or (correlated and (drawn.turns is None or drawn.turns.bands is None)):
        return there, 1.0
    return turn, 1 / blocks if blocks else joining(drawn.of_a_round)
