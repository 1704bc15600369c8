"""The config of public groups: whose images are of which kind, and what is recorded of the groups."""

from dataclasses import replace

import numpy as np
import pytest
from prepared import write_random
from small import refused
from tiers import every

from configs import who_is_hurt
from fedpriv import experiments
from fedpriv.experiments.config.made import experiment_of
from fedpriv.experiments.tables.terminal import table

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = {"clients": 9, "cohort": 4, "epochs": 1, "hidden": 2, "rounds": 2, "every": 1, "seeds": 2}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_random(folder, "fashion_mnist", "emnist/bymerge", train=200, test=140)
    return folder


@every("data", ["fashion_mnist", "emnist"])
def test_every_client_holds_images_of_its_groups_kind(data, data_dir):
    settings = replace(who_is_hurt.settings, data=data, data_dir=data_dir, clients=9, cohort=4)
    made = experiment_of(who_is_hurt, settings)
    assert len(made.groups) == 9
    assert len(made.groups_of_test) == len(made.test["label"])
    assert {*made.groups} == {*made.groups_of_test}
    _, kinds = who_is_hurt.in_kinds(settings, who_is_hurt.load(settings).train)
    first, other, _ = made.entries["fed_avg"].federations
    assert not np.array_equal(first.rows, other.rows)
    for federation in (first, other):
        for i, group in enumerate(made.groups):
            own = [federation.rows[i], federation.held_out.rows[i]]
            assert {*kinds[np.concatenate(own)]} == {group}
    if data == "emnist":
        digits = np.array(made.test["label"]) < 10
        assert (np.array(made.groups_of_test) == "digits").tolist() == digits.tolist()


def test_the_groups_of_images_are_turned_and_no_image_is_lost(data_dir):
    settings = replace(who_is_hurt.settings, data_dir=data_dir)
    before = who_is_hurt.load(settings).train["image"]
    after, kinds = who_is_hurt.in_kinds(settings, {"image": before, "label": np.zeros(len(before))})
    for i, kind in enumerate(kinds):
        turned = np.rot90(before[i], list(who_is_hurt.TURNED).index(kind))
        np.testing.assert_array_equal(after["image"][i], turned)
    shares = [np.mean(kinds == kind) for kind in who_is_hurt.TURNED]
    np.testing.assert_allclose(shares, who_is_hurt.SHARES)


@pytest.mark.slow
def test_a_run_records_every_group_of_each_seed(data_dir, tmp_path):
    """For stopping and tables, too; the certificate is that of the run without groups."""
    run = experiments.run(
        "who_is_hurt",
        algorithms=("dp_fed_avg",),
        metric="held_out_accuracy_worst_group",
        patience=5,
        not_covered=("held_out_accuracy_worst_group",),
        data_dir=data_dir,
        folder=tmp_path / "run",
        **SMALL,
    )
    history = run.history["dp_fed_avg"]
    each = [history.metric(f"held_out[{g}]_accuracy_mean") for g in who_is_hurt.TURNED]
    expected = np.min(each, 0)
    np.testing.assert_allclose(history.metric("held_out_accuracy_worst_group"), expected)
    assert history.metric("test_accuracy_group_gap").shape == (2, 2)
    frame = experiments.table(run, by="group")
    assert frame["kind"].tolist() == ["held_out"] * 5  # as the run shows such
    assert frame["clients"].tolist()[:3] == [7, 1, 1]
    text = " ".join(table(run.summary).split())
    assert "held_out_accuracy_worst_group: %, of the shared model on the records" in text
    assert "by group, after the last round" in text


@pytest.mark.slow
def test_wrong_settings(data_dir, tmp_path):
    options = {"data_dir": data_dir, "folder": tmp_path / "run", **SMALL}
    with refused("^clients: 2 is too few for three groups"):
        experiments.run("who_is_hurt", **options | {"clients": 2, "cohort": 1})
    with refused("^metric: there is no 'held_out_f1_worst_group'; the score"):
        experiments.run("who_is_hurt", **options, metric="held_out_f1_worst_group")
