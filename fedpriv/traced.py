"""What a round releases, read off its program; and that nothing else leaves the clients.

The round is traced with a cohort in which one client stands for all. Marks in the traced program say where private data
come from and where a mechanism has perturbed them. So releases are counted as often as they are computed, and labels of
private data are followed (`fedpriv.flow`): one that reaches the state or the metrics past all releases is a leak.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from fedpriv.algorithm import Algorithm
from fedpriv.codecs import UNCODED, Codec
from fedpriv.cohort import Cohort
from fedpriv.dynamic import Dynamic
from fedpriv.flow import MARK, NONE, Labels, Place, follow, mark, programs, where
from fedpriv.mechanisms import ALREADY_PRIVATE, Mechanism, unprotected
from fedpriv.per_example import MedianClipping, RecordMechanism
from fedpriv.privacy.sampling import Everyone, Poisson, WithReplacement
from fedpriv.samplers import Draw, Sampler
from fedpriv.shard import Shard
from fedpriv.types import Key, Metrics, Params, PyTree, State


class LeakError(ValueError):
    """Something private gets past the releases of a round: what, to where, and in which line."""


# Labels are not tuples: those of two kinds would be equal where their numbers are.


@dataclass(frozen=True)
class Private:
    """A label of what is protected.

    Attributes:
      what: it is, in words.
      call: of the cohort to whose client it belongs; -1: to all.
      line: of the user's code that asked for it.
    """

    what: str
    call: int
    line: str


@dataclass(frozen=True)
class Held:
    """A label of what clients keep for themselves, each its own row, by a call in `line`."""

    line: str


@dataclass(frozen=True)
class Noisy:
    """A label of a fixed multiple of `note`'s noisy mean, the same for all clients, plus what does not depend on it."""

    note: int


@dataclass(frozen=True)
class Bent:
    """A label of what depends on `note`'s noisy mean in another way."""

    note: int


FROM_KEY, OF_CLIENT, OF_OWN = "the round's key", "a client's key", "a client's own row"
TAKING_PART = "who takes part"


@dataclass
class Note:
    """What a mark in the program means.

    Attributes:
      kind: where private data come from, or what is released.
      line: of the user's code.
      call: number of the note of the cohort's call.
      label: of what comes from here.
      mechanism, codec, local: of a release, as given to `Cohort.sum`.
      records: of a private mean, what draws its batches.
      like: what is released, in shapes.
      by_records: of a private mean, whether its gradients are known to be of one record each.
      times: how often a round makes this release.
      found: labels of what a sum is made of.
    """

    kind: Literal["source", "seen", "client", "own", "store", "sum", "mean"]
    line: str
    call: int = -1
    label: Any = None
    mechanism: RecordMechanism | None = None
    codec: Codec = UNCODED
    local: bool = False
    records: Sampler | None = None
    like: Any = None
    by_records: bool = True
    times: int = 0
    found: Labels = NONE


class Holding(NamedTuple):
    """What a trace has to know of a federation.

    Attributes:
      num_clients, capacity: as `Federation`.
      like: a client's records, `jax.ShapeDtypeStruct`s [capacity, ...].
      public: number of public examples.
    """

    num_clients: int
    capacity: int
    like: PyTree
    public: int


Notes: TypeAlias = list[Note]


def tree_mark(notes: Notes, note: Note, tree: PyTree) -> PyTree:
    """The tree, its leaves marked."""
    leaves, structure = jax.tree.flatten(tree)
    notes.append(note)
    return jax.tree.unflatten(structure, mark(len(notes) - 1, *leaves)) if leaves else tree


