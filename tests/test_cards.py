"""How values show: a card in a notebook, one short line in a terminal; nothing of it acts on either."""

import math
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import made
from shown_values import HOSTILE, Shown
from small import regression, squared, start

import fedpriv as fp
from fedpriv import experiments
from fedpriv.core.cards import LONGEST_LINE, Card, Folded, in_a_line
from fedpriv.engine.history import Evaluation
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.search.sweep import Swept
from fedpriv.experiments.training.trained_run import TrainedRun
from fedpriv.privacy import Certificate, Claim

DELTA = 1e-5
FEDERATION = regression([4] * 6, public=4)
ALGORITHM = fp.dp_fed_avg(
    squared,
    sampler=fp.poisson(6, 0.5, 6),
    optimizer=lambda t: optax.sgd(0.1),
    batches=fp.full_batch(),
    clip_norm=1.0,
    noise_multiplier=2.0,
)
CERTIFICATE = fp.certify(ALGORITHM, start(), FEDERATION, 5, DELTA)
CLAIM = Claim(1.5, DELTA, "client", "third_party", "zero_out", "a paper", True, False, ("a", "b"))


def history(seeds=3, certificate=None, metrics=("accuracy", "loss"), rounds=(2, 4, 5)):
    """Made up."""
    rng = np.random.default_rng(0)
    one = np.ones(seeds)
    each = [
        Evaluation(t, {name: rng.uniform(size=seeds) for name in metrics}, one, one, {}, 0.1)
        for t in rounds
    ]
    return fp.History(tuple(range(seeds)), each, certificate=certificate)


def streamed():
    examples = jax.tree.map(np.asarray, FEDERATION.examples)
    return fp.StreamedFederation.from_arrays(examples, np.arange(24).reshape(6, 4))


def swept():
    folder = made("sweep").path
    return Swept(folder, True, [read(each) for each in sorted(folder.glob("[0-9]*"))])


def trained(kind, status="complete"):
    run = read(made(kind).path)
    return TrainedRun(run.path, status, run.history, run.summary)


VALUES = {
    "certificate": lambda: CERTIFICATE,
    "certificate, nothing": lambda: fp.certify(
        fp.fed_sgd(squared, sampler=fp.everyone(6), learning_rate=0.1),
        start(),
        FEDERATION,
        5,
        DELTA,
    ),
    "certificate, not covered": lambda: CERTIFICATE.not_covered(["loss"]),
    "certificate, hostile": lambda: replace(
        CERTIFICATE, event=9 * HOSTILE, assumptions=(HOSTILE,), basis=HOSTILE, of_groups={HOSTILE: CERTIFICATE}
    ),
    "claim": lambda: replace(CLAIM, source=HOSTILE, reasons=(HOSTILE,)),
    "federation": lambda: FEDERATION,
    "federation, streamed": streamed,
    "federation, many leaves": lambda: fp.Federation.from_arrays(
        {f"column {i} {HOSTILE}": np.zeros((6, 2)) for i in range(40)}, np.arange(6).reshape(3, 2)
    ),
    "algorithm": lambda: ALGORITHM,
    "history": lambda: history(certificate=CERTIFICATE),
    "history, not certified": history,
    "history, one seed": lambda: history(1),
    "history, one evaluation": lambda: history(rounds=(1,)),
    "history, nothing": lambda: history(rounds=()),
    "history, hostile": lambda: replace(history(900, metrics=(HOSTILE,)), not_covered=(HOSTILE,)),
    "run": lambda: trained("private"),
    "run, hostile": lambda: trained("interrupted", HOSTILE),
    "run, nothing": lambda: TrainedRun(Path(HOSTILE), "failed: x", {}),
    "run folder": lambda: read(made("private").path),
    "run folder, one seed": lambda: read(made("one seed").path),
    "sweep": swept,
    "figure": lambda: experiments.figure(made("private").path, by="epsilon"),
}  # fmt: skip
each = pytest.mark.parametrize("kind", VALUES)


@each
def test_what_a_notebook_shows_is_a_card_of_escaped_texts(kind):
    """Well-formed, of few tags, without a script or a colour of its own; a hostile text is text."""
    shown = Shown(VALUES[kind]()._repr_html_())
    assert shown.text.strip()
    if "hostile" in kind:
        assert "<script>alert('1')</script>" in shown.text + "".join(shown.folded)
        assert "\x1b" not in shown.text


@each
def test_in_a_terminal_it_is_one_line(kind):
    """Though a run's folder, a column or an event be long."""
    line = repr(VALUES[kind]())
    assert len(line) <= LONGEST_LINE
    assert line.isprintable()


@settings(max_examples=50)
@given(st.text(), st.integers(10, 300))
def test_any_text_in_a_line(text, most):
    line = in_a_line(text, most)
    assert len(line) <= most
    assert line.isprintable()
    if text.isprintable() and len(" ".join(text.split())) <= most:
        assert line == " ".join(text.split())


WORDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=9)


@settings(max_examples=50)
@given(st.tuples(*[WORDS] * 9))
def test_any_text_is_read_back(texts):
    """By a parser of HTML, in the order of the card."""
    kind, title, name, value, head, cell, note, fold, line = texts
    card = Card(
        kind, title, [(name, value)], [[head], [cell]], None, [note], [Folded(fold, [line])]
    )
    shown = Shown(card.html())
    assert [x for x in shown.seen if x.strip()] == [
        kind,
        title,
        name,
        value,
        head,
        cell,
        note,
        fold,
    ]
    assert shown.folded == [line]


