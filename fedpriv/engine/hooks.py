"""What `simulate` calls at every evaluation: one function that records it, one that may end training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from fedpriv.core.arguments import is_name
from fedpriv.core.complaints import require
from fedpriv.core.user_functions import asked
from fedpriv.engine.history import Evaluation, PublicEvaluation


class Hooks(NamedTuple):
    """See `simulate`. What sees private numbers cannot end training, and what can end it sees none.

    Attributes:
      record: gets all; what it returns is not looked at.
      on_evaluation: gets what is public, and what is asked for by name.
      not_covered: the names of private numbers that are asked for.
      show: gets all once it is recorded.
    """

    record: Callable[[Evaluation], object] | None = None
    on_evaluation: Callable[[PublicEvaluation], object] | None = None
    not_covered: tuple[str, ...] = ()
    show: Callable[[Evaluation], None] | None = None

    def check(self) -> None:
        """Raises ValueError: names without a function that gets these numbers."""
        used = self.on_evaluation is not None or not self.not_covered
        remedy = (
            "it names what on_evaluation gets beside the test metrics; give that, or leave it out"
        )
        require(used, "not_covered", self.not_covered, remedy)

    def check_names(self, known: Collection[str]) -> None:
        """Raises ValueError: a number that is asked for is none of those that there are."""
        for name in self.not_covered:
            remedy = f"name measures or diagnostics of this run: {', '.join(sorted(known))}"
            require(name in known, "not_covered", name, remedy)

    def answer(self, evaluation: Evaluation) -> object:
        """What `on_evaluation` says, once the evaluation is recorded; it sees nothing that `record` has changed."""
        seen = evaluation.public(self.not_covered)
        if self.record:
            asked("record", self.record, "(evaluation)", evaluation)
        if self.show:
            self.show(evaluation)
        if not self.on_evaluation:
            return None
        return asked("on_evaluation", self.on_evaluation, "(evaluation)", seen)


def names_of_hooks(given: Any) -> tuple[str, ...]:
    """What `not_covered` names, each once.

    Raises:
      ValueError: it is no sequence of names.
    """
    several = isinstance(given, Sequence) and not isinstance(given, str)
    remedy = "give names of measures or diagnostics, ('train_loss',)"
    require(several and all(map(is_name, given)), "not_covered", given, remedy)
    return tuple(dict.fromkeys(given))
