"""Who is hurt: tables with a line for each group, their intervals, figures, and the report's section."""

import shutil

import numpy as np
import pytest
from matplotlib.figure import Figure
from recorded import GROUPS, made
from reported import edit, record, tables, tree
from scipy import stats

from fedpriv import experiments
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.tables import plots
from fedpriv.experiments.tables.report import charts

NAMES = ("top_k", "dp_fed_avg")


@pytest.fixture
def recorded():
    return made("groups")


def values(histories, name, metric, group):
    """f64[seeds, clients] of the last evaluation."""
    whole = histories[name].evaluations[-1].clients["held_out"].metrics[metric]
    return np.float64(whole[:, np.array(GROUPS) == group])


def interval(of):
    return pytest.approx([*of.confidence_interval(0.95)], abs=1e-6)


def test_intervals_of_a_group_are_those_of_scipy(recorded):
    """Over the seeds, and over its clients, of the metric and of what it is above the rival's; one has no AUC."""
    folder, histories = recorded
    frame = experiments.table(folder, by="group", metric=["accuracy", "auc"], above="dp_fed_avg")
    assert len(frame) == 2 * (3 + 2)
    frame = frame.set_index(["algorithm", "group"])
    for group in dict.fromkeys(GROUPS):
        for metric in ("accuracy", "auc"):
            row = frame.loc["top_k", group]
            own, other = (values(histories, name, metric, group) for name in NAMES)
            each, others = np.nanmean(own, 1), np.nanmean(other, 1)
            assert row[f"{metric}_not_private_mean"] == pytest.approx(each.mean(), abs=1e-6)
            assert row[f"{metric}_not_private_std"] == pytest.approx(each.std(ddof=1), abs=1e-6)
            assert row[f"{metric}_not_private_seeds"] == 3
            assert [row[f"{metric}_not_private_{end}"] for end in ("low", "high")] == interval(
                stats.ttest_1samp(each, 0)
            )
            lead = [row[f"{metric}_not_private_lead_{end}"] for end in ("low", "high")]
            assert lead == interval(stats.ttest_rel(each, others))
            clients, rivals = (x.mean(0)[~np.isnan(x).any(0)] for x in (own, other))
            over = [row[f"{metric}_not_private_over_clients_{end}"] for end in ("low", "high")]
            if len(clients) < 3:  # the last client has no AUC
                assert np.isnan(over).all()
                continue
            assert over == interval(stats.ttest_1samp(clients, 0))
            paired = [
                row[f"{metric}_not_private_lead_over_clients_{end}"] for end in ("low", "high")
            ]
            assert paired == interval(stats.ttest_rel(clients, rivals))
            drawn = stats.bootstrap(
                (clients,), np.mean, n_resamples=9_999, rng=np.random.default_rng(0)
            )
            bootstrap = [
                row[f"{metric}_not_private_over_clients_bootstrap_{end}"] for end in ("low", "high")
            ]
            assert bootstrap == pytest.approx([*drawn.confidence_interval], abs=1e-6)
    assert frame.loc["top_k", "far off"]["auc_not_private_over_clients_undefined"] == 1
    assert frame.loc["top_k", "rural"][["clients", "records_not_private"]].tolist() == [
        4,
        6 + 7 + 8 + 9,
    ]
    assert frame["epsilon"].notna().all()
    assert set(frame["unit"]) == {"client"}


def test_worst_group_and_gap_are_of_each_seed(recorded):
    folder, histories = recorded
    frame = experiments.table(folder, by="group", above="dp_fed_avg").set_index("statistic")
    own, other = (
        np.array([values(histories, n, "accuracy", g).mean(1) for g in dict.fromkeys(GROUPS)])
        for n in NAMES
    )
    for statistic, of in (
        ("worst_group", lambda x: x.min(0)),
        ("group_gap", lambda x: np.ptp(x, 0)),
    ):
        row = frame[frame["algorithm"] == "top_k"].loc[statistic]
        assert row["accuracy_not_private_mean"] == pytest.approx(of(own).mean(), abs=1e-6)
        paired = [row[f"accuracy_not_private_lead_{end}"] for end in ("low", "high")]
        assert paired == interval(stats.ttest_rel(of(own), of(other)))
        assert np.isnan(row["clients"])