class Watched(Cohort):
    """The cohort of a round that is looked at, after `round` (i32[]) others."""

    def __init__(self, round: jax.Array, holding: Holding, sampler: Sampler, notes: Notes):
        super().__init__(round, holding, Draw(jnp.zeros(1, jnp.int32), jnp.ones(1, bool)), sampler)
        self._notes = notes
        self._call = -1

    @property
    def size(self) -> jax.Array:
        """i32[], marked where it says who takes part."""
        if not isinstance(self._sampler.accounting, Poisson):
            return jnp.int32(self._sampler.slots)
        line = user_line()
        note = Note("source", line, label=Private(TAKING_PART, -1, line))
        return tree_mark(self._notes, note, jnp.int32(0))

    @property
    def public(self) -> Shard:
        """Stand-ins for the public examples."""
        count, like = self._federation.public, self._federation.like
        examples = jax.tree.map(lambda s: jnp.zeros((count, *s.shape[1:]), s.dtype), like)
        return Shard(examples, jnp.int32(count), self.round)

    def _over(self, fn: Callable[..., tuple], key: Key, own: PyTree) -> tuple[PyTree, PyTree]:
        notes, line = self._notes, user_line()
        call = self._call = len(notes)
        source = Note("source", line, label=Private("a client's data", call, line))
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), self._federation.like)
        examples, size = tree_mark(notes, source, (zeros, jnp.int32(1)))
        key = tree_mark(notes, Note("client", line), jax.random.fold_in(key, 0))
        given = tree_mark(notes, Note("own", line, call, source.label), own)
        rows = jax.tree.map(lambda leaf: leaf[0], given)
        shard = watched_shard(notes, call)(examples, size, self.round)
        total, kept = fn(key, shard, *((rows,) if jax.tree.leaves(own) else ()))
        return total, jax.tree.map(lambda leaf: leaf[None], kept)

    def _shown(self, total: PyTree, key: Key, mechanism: Any, codec: Codec, local: bool) -> PyTree:
        note = Note(
            "sum", user_line(), self._call, None, mechanism, codec, local, like=_shapes(total)
        )
        return tree_mark(self._notes, note, (total, key))[0]

    def _metrics(self, wire: Any, seen: Any) -> Metrics:
        line = user_line()
        label = Private(TAKING_PART, -1, line)
        marked = tree_mark(self._notes, Note("seen", line, label=label), dict(seen))
        return super()._metrics(wire, marked)

    def _agreed(
        self, protocol: Callable[..., tuple], key: Key, messages: PyTree, reason: str
    ) -> PyTree:
        slots = self._sampler.slots
        everyones = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[0], (slots, *leaf.shape[1:])), messages
        )
        return self._shown(protocol(key, everyones)[0], key, unprotected(reason), UNCODED, False)

    def _stored(self, own: PyTree, new: PyTree) -> PyTree:
        stored = jax.tree.map(lambda leaf, rows: jnp.broadcast_to(rows[0], leaf.shape), own, new)
        note = Note("store", user_line(), self._call)
        return tree_mark(self._notes, note, (own, stored))[1]  # the rows of all others stay


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def watched_shard(notes: Notes, call: int) -> type[Shard]:
    """The shard of the client of a cohort's call."""

    class WatchedShard(Shard):
        def private_mean(
            self,
            key: Key,
            gradients: Any,
            params: Params,
            *,
            records: Sampler,
            mechanism: RecordMechanism,
        ) -> Params:
            line = user_line()
            batch = Note("source", line, label=Private("records of a batch", len(notes), line))
            own = tree_mark(notes, batch, jax.tree.map(jnp.zeros_like, self.examples))
            mean = Shard(own, jnp.int32(0), self.round).private_mean(
                key, gradients, params, records=records, mechanism=mechanism
            )
            like = _shapes(params)
            note = Note("mean", line, call, batch.label, mechanism, records=records, like=like)
            note.by_records = getattr(gradients, "by_records", False)
            bounds = jax.tree.leaves(getattr(mechanism.in_round(self.round), "clip_norm", ()))
            bound = jnp.stack([jnp.float32(c) for c in bounds] or [jnp.float32(0)])
            return tree_mark(notes, note, (mean, bound, self._of_call(key)))[0]

    return WatchedShard


class Stage(NamedTuple):
    """What a round with one sampler releases.

    Attributes:
      sums, means: the cohort's sums, and the private means of a client's records.
      alone: whether a noisy mean shows nowhere but in the cohort's sum, which is a fixed multiple of all of them.
      constants: arrays that the round closes over.
      program: the traced round, (key, state, rounds done) -> (state, metrics), its leaves.
    """

    sums: tuple[Note, ...]
    means: tuple[Note, ...]
    alone: bool
    constants: tuple[Any, ...]
    program: ClosedJaxpr


