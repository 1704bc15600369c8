"""Runs with many evaluations: read in linear time, drawn by a part of their points, certified once."""

import itertools
import json
import time

import numpy as np
import pytest
from reported import ledger_of, record

from fedpriv import experiments
from fedpriv.certification.traced_round import TracedRound
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.runs import run_folder
from fedpriv.experiments.tables.report.page import page
from fedpriv.experiments.tables.thinning import MOST, drawn


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Makes a run folder of so many evaluations, from one that the recorder wrote."""
    made = tmp_path_factory.mktemp("long")
    record(made / "first", rounds=(5,), seeds=2, algorithms=("dp_fed_avg",), status=None)
    (line,) = map(json.loads, (made / "first" / "metrics.jsonl").read_text().splitlines())

    def of(evaluations):
        folder, rng = made / str(evaluations), np.random.default_rng(0)
        if not folder.exists():
            folder.mkdir()
            (folder / "config.json").write_bytes((made / "first" / "config.json").read_bytes())
            with (folder / "metrics.jsonl").open("w") as file:
                for t in range(1, evaluations + 1):
                    accuracy = rng.uniform(0.2, 0.8, 2).tolist()
                    line["metrics"]["accuracy"] |= {"mean": accuracy[0], "per_seed": accuracy}
                    file.write(json.dumps(line | {"round": t}) + "\n")
        return folder

    return of


@pytest.mark.slow
def test_reading_is_linear_and_keeps_equal_texts_once(long):
    def seconds(folder):
        begun = time.process_time()
        run_folder.read(folder)
        return time.process_time() - begun

    few, many = long(500), long(2000)
    seconds(few)
    assert min(seconds(many) for _ in range(3)) < 10 * min(seconds(few) for _ in range(3))
    lines = run_folder.read(few).lines["dp_fed_avg"]
    certified = [line.privacy.certified for line in lines]
    texts = [text for c in certified for text in (c.event, c.unit, *c.assumptions)]
    assert len({id(text) for text in texts}) == len(set(texts))


@pytest.mark.slow
def test_a_page_of_a_long_run_is_small_and_says_what_it_leaves_out(long, tmp_path):
    """Frames and files of data leave out nothing."""
    runs = {n: run_folder.read(long(n)) for n in (1000, 4000)}
    pages = {n: page([run]) for n, run in runs.items()}
    assert len(pages[4000]) < 1.1 * len(pages[1000])
    left_out = "at most 1,000 points are drawn"
    assert left_out in pages[4000]
    assert left_out not in pages[1000]
    assert "of 4,000 evaluations: the first, the last, and the extremes" in pages[4000]
    assert "Every evaluation." in pages[1000]
    captions = [experiments.figure(run, tmp_path / "f.svg").caption for run in runs.values()]
    assert [left_out in caption for caption in captions] == [False, True]
    assert len(runs[4000].history["dp_fed_avg"].evaluations) == 4000
    best = max(line.metrics["accuracy"].per_seed[0] for line in runs[4000].lines["dp_fed_avg"])
    assert runs[4000].results.best["dp_fed_avg"]["accuracy"].per_seed[0] == best


@pytest.mark.parametrize("most", [4, 7, 1000])
def test_what_is_drawn_keeps_ends_extremes_and_gaps(most):
    rng = np.random.default_rng(0)
    for n in (1, 3, most, most + 1, 5 * most + 3):
        values = rng.normal(size=n)
        values[n // 3 : n // 2] = np.nan
        kept = drawn(values, most)
        assert len(kept) <= most
        assert (np.diff(kept) > 0).all()
        assert {kept[0], kept[-1]} == {0, n - 1}
        if n > most:
            inside = values[1:-1]
            assert {np.nanargmin(inside) + 1, np.nanargmax(inside) + 1} <= {*kept}
            assert most < 1000 or np.isnan(values[kept]).any()
        else:
            assert len(kept) == n
    assert MOST == 1000


@pytest.mark.slow
def test_a_run_certifies_each_of_its_rounds_once(monkeypatch, tmp_path):
    """For a view; the line, the bar, the summary and going on ask for the same ones."""
    asked, own = [], TracedRound.certify

    def counting(self, rounds, delta, **options):
        asked.append((id(self), rounds, delta, *sorted(options.items())))
        return own(self, rounds, delta, **options)

    monkeypatch.setattr(TracedRound, "certify", counting)
    module = modules.load("quickstart")
    ledger = module.ledger(changed(module.settings, {"algorithms": ["dp_fed_avg"]}))
    for rounds, _ in itertools.product((5, 10, 20), range(3)):
        first = ledger.certify("dp_fed_avg", rounds)
        assert ledger.certify("dp_fed_avg", rounds, view="third_party") is first
    assert len(asked) == 3
    asked.clear()
    ledger_of.cache_clear()  # recorded runs share theirs
    record(tmp_path / "run", rounds=(5, 10, 20), algorithms=("dp_fed_avg", "fed_avg"))
    assert asked
    assert len(asked) == len(set(asked))
