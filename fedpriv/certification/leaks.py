"""How labels of private data pass through marks and equations, and when that is a leak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from fedpriv.certification import key_labels
from fedpriv.certification.information_flow import NONE, Labels, Place
from fedpriv.certification.key_paths import may_reveal
from fedpriv.certification.marks import (
    ChangedRecords,
    ClientKey,
    ClientNumber,
    Diagnostics,
    Marks,
    Mean,
    NoiseKey,
    OwnState,
    Source,
    Stored,
    Sum,
    is_noisy,
)
from fedpriv.certification.privacy_labels import (
    OF_CLIENT,
    OF_OWN,
    TAKING_PART,
    ClientState,
    LeakError,
    LinearUse,
    NonlinearUse,
    Private,
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

    def __init__(self, marks: Marks, unit: str, secret: bool):
        self._marks, self._unit, self._secret = marks, unit, secret

    def private(self, labels: Labels) -> Labels:
        """Those of what is protected."""
        every = of(Private, labels)
        return every if self._secret else frozenset(x for x in every if x.what != TAKING_PART)

    def alone(self, sums: tuple[Sum, ...], means: tuple[Mean, ...], left: Labels) -> bool:
        """See `Stage`.

        Args:
          left: labels of what leaves the round, but for its diagnostics.
        """
        if len(sums) != 1 or len(means) != 1 or sums[0].times != 1 or means[0].times != 1:
            return False
        linear, nonlinear = LinearUse(means[0].number), NonlinearUse(means[0].number)
        kept = NONE.union(*(mark.labels for mark in self._marks if isinstance(mark, Stored)))
        past = kept | left
        once = nonlinear not in sums[0].labels and linear in sums[0].labels
        return once and not {linear, nonlinear} & past

    def keep_keys(self, name: str, labels: Labels) -> None:
        """Raises LeakError: what is called `name` is a key, or has words of one."""
        if of(key_labels.KeyLabel, labels):
            raise LeakError(
                f"round: {name} is a PRNG key, or made from one, so noise can be computed from it; leave it out, and "
                "take random numbers from each round's own key"
            )

    def keep_random(self, name: str, labels: Labels, *, reserved: bool) -> None:
        """Raises LeakError: what is called `name` has random numbers that tell of some noise.

        Args:
          reserved: see `may_reveal`.
        """
        noises = [mark for mark in self._marks if isinstance(mark, NoiseKey | Mean)]
        roots = [(noise, key) for noise in noises for key in of(key_labels.KeyLabel, noise.keys)]
        for drawn in sorted(of(key_labels.DrawnLabel, labels), key=str):
            for noise, key in roots:
                if key.path is not None and may_reveal(drawn.path, key.path, reserved=reserved):
                    raise LeakError(
                        f"round: {name} has random numbers ({drawn.line}) drawn from a key from which the noise in "
                        f"{noise.line} descends, so they reveal it; draw them from another part of "
                        "jax.random.split(key)"
                    )

    def step(self, eqn: JaxprEqn, labels: Any) -> Labels:
        """An equation whose outputs depend on all its inputs."""
        every = key_labels.through(eqn, labels)
        name = eqn.primitive.name
        by_rows = name in _AS_THEY_ARE or (name in _BY_ENTRIES and not of(Private, every))
        if (kept := of(ClientState, every)) and not by_rows:
            mixed = {Private("clients' own state", -1, state.line) for state in kept}
            every = (every - kept) | mixed
        uses = of(LinearUse, every)
        if not uses or _linear(eqn, labels):
            return every
        return (every - uses) | {NonlinearUse(use.mean) for use in uses}

    constant, widened = staticmethod(key_labels.of_constant), staticmethod(key_labels.widened)
    leaving, each_turn = staticmethod(key_labels.with_line), staticmethod(key_labels.each_turn)
    after_loop = staticmethod(key_labels.after_loop)

    def marked(self, eqn: JaxprEqn, labels: Any, place: Place) -> list[Labels]:
        """A mark, by what it means.

        Raises:
          LeakError: a release depends on what it does not bound, its noise is not fresh, or it cannot be counted.
          ValueError: it protects another unit than the algorithm says.
        """
        every = NONE.union(*labels)
        mark = self._marks[eqn.params["number"]]
        match mark:
            case Source(label=label):
                return [x | {label} for x in labels]
            case ClientNumber(label=label):  # may be known where the client's records are protected
                return [x | {label if self._unit == "client" else OF_CLIENT} for x in labels]
            case Diagnostics(label=label):
                return [frozenset(map(_of_all, x)) | {label} for x in labels]
            case ClientKey():
                return [key_labels.as_every_client(x) | {OF_CLIENT} for x in labels]
            case ChangedRecords(line=line):
                if self.private(every):
                    raise LeakError(
                        f"round: records were changed before private_mean ({line}) draws among them, so one may "
                        "depend on others; change each record in the loss"
                    )
                return [*labels]
            case NoiseKey() as noise:
                noise.keys = every if is_noisy(noise) else NONE
                return [key_labels.without_keys(x) for x in labels]
            case OwnState(line=line, label=label):
                self._keep_apart(line, every, None)
                return [_row(x, label) for x in labels]
            case Stored() as stored:
                return [self._stored(stored, every)] * len(labels)
            case Sum() as release:
                return [self._sum(release, labels, place)] * len(labels)
        assert isinstance(mark, Mean)
        return [self._mean(mark, labels, place)] * len(labels)

    def _keep_apart(self, line: str, labels: Labels, call: int | None) -> None:
        """Raises LeakError: what a client keeps depends on private data of others than the client of this call."""
        for label in sorted(self.private(labels), key=str):
            if call is None or label.call != call:
                raise LeakError(
                    f"round: what a client keeps for itself ({line}) depends on {label.what} ({label.line}); give "
                    "each client its own row alone"
                )
        self.keep_keys(f"what a client keeps for itself ({line})", labels)

    def _stored(self, stored: Stored, labels: Labels) -> Labels:
        self._keep_apart(stored.line, labels, stored.call)
        stored.labels = labels
        # Whose row was replaced says who took part.
        own = self._secret or self.private(labels) or of(ClientState, labels)
        return frozenset({ClientState(stored.line)}) if own else NONE

    def _sum(self, release: Sum, labels: Any, place: Place) -> Labels:
        *messages, key = labels
        _check_generator(release, key, by_client=release.local)
        release.labels = NONE.union(*messages)
        self.keep_keys(f"a client's message ({release.line})", release.labels)
        private, kept = self.private(release.labels), of(ClientState, release.labels)
        if release.mechanism is ALREADY_PRIVATE:
            if leaked := private | kept:
                raise LeakError(leak(f"a client's message ({release.line})", leaked))
            self._count(release, place)
            return frozenset({Private(TAKING_PART, -1, release.line)}) if self._secret else NONE
        if is_noisy(release):
            if self._unit == "record":
                raise ValueError(
                    f"unit: 'record', but cohort.sum ({release.line}) protects whole clients; leave out unit=, or "
                    "give ALREADY_PRIVATE"
                )
            self._check_release(release, private | kept, {release.call}, key, place)
        self._count(release, place)
        return NONE

    def _mean(self, release: Mean, labels: Any, place: Place) -> Labels:
        *means, bound, key = labels
        _check_generator(release, key, by_client=False)
        release.labels = NONE.union(*means)
        release.keys = key if is_noisy(release) else NONE
        if is_noisy(release):
            private, kept = self.private(release.labels), of(ClientState, release.labels)
            calls = {release.label.call} | ({release.call} if self._unit == "client" else set())
            self._check_release(release, private | kept, calls, key, place)
            for label in sorted(self.private(bound), key=str):
                raise LeakError(
                    f"round: the clip norm in {release.line} depends on {label.what} ({label.line}); release that first"
                )
            if not key_labels.varies(key, key_labels.CLIENTS):
                raise LeakError(
                    f"round: the noise of private_mean ({release.line}) is the same for all clients; take its key from "
                    "the client's"
                )
        self._count(release, place)
        rounded = any(map(_is_short, jax.tree.leaves(release.like)))
        use = LinearUse if _same_for_all([bound]) and not rounded else NonlinearUse
        return frozenset({use(release.number)})

    def _check_release(
        self, release: Sum | Mean, labels: Labels, calls: set[int], key: Labels, place: Place
    ) -> None:
        """Raises LeakError: the release depends on what it does not bound, or its noise is not fresh.

        Args:
          labels: of private data in what is released.
          calls: of the cohort, whose clients' data it bounds.
        """
        if place.times is None:
            raise _uncounted(release)
        for label in sorted(labels, key=str):
            if getattr(label, "call", -1) not in calls:
                what = getattr(label, "what", "what clients keep for themselves")
                raise LeakError(
                    f"round: the release in {release.line} depends on {what} ({label.line}) that it does not bound; "
                    "release that first"
                )
        if self.private(place.condition):
            raise LeakError(f"round: whether {release.line} releases depends on private data")
        if self.private(key):
            raise LeakError(
                f"round: the key of the noise in {release.line} depends on private data; derive it from `key` and "
                "public values"
            )
        if fault := key_labels.fault_of(key):
            raise LeakError(
                f"round: the noise in {release.line} is {fault}; derive its key from `key` by split and fold_in alone"
            )
        if not all(key_labels.varies(key, loop) for loop in place.loops):
            raise LeakError(
                f"round: the noise in {release.line} is the same in every turn of a loop; fold the turn's number "
                "into its key"
            )

    def _count(self, release: Sum | Mean, place: Place) -> None:
        if place.times is None:
            raise _uncounted(release)
        if place.counted:
            if release.times and is_noisy(release):
                raise LeakError(
                    f"round: {release.line} is traced once but computed twice, which may repeat its noise; write the "
                    "jitted function (or loop body) twice, or leave out jax.jit"
                )
            release.times += place.times


def _uncounted(release: Sum | Mean) -> LeakError:
    return LeakError(
        f"round: it cannot be counted how often {release.line} releases, in a loop of unknown length or under "
        "shard_map; use lax.scan, or a fori_loop of fixed bounds"
    )


def _row(labels: Labels, private: Private) -> Labels:
    """Of a client's own row, for those of what all clients keep."""
    kept = of(ClientState, labels)
    return (labels - kept) | {OF_OWN} | ({private} if kept else NONE)


