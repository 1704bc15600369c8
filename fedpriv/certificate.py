"""From a round to a certificate: what each view sees of a run, read off the traced round, and what that costs.

Views: a third party sees every global model; a server every message; a server behind secure aggregation their sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.algorithm import Algorithm
from fedpriv.dynamic import Dynamic
from fedpriv.mechanisms import ALREADY_PRIVATE, Mechanism, joint
from fedpriv.per_example import MedianClipping, RecordMechanism
from fedpriv.privacy import (
    VIEWS,
    Certificate,
    Everyone,
    FixedSize,
    Poisson,
    Release,
    WithReplacement,
    certify_releases,
)
from fedpriv.privacy._checks import require_count
from fedpriv.samplers import Sampler
from fedpriv.traced import Holding, Note, Stage, check_constants, look, look_at_start


class Looked(NamedTuple):
    """What was read off an algorithm's round.

    Attributes:
      algorithm: whose.
      holding: what it was traced for.
      stages: the releases with each of its samplers.
      before: shapes of the state that a round is given.
      after: shapes of (state, metrics) that it gives back.
    """

    algorithm: Algorithm
    holding: Holding
    stages: tuple[Stage, ...]
    before: Any
    after: Any

    def releases(self, rounds: int) -> tuple[Release, ...]:
        """What each view sees of so many rounds.

        Raises:
          ValueError: it has no certificate: a multiplier that is computed in the round, or units, samplings or kinds of
            noise that do not go together.
        """
        if self.algorithm.releases is not None:
            return tuple(self.algorithm.releases(rounds))
        parts = self.algorithm.sampler.stages(rounds)
        found, begun = [], 0
        for (length, sampler), stage in zip(parts, self.stages, strict=True):
            for steps, first in _pieces(stage, begun, begun + length):
                found += _seen(stage, sampler, self.algorithm.unit, steps, first)
            begun += length
        return tuple(r for r in found if r.steps) or tuple(found)

    def certify(
        self, rounds: int, delta: float, *, view: str = "third_party", honest: float = 1.0
    ) -> Certificate:
        """As `certify`, of the round as it was traced.

        Args:
            rounds, view, honest: as `certify`.
            delta: probability, in (0, 1).

        Raises:
            ValueError: for rounds, delta, a view or a fraction that is not allowed.
        """
        require_count("rounds", rounds, 0)
        found = certify_releases(self.releases(rounds), delta, view, honest=honest)
        read = self.algorithm.releases is None and math.isfinite(found.epsilon)
        texts = (*found.assumptions, *(self._assumed() if read else ()))
        return replace(found, basis=self.basis, assumptions=texts)

    def _assumed(self) -> tuple[str, ...]:
        """What the traced program does not show."""
        closed = {
            str(np.shape(c))
            for stage in self.stages
            for c in stage.constants
            if np.size(c) > 1 and jnp.issubdtype(jnp.result_type(c), jnp.inexact)
        }
        texts = ["every noise has a key of its own (checked by `fp.check_algorithm`)"]
        if closed:
            shapes = ", ".join(sorted(closed))
            texts.append(f"the arrays that the round closes over ({shapes}) do not depend on data")
        return tuple(texts)

    @property
    def basis(self) -> str:
        """Of a certificate: "constructed", or "declared" where a release or a multiplier is somebody's word."""
        if self.algorithm.releases is not None:
            return "declared"
        notes = [n for s in self.stages for n in (*s.sums, *s.means)]
        samplers = [s for _, s in self.algorithm.sampler.stages(2)]
        samplers += [n.records for n in notes if n.records is not None]
        proved = all(_constructed(n) for n in notes) and all(s.constructed for s in samplers)
        return "constructed" if proved else "declared"


def _constructed(note: Note) -> bool:
    """Whether nothing in a release is somebody's word: not its mechanism, gradients or codec."""
    used: Any = note.mechanism
    start = used.start if type(used) is Dynamic else used
    if type(start) is MedianClipping or (type(start) is Mechanism and start.multiplier == 0):
        return True
    told = note.codec.lossy or note.codec.known
    return type(start) is Mechanism and start.constructed and told and note.by_records


