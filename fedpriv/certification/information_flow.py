"""What of a traced program depends on what: labels follow the data from inputs to outputs.

The rules are conservative: an output carries the labels of all inputs, a loop those of all its turns, a branch those of
its condition. So a label that does not arrive is proof that there is no path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, takewhile
from typing import Any, Protocol, TypeAlias

import jax
from jax import lax
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive
from jax.interpreters import ad, mlir

from fedpriv.core.code_places import is_jax_file, is_users_file, place
from fedpriv.core.fixed_points import fixed_point
from fedpriv.core.jaxprs import is_call, programs, scan_operands

Labels: TypeAlias = frozenset
NONE: Labels = frozenset()
NOWHERE = ":?"
"""The line of an equation of which JAX does not know it."""


@dataclass(frozen=True)
class Loop:
    """A label of what changes from turn to turn of the loop of this `number`."""

    number: int


@dataclass(frozen=True)
class Place:
    """Where an equation stands.

    Attributes:
      times: how often it is computed; None in a loop of unknown length.
      loops: that it is in.
      condition: labels of the branches that it is in.
      counted: False while a loop's labels are still being found.
    """

    times: int | None = 1
    loops: tuple[Loop, ...] = ()
    condition: Labels = NONE
    counted: bool = True


class Following(Protocol):
    """What a follower asks: how labels pass."""

    def marked(self, eqn: JaxprEqn, labels: Sequence[Labels], place: Place) -> Sequence[Labels]:
        """Through a mark: those of its outputs."""

    def step(self, eqn: JaxprEqn, labels: Sequence[Labels]) -> Labels:
        """Through an equation without programs of its own: those of all its outputs."""

    def constant(self, atom: Any) -> Labels:
        """Of an array that a program closes over."""

    def leaving(self, eqn: JaxprEqn, labels: Labels) -> Labels:
        """Of what a program gives back to the equation that calls it."""

    def each_turn(self, labels: Labels, loop: Loop, *, counts: bool, element: bool) -> Labels:
        """Of what a loop hands to a turn: a number that `counts` turns, an `element` of an array, what it carries."""

    def after_loop(self, loop: Loop, labels: Labels) -> Labels:
        """Of what a loop gives back."""

    def widened(self, labels: Labels) -> Labels:
        """Of what a loop carries after a further turn: all of these, and so many that the turns come to an end."""


MARK = Primitive("fedpriv_mark")
"""The identity on its arguments; rules know by its `number` what it means. For programs that are traced, not run."""
MARK.multiple_results = True
MARK.def_abstract_eval(lambda *avals, number: list(avals))
mlir.register_lowering(
    MARK, mlir.lower_fun(lambda *arrays, number: list(arrays), multiple_results=True)
)
# Tangents pass unmarked: what a derivative brings past a release is as private as it was.
ad.primitive_jvps[MARK] = lambda primals, tangents, number: (mark(number, *primals), tangents)


@contextmanager
def as_compiled() -> Iterator[None]:
    """Inside, programs are traced as a run compiles them, whatever JAX's flags for debugging say.

    Without jit no loop would be there to follow. A key would count as used up where it is marked, and what a mark keeps
    of a mechanism as a leak.
    """
    with jax.disable_jit(False), jax.debug_key_reuse(False), jax.check_tracer_leaks(False):
        yield


def trace_program(fn: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, Any]:
    """(`fn` of arguments like these, as a run compiles it; what it gives back, in shapes)."""
    with as_compiled():
        return jax.make_jaxpr(fn, return_shape=True)(*args)


def mark(number: int, *arrays: Any) -> list[Any]:
    """The arrays, marked."""
    return list(MARK.bind(*arrays, number=number))


def follow(jaxpr: Jaxpr, labels: Sequence[Labels], rules: Following) -> list[Labels]:
    """The labels of the outputs, for those of the inputs."""
    return _Follow(rules).program(jaxpr, labels, Place())


def where(eqn: JaxprEqn) -> str:
    """File and line of the user's code, where JAX has them; else of what made the equation."""
    return users_line(eqn) or next((place(*frame) for frame in _frames(eqn)), NOWHERE)


def users_line(eqn: JaxprEqn) -> str | None:
    """File and line of the user's code that made an equation, where there is some."""
    return next((place(*frame) for frame in _frames(eqn) if is_users_file(frame[0])), None)


