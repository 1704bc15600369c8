"""The config of late clients: equal simulated hours, each noise solved for its own rounds, what is drawn by hours."""

from dataclasses import replace

import numpy as np
import pytest
from prepared import write_random
from recorded import made
from small import refused

import fedpriv as fp
from configs import late
from fedpriv import experiments
from fedpriv.experiments.accounting.cost import costs
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables import plots

pytestmark = pytest.mark.usefixtures("quick_to_compile")

PAIR = ("dp_fed_avg", "dp_fed_avg_buffered")
SMALL = {"clients": 20, "at_work": 4, "buffer": 2, "rounds": 16, "every": 1, "seeds": 2}
SMALL |= {"algorithms": PAIR, "noise_multiplier": 3.0}
HOURS = {"dp_fed_avg": 8 - 6 * 0.9**4 - 0.6**4, "dp_fed_avg_buffered": 1.0}
"""The slowest of four: eight hours, but for six less where all are quick, and one less where all are quickest."""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "fashion_mnist", train=60, test=20)
    return folder


@pytest.fixture(scope="module")
def run(data_dir, tmp_path_factory):
    """Three seeds, of which a lead has an interval."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    given = SMALL | {"seeds": 3, "every": 2}
    return experiments.run("late", data_dir=data_dir, folder=folder, progress=False, **given)


@pytest.mark.slow
def test_all_train_for_the_same_hours(run):
    """As many rounds as fit in 16 hours, which the folder tells."""
    summary = read(run.folder).results
    assert summary.rounds == {"dp_fed_avg": 4, PAIR[1]: 16}
    assert summary.rounds == summary.rounds_planned
    for name, hours in HOURS.items():
        assert summary.hours_per_round(name) == pytest.approx(hours)


@pytest.mark.slow
def test_curves_and_leads_go_by_hours(run, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.append(figure))
    caption = experiments.figure(run, tmp_path / "f.png", by="hours").caption
    assert "by simulated hours" in caption
    for line, (name, hours) in zip(drawn[0].axes[0].lines, HOURS.items(), strict=True):
        at = np.array([e.round for e in run.history[name].evaluations])
        np.testing.assert_allclose(line.get_xdata(), hours * at)
    frame = experiments.table(run, above="dp_fed_avg")
    own, rival = (run.history[name].accuracy[-1] for name in reversed(PAIR))
    assert frame["accuracy_lead_final_mean"][1] == pytest.approx((own - rival).mean())


def test_what_has_no_hours_has_no_curve_by_them(tmp_path):
    with refused("by: none of these runs has simulated hours, .* draw by round or uplink"):
        experiments.figure(made("old").path, tmp_path / "f.png", by="hours")


@pytest.mark.slow
@pytest.mark.parametrize("turns", ["known", "secret"])
def test_each_noise_is_solved_for_its_own_rounds(turns):
    settings = replace(late.settings, **SMALL | {"turns": turns, "target_epsilon": 4.0})
    found = costs(late, settings)
    assert {a.names: a.rounds for a in found.accounts} == {(PAIR[0],): 4, (PAIR[1],): 16}
    for name in PAIR:
        entry, rounds = found.ledger.entries[name], settings.rounds_of(name)
        given = entry.algorithm, late.MODEL.init, entry.federations[0]
        own = fp.certify(*given, rounds=rounds, delta=settings.delta)
        assert 4.0 * (1 - 1e-3) < own.epsilon <= 4.0
        assert own.relation == ("add_or_remove" if turns == "secret" else "zero_out")


def test_only_quick_clients_are_asked(data_dir):
    """The first 18 of 20, with the records that they have where all are asked."""
    settings = replace(late.settings, data_dir=data_dir, **SMALL)
    settings = replace(settings, algorithms=("fed_avg", "fed_avg_quick"))
    entries = experiment_of(late, settings).entries
    for everyone, quick in zip(*(entry.federations for entry in entries.values()), strict=True):
        assert (everyone.num_clients, quick.num_clients) == (20, 18)
        np.testing.assert_array_equal(quick.size, everyone.size[:18])
        np.testing.assert_array_equal(quick.rows, everyone.rows[: len(quick.rows)])


def test_the_slow_may_hold_labels_of_their_own(data_dir):
    settings = replace(late.settings, data_dir=data_dir, slow_labels=4, **SMALL)
    federation = experiment_of(late, settings).entries["dp_fed_avg"].federations[0]
    held = np.asarray(federation.examples["label"])[federation.rows]
    assert (held[:18] < 6).all()
    assert (held[18:] >= 6).all()
    assert int(federation.size.sum()) == 60


def test_rates_are_by_form():
    settings = replace(late.settings, server_rate=3.0, quick_rate=2.0)
    names = late.settings.algorithms
    assert [settings.rate_of(name) for name in names] == [3.0, 2.0, 3.0] * 2
    settings = replace(settings, buffered_rate=1.0)
    assert [settings.rate_of(name) for name in names] == [3.0, 2.0, 1.0] * 2


def test_delays_are_those_of_the_speeds():
    """Three at work beside a client, over buffers of two, in proportion to 1, 2 and 8 hours of 2 on average."""
    settings = replace(late.settings, **SMALL)
    law = settings.delays()
    assert law.labels == ("1 h",) * 12 + ("2 h",) * 6 + ("8 h",) * 2
    assert law.possible == {"1 h": [1], "2 h": [2], "8 h": [6]}  # 0.75, 1.5 and 6
    drawn = replace(settings, delay="geometric", most_late=400).delays()
    means = [np.dot(range(401), chances) for chances in drawn.chances]
    assert means == pytest.approx([0.75, 1.5, 6.0], rel=1e-3)
