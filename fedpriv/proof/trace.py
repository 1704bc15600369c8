"""What a round releases, read off its program; and that nothing else leaves the clients.

The program is the one that runs, and one client stands for all. Labels of private data are followed through it from
where they come from, and end in the marks of releases. If none is left in the state and the metrics that are released,
these are functions of the releases and of what is public: by post-processing, they tell no more than the releases do.

What may stay in the state comes back in the next round. That needs an invariant: labels of the state that hold before a
round hold after it, and at the start, when there are none. By induction they hold in every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from fedpriv.core.equation_lines import where
from fedpriv.core.jaxprs import equations
from fedpriv.core.trees import same_structure
from fedpriv.proof.flow import propagate
from fedpriv.proof.labels import NONE, TAKING_PART, Hidden, Labels, Private, Protected, leak
from fedpriv.proof.marks import Released, Rules
from fedpriv.proof.operations import Used, check_operations
from fedpriv.proof.primitives import MARK
from fedpriv.proof.program import Arguments, RoundProgram


class Shown(NamedTuple):
    """What is shown of a traced round.

    Attributes:
      releases: that it makes; nothing else of what is protected leaves it.
      prints: the lines that print something.
      doors: what from outside says how labels pass, as "door: class", and what is released and protected.
    """

    releases: tuple[Released, ...]
    prints: tuple[str, ...]
    doors: tuple[str, ...]


def shown(rounds: Sequence[tuple[RoundProgram, Protected]]) -> list[Shown]:
    """What is shown of rounds that hand on one state, in any order.

    Raises:
      LeakError: something private reaches the state, or the metrics outside `diagnostics`, past the releases.
      ValueError: operations that are not known; the state's structure changes.
    """
    used = [check_operations(of.program, "round") for of, _ in rounds]
    if not all(same_structure(of.out.state, of.like.state) for of, _ in rounds):
        raise ValueError("round: the state's structure changes; return that of `init`")
    for (of, protected), labels in zip(rounds, _in_every_round(rounds), strict=True):
        _check(of, protected, labels)
    each = zip(rounds, used, strict=True)
    return [Shown(_made(of), of_it.prints, _doors(of, by, of_it)) for (of, by), of_it in each]


def _in_every_round(rounds: Sequence[tuple[RoundProgram, Protected]]) -> list[list[Labels]]:
    """The labels of each round's results, whichever rounds came before.

    *Proof.* A state that has labels of `kept` at most comes to each round: at the start it has none, and what a round
    leaves in it is in `kept` again where it may stay. Where it may not, `_check` refuses it, but for who takes part
    where that is no secret: other rounds' cohorts are drawn independently of it.
    """
    kept = [NONE] * len(jax.tree.leaves(rounds[0][0].like.state))
    while True:
        found = [labels_of_results(of, protected, kept) for of, protected in rounds]
        state = [
            NONE.union(*labels) for labels in zip(*(f[: len(kept)] for f in found), strict=True)
        ]
        after = [old | _staying(new) for old, new in zip(kept, state, strict=True)]
        if after == kept:
            return found
        kept = after


def labels_of_results(
    of: RoundProgram, protected: Protected, kept: Sequence[Labels]
) -> list[Labels]:
    """The labels of a round's results, given those that the leaves of its state have.

    The engine gives a round its hidden random numbers, and how many take part.
    """
    given = jax.tree.map(lambda _: NONE, of.like.given)
    hidden: Any = frozenset({Hidden()})
    members: Any = frozenset({Private(TAKING_PART, -1, "the engine")})
    key: Any = NONE
    arguments = Arguments(given._replace(hidden=hidden, members=members), key, list(kept))
    rules = Rules(of.marks, protected)
    return propagate(of.program.jaxpr, jax.tree.leaves(arguments), rules)


def _check(of: RoundProgram, protected: Protected, found: Sequence[Labels]) -> None:
    """Raises LeakError: the results have labels that they may not have."""
    results = zip(jax.tree.leaves_with_path(of.out), found, of.program.jaxpr.outvars, strict=True)
    for (path, _), labels, var in results:
        may_stay = _staying(labels) if path[0].name == "state" else NONE
        leaked = protected.private(labels) - may_stay
        if leaked and _is_released(path):
            places = (f" ({where(e)})" for e in of.program.eqns if var in e.outvars)
            raise leak(_name(path) + "".join(places), leaked)


def _staying(labels: Labels) -> Labels:
    return frozenset(label for label in labels if label.stays)


def _made(of: RoundProgram) -> tuple[Released, ...]:
    """Of the marks of a round, those of releases that are in its program."""
    made = (eqn.params for eqn, _ in equations(of.program.jaxpr) if eqn.primitive is MARK)
    numbers = {mark["number"] for mark in made if mark["of"] is of.marks}
    happening = (mark for number, mark in enumerate(of.marks) if number in numbers)
    return tuple(mark for mark in happening if isinstance(mark, Released))


def _doors(of: RoundProgram, protected: Protected, uses: Used) -> tuple[str, ...]:
    """As `Shown.doors`."""
    used: list[tuple[str, Any]] = [("protected", protected)]
    used += [("operation", each) for each in uses.operations]
    used += [("mark", mark) for mark in of.marks]
    used += [("label", mark.label) for mark in of.marks if hasattr(mark, "label")]
    used += [("step", mark.step) for mark in of.marks if isinstance(mark, Released)]
    named = {f"{d}: {type(x).__module__}.{type(x).__qualname__}": type(x) for d, x in used}
    return tuple(d for d, kind in named.items() if not kind.__module__.startswith("fedpriv.proof."))


def _is_released(path: Any) -> bool:
    """Whether a result is: a certificate assumes that diagnostics are not, and `not_finite` is for the engine alone."""
    diagnostics = path[0].name == "metrics" and getattr(path[1], "key", None) == "diagnostics"
    return not (path[0].name == "not_finite" or diagnostics)


def _name(path: Any) -> str:
    root = "metrics" if path[0].name == "metrics" else "state"
    return root + jax.tree_util.keystr(path[1:])
