"""Attacks: scores, canaries, members, messages."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import optax
from small import regression, squared, start

import fedpriv as fp
from fedpriv.algorithms.consensus import DECAYS
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.canaries import with_canaries
from fedpriv.attacks.mechanism_audit import Scores, draw_scores
from fedpriv.attacks.membership import infer_membership
from fedpriv.attacks.one_run import epsilon_one_run, p_value_one_run
from fedpriv.attacks.transcript import fit_weights, least_squares
from fedpriv.privacy import Everyone, Release
from refused.row import Refusal

CLIENTS = 5
SCORES, THERE = np.arange(6.0), np.arange(6) < 3
MESSAGES = np.zeros((4, 1, 2))
BARE = Release("server", "client", 0.0, Everyone(3), 1, reason="no noise")


def bounded(present=3, absent=3, **how):
    scores = Scores(np.ones(present), np.zeros(absent), frozenset({"gaussian"}), True)
    return lower_bounds(scores, 1e-3, **how)


def canaries(count=1, mechanism=None, **how):
    used = mechanism or fp.gaussian(0.5, 1.0)
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        mechanism=used,
    )
    seen = Release("third_party", "client", 1.0, Everyone(CLIENTS), 1, mechanism=used)
    return with_canaries(algorithm, count, seen, **how)


def natural(examples):
    return examples


TREE = fp.correlated(fp.gaussian(0.5, 1.0), fp.noise_matrices.tree(rounds=4))

ROWS = [
    Refusal("scores of one neighbour", lambda: bounded(present=0), "scores"),
    Refusal("a number as thresholds", lambda: bounded(threshold=0.5), "threshold", "0.5"),
    Refusal(
        "more guesses than canaries",
        lambda: epsilon_one_run(SCORES, THERE, 1e-3, guesses=(4, 3)),
        "guesses",
        "(4, 3)",
    ),
    Refusal("fewer coins than scores", lambda: epsilon_one_run(SCORES, THERE[:3], 1e-3), "present"),
    Refusal(
        "what is no profile", lambda: p_value_one_run(SCORES, THERE, SimpleNamespace()), "profile"
    ),
    Refusal(
        "an unknown method",
        lambda: epsilon_one_run(SCORES, THERE, 1e-3, method="bonferroni"),
        "method",
        "'bonferroni'",
    ),
    Refusal(
        "too few others",
        lambda: infer_membership(np.zeros(5), np.zeros(99), (0.01,)),
        "others",
        "99",
    ),
    Refusal(
        "no more exchanges than weights",
        lambda: least_squares(MESSAGES, 0.5, DECAYS["linear"], 3),
        "messages",
        "3 exchange",
        remedy="at least 4",
    ),
    Refusal(
        "no more exchanges than weights that are searched for",
        lambda: fit_weights(MESSAGES, 0.5, DECAYS["linear"], 3, 0.1),
        "messages",
        "3 exchange",
    ),
    Refusal(
        "draws of what nothing hides", lambda: draw_scores([BARE], "server", draws=10), "noise"
    ),
    Refusal(
        "draws without a mechanism",
        lambda: draw_scores([replace(BARE, multiplier=1.0, reason="")], "server", draws=10),
        "brings no mechanism",
    ),
    Refusal(
        "more canaries than places",
        lambda: canaries(6).init(start(), regression([3] * CLIENTS)),
        "count",
        "6",
    ),
    Refusal("two honest canaries", lambda: canaries(2, data=natural), "count", "2"),
    Refusal("a name as data", lambda: canaries(data="natural"), "data", "'natural'"),
    Refusal(
        "an honest canary among correlated noise", lambda: canaries(1, TREE, data=natural), "data"
    ),
]
