"""Attacks: scores, canaries, members, messages."""

from functools import partial
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
from fedpriv.privacy import Everyone, declared

CLIENTS = 5
SCORES, THERE = np.arange(6.0), np.arange(6) < 3
FEW = (np.zeros((4, 1, 2)), 0.5, DECAYS["linear"], 3)
BARE = declared("server", "client", 0.0, Everyone(3), 1, reason="no noise")
UNMADE = declared("server", "client", 1.0, Everyone(3), 1)
TREE = fp.correlated(fp.gaussian(0.5, 1.0), fp.noise_matrices.tree(rounds=4))


def bounded(present=3, absent=3, **how):
    scores = Scores(np.ones(present), np.zeros(absent), frozenset({"gaussian"}), True)
    return partial(lower_bounds, scores, 1e-3, **how)


def canaries(count=1, mechanism=None, **how):
    used = mechanism or fp.gaussian(0.5, 1.0)
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        mechanism=used,
    )
    seen = declared("third_party", "client", 1.0, Everyone(CLIENTS), 1, mechanism=used)
    return with_canaries(algorithm, count, seen, **how)


def too_many():
    canaries(6).init(start(), regression([3] * CLIENTS))


def guessed(*guesses):
    return lambda: epsilon_one_run(SCORES, THERE, 1e-3, guesses=guesses)


def drawn(seen):
    return lambda: draw_scores([seen], "server", draws=10)


ROWS = [
    ("scores of one neighbour", bounded(present=0), "scores", "some of each neighbour"),
    ("a number as thresholds", bounded(threshold=0.5), "threshold", "0.5"),
    ("more guesses than canaries", guessed(4, 3), "guesses", "(4, 3)"),
    ("few coins", lambda: epsilon_one_run(SCORES, THERE[:3], 1e-3), "present", "bool[3]"),
    (
        "what is no profile",
        lambda: p_value_one_run(SCORES, THERE, SimpleNamespace()),
        "profile",
        "certificate.profile()",
    ),
    ("few", lambda: infer_membership(np.zeros(5), np.zeros(99), (0.01,)), "others", ("99", "100")),
    ("few exchanges", lambda: least_squares(*FEW), "messages", ("3 exchange", "at least 4")),
    ("few, searched for", lambda: fit_weights(*FEW, 0.1), "messages", "3 exchange"),
    ("draws of what nothing hides", drawn(BARE), "seen", "(no noise)"),
    ("draws without a mechanism", drawn(UNMADE), "seen", "brings no mechanism"),
    ("more canaries than places", too_many, "count", ("6", "1 to 5")),
    ("two honest canaries", lambda: canaries(2, data=dict), "count", "2"),
    ("a name as data", lambda: canaries(data="natural"), "data", "'natural'"),
    ("a canary, correlated", lambda: canaries(1, TREE, data=dict), "data", "correlated over"),
]
