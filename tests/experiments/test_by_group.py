"""Who is hurt: tables with a line for each group, their intervals, figures, and the report's section."""

import csv

import numpy as np
import pytest
from matplotlib.figure import Figure
from reported import record, tables, tree
from scipy import stats
from small import refused

import experiments
from experiments import compare
from experiments.tables import plots

GROUPS = ["urban"] * 5 + ["rural"] * 4 + ["far off"] * 3
NAMES = ("top_k", "dp_fed_avg")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups") / "run"
    options = {"rounds": (5, 10), "seeds": 3, "algorithms": NAMES}
    return folder, record(folder, of_clients=12, of_groups=GROUPS, **options)


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


def test_the_command_writes_every_format(recorded, tmp_path, capsys):
    folder, _ = recorded
    given = ["--by", "group", "--above", "dp_fed_avg", "--output", str(tmp_path / "out")]
    assert compare.main([str(folder), *given]) == 0
    said = capsys.readouterr().out
    lines = [line.split(" | ") for line in said.splitlines() if line.startswith("| run |")]
    assert lines, said
    for name in ("urban", "(worst)", "(gap)", "not private: ", "caption of the figure"):
        assert name in said or name == "not private: "
    with (tmp_path / "out" / "table.csv").open() as file:
        assert [row["group"] for row in csv.DictReader(file)][:3] == ["urban", "rural", "far off"]
    assert (tmp_path / "out" / "figure.png").stat().st_size > 5_000
    assert "far off" in (tmp_path / "out" / "table.tex").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--together"], "--together: it has no meaning by group"),
        (["--best"], "--best: it has no meaning by group"),
        (["--title", "x"], "--title: it has no meaning by group"),
        (["--metric", "f1"], "metric: there is no 'f1'; there are accuracy, auc"),
        (["--above", "nobody"], "above: nobody is in none of these runs"),
    ],
)
def test_what_the_command_refuses(options, said, recorded, capsys):
    assert compare.main([str(recorded[0]), "--by", "group", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_run_without_groups_says_how_to_get_them(tmp_path):
    record(tmp_path / "run", of_clients=3, algorithms=NAMES)
    with refused("^by: nothing was recorded group by group; train with measures.per_group"):
        experiments.table(tmp_path / "run", by="group")
    with refused("^by: nothing was recorded group by group"):
        experiments.figure(tmp_path / "run", tmp_path / "x.png", by="group")
    assert "Who is hurt" not in experiments.report(tmp_path / "run").read_text()


def test_a_figure_has_a_curve_for_each_group_by_round_and_by_epsilon(recorded, tmp_path):
    one = experiments.figure(recorded[0], tmp_path / "one.svg", by="group")
    assert "by round" in one.caption
    assert all(group in one.path.read_text() for group in dict.fromkeys(GROUPS))
    for sigma in (2.0, 4.0):
        options = {"of_clients": 12, "of_groups": GROUPS, "algorithms": ("dp_fed_avg",)}
        record(tmp_path / "sweep" / f"{sigma}", noise_multiplier=sigma, **options)
    both = experiments.figure(tmp_path / "sweep", tmp_path / "both.png", by="group")
    assert "at the end of runs, by certified ε" in both.caption
    with refused("^together: True; by group each algorithm has a panel"):
        experiments.figure(recorded[0], tmp_path / "x.png", by="group", together=True)


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


def test_the_report_says_who_is_hurt_with_the_epsilon_beside(recorded, tmp_path):
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
