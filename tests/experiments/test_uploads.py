"""Uploads until an accuracy is reached: counted by hand, beside the bound; wrong input."""

from pathlib import Path

import numpy as np

from fedpriv.engine.history import Evaluation
from fedpriv.experiments.runs.contents import Begun, Line
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables import uploads

NOTHING = np.zeros(1)


def folder(accuracies, means, every=2, **settings):
    """A run of one algorithm with those evaluations, each of one seed or of several."""
    given = {"cohort": 3, "learning_rate": 0.2, "exchanges": 0, "most_exchanges": 60} | settings
    evaluations = [
        Evaluation(
            every * (i + 1),
            {"accuracy": np.atleast_1d(accuracy)},
            *[NOTHING] * 2,
            {} if mean is None else {"exchanges": np.atleast_1d(mean)},
            1.0,
        )
        for i, (accuracy, mean) in enumerate(zip(accuracies, means, strict=True))
    ]
    lines = tuple(Line.of("mspdq_fl", e, None, None) for e in evaluations)
    return RunFolder(Path("run"), Begun("c", given), {"mspdq_fl": lines}, None)


def rows(*runs, accuracy=0.5):
    lines = uploads.table(list(runs), accuracy).splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_uploads_are_summed_and_stand_beside_the_bound():
    (row,) = rows(folder([0.2, 0.4, 0.6, 0.9], [1, 2.5, 4, 9]))
    assert row[1:] == ["MSPDQ-FL", "6", "63", "648"]
    assert 3 * 2 * ((1 + 1) + (2.5 + 1) + (4 + 1)) == 63
    assert 3 * 6 * (1 + 10 / 2 * (1 + 6)) == 648  # (25): mu = 2 / 0.2, theta = 0


def test_every_seed_counts_its_own_uploads():
    exchanges = [[1, 2], [2, 3]]
    (row,) = rows(folder([[0.6, 0.2], [0.1, 0.6]], exchanges))
    assert row[2:4] == ["3.0 ± 1.4", "27 ± 21"]  # 2 and 4 rounds; 12, and 18 + 24
    (row,) = rows(folder([[0.6, 0.2], [0.1, 0.4]], exchanges))
    assert row[2:4] == ["not in 4 (reached by 1 of 2 seeds)", "more than 27"]


def test_a_run_without_an_evaluation_sent_nothing():
    """As one that diverged before its first, in Figure 4's picture."""
    _, sent, reached = uploads.uploads_until(folder([], []), "mspdq_fl", 0.5)
    assert (sent.tolist(), reached.tolist()) == ([0.0], [False])


def test_where_the_bound_says_nothing():
    found = rows(folder([0.1, 0.2], [7, 7]), folder([0.6], [10], exchanges=10))
    assert found[0][2:] == ["not in 4", "more than 96", "-"]
    assert found[1][2:] == ["2", "66", "-"]
    assert found[0][0] == "exchanges = 0"
    assert rows(folder([0.6], [5], most_exchanges=9))[0][4].endswith("(K_t cut)")