def look(
    algorithm: Algorithm, sampler: Sampler, holding: Holding, state: State, held: Any = None
) -> tuple[Stage, Any, Any]:
    """(the releases of `algorithm.round` with cohorts of `sampler`, shapes of (state, metrics)).

    Args:
      state: shapes.

    Raises:
      LeakError: something private reaches the state, or the metrics outside `diagnostics`, in another way.
      ValueError: an error in the round, which is said with its line; calls of the host.
    """
    notes: Notes = []

    def run(key: Key, state: State, t: jax.Array) -> tuple[State, Metrics]:
        given = algorithm.round(key, state, Watched(t, holding, sampler, notes))
        # A state of two fields would unpack as well, so that the metrics are looked at.
        if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict)):
            raise ValueError("round: it does not give back (state, metrics) with a dict of metrics")
        if _structure(given[0]) != _structure(state):
            raise ValueError("round: the state changes its structure; give back what `init` gave")
        return given

    key = jax.eval_shape(jax.random.key, 0)
    try:
        traced, out = jax.make_jaxpr(run, return_shape=True)(key, state, jnp.int32(0))
    except Exception as error:
        if jax.config.jax_traceback_filtering == "off":  # type: ignore[attr-defined]
            raise
        raise ValueError(_in_one_line(error)) from None
    _check_host(traced.jaxpr)
    rules = _Rules(notes, algorithm.unit, _secret(notes, sampler, algorithm.unit))
    leaves = jax.tree_util.tree_leaves_with_path(out)
    states = len(jax.tree.leaves(state))
    held, before = held or [NONE] * states, None
    while held != before:  # what clients keep comes back in the next round
        for note in notes:
            note.times = 0
        given = [frozenset({FROM_KEY}), *held, NONE]
        found = follow(traced.jaxpr, given, rules.marked, rules.step)
        held, before = [h | _of(Held, x) for h, x in zip(held, found, strict=False)], held
    for (path, _), labels, var in zip(leaves, found, traced.jaxpr.outvars, strict=True):
        name = _name(path)
        if name.startswith("metrics") and "diagnostics" in name:
            continue
        theirs = path[0].idx == 0 and getattr(path[1], "name", "") not in ("params", "round")
        leaked = rules.private(labels) | (NONE if theirs else _of(Held, labels))
        if leaked:
            made = [where(eqn) for eqn in traced.jaxpr.eqns if var in eqn.outvars]
            raise LeakError(_leak(name, leaked, made))
    sums = tuple(n for n in notes if n.kind == "sum" and n.times)
    means = tuple(n for n in notes if n.kind == "mean" and n.times)
    return Stage(sums, means, rules.alone(sums, means), tuple(constants(traced)), traced), out, held


def _in_one_line(error: Exception) -> str:
    """What went wrong in a round, and in which line of it."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_JAX)
    ]
    if isinstance(error, ValueError) and frames[-1].filename.startswith(_HERE):
        return str(error)
    if isinstance(error, NotImplementedError) and MARK.name in str(error):
        return (
            "round: it calls the cohort, or a private mean, under jax.vmap, where releases cannot be counted; call "
            "them in a loop"
        )
    users = [f for f in frames if not f.filename.startswith(_HERE)] or frames
    place = f"{os.path.basename(users[-1].filename)}:{users[-1].lineno}"
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"round: {type(error).__name__}: {text} ({place}); set JAX_TRACEBACK_FILTERING=off to see the whole trace"


def _check_host(jaxpr: Jaxpr) -> None:
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("pure_callback", "io_callback"):
            raise ValueError(
                f"round: it calls the host ({where(eqn)}), where nothing can be followed; compute it in JAX"
            )
        if eqn.primitive.name in ("new_ref", "empty_ref", "swap", "addupdate", "run_state"):
            raise ValueError(
                f"round: it writes to a mutable array ({where(eqn)}), which cannot be followed; return new arrays"
            )
        for inner in programs(eqn):
            _check_host(inner)


_NOT_CONCRETE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def look_at_start(algorithm: Algorithm, model: Params, federation: Any) -> None:
    """Raises LeakError: the initial state depends on records or on the clients' sizes."""
    private = {"examples": federation.examples, "size": federation.size}
    if not hasattr(federation, "repartition"):  # streamed: only public examples are there
        del private["examples"]
    for traced in (private, {k: v for k, v in private.items() if k != "size"}):

        def init(model: Params, traced: dict[str, PyTree]) -> State:
            return algorithm.init(model, federation.replace(**traced))

        try:
            program, out = jax.make_jaxpr(init, return_shape=True)(model, traced)
            break
        except _NOT_CONCRETE:  # sizes may be looked at on the host
            pass
    else:
        raise LeakError("init: it reads records on the host; the state must begin without them")
    check_constants(tuple(constants(program)), federation)
    rules = _Rules([], algorithm.unit, True)
    models = len(jax.tree.leaves(model))
    label = frozenset({Private("the clients' records or sizes", -1, "init")})
    given = [NONE if i < models else label for i in range(len(program.jaxpr.invars))]
    found = follow(program.jaxpr, given, rules.marked, rules.step)
    for (path, _), labels in zip(jax.tree_util.tree_leaves_with_path(out), found, strict=True):
        if labels:
            name = "state" + jax.tree_util.keystr(path)
            raise LeakError(
                f"init: {name} depends on the clients' records or sizes; begin without them"
            )