def _pieces(stage: Stage, begin: int, end: int) -> list[tuple[int, int]]:
    """(number of rounds, the first of them) of each part of [begin, end) in which no mechanism changes."""
    cuts = {begin, end}
    for note in (*stage.sums, *stage.means):
        ends = np.cumsum([steps for steps, _ in _parts(note, end)])
        cuts |= {int(cut) for cut in ends if begin < cut < end}
    marks = sorted(cuts)
    return list(zip(np.diff(marks).tolist(), marks, strict=False)) or [(0, begin)]


def _parts(note: Note, rounds: int) -> tuple[tuple[int, float], ...]:
    assert note.mechanism is not None
    return note.mechanism.stages(rounds)


def _multiplier(note: Note, t: int) -> float:
    """Of a single release in round t."""
    try:
        return float(_parts(note, t + 1)[-1][1])
    except jax.errors.ConcretizationTypeError:
        raise ValueError(
            f"mechanism: its multiplier is computed in the round ({note.line}), so that nothing can be certified; give "
            "a number, or `fp.dynamic` for one that changes"
        ) from None


def _seen(stage: Stage, sampler: Sampler, unit: str, steps: int, first: int) -> list[Release]:
    """What each view sees of rounds that are alike."""
    sums = [note for note in stage.sums if note.mechanism is not ALREADY_PRIVATE]
    if sums and stage.means and any(_multiplier(n, first) > 0 for n in sums):
        raise ValueError(
            f"round: it protects clients ({sums[0].line}) and their records ({stage.means[0].line}); certify one unit"
        )
    if sums:
        return _of_clients(sums, sampler, unit, steps, first)
    if stage.means:
        return _of_records(stage, sampler, unit, steps, first)
    return [Release(view, unit, math.inf, sampler.accounting, steps) for view in VIEWS]


def _of_clients(
    notes: Sequence[Note], sampler: Sampler, unit: str, steps: int, first: int
) -> list[Release]:
    """Perturbed sums of the messages of one cohort, all together one release.

    The s members of a cohort each add 1 / s of the noise's variance. A server that sees their messages in clear sees
    each with its own share only: at worst 1 / s of it for the largest s. Messages that a codec rounds carry no noise,
    which the server adds to their sum: nothing hides them from it. A client that is drawn with replacement may fill all
    places of a round, and moves the sum by as many clip norms.
    """
    drawn, reason = sampler.accounting, _reason(notes, first)
    kinds = {note.mechanism.noise for note in notes if _multiplier(note, first) > 0}  # type: ignore[union-attr]
    if len({note.local for note in notes}) > 1 or len(kinds) > 1:
        raise ValueError(
            f"round: sums of one cohort differ in their kind of noise, or in who adds it ({notes[0].line}, "
            f"{notes[-1].line}); give all the same"
        )
    noise = kinds.pop() if kinds else "gaussian"
    power = 2 if noise == "gaussian" else 1
    multiplier = _together([(_multiplier(n, first), n.times) for n in notes], power)
    lossy = any(note.codec.lossy for note in notes)
    common = {"noise": noise, "mechanism": _drawable(notes, first)}

    def release(view: str, m: float, in_shares: bool, reason: str, **more: Any) -> Release:
        given: dict[str, Any] = (
            {"sampling": drawn, "in_shares": in_shares, "reason": reason} | common | more
        )
        return Release(view, unit, m, steps=steps, **given)

    if notes[0].local and multiplier > 0:
        shown = isinstance(drawn, Poisson)  # as if the view knew who takes part
        full = isinstance(drawn, FixedSize | Everyone)
        hidden: dict[str, Any] = {}
        if shown:
            hidden = {"sampling": Everyone(drawn.population), "participation": drawn}
        summed = noise == "gaussian" and full and not lossy
        loud = math.sqrt(drawn.most) if summed else 1.0
        return [
            release(
                view,
                multiplier * (loud if view != "server" else 1),
                summed and view != "server",
                "",
                **hidden,
            )
            for view in VIEWS
        ]
    if isinstance(drawn, WithReplacement):
        multiplier /= drawn.most
    if lossy and multiplier > 0:
        bare = (0.0, False, "the server adds the noise, after it has decoded messages")
        by_server = release("third_party", multiplier, False, reason, by_server=True)
        return [by_server, release("server", *bare), release("server_secagg", *bare)]
    share = (multiplier / math.sqrt(drawn.most), False, reason)
    if noise == "laplace" and multiplier > 0:
        share = (0.0, False, "a client's share of Laplace noise is not Laplace")
    whole = (multiplier, True, reason)
    return [
        release("third_party", *whole),
        release("server", *share),
        release("server_secagg", *whole),
    ]