@pytest.mark.slow
def test_groups_of_single_clients_have_the_numbers_by_client(tmp_path):
    record(tmp_path / "run", of_clients=5, of_groups=[f"c{i}" for i in range(5)], algorithms=NAMES)
    groups = experiments.table(tmp_path / "run", by="group", metric="accuracy", above="dp_fed_avg")
    clients = experiments.table(
        tmp_path / "run", by="client", metric="accuracy", above="dp_fed_avg"
    )
    groups = groups[groups["statistic"] == "mean"].sort_values(["algorithm", "group"])
    clients = clients.sort_values(["algorithm", "client"])
    numbers = ("accuracy_not_private_mean", "accuracy_not_private_std")
    for column in ("records_not_private", *numbers, "accuracy_not_private_lead_mean"):
        np.testing.assert_allclose(groups[column], clients[column], atol=1e-6)


def test_they_are_metrics_like_any_other(recorded):
    """In the table, in curves, and read back without a change, each client once in its group."""
    folder, histories = recorded
    name = "held_out_accuracy_group_gap"
    row = experiments.table(folder, metric=name).set_index("algorithm").loc["top_k"]
    expected = histories["top_k"].metric(name)
    assert row[f"{name}_not_private_final_mean"] == pytest.approx(expected[-1].mean())
    run = experiments.runs.read(folder)
    np.testing.assert_allclose(run.history["top_k"].metric(name), expected)
    rows = run.clients.query("round == 10 and algorithm == 'top_k' and kind == 'held_out[rural]'")
    again = rows.query("metric == 'accuracy'").pivot(
        index="seed", columns="client", values="value_not_private"
    )
    np.testing.assert_allclose(again, values(histories, "top_k", "accuracy", "rural"))
    assert run.remarks == ()


def test_a_figure_has_a_curve_for_each_group_by_round_and_by_epsilon(
    recorded, tmp_path, monkeypatch
):
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, paths: drawn.append(figure))
    one = experiments.figure(recorded.path, "one.svg", by="group")
    assert "by round" in one.caption
    panels = [[line.get_label() for line in axes.lines] for axes in drawn[0].axes]
    assert len(panels) == len(NAMES)
    for labels in panels:
        assert all(any(group in label for label in labels) for group in GROUPS)
    for sigma in (2.0, 4.0):
        folder = shutil.copytree(recorded.path, tmp_path / f"{sigma}")
        for name in ("config.json", "summary.json"):
            edit(folder / name, settings=read(recorded.path).settings | {"noise_multiplier": sigma})
    both = experiments.figure(tmp_path, "both.png", by="group")
    assert "at the end of runs, by certified ε" in both.caption


def test_a_group_has_no_curve_where_it_was_not_evaluated(recorded):
    """As a group of clients beside groups of test examples with other names: not the whole test set's."""
    own = {"held_out_accuracy_mean": "held_out[rural]_accuracy_mean"}
    rural = plots.Curve(experiments.runs.read(recorded[0]), "dp_fed_avg", plots.look(0, 0, 2), own)
    axes, drawn = Figure().subplots(), []
    for one, metric in (
        (rural, "accuracy"),
        (rural, "held_out_accuracy_mean"),
        (rural._replace(names=None), "accuracy"),
    ):
        plots.draw(axes, one, metric)
        drawn.append(len(axes.lines))
    assert drawn == [0, 1, 2]


def test_the_report_says_who_is_hurt_with_the_epsilon_beside(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")
    folder, histories = recorded
    found = tables(tree(experiments.report(folder, tmp_path / "page.html")))
    head, *rows = found["Worst group and gap, after the last round"]
    last = dict(zip(head, rows[NAMES.index("top_k")], strict=True))
    means = {g: values(histories, "top_k", "accuracy", g).mean() for g in dict.fromkeys(GROUPS)}
    assert last["worst group"] == min(means, key=means.get)
    assert last["smallest group"] == "far off"
    assert last["certified epsilon, third party"].endswith("constructed")
    gap = histories["top_k"].metric("held_out_accuracy_group_gap")[-1]
    assert last["gap of each seed"] == f"{100 * gap.mean():.2f} ± {100 * gap.std(ddof=1):.2f}"
    assert len(found["Each group, after the last round"]) == 1 + 2 * 5
