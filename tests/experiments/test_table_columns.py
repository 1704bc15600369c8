"""The reference names every column of every frame that `experiments.table` gives."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import made

from fedpriv import experiments
from fedpriv.core.json_values import flat
from fedpriv.experiments.runs.run_folder import read_all
from fedpriv.experiments.tables import frame as frames
from fedpriv.privacy import VIEWS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "table_columns.md"
KNOWN = {*re.findall(r"`(\w+)`", PAGE.read_text())}
VIEW = re.compile(rf"(?<=^certified_)(?:{'|'.join(sorted(VIEWS, key=len, reverse=True))})(?=_)")


def as_on_the_page(column, metrics):
    """A column's name without what is particular: the metric, the view, the group."""
    for metric in sorted(metrics, key=len, reverse=True):
        column = re.sub(rf"^{re.escape(metric)}(?:_not_private)?(?=_)", "", column)
    column = VIEW.sub("VIEW", column)
    return re.sub(r"(?<=^certified_VIEW_epsilon_of_).*", "GROUP", column)


def unknown(frame, metrics):
    return {name for column in frame if (name := as_on_the_page(column, metrics)) not in KNOWN}


MEAN = "held_out_auc_mean"
FRAMES = {
    "plain": ("private", ["accuracy", "loss"], {}),
    "lead": ("private", ["accuracy", "loss"], {"above": "top_k"}),
    "clients": ("clients", [MEAN], {"metric": MEAN, "above": "top_k"}),
    "by client": ("clients", ["auc"], {"by": "client", "metric": "auc", "above": "top_k"}),
    "by name": ("named clients", ["auc"], {"by": "client", "metric": "auc"}),
    "by group": ("groups", ["auc"], {"by": "group", "metric": "auc", "above": "top_k"}),
    "statistics": ("statistics", ["accuracy", "loss"], {}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_every_column_stands_on_the_page(name):
    kind, metrics, asked = FRAMES[name]
    frame = experiments.table(made(kind).path, **asked)
    assert len([*frame]) > 10
    assert unknown(frame, metrics) == set()


def test_a_sweep_has_its_settings_as_columns():
    """Each beside the setting of the point's run; of one run there are none."""
    (runs, _), folder = read_all([made("sweep").path]), made("sweep").path
    frame = experiments.table(folder).set_index("folder")
    of = {str(run.path): flat(run.begun.settings) for run in runs}
    swept = ["target_epsilon"]
    metrics = ["accuracy", "loss"]
    assert unknown(frame.reset_index(), metrics) == {*swept}
    for name in swept:
        assert frame[name].nunique() == len(runs) > 1
        for path, value in frame[name].items():
            assert value == of[path][name]
    assert unknown(experiments.table(runs[0].path), metrics) == set()


def test_a_setting_whose_name_is_taken():
    runs, _ = read_all([made("plain").path])
    pair = [
        replace(one, begun=replace(one.begun, settings=one.begun.settings | {"rounds": rounds}))
        for one, rounds in zip(runs * 2, (3, 5), strict=True)
    ]
    lines = frames.records(frames.rows(pair))
    assert {line["swept_rounds"] for line in lines} == {3, 5}
    assert len({line["rounds"] for line in lines}) == 1


def test_a_column_that_is_not_there_is_found():
    frame = ["auc_low", "auc_not_private_lead_how", "auc_middle", "certified_server_secagg_basis"]
    frame += ["certified_server_epsilon_of_far off", "certified_nobody_basis", "costs"]
    assert unknown(frame, ["auc"]) == {"_middle", "certified_nobody_basis", "costs"}