def _together(multipliers: Iterable[tuple[float, int]], power: int) -> float:
    """Of releases of one cohort, each so many times: sensitivities add up in l2 (power 2), or l1."""
    each = [(m, times) for m, times in multipliers if times]
    if any(m == 0 for m, _ in each):
        return 0.0
    if len(each) == 1 and each[0][1] == 1:
        return each[0][0]
    return float(sum(times * m**-power for m, times in each) ** (-1 / power))


def _of_records(stage: Stage, sampler: Sampler, unit: str, steps: int, first: int) -> list[Release]:
    """The K noisy means of each round that a client takes part in, of which every view is taken to see each.

    The noise of others hides nothing of the steps before the last, which are seen through later ones, and what clients
    keep carries it over rounds. Only where a single noisy mean shows in the cohort's sum `alone`, a third party, or a
    server that sees sums, sees no more than that, with the noise of all its members. A whole client is in each of its
    own steps: no sampling of records hides it.
    """
    groups: dict[Any, list[Note]] = {}
    for note in stage.means:
        assert note.records is not None
        kind = note.records.accounting, id(note.mechanism)
        groups.setdefault(kind, []).append(note)
    if len(groups) > 1 and sampler.accounting.rate < 1:
        raise ValueError(
            f"round: private means of two kinds in one round ({stage.means[0].line}, {stage.means[-1].line}); with "
            "sampled clients give one sampler of records and one mechanism"
        )
    found = []
    fixed = isinstance(sampler.accounting, FixedSize | Everyone)
    for (records, _), notes in groups.items():
        used: RecordMechanism = notes[0].mechanism  # type: ignore[assignment]
        whole = unit == "client"
        most = records.most if whole or isinstance(records, WithReplacement) else 1
        own = _multiplier(notes[0], first) / most
        for view in VIEWS:
            shared = (
                stage.alone
                and fixed
                and not whole
                and view != "server"
                and used.noise == "gaussian"
            )
            found.append(
                Release(
                    view,
                    unit,
                    own * math.sqrt(sampler.accounting.most) if shared else own,
                    Everyone(records.population) if whole else records,
                    steps,
                    noise=used.noise,
                    in_shares=shared,
                    repeats=sum(note.times for note in notes),
                    participation=sampler.accounting,
                    reason="" if own > 0 else used.reason,
                    mechanism=_drawable(notes[:1], first),
                )
            )
    return found


def _reason(notes: Sequence[Note], first: int) -> str:
    """Why nothing is hidden, if nothing is."""
    bare = [note.mechanism.reason for note in notes if _multiplier(note, first) == 0]  # type: ignore[union-attr]
    return "; ".join(dict.fromkeys(bare))


def _drawable(notes: Sequence[Note], first: int) -> Mechanism | None:
    """The mechanism for audits, where there is one."""
    used = notes[0].mechanism.in_round(first) if len(notes) == 1 else None  # type: ignore[union-attr]
    return _static(used) if isinstance(used, Mechanism) else None


def _static(used: Mechanism) -> Mechanism:
    """With a clip norm of 1 where it is computed in the round."""
    if used.parts:
        return joint(*map(_static, used.parts))
    traced = any(isinstance(c, jax.core.Tracer) for c in jax.tree.leaves(used.clip_norm))
    return used.at(1.0, used.noise_multiplier) if traced and used.at else used


