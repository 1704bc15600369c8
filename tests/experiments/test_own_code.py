"""A config of the user's own: it imports what lies beside it, and what it was is part of a run."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from resumed import KilledError, Stop, files_of
from small import refused

import configs
from fedpriv import experiments
from fedpriv.experiments.base import user_modules
from fedpriv.experiments.commands import privacy, sweep
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.runs import unfinished
from fedpriv.experiments.search import sweep_folder, sweep_grid

pytestmark = pytest.mark.usefixtures("quick_to_compile", "compiled_once")

SMALL = ["--rounds", "3", "--every", "1", "--checkpoint.rounds", "1", "--clients", "60"]


@pytest.fixture
def mine(tmp_path):
    """A config with its rates in a module beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    source = Path(configs.__file__).with_name("quickstart.py").read_text()
    source = source.replace("seeds=3", "seeds=SEEDS").replace(
        '"""\n', f'"""\nfrom beside_{tmp_path.name} import SEEDS\n', 1
    )
    (folder / "mine.py").write_text(source)
    (folder / f"beside_{tmp_path.name}.py").write_text("SEEDS = 1\n")
    return folder / "mine.py"


@pytest.fixture
def beside(mine, tmp_path):
    return mine.with_name(f"beside_{tmp_path.name}.py")


def test_what_lies_beside_a_config_is_found_and_told(mine, beside):
    module = modules.load(str(mine))
    assert module.settings.seeds == 1
    before = user_modules.digests(module)
    assert {"mine.py", beside.name} <= before.keys()  # and the tests' own modules
    assert not any("numpy" in name or "fedpriv/" in name for name in before)
    beside.write_text("SEEDS = 2\n")
    after = user_modules.digests(module)
    assert [name for name in before if before[name] != after[name]] == [beside.name]
    assert user_modules.digests(modules.load("quickstart")) == {}


class Halves:
    """A config that loads its data by itself."""

    settings = modules.load("quickstart").settings

    def load(self, settings):
        raise NotImplementedError

    def on(self, settings, data):
        raise NotImplementedError


def test_code_of_an_object_in_halves_and_of_a_module_without_a_file():
    """The file of what makes the experiment counts; what a notebook has made has none."""
    assert Path(__file__).name in user_modules.digests(Halves())
    module = ModuleType("odd", "Of a notebook.")
    module.settings, module.build = Halves.settings, eval("lambda settings: None")
    assert modules.named(module) == ("odd", module)
    assert user_modules.digests(module) == {}


def planned(mine, values, **settings):
    module = modules.load(str(mine))
    grid, config = [("clip_norm", values)], changed(module.settings, settings)
    points = sweep_grid.points(grid, lambda one: changed(config, one))
    return sweep_folder.sweep_description(str(mine), module, sweep_grid.axes(grid), points)


def grown(folder, mine, values, **settings):
    return sweep_folder.read_sweep_folder(
        folder, planned(mine, values, **settings), modules.load(str(mine))
    )


@pytest.mark.slow
def test_code_that_is_loaded_later_or_lies_elsewhere_counts(mine, tmp_path, monkeypatch):
    elsewhere = tmp_path / "library"
    elsewhere.mkdir()
    (elsewhere / f"far_{tmp_path.name}.py").write_text("N = 1\n")
    monkeypatch.syspath_prepend(elsewhere)
    module = modules.load(str(mine))
    importlib.import_module(f"far_{tmp_path.name}")  # as `build` would
    name = f"../library/far_{tmp_path.name}.py"
    before = user_modules.digests(module)
    assert name in before
    monkeypatch.delitem(sys.modules, f"far_{tmp_path.name}")
    assert name not in user_modules.digests(module)
    assert user_modules.digests(module, [name])[name] == before[name]
    (elsewhere / f"far_{tmp_path.name}.py").write_text("N = 2\n")
    assert user_modules.digests(module, [name])[name] != before[name]


@pytest.mark.slow
def test_a_sweep_grows_by_points_and_not_by_other_code(mine, beside, tmp_path):
    folder = tmp_path / "sweep"
    sweep_folder.begin_sweep_folder(folder, planned(mine, [1, 2]))
    assert grown(folder, mine, [1, 2, 4])
    with pytest.raises(ValueError, match=r"another sweep: grid.clip_norm 1 2 there, 2 4 here"):
        grown(folder, mine, [2, 4])
    with pytest.raises(ValueError, match=r"another sweep: rounds 60 there, 3 here"):
        grown(folder, mine, [1, 2, 4], rounds=3)
    beside.write_text("SEEDS = 2\n")
    with pytest.raises(ValueError, match=rf"another sweep: code.{beside.name} \w+ there, \w+ here"):
        grown(folder, mine, [1, 2])