def _frames(eqn: JaxprEqn) -> list[tuple[str, int]]:
    """(file, line), from what made an equation up to what is traced, where JAX has them; JAX's own are left out."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return []
    codes, _ = traceback.raw_frames()
    inside = takewhile(lambda code: code is not trace_program.__code__, codes)
    frames = [frame for frame, _ in zip(traceback.frames, inside, strict=False)]
    return [(f.file_name, f.line_num) for f in frames if not is_jax_file(f.file_name)]


def made_by_checkify(eqn: JaxprEqn) -> bool:
    """Whether checkify made an equation, which numbers its errors by a count of its own."""
    ours = [f.file_name for f in getattr(eqn.source_info.traceback, "frames", ())]
    return any("checkify" in name for name in takewhile(lambda f: not is_users_file(f), ours))


class _Follow:
    def __init__(self, rules: Following):
        self._rules, self._step, self._numbers = rules, rules.step, count()

    def program(self, jaxpr: Jaxpr, inputs: Sequence[Labels], place: Place) -> list[Labels]:
        known = dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Labels:
            if isinstance(atom, Literal):
                return NONE
            return known[atom] if atom in known else self._rules.constant(atom)

        for eqn in jaxpr.eqns:
            out = self._equation(eqn, [read(v) for v in eqn.invars], place)
            known.update(zip(eqn.outvars, out, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _equation(self, eqn: JaxprEqn, labels: list[Labels], place: Place) -> Sequence[Labels]:
        if eqn.primitive is MARK:
            return self._rules.marked(eqn, labels, place)
        if eqn.primitive.name == "optimization_barrier":
            return labels
        if eqn.primitive.name in _SEVERAL_AT_ONCE:
            return self.program(_one_by_one(eqn), labels, place)
        of_loops = {"scan": self._scan, "while": self._while, "cond": self._cond}
        if eqn.primitive.name in of_loops:
            return of_loops[eqn.primitive.name](eqn, labels, place)
        inner = [program.jaxpr for program in programs(eqn)]
        # Others, as lax.reduce, call theirs many times, each on what an earlier call returned.
        once = is_call(eqn) or eqn.primitive.name == "shard_map"
        if once and len(inner) == 1 and len(inner[0].invars) == len(labels):
            inside = place if is_call(eqn) else replace(place, times=None)
            out = self.program(inner[0], labels, inside)
            if len(out) == len(eqn.outvars):
                return [self._rules.leaving(eqn, x) for x in out]
        if inner:  # not known: all may depend on all, and how often is not known either
            every = NONE.union(*labels)
            for jaxpr in inner:
                results = self.program(
                    jaxpr, [every] * len(jaxpr.invars), replace(place, times=None)
                )
                every = every.union(*results)
            labels = [*labels, every]
        return [self._step(eqn, labels)] * len(eqn.outvars)

    def _scan(self, eqn: JaxprEqn, labels: list[Labels], place: Place) -> list[Labels]:
        jaxpr, length = eqn.params["jaxpr"].jaxpr, eqn.params["length"]
        consts, carry, xs = scan_operands(eqn, labels)
        loop, carried = Loop(next(self._numbers)), len(carry)
        each_turn = self._rules.each_turn
        xs = [each_turn(self._step(eqn, [x]), loop, counts=False, element=True) for x in xs]
        ends = zip(scan_operands(eqn, jaxpr.invars)[1], jaxpr.outvars, strict=False)
        carry = [
            c if a is b else each_turn(c, loop, counts=_goes_up(jaxpr, a, b), element=False)
            for c, (a, b) in zip(carry, ends, strict=True)
        ]

        def turn(carry: list[Labels], place: Place) -> list[Labels]:
            return self.program(jaxpr, [*consts, *carry, *xs], place)

        times = None if place.times is None else place.times * length
        inside = replace(place, times=times, loops=(*place.loops, loop))
        carry = self._after_turns(
            lambda c: turn(c, replace(inside, counted=False))[:carried], carry
        )
        out = turn(carry, inside)
        return [self._rules.after_loop(loop, c | o) for c, o in zip(carry, out, strict=False)] + [
            self._rules.after_loop(loop, self._step(eqn, [y])) for y in out[carried:]
        ]

    def _while(self, eqn: JaxprEqn, labels: list[Labels], place: Place) -> list[Labels]:
        condition, body = (eqn.params[name].jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
        asked, done = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        first, consts = labels[:asked], labels[asked : asked + done]
        carry = labels[asked + done :]
        inside = replace(place, times=None, loops=(*place.loops, Loop(next(self._numbers))))

        def turn(carry: list[Labels], place: Place) -> list[Labels]:
            again = self.program(condition, [*first, *carry], place)[0]
            place = replace(place, condition=place.condition | again)
            out = self.program(body, [*consts, *carry], place)
            return [self._step(eqn, [again, o]) for o in out]

        carry = self._after_turns(lambda c: turn(c, replace(inside, counted=False)), carry)
        out = turn(carry, inside)
        return [c | o for c, o in zip(carry, out, strict=True)]

    def _cond(self, eqn: JaxprEqn, labels: list[Labels], place: Place) -> list[Labels]:
        index, operands = labels[0], labels[1:]
        inside = replace(place, condition=place.condition | index)
        branches = [self.program(b.jaxpr, operands, inside) for b in eqn.params["branches"]]
        return [self._step(eqn, [index, *out]) for out in zip(*branches, strict=True)]

    def _after_turns(
        self, turn: Callable[[list[Labels]], list[Labels]], carry: list[Labels]
    ) -> list[Labels]:
        """The labels of what a loop carries, after any number of turns."""

        def one_more(carry: list[Labels]) -> list[Labels]:
            return [self._rules.widened(c | o) for c, o in zip(carry, turn(carry), strict=True)]

        return fixed_point(one_more, carry)


def _unstack(array: jax.Array, axis: int) -> list[jax.Array]:
    return [lax.index_in_dim(array, i, axis, keepdims=False) for i in range(array.shape[axis])]


def _stack(*arrays: jax.Array, axis: int) -> list[jax.Array]:
    return [lax.concatenate([lax.expand_dims(x, [axis]) for x in arrays], axis)]


_SEVERAL_AT_ONCE: dict[str, Callable[..., list[jax.Array]]] = {"stack": _stack, "unstack": _unstack}
"""Operations since JAX 0.11, as those of which they are made up."""


def _one_by_one(eqn: JaxprEqn) -> Jaxpr:
    several = partial(_SEVERAL_AT_ONCE[eqn.primitive.name], **eqn.params)
    with source_info_util.user_context(eqn.source_info.traceback):
        return jax.make_jaxpr(several)(*(atom.aval for atom in eqn.invars)).jaxpr


def _goes_up(jaxpr: Jaxpr, before: Any, after: Any) -> bool:
    """Whether a turn adds a number to `before`, which is then `after`."""
    sums = (eqn for eqn in jaxpr.eqns if after in eqn.outvars and eqn.primitive.name == "add")
    return any(
        before in eqn.invars and any(isinstance(x, Literal) and x.val != 0 for x in eqn.invars)
        for eqn in sums
    )
