"""What of a traced program depends on what: labels follow the data from inputs to outputs.

The rules are monotone and conservative. An output carries the labels of all inputs, a loop those of all its turns, a
branch those of its condition. By induction over the equations each value that could change with an input has the labels
of that input. So a label that does not arrive is proof that there is no path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jax.extend.core import Jaxpr, JaxprEqn, Literal, Primitive

from fedpriv.core.fixed_points import fixed_point
from fedpriv.core.jaxprs import is_call, programs, scan_operands
from fedpriv.core.places import TAP
from fedpriv.proof.labels import NONE, Labels, joined, passed


class TransferRules(Protocol):
    """What a follower asks: how labels pass through an equation."""

    def transfer(self, eqn: JaxprEqn, labels: list[Labels]) -> list[Labels]:
        """Those of its outputs."""


class Operation(Primitive, ABC):
    """An operation that is not JAX's, and says itself how labels pass it: the door for operations."""

    @abstractmethod
    def transfer(self, eqn: JaxprEqn, labels: list[Labels], rules: Any) -> list[Labels]:
        """The labels of the outputs, given those of the inputs; `rules` are those of the round."""


def of_all_inputs(eqn: JaxprEqn, labels: list[Labels]) -> list[Labels]:
    """The labels of the outputs of a function of the inputs."""
    return [passed(eqn, joined(labels))] * len(eqn.outvars)


def propagate(jaxpr: Jaxpr, labels: Sequence[Labels], rules: TransferRules) -> list[Labels]:
    """Follows labels: those of the outputs, for those of the inputs. Constants are fixed with the program."""
    known: dict[Any, Labels] = dict.fromkeys(jaxpr.constvars, NONE)
    known.update(zip(jaxpr.invars, labels, strict=True))

    def labels_of(atom: Any) -> Labels:
        return NONE if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        out = _transferred(eqn, [labels_of(v) for v in eqn.invars], rules)
        known.update(zip(eqn.outvars, out, strict=True))
    return [labels_of(v) for v in jaxpr.outvars]


def _transferred(eqn: JaxprEqn, labels: list[Labels], rules: TransferRules) -> Sequence[Labels]:
    primitive, name = eqn.primitive, eqn.primitive.name
    if isinstance(primitive, Operation):
        return rules.transfer(eqn, labels)
    if primitive is TAP or name == "optimization_barrier":
        return labels
    if name in _OF_CONTROL:
        return _OF_CONTROL[name](eqn, labels, rules)
    inner = [program.jaxpr for program in programs(eqn)]
    # Others, as lax.reduce, call theirs many times, each on what an earlier call returned.
    once = is_call(eqn) or name == "shard_map"
    if once and len(inner) == 1 and len(inner[0].invars) == len(labels):
        out = propagate(inner[0], labels, rules)
        if len(out) == len(eqn.outvars):
            return out
    every = joined(labels)
    for jaxpr in inner:  # not known: all may depend on all
        every = every.union(*propagate(jaxpr, [every] * len(jaxpr.invars), rules))
    return rules.transfer(eqn, [*labels, every] if inner else labels)


def _scan(eqn: JaxprEqn, labels: list[Labels], rules: TransferRules) -> list[Labels]:
    body = eqn.params["jaxpr"].jaxpr
    consts, carry, xs = scan_operands(eqn, labels)
    xs = [_mixed(eqn, [x], rules) for x in xs]

    def turn(carry: list[Labels]) -> list[Labels]:
        return propagate(body, [*consts, *carry, *xs], rules)

    carry = _after_turns(turn, carry)
    return [*carry, *(_mixed(eqn, [y], rules) for y in turn(carry)[len(carry) :])]


def _while(eqn: JaxprEqn, labels: list[Labels], rules: TransferRules) -> list[Labels]:
    condition, body = (eqn.params[name].jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
    asked, done = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    first, consts = labels[:asked], labels[asked : asked + done]

    def turn(carry: list[Labels]) -> list[Labels]:
        again = propagate(condition, [*first, *carry], rules)[0]
        out = propagate(body, [*consts, *carry], rules)
        return [_mixed(eqn, [again, o], rules) for o in out]

    return _after_turns(turn, labels[asked + done :])


def _cond(eqn: JaxprEqn, labels: list[Labels], rules: TransferRules) -> list[Labels]:
    index, operands = labels[0], labels[1:]
    branches = [propagate(branch.jaxpr, operands, rules) for branch in eqn.params["branches"]]
    return [_mixed(eqn, [index, *out], rules) for out in zip(*branches, strict=True)]


_OF_CONTROL: dict[str, Callable[..., list[Labels]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


def _mixed(eqn: JaxprEqn, labels: list[Labels], rules: TransferRules) -> Labels:
    """Of a value that an equation makes of these."""
    return joined(list(rules.transfer(eqn, labels)))


def _after_turns(turn: Callable[[list[Labels]], list[Labels]], carry: list[Labels]) -> list[Labels]:
    """The labels of what a loop carries, after any number of turns."""

    def one_more(carry: list[Labels]) -> list[Labels]:
        return [c | o for c, o in zip(carry, turn(carry), strict=False)]

    return fixed_point(one_more, carry)