def _check_generator(release: Sum | Mean, key: Labels, *, by_client: bool) -> None:
    """Raises ValueError: the noise's key is of a generator that can give several clients, or steps, the same noise."""
    by_client = by_client or OF_CLIENT in key
    generator = release.generator
    if is_noisy(release) and (not is_known(generator) or (generator == "rbg" and by_client)):
        raise ValueError(
            f"round: the noise in {release.line} is drawn by {generator!r}, which can give different clients the "
            f"same noise; make keys with {THREEFRY}, JAX's default"
        )


def _is_short(leaf: Any) -> bool:
    """Whether it is of a type of fewer bits than noise is drawn with, to which each client would round its own."""
    return bool(jnp.result_type(leaf).itemsize < 4)


def _is_rounded(eqn: JaxprEqn) -> bool:
    """Whether a device may round the factors of a product to fewer bits, such as TF32 on GPUs and bfloat16 on TPUs."""
    if eqn.primitive is not lax.dot_general_p:
        return False
    exact = lax.Precision.HIGHEST
    doubles = all(jnp.result_type(factor.aval) == jnp.float64 for factor in eqn.invars)
    return not doubles and eqn.params["precision"] not in (exact, (exact, exact))


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
    noisy = [bool(of(LinearUse, x) | of(NonlinearUse, x)) for x in labels]
    if _is_short(eqn.outvars[0].aval) or _is_rounded(eqn):
        return not any(noisy)
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
        of(LinearUse, every)
        | of(NonlinearUse, every)
        | of(Private, every)
        | ({OF_CLIENT, OF_OWN} & every)
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
