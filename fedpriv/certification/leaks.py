"""How labels of private data pass through marks and equations, and when that is a leak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax.extend.core import JaxprEqn

from fedpriv.certification import keys
from fedpriv.certification.information_flow import NONE, Labels, Place
from fedpriv.certification.key_paths import may_reveal
from fedpriv.certification.privacy_labels import (
    OF_CLIENT,
    OF_OWN,
    TAKING_PART,
    Bent,
    Held,
    LeakError,
    Noisy,
    Note,
    Notes,
    Private,
    noisy,
    of,
)
from fedpriv.core.generators import THREEFRY, is_known
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE

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


class Rules:
    """How labels pass through marks and equations."""

    def __init__(self, notes: Notes, unit: str, secret: bool):
        self._notes, self._unit, self._secret = notes, unit, secret

    def private(self, labels: Labels) -> Labels:
        """Those of what is protected."""
        found = of(Private, labels)
        return found if self._secret else frozenset(x for x in found if x.what != TAKING_PART)

    def alone(self, sums: tuple[Note, ...], means: tuple[Note, ...]) -> bool:
        """See `Stage`."""
        if len(sums) != 1 or len(means) != 1 or sums[0].times != 1 or means[0].times != 1:
            return False
        i = next(i for i, note in enumerate(self._notes) if note is means[0])
        stored = [n for n in self._notes if n.kind == "store" and {Noisy(i), Bent(i)} & n.found]
        return not stored and Noisy(i) in sums[0].found and Bent(i) not in sums[0].found

    def keep_keys(self, name: str, labels: Labels) -> None:
        """Raises LeakError: what is called `name` is a key, or has words of one."""
        if of(keys.KeyLabel, labels):
            raise LeakError(
                f"round: {name} is a PRNG key, or made of words of one, so that noise can be computed from it; leave "
                "it out, and take random numbers from every round's own key"
            )

    def keep_random(self, name: str, labels: Labels, *, reserved: bool) -> None:
        """Raises LeakError: what is called `name` has random numbers that tell of some noise.

        Args:
          reserved: see `may_reveal`.
        """
        noises = [
            (n, k) for n in self._notes for k in of(keys.KeyLabel, n.keys) if k.path is not None
        ]
        for drawn in sorted(of(keys.DrawnLabel, labels), key=str):
            for note, key in noises:
                if may_reveal(drawn.path, key.path, reserved=reserved):
                    raise LeakError(
                        f"round: {name} has random numbers ({drawn.line}) drawn from the key that the noise in "
                        f"{note.line} descends from, so that they tell of it; draw them from another part of "
                        "jax.random.split(key) than the noise"
                    )

    def step(self, eqn: JaxprEqn, labels: Any) -> Labels:
        """An equation whose outputs depend on all its inputs."""
        every = keys.through(eqn, labels)
        name = eqn.primitive.name
        by_rows = name in _AS_THEY_ARE or (name in _BY_ENTRIES and not of(Private, every))
        if (held := of(Held, every)) and not by_rows:
            mixed = {Private("clients' own state", -1, h.line) for h in held}
            every = (every - held) | mixed
        noisy = of(Noisy, every)
        linear = _linear(eqn, labels)
        return every if linear else (every - noisy) | {Bent(n.note) for n in noisy}

    constant, widened = staticmethod(keys.of_constant), staticmethod(keys.widened)
    leaving, each_turn = staticmethod(keys.with_line), staticmethod(keys.each_turn)
    after_loop = staticmethod(keys.after_loop)

    def marked(self, eqn: JaxprEqn, labels: Any, place: Place) -> list[Labels]:
        """A mark, by the note that it stands for.

        Raises:
          LeakError: a release depends on what it does not bound, its noise is not fresh, or it cannot be counted.
          ValueError: it protects another unit than the algorithm says.
        """
        note = self._notes[eqn.params["note"]]
        every = NONE.union(*labels)
        if note.kind == "source":
            return [x | {note.label} for x in labels]
        if note.kind == "number":  # which client it is may be known where its records are protected
            return [x | {note.label if self._unit == "client" else OF_CLIENT} for x in labels]
        if note.kind == "seen":  # of all clients together, whoever takes part
            return [frozenset(map(_of_all, x)) | {note.label} for x in labels]
        if note.kind == "client":
            return [keys.as_every_client(x) | {OF_CLIENT} for x in labels]
        if note.kind == "changed":
            if self.private(every):
                raise LeakError(
                    f"round: records were changed before private_mean ({note.line}) draws among them, so that one may "
                    "depend on others; change each in the loss"
                )
            return [*labels]
        if note.kind == "noise":
            note.keys = every if noisy(note) else NONE
            return [keys.without_keys(x) for x in labels]
        if note.kind in ("own", "store"):
            return self._own(note, labels, every)
        if note.kind == "sum":
            _check_noise(note, labels[-1])
            return self._sum(note, labels, place)
        _check_noise(note, labels[-1])
        return self._mean(note, eqn.params["note"], labels, place)

    def _own(self, note: Note, labels: Any, every: Labels) -> list[Labels]:
        allowed = note.call
        for label in sorted(self.private(every), key=str):
            if note.kind == "own" or label.call != allowed:
                raise LeakError(
                    f"round: what a client keeps for itself ({note.line}) depends on {label.what} ({label.line}); give "
                    "each client its own row alone"
                )
        self.keep_keys(f"what a client keeps for itself ({note.line})", every)
        note.found = every
        if note.kind == "own":
            return [
                (x - of(Held, x)) | {OF_OWN} | ({note.label} if of(Held, x) else NONE)
                for x in labels
            ]
        # Whose row was replaced says who took part.
        own = self._secret or self.private(every) or of(Held, every)
        return [frozenset({Held(note.line)}) if own else NONE] * len(labels)

    def _sum(self, note: Note, labels: Any, place: Place) -> list[Labels]:
        *message, key = labels
        note.found = NONE.union(*message)
        self.keep_keys(f"a client's message ({note.line})", note.found)
        found = self.private(note.found)
        if note.mechanism is ALREADY_PRIVATE:
            if leaked := found | of(Held, note.found):
                raise LeakError(leak(f"a client's message ({note.line})", leaked))
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
            self._released(note, found | of(Held, note.found), {note.call}, key, place)
        self._count(note, place)
        return [NONE] * len(labels)

    def _mean(self, note: Note, number: int, labels: Any, place: Place) -> list[Labels]:
        *mean, bound, key = labels
        note.keys, note.found = key if noisy(note) else NONE, NONE.union(*mean)
        allowed = {note.label.call} | ({note.call} if self._unit == "client" else set())
        if noisy(note):
            found = NONE.union(*mean)
            self._released(note, self.private(found) | of(Held, found), allowed, key, place)
            for label in sorted(self.private(bound), key=str):
                raise LeakError(
                    f"round: the clip norm in {note.line} depends on {label.what} ({label.line}); release that first"
                )
            if not keys.varies(key, keys.CLIENTS):
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
        if self.private(key):
            raise LeakError(
                f"round: the key of the noise in {note.line} depends on private data; derive it from `key` by what is "
                "public"
            )
        if fault := keys.fault_of(key):
            raise LeakError(
                f"round: the noise in {note.line} is {fault}; derive its key from `key` by split and fold_in alone"
            )
        if not all(keys.varies(key, loop) for loop in place.loops):
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


def _check_noise(note: Note, key: Labels) -> None:
    """Raises ValueError: the noise's key is of a generator that can give several clients, or steps, the same noise."""
    by_client = note.local or OF_CLIENT in key
    if noisy(note) and (not is_known(note.generator) or (note.generator == "rbg" and by_client)):
        raise ValueError(
            f"round: the noise in {note.line} is drawn by {note.generator!r}, which can give different clients the "
            f"same noise; make keys of {THREEFRY}, JAX's default"
        )