def constants(program: Any) -> list[Any]:
    """The arrays that a traced program, or one that it calls, closes over."""
    found = list(program.consts)
    for eqn in program.jaxpr.eqns:
        for value in jax.tree.leaves(list(eqn.params.values())):
            if isinstance(value, ClosedJaxpr):
                found += constants(value)
    return found


def check_constants(held: tuple[Any, ...], federation: Any) -> None:
    """Raises LeakError: the round closes over a federation's arrays, past the cohort."""
    theirs = {"examples": federation.examples, "size": federation.size}
    for path, leaf in jax.tree_util.tree_leaves_with_path(theirs):
        if any(_same(constant, leaf) for constant in held):
            name = "federation" + jax.tree_util.keystr(path)
            raise LeakError(
                f"round: it closes over {name}; reach clients through the cohort, and the server's examples by "
                "`cohort.public`"
            )


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    same = np.shape(one) == np.shape(other) and np.size(other) > 1
    return same and bool(np.array_equal(one, other))


def _secret(notes: Notes, sampler: Sampler, unit: str) -> bool:
    """Whether the certificate counts on nobody's knowing who takes part."""
    drawn = sampler.accounting
    if unit == "record" or isinstance(drawn, Everyone | WithReplacement):
        return False
    sums = [n for n in notes if n.kind == "sum" and noisy(n)]
    return any(not (n.local and isinstance(drawn, Poisson)) for n in sums)


def _structure(tree: PyTree) -> Any:
    return jax.tree.structure(tree)


def noisy(note: Note) -> bool:
    """Whether a release adds noise in any round."""
    used: Any = note.mechanism
    known = type(used) in (Mechanism, Dynamic, MedianClipping)
    return not known or any(m > 0 for _, m in used.stages(1))


def _name(path: Any) -> str:
    root = ("state", "metrics")[path[0].idx]
    return root + jax.tree_util.keystr(path[1:])


def _of_all(label: Any) -> Any:
    return replace(label, call=-1) if isinstance(label, Private) else label


def _of(kind: type, labels: Labels) -> Labels:
    return frozenset(label for label in labels if isinstance(label, kind))


def _leak(name: str, leaked: Labels, made: list[str]) -> str:
    first = sorted(leaked, key=str)[0]
    what = getattr(first, "what", "what clients keep for themselves")
    at = f" ({made[0]})" if made else ""
    return (
        f"round: {name}{at} depends on {what} ({first.line}), past every release; send it through cohort.sum with a "
        "mechanism, or put it under metrics['diagnostics']"
    )