@pytest.mark.slow
def test_rounds_that_cost_something_else_now_are_not_gone_on_with(mine, tmp_path, capsys):
    """Or all of them would be told to cost what the config says now."""
    folder, source = tmp_path / "run", mine.read_text()
    words = [str(mine), *SMALL, "--algorithms", "dp_fed_avg", "--output", str(folder)]
    with pytest.raises(KilledError):
        main(words, sinks=[Stop("dp_fed_avg", 2)])
    other = "(__import__('dataclasses').replace(settings, noise_multiplier=40.0), "
    for name in ("ledger", "experiment"):
        assert f" {name}(settings, " in source.replace("fed_smp.ledger", "ledger")
        source = source.replace(f"{name}(settings, ", f"{name}{other}")
    mine.write_text(source)
    before = files_of(folder)
    assert main(["--resume", str(folder)]) == 2
    assert "says that 2 rounds of dp_fed_avg cost epsilon" in capsys.readouterr().err
    assert files_of(folder) == before


@pytest.mark.slow
def test_a_run_says_what_it_was_and_warns_of_other_code(mine, beside, tmp_path, capsys):
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        main(
            [str(mine), *SMALL, "--algorithms", "fed_avg", "--output", str(folder)],
            sinks=[Stop("fed_avg", 2)],
        )
    assert (folder / "code" / beside.name).read_text() == "SEEDS = 1\n"
    beside.write_text("SEEDS = 1  # as before\n")
    moved = mine.rename(mine.with_name("moved.py"))
    with pytest.raises(ValueError, match=r"is of .*mine.py, which no longer exists; say where"):
        unfinished.earlier(folder)
    moved.rename(mine)
    assert main(["--resume", str(folder)]) == 0
    assert f"another environment: code.{beside.name}" in capsys.readouterr().err
    [entry] = json.loads((folder / "config.json").read_text())["resumed"]
    assert len(entry["differs"]) == 1
    assert (folder / "code" / beside.name).read_text() == "SEEDS = 1\n"
    assert (folder / "code" / "resumed-1" / beside.name).read_text() != "SEEDS = 1\n"
    elsewhere = mine.rename(tmp_path / mine.name)
    assert main(["--resume", str(folder)]) == 2
    assert main([str(elsewhere), "--resume", str(folder)]) == 0
    assert privacy.main([str(elsewhere), "--verify", str(folder)]) == 0


DIGITS = '''
"""Digits: personal heads, evaluated on the records that clients hold out."""
import fedpriv as fp, optax
from fedpriv.experiments.config import Entry, Experiment, Layout, Settings, federations

settings = Settings(
    rounds=10, every=5, per_client=20, metric="personal_accuracy_mean", layout=Layout(devices=1))
MODEL = fp.models.classifier(fp.models.MLP((16,), 10), (8, 8, 1))

def load(settings):
    return fp.datasets.load("digits", settings.data_dir)

def on(settings, data):
    deal = lambda rng: fp.partition.dirichlet(rng, data.train["label"], clients=20, alpha=0.3)
    dealt = federations(data, settings.seeds, deal, held_out=0.2)
    fed_per = fp.fed_per(
        MODEL.loss, head=("Dense_1",), mechanism=fp.gaussian(1.0, 1.0), sampler=fp.poisson(20, rate=0.5),
        optimizer=lambda t: optax.sgd(0.1), batches=fp.epochs(1, 10))
    return Experiment(MODEL, data.test, 1e-3, {"fed_per": Entry(fed_per, dealt)})
'''


@pytest.mark.slow
def test_a_config_that_holds_records_out(tmp_path):
    """Its metric is that of personal models, and a fold can be held out."""
    (tmp_path / "my_digits.py").write_text(DIGITS)
    module = str(tmp_path / "my_digits.py")
    run = experiments.run(module, folder=tmp_path / "run", progress=False)
    assert run.summary.metric == "personal_accuracy_mean"
    history = run.history["fed_per"]
    mean = run.summary.final_not_private["fed_per"]["personal_accuracy_mean"].mean
    assert mean == history.metric("personal_accuracy_mean")[-1]
    assert mean > 0.5 > history.metric("held_out_accuracy_mean")[-1]
    with refused("^state: there is none; .* the commands, which keep only shared models"):
        history.state_of(0)
    options = ["--grid", "per-client=5", "--folds", "2", "--rounds", "1"]
    assert sweep.main([module, *options, "--output", str(tmp_path / "swept")]) == 0
    caption = (tmp_path / "swept" / "table.md").read_text()
    assert "personal_accuracy_mean after the last round, on records of single clients" in caption
