"""The inversion command at tiny size: what it writes, what it says, wrong input."""

import json

import jax
import numpy as np
import pytest

from fedpriv import datasets
from fedpriv.core.trees import dimension
from fedpriv.experiments.attacks.inversion import inversion
from fedpriv.experiments.attacks.inversion.attack import attacker
from fedpriv.experiments.attacks.inversion.views import all_seen, as_read, draw_victims
from fedpriv.experiments.commands import inversion as command
from fedpriv.experiments.papers.reproduce import mspdq_defence

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]
SMALL = ["--data", "digits", "--victims", "2"]


def kept(*names):
    """Some of the rows only."""
    return lambda loss, victims: {
        name: seen for name, seen in all_seen(loss, victims).items() if name in names
    }


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        inversion, "all_seen", kept("FedAvg, one step (gradient)", "MSP-FL", "DP-SGD, sigma = 1")
    )
    assert command.main([*SMALL, "--steps", "120", "--output", str(tmp_path)]) == 0
    table = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if " | " in line]
    names = [row[0].strip("| ") for row in table[2:]]
    assert names == [
        "nothing (mean image)",
        "FedAvg, one step (gradient)",
        "DP-SGD, sigma = 1",
        "MSP-FL, first submodel",
        "MSP-FL, last submodel",
        "MSP-FL, by transcript",
    ]
    assert (tmp_path / "victims.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "inversion.json").read_text())
    assert written["settings"] == {"data": "digits", "victims": 2, "steps": 120, "seed": 0}
    rows = {row["view"]: row for row in written["views"]}
    gradient, transcript = rows["FedAvg, one step (gradient)"], rows["MSP-FL, by transcript"]
    assert max(gradient["mse"]) < 0.05 < min(rows["MSP-FL, first submodel"]["mse"])
    assert transcript["mse"] == pytest.approx(gradient["mse"], abs=0.02)
    assert gradient["cosine"] == pytest.approx([1, 1], abs=1e-4)
    assert gradient["label_accuracy"] == transcript["label_accuracy"] == 1
    assert gradient["certificate"]["epsilon"] == transcript["certificate"]["epsilon"] == "inf"
    private = rows["DP-SGD, sigma = 1"]["certificate"]
    assert private["unit"] == "record"
    assert private["view"] == "server"
    assert 4 < private["epsilon"] < 5
    assert "ssim" not in gradient  # eight pixels


ALIKE = ("FedAvg, QSGD 4 bits", "DP-FedAvg, sigma = 0.01", "DP-FedAvg, sigma = 0.1")
"""Rows that differ from others in a number alone."""


def test_every_row_can_be_seen_and_read():
    """By shapes: the update of every client, on the model's coordinates."""
    victims = draw_victims(datasets.load("digits"), 3, 1)
    d = dimension(victims.params)
    for name, seen in all_seen(victims.model.loss, 3).items():
        if name in ALIKE:
            continue
        shapes = jax.eval_shape(lambda seen=seen: inversion.views(victims, seen, 1))
        view = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
        if view.transcript is not None:
            drawn = np.random.default_rng(0).normal(size=view.transcript.shape)
            view = view._replace(transcript=drawn.astype(np.float32))
        split = "MSP" in name
        assert (view.transcript is not None) == split == (seen.readings != ("update",)), name
        for reading in seen.readings:
            shown = as_read(view, victims.params, reading)
            assert shown.update.shape == (3, d), name
            assert shown.sent.shape == (d,), name


def test_scores_of_figure_6():
    """The first message of MSP + Lap hides the image, the whole transcript does not."""
    (chosen,) = (p for p in mspdq_defence.points() if p.x == 10 and p.curve == "MSP + Lap")
    victims = draw_victims(datasets.load("digits"), 2, 0)
    rows = mspdq_defence.attacked(chosen, victims, attacker(victims, 100, 0), 0)
    scores = {row["reading"]: row["value"] for row in rows}
    assert scores["transcript"] < 0.05 < scores["first"]


def test_secret_weights_are_searched():
    """Of three unlike weights; taken to be alike, they hide the update."""
    (chosen,) = (p for p in mspdq_defence.secret_points() if (p.curve, p.x) == ("submodel", 3))
    victims = draw_victims(datasets.load("digits"), 4, 0)
    one = victims._replace(images=victims.images[:1], labels=victims.labels[:1])
    rows = mspdq_defence.attacked(chosen, one, attacker(one, 2, 0), 0)
    cosines = {row["reading"]: row["cosine"] for row in rows}
    assert cosines["weights"] > 0.97 > cosines["transcript"]


def test_all_of_figure_6_is_there(monkeypatch):
    """Attacked as trained: `split` gets the options of training, under its own names."""
    found = mspdq_defence.points()
    assert len({(p.group, p.curve, p.x) for p in found}) == len(found) == 3 * 7 + 4 * 2
    monkeypatch.setattr(mspdq_defence, "split", lambda loss, victims, **given: given)
    for p in (p for p in found if p.name == "mspdq_fl"):
        given = p.algorithm(None, 2)
        assert p.options["exchanges"] == mspdq_defence.EXCHANGES[p.options["bits"]]
        for theirs, ours in (
            ("bits", "bits"),
            ("exchanges", "exchanges"),
            ("splitting_factor", "factor"),
            ("interval", "norm"),
            ("gamma", "gamma"),
        ):
            assert given.get(ours) == p.options.get(theirs)
    (noisy,) = {
        p.algorithm(None, 2)["epsilon"] for p in found if p.curve == "MSP + Lap" and p.x == 3
    }
    assert noisy == 3