# Of these, an output that is linear in one argument is so for any values of the others.
_LINEAR = frozenset(
    (
        *("add", "sub", "neg", "add_any", "reshape", "broadcast_in_dim"),
        *("transpose", "squeeze", "expand_dims", "slice", "concatenate", "copy", "copy_p"),
        *("reduce_sum", "cumsum", "rev", "pad", "scan"),
    )
)
_BY_ENTRIES = frozenset(
    ["add", "sub", "mul", "div", "neg", "max", "min", "exp", "log", "sign", "abs", "sqrt", "tanh"]
)
_BILINEAR = frozenset(["mul", "dot_general", "div"])
# Inputs from here to there say which, or where.
_CHOICES = {
    "select_n": (0, 1),
    "cond": (0, 1),
    "while": (0, 1),
    "gather": (1, 2),
    "dynamic_slice": (1, None),
    "dynamic_update_slice": (2, None),
}
_AS_THEY_ARE = frozenset(["copy", "copy_p", "select_n", "convert_element_type", "cond", "while"])


class _Rules:
    """How labels pass through marks and equations."""

    def __init__(self, notes: Notes, unit: str, secret: bool):
        self._notes, self._unit, self._secret = notes, unit, secret

    def private(self, labels: Labels) -> Labels:
        """Those of what is protected."""
        found = _of(Private, labels)
        return found if self._secret else frozenset(x for x in found if x.what != TAKING_PART)

    def alone(self, sums: tuple[Note, ...], means: tuple[Note, ...]) -> bool:
        """See `Stage`."""
        if len(sums) != 1 or len(means) != 1 or sums[0].times != 1 or means[0].times != 1:
            return False
        i = next(i for i, note in enumerate(self._notes) if note is means[0])
        stored = [n for n in self._notes if n.kind == "store" and {Noisy(i), Bent(i)} & n.found]
        return not stored and Noisy(i) in sums[0].found and Bent(i) not in sums[0].found

    def step(self, eqn: JaxprEqn, labels: Any) -> Labels:
        """An equation whose outputs depend on all its inputs."""
        every = NONE.union(*labels)
        name = eqn.primitive.name
        by_rows = name in _AS_THEY_ARE or (name in _BY_ENTRIES and not _of(Private, every))
        if (held := _of(Held, every)) and not by_rows:
            mixed = {Private("clients' own state", -1, h.line) for h in held}
            every = (every - held) | mixed
        noisy = _of(Noisy, every)
        linear = _linear(eqn, labels)
        return every if linear else (every - noisy) | {Bent(n.note) for n in noisy}

    def marked(self, eqn: JaxprEqn, labels: Any, place: Place) -> list[Labels]:
        """A mark, by the note that it stands for."""
        note = self._notes[eqn.params["note"]]
        every = NONE.union(*labels)
        if note.kind == "source":
            return [x | {note.label} for x in labels]
        if note.kind == "seen":  # of all clients together, whoever takes part
            return [frozenset(map(_of_all, x)) | {note.label} for x in labels]
        if note.kind == "client":
            return [x | {OF_CLIENT} for x in labels]
        if note.kind in ("own", "store"):
            return self._own(note, labels, every)
        if note.kind == "sum":
            return self._sum(note, labels, place)
        return self._mean(note, eqn.params["note"], labels, place)

    def _own(self, note: Note, labels: Any, every: Labels) -> list[Labels]:
        allowed = note.call
        for label in sorted(self.private(every), key=str):
            if note.kind == "own" or label.call != allowed:
                raise LeakError(
                    f"round: what a client keeps for itself ({note.line}) depends on {label.what} ({label.line}); give "
                    "each client its own row alone"
                )
        note.found = every
        if note.kind == "own":
            return [
                (x - _of(Held, x)) | {OF_OWN} | ({note.label} if _of(Held, x) else NONE)
                for x in labels
            ]
        # Whose row was replaced says who took part.
        own = self._secret or self.private(every) or _of(Held, every)
        return [frozenset({Held(note.line)}) if own else NONE] * len(labels)

    def _sum(self, note: Note, labels: Any, place: Place) -> list[Labels]:
        *message, key = labels
        note.found = NONE.union(*message)
        found = self.private(note.found)
        if note.mechanism is ALREADY_PRIVATE:
            if leaked := found | _of(Held, note.found):
                raise LeakError(_leak("a client's message", leaked, [note.line]))
            taking_part = Private(TAKING_PART, -1, note.line)
            kept = {taking_part} if self._secret else set()
            self._count(note, place)
            return [frozenset(kept)] * len(labels)
        if noisy(note):
            if self._unit == "record":
                raise ValueError(
                    f"unit: 'record', but cohort.sum ({note.line}) protects whole clients; leave out the unit, or give "
                    "ALREADY_PRIVATE"
                )
            self._released(note, found | _of(Held, note.found), {note.call}, key, place)
        self._count(note, place)
        return [NONE] * len(labels)

    def _mean(self, note: Note, number: int, labels: Any, place: Place) -> list[Labels]:
        *mean, bound, key = labels
        allowed = {note.label.call} | ({note.call} if self._unit == "client" else set())
        if noisy(note):
            found = NONE.union(*mean)
            self._released(note, self.private(found) | _of(Held, found), allowed, key, place)
            for label in sorted(self.private(bound), key=str):
                raise LeakError(
                    f"round: the clip norm in {note.line} depends on {label.what} ({label.line}); release that first"
                )
            if OF_CLIENT not in key:
                raise LeakError(
                    f"round: the noise of private_mean ({note.line}) is the same for all clients; take its key from "
                    "the client's"
                )
        self._count(note, place)
        kind = Noisy if _same_for_all([bound]) else Bent
        return [frozenset({kind(number)})] * len(labels)

    def _released(
        self, note: Note, found: Labels, allowed: set[int], key: Labels, place: Place
    ) -> None:
        """Raises LeakError: the release depends on what it does not bound, or its noise is not fresh."""
        if place.times is None:
            self._uncounted(note)
        for label in sorted(found, key=str):
            if getattr(label, "call", -1) not in allowed:
                what = getattr(label, "what", "what clients keep for themselves")
                raise LeakError(
                    f"round: the release in {note.line} depends on {what} ({label.line}) that it does not bound; "
                    "release that first"
                )
        if self.private(place.condition):
            raise LeakError(f"round: whether {note.line} releases depends on private data")
        if FROM_KEY not in key:
            raise LeakError(
                f"round: the noise in {note.line} is not drawn from the round's key, so that rounds share it; derive "
                "its key from `key`"
            )
        if any(loop not in key for loop in place.loops):
            raise LeakError(
                f"round: the noise in {note.line} is the same in every turn of a loop; fold the turn into its key"
            )

    def _count(self, note: Note, place: Place) -> None:
        if place.times is None:
            self._uncounted(note)
        elif place.counted:
            if note.times and noisy(note):
                raise LeakError(
                    f"round: {note.line} is traced once and computed twice, which may repeat its noise; write the "
                    "jitted function, or the body of the loop, twice, or leave out jax.jit"
                )
            note.times += place.times

    def _uncounted(self, note: Note) -> None:
        raise LeakError(
            f"round: it cannot be counted how often {note.line} releases, in a loop of unknown length; use lax.scan, "
            "or a fori_loop of fixed bounds"
        )


