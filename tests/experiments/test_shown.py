"""What a run shows: a table that fits, lines of a training, what the epsilon of a stopped one counts."""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import recorded

from fedpriv.core.json_values import typed
from fedpriv.core.terminal_text import NO_TERMINAL
from fedpriv.core.waiting import LOG, waiting_for
from fedpriv.engine.history import Evaluation
from fedpriv.experiments.base.formats import NAMES, short_name_of
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.tables.terminal import table
from fedpriv.experiments.training import progress
from fedpriv.privacy import Certificate

OWN = "an_algorithm_of_ones_own_whose_name_is_longer_than_any_column"
SOLVED = {"top_k": {"noise_multiplier": 1.23456789}, "dp_fed_avg": {"noise_multiplier": 1.5}}


@pytest.fixture(scope="module")
def folder():
    """Interrupted after 20 of 200 rounds, evaluated every 5."""
    return recorded.made("interrupted").path


def read(folder, names=None, solved=None, **settings):
    """The summary; its fields by algorithm are those of top_k for each of `names`."""
    found = json.loads((folder / "summary.json").read_text())
    found["settings"] |= settings
    found |= {"solved": SOLVED} if solved else {}

    def renamed(value):
        if not isinstance(value, dict):
            return value
        if "top_k" in value and names:
            return dict.fromkeys(names, value["top_k"])
        return {k: renamed(v) for k, v in value.items()}

    return typed(Summary, renamed(found))


def widest(text):
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("views", ["one", "all"])
@pytest.mark.parametrize("target", [None, 1.0])
def test_the_table_fits_whatever_the_algorithms(folder, views, target):
    shipped = {a for n in modules.names() for a in modules.load(n).settings.algorithms}
    assert shipped <= set(NAMES)
    for names in ([*NAMES], [OWN]):
        summary = read(folder, names, target, views=views, target_epsilon=target)
        narrow, wide = table(summary, 100), table(summary, NO_TERMINAL)
        assert widest(narrow) <= 100
        assert widest(narrow.partition("\n\n")[0]) > 60
        for name in names:
            assert short_name_of(name) in narrow
        for column in ("acc.", "rounds", "MB up", "MB down", "rounds/s"):
            assert column in wide.splitlines()[0]
            assert column in narrow  # if only among what is not shown
        assert ("noise" in narrow.splitlines()[0]) == (target is not None)


def test_the_chosen_view_has_the_column(folder):
    certified = read(folder).privacy["top_k"].certified
    for view in ("third_party", "server"):
        head, _, *rows = table(read(folder, view=view)).splitlines()
        at = head.index("eps")
        assert head.split().count("eps") == 1
        (row,) = (r for r in rows if r.startswith("Fed-SMP top_k  "))
        assert row[at:].split()[0] == f"{certified[view].epsilon:.4g}"
        (row,) = (r for r in rows if r.startswith("FedAvg  "))
        assert row[at:].startswith("not private")
    rows = table(read(folder, views="all")).splitlines()
    (row,) = (r for r in rows if r.startswith("Fed-SMP top_k  "))
    assert all(f"{c.epsilon:.4g}" in row.split() for c in certified.values())


def test_unit_and_delta_once_and_notes_elsewhere(folder):
    shown = " ".join(table(read(folder)).split())
    means = "DP-FedAvg, Fed-SMP rand_k, Fed-SMP top_k: client level, delta 1e-06; third_party:"
    assert shown.count(means) == 1
    assert "tuned without privacy" not in shown  # in summary.json
    assert read(folder).privacy_notes == ("tuned without privacy",)
    assert "summary.json" in shown


def test_a_stop_says_which_rounds_its_epsilon_counts(folder):
    shown = " ".join(table(read(folder)).split())
    assert (
        "DP-FedAvg: not trained to the end; its epsilon counts 25 rounds: the 20 evaluated and up to 5 that "
        "may have run since" in shown
    )
    done = read(folder, stop_at_epsilon=2.0)
    done = replace(done, rounds_planned=dict(done.rounds), settings=done.settings | {"rounds": 60})
    done = replace(done, privacy={n: replace(p, rounds=20) for n, p in done.privacy.items()})
    shown = " ".join(table(done).split())
    assert "DP-FedAvg 20 of 60 rounds; its epsilon counts these 20" in shown
    assert "FedAvg 20 of 60 rounds: not private, so no budget applies" in shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


PUBLIC = Public(("accuracy",))
EPSILON = Certificate(
    0.7512,
    1e-3,
    "third_party",
    "client",
    "add_or_remove",
    "",
    "PLD",
    "upper",
    (),
    basis="constructed",
)


def trained(monkeypatch, stream, name="dp_fed_avg", certificate=EPSILON):
    """What is shown of an algorithm with two evaluations."""
    monkeypatch.setattr("sys.stderr", stream)
    shown = progress.RecordedProgress(
        name, 60, certificate, None, {"noise_multiplier": 2.345678}, public=PUBLIC
    )
    assert shown.timed(lambda fn, args, donated: fn)("program", (), [0]) == "program"
    for t, accuracy in ((35, 0.7034), (60, 0.75)):
        e = Evaluation(t, {"accuracy": np.full(3, accuracy)}, np.ones(3), np.ones(3), {}, 0.0)
        shown.update(e, certificate)
    shown.close()
    return stream.getvalue()


def test_without_a_terminal_every_evaluation_is_a_short_line(monkeypatch):
    said = trained(monkeypatch, io.StringIO())
    assert "\r" not in said
    head, rest, compiling, compiled, *lines = said.splitlines()
    assert " ".join(f"{head} {rest}".split()) == (
        "DP-FedAvg: 60 rounds, noise_multiplier 2.346; eps: client level, view third party, add-or-remove adjacency, "
        "δ = 0.001, certified (constructed)"
    )
    assert compiling == "DP-FedAvg compiling"
    assert compiled.startswith("DP-FedAvg compiled in ")
    assert lines == [
        "DP-FedAvg 35/60 accuracy 70.3 % eps 0.75",
        "DP-FedAvg 60/60 accuracy 75.0 % eps 0.75",
    ]


def test_a_terminal_of_100_columns_is_not_left(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("dp_fed_avg", "dp_fed_avg_wav_sound", OWN):
        said = trained(monkeypatch, Terminal(), name)
        assert max(len(part) for line in said.split("\n") for part in line.split("\r")) <= 100
        assert "compiling" in said
        assert "accuracy 75.0 % eps 0.75" in said


def test_a_bar_shows_what_the_engine_waits_for_until_it_is_closed(monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    before = LOG.level, list(LOG.handlers)
    shown = progress.RecordedProgress("dp_fed_avg", 60, EPSILON, None, {})
    with waiting_for("compiling 12 equations"):
        assert "compiling 12 equations" in stream.getvalue()
    shown.close()
    assert (LOG.level, LOG.handlers) == before


def test_no_epsilon_where_nothing_is_claimed(monkeypatch):
    nothing = replace(EPSILON, epsilon=math.inf)
    said = trained(monkeypatch, io.StringIO(), "fed_avg", nothing)
    assert "eps" not in said
    assert "FedAvg 60/60 accuracy 75.0 % not private" in said


def test_one_seed_has_no_deviation():
    ways = (
        ("one seed", "on the test set, one seed;"),
        ("private", "standard deviation over 3 seeds;"),
    )
    for kind, said in ways:
        shown = " ".join(table(read(recorded.made(kind).path)).split())
        assert said in shown
        assert ("±" in shown) == (kind != "one seed")