def test_an_epsilon_is_seen_with_all_that_it_needs():
    """Event and assumptions are behind a fold."""
    for number, basis in ((CERTIFICATE, "constructed"), (CLAIM, "claimed, not proved")):
        shown = Shown(number._repr_html_())
        needed = (f"ε = {number.epsilon:.4g} at δ = 1e-05", "client", "third_party", basis)
        adjacency = number.relation.replace("_", "-")
        for part in (*needed, adjacency):
            assert part in shown.text
        for text in (adjacency, number.unit, number.view, "epsilon", "delta"):
            assert text in repr(number)
    shown = Shown(CERTIFICATE._repr_html_())
    assert {CERTIFICATE.event, *CERTIFICATE.assumptions} <= {*shown.folded}
    assert not {CERTIFICATE.event, *CERTIFICATE.assumptions} & {*shown.seen}
    nothing = Shown(VALUES["certificate, nothing"]()._repr_html_())
    assert "ε = ∞" in nothing.text
    assert "no noise" in nothing.text


def test_str_of_a_certificate_is_the_whole_sentence():
    assert str(CERTIFICATE).endswith(CERTIFICATE.event)
    assert f"epsilon {CERTIFICATE.epsilon:.4g} at delta 1e-05 certified (constructed)" in str(
        CERTIFICATE
    )


def test_a_history_shows_an_epsilon_only_of_a_certificate():
    bare, certified = (
        Shown(history()._repr_html_()),
        Shown(history(certificate=CERTIFICATE)._repr_html_()),
    )
    assert "ε" not in bare.text
    assert "not certified here" in bare.text
    assert "all rounds that were planned" in bare.text
    assert certified.text.endswith(Shown(CERTIFICATE._repr_html_()).text)
    one = Shown(history(1, certificate=CERTIFICATE)._repr_html_())
    assert "ONE model (one seed)" in certified.text
    assert "ONE model" not in bare.text + one.text
    chosen = replace(history(), not_covered=("train_loss",))
    assert "train_loss" in Shown(chosen._repr_html_()).text


def test_a_history_shows_mean_and_deviation_over_seeds():
    made_up = history()
    values = made_up.loss[-1]
    expected = f"{np.mean(values):.4g} ± {np.sqrt(np.sum((values - values.mean()) ** 2) / 2):.2g}"
    shown = Shown(made_up._repr_html_())
    assert shown.seen[shown.seen.index("loss") + 1] == expected
    percent = shown.seen[shown.seen.index("accuracy") + 1]
    assert percent.startswith(f"{100 * made_up.accuracy[-1].mean():.4g} ± ")
    assert percent.endswith(" %")
    assert len(shown.alt) == 1
    assert Shown(history(rounds=(3,))._repr_html_()).alt == []  # one point is no curve


def test_a_federation_shows_no_record():
    """Its numbers would be found: each is one of a kind."""
    values = np.arange(24, dtype=np.float32).reshape(12, 2) + 31337
    for kind in (fp.Federation, fp.StreamedFederation):
        federation = kind.from_arrays({"x": values}, np.arange(12).reshape(4, 3))
        for text in (repr(federation), federation._repr_html_()):
            assert "3133" not in text
            assert "4 clients, up to 3 records each" in text
            assert "float32[12, 2]" in text


def test_a_run_shows_its_table_and_what_its_epsilons_mean():
    """Also once its folder is gone."""
    run = trained("private")
    shown = Shown(replace(run, folder=Path("gone"))._repr_html_())
    for name in ("DP-FedAvg", "Fed-SMP top_k", "FedAvg"):
        assert name in shown.seen
    epsilon = run.certificates["top_k"]["third_party"].epsilon
    assert math.isfinite(epsilon)
    assert f"{epsilon:.4g}" in shown.seen
    for part in ("client level", "delta 1e-06", "third_party", "add-or-remove", "constructed"):
        assert part in shown.text
    assert Shown(read(made("private").path)._repr_html_()).seen[4:] == shown.seen[4:]


def test_histories_of_a_run_have_the_certificate_of_its_summary():
    for kind in ("private", "interrupted"):
        run = read(made(kind).path)
        for name, of in run.history.items():
            assert isinstance(of.certificate, Certificate)
            assert of.certificate == run.certificates[name]["third_party"]


def test_a_figure_without_a_path_is_shown_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = experiments.figure(made("private").path, by="epsilon")
    assert drawn.path is None
    assert not [*tmp_path.iterdir()]
    assert drawn._repr_png_().startswith(b"\x89PNG")
    shown = Shown(drawn._repr_html_())
    assert shown.alt == [drawn.caption]
    assert drawn.caption in shown.seen  # an axis of epsilons is nothing without it
    assert "client level" in drawn.caption


@pytest.mark.parametrize("name", ["f.pdf", "f.svg"])
def test_a_figure_with_a_path_is_written_and_shown(name, tmp_path):
    in_memory = experiments.figure(made("private").path)
    drawn = experiments.figure(made("private").path, tmp_path / name)
    assert drawn.path == tmp_path / name
    assert [each.name for each in tmp_path.iterdir()] == [name]
    # Once it has been drawn, panels may move by a pixel: first come format and size.
    assert drawn._repr_png_()[:24] == in_memory._repr_png_()[:24]
    assert str(tmp_path / name) in repr(drawn)