def _linear(eqn: JaxprEqn, labels: Any) -> bool:
    """Whether the output is the same linear map of what is noisy, for all clients."""
    name = eqn.primitive.name
    if name == "convert_element_type":
        was, new = jnp.result_type(eqn.invars[0].aval), eqn.params["new_dtype"]
        return jnp.promote_types(was, new) == new and jnp.issubdtype(new, jnp.floating)
    if name in _CHOICES:
        return _same_for_all(labels[slice(*_CHOICES[name])])
    if name not in _BILINEAR:
        return name in _LINEAR
    noisy = [bool(_of(Noisy, x) | _of(Bent, x)) for x in labels]
    if sum(noisy) != 1 or (name == "div" and noisy[1]):
        return not any(noisy)
    return _same_for_all([x for x, n in zip(labels, noisy, strict=True) if not n])


def _same_for_all(labels: Any) -> bool:
    every = NONE.union(*labels)
    return not (
        _of(Noisy, every) | _of(Bent, every) | _of(Private, every) | ({OF_CLIENT, OF_OWN} & every)
    )


_HERE = os.path.dirname(__file__)
_ENGINE = {os.path.join(_HERE, f"{name}.py") for name in ("cohort", "shard", "traced", "rounds")}
_JAX = os.path.dirname(jax.__file__)


def user_line() -> str:
    """File and line of what called the cohort."""
    frame: Any = sys._getframe(1)
    while frame and (
        frame.f_code.co_filename in _ENGINE or frame.f_code.co_filename.startswith(_JAX)
    ):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else "?"
