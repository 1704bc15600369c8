"""To which algorithms a law does not apply, and why; and which ones a dear law takes."""

from collections.abc import Callable, Hashable, Iterable, Mapping

import tiers
from every_algorithm import ENTRIES, Entry

AGREED = "clients agree on the model among themselves, each with each"
BOUNDED = "what clips does not bound a message that is weighted"
FIXED_NUMBER = "noise of integers adds up in cohorts of one size alone"
EXCEPTIONS = {
    "server": {"msp_fl": AGREED, "mspdq_fl": AGREED},
    "weighting": {
        "dp_fed_avg_wav": BOUNDED,
        "dp_sgd_wav": BOUNDED,
        "adaptive_fed_avg": "the quantile is of clients, each of whom has one bit",
        "ldp_fed_avg": "each message carries its noise already",
        "msp_fl": AGREED,
        "mspdq_fl": AGREED,
        "error feedback": "a user's own, without that option",
    },
    "loss": {"error feedback": "a user's own, whose gradients take no key"},
    "vanish": {
        "msp_fl": AGREED,
        "mspdq_fl": AGREED,
        "dp_sgd, together": "a client's own noise counts where some vanish",
        "dp_sgd, together, integers": FIXED_NUMBER,
    },
    "nobody": {
        "msp_fl": AGREED,
        "mspdq_fl": AGREED,
        "fed_avg_sparse integers": FIXED_NUMBER,
        "dp_sgd, together, integers": FIXED_NUMBER,
    },
    "everybody": {name: "a slot has a key of its own" for name in ("msp_fl", "mspdq_fl")},
}
"""Law -> entries to which it does not apply, and why."""


def but(law: str) -> dict[str, Entry]:
    """All entries to which a law applies."""
    return {name: entry for name, entry in ENTRIES.items() if name not in EXCEPTIONS[law]}


def state_and_work(entry: Entry) -> tuple:
    """What a round is made of: its state, and who adds noise to what; `test_integer_rounds.py` has integers."""
    return entry.keeps, entry.noise, entry.work


def varied(
    entries: Mapping[str, Entry] | Iterable[str], kind: Callable[[Entry], Hashable] = state_and_work
) -> dict[str, Entry]:
    """One of each kind, for laws that train or compile for long."""
    return tiers.one_of_each({name: ENTRIES[name] for name in entries}, kind)