def looked_at(algorithm: Algorithm, params: Any, federation: Any) -> Looked:
    """Traces the algorithm's round.

    Args:
      params: the model, its shapes, or key -> model.
      federation: what it trains on, or one of the same shapes (`Federation.blank`).

    Raises:
      ValueError: the round releases what it does not bound, or what cannot be counted; a sampler for another number of
        clients or of records.
      LeakError: something private gets past the releases of a round, or into the initial state.
    """
    if hasattr(federation, "empty"):  # streamed
        federation = federation.empty()
    holding = Holding(
        federation.num_clients, federation.capacity, _like(federation), federation.public.shape[-1]
    )
    for _, sampler in algorithm.sampler.stages(2):
        population = sampler.accounting.population
        if population != holding.num_clients:
            raise ValueError(
                f"sampler: made for {population} clients, but the federation has {holding.num_clients}; give both the "
                "same number"
            )
    model = jax.eval_shape(params, jax.random.key(0)) if callable(params) else params
    state = jax.eval_shape(lambda model: algorithm.init(model, federation), model)
    for name in ("params", "round"):
        if not hasattr(state, name):
            raise ValueError(f"init: the state has no field `{name}`")
    found = _traced(algorithm, holding, state)
    look_at_start(algorithm, model, federation)
    for stage in found.stages:
        _check_records(stage, np.asarray(federation.size))
        check_constants(stage.constants, federation)
    return found


def _traced(algorithm: Algorithm, holding: Holding, state: Any) -> Looked:
    stages: list[Stage] = []
    out: Any = None
    held: Any = None
    before: Any = ()
    while held != before:  # what clients keep in the first rounds is there in the later ones
        stages, before = [], held
        for _, sampler in algorithm.sampler.stages(2):
            stage, out, held = look(algorithm, sampler, holding, state, held)
            stages.append(stage)
        if len(stages) == 1:
            break
    return Looked(algorithm, holding, tuple(stages), state, out)


def retraced(looked: Looked) -> tuple[Stage, ...]:
    """The stages, from another trace.

    Raises:
      ValueError: as `looked_at`.
      LeakError: as `looked_at`.
    """
    return _traced(looked.algorithm, looked.holding, looked.before).stages


def _like(federation: Any) -> Any:
    """A client's records, in shapes."""
    held = getattr(federation, "held", None)
    cut = 2 if held is not None else 1
    room = (federation.capacity,)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*room, *leaf.shape[cut:]), leaf.dtype),
        federation.examples if held is None else held,
    )


def _check_records(stage: Stage, sizes: np.ndarray) -> None:
    for note in stage.means:
        assert note.records is not None
        expected = note.records.accounting.population
        if (sizes != expected).any():
            odd = int(np.argmax((sizes != expected).reshape(-1)))
            raise ValueError(
                f"records: drawn among {expected} of each client, but client {odd % sizes.shape[-1]} holds "
                f"{sizes.reshape(-1)[odd]}; give every client {expected}"
            )


def certify(
    algorithm: Algorithm,
    params: Any,
    federation: Any,
    rounds: int,
    delta: float,
    *,
    view: str = "third_party",
    honest: float = 1.0,
) -> Certificate:
    """Proved epsilon of everything that `view` sees of `rounds` rounds of `algorithm`.

    What is seen is read off the algorithm's round, which is traced for these shapes: the certificate is *constructed*.
    Where the algorithm brings `releases`, or a mechanism made by hand, it is *declared*.

    Formal guarantees: see `certify_releases`.

    Args:
        algorithm: what trains.
        params: the model, its shapes, or key -> model.
        federation: what it trains on, or one of the same shapes (`Federation.blank`).
        rounds: number of rounds T, 0 or more.
        delta: probability, in (0, 1).
        view: "third_party" (every global model), "server" (every message, knows the cohort) or
            "server_secagg" (the cohort's sums, knows the cohort).
        honest: fraction of each cohort that adds its share of the noise and keeps it to itself;
            the others drop out or collude.

    Raises:
        ValueError: for rounds, delta, a view or a fraction that is not allowed; as `looked_at`.
        LeakError: something private gets past the releases of a round: what, and in which line.
    """
    looked = looked_at(algorithm, params, federation)
    return looked.certify(rounds, delta, view=view, honest=honest)