def _linear(eqn: JaxprEqn, labels: Any) -> bool:
    """Whether the output is the same linear map of what is noisy, for all clients."""
    name = eqn.primitive.name
    if name == "convert_element_type":
        was, new = jnp.result_type(eqn.invars[0].aval), eqn.params["new_dtype"]
        return jnp.issubdtype(new, jnp.floating) and _holds(new, was)
    if name in _CHOICES:
        return _same_for_all(labels[slice(*_CHOICES[name])])
    if name not in _BILINEAR:
        return name in _LINEAR
    noisy = [bool(of(Noisy, x) | of(Bent, x)) for x in labels]
    if sum(noisy) != 1 or (name == "div" and noisy[1]):
        return not any(noisy)
    return _same_for_all([x for x, n in zip(labels, noisy, strict=True) if not n])


def _holds(new: Any, was: Any) -> bool:
    """Whether JAX counts a type as holding all numbers of another; of small ones it does not say."""
    try:
        return bool(jnp.promote_types(was, new) == new)
    except ValueError:
        return False


def _same_for_all(labels: Any) -> bool:
    every = NONE.union(*labels)
    return not (
        of(Noisy, every) | of(Bent, every) | of(Private, every) | ({OF_CLIENT, OF_OWN} & every)
    )


def _of_all(label: Any) -> Any:
    return replace(label, call=-1) if isinstance(label, Private) else label


def leak(name: str, leaked: Labels) -> str:
    """What an error says of labels that reach `name`."""
    first = sorted(leaked, key=str)[0]
    what = getattr(first, "what", "what clients keep for themselves")
    return (
        f"round: {name} depends on {what} ({first.line}), past every release; send it through cohort.sum with a "
        "mechanism, or put it under metrics['diagnostics']"
    )
