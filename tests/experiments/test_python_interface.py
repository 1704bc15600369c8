"""`experiments` from Python: the same runs as the commands', typed results, errors as exceptions."""

import dataclasses
import importlib
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from resumed import SMALL as WORDS
from shown_values import Shown

from configs import quickstart
from fedpriv import experiments
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.runs.recorder import Recorder

pytestmark = pytest.mark.usefixtures("quick_to_compile", "compiled_once")

SMALL = {"clients": 12, "cohort": 5, "sampling": "fixed_size", "capacity": 5, "public_examples": 5}
SMALL |= {"layout": {"devices": 1}, "local": {"epochs": 1}}  # as `WORDS`
SHORT = {"rounds": 4, "every": 2, "seeds": 2, "algorithms": ("dp_fed_avg",), **SMALL}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    return experiments.run("quickstart", folder=folder, progress=False, **SHORT)


def lines(folder):
    found = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k != "seconds_not_private"} for line in found]


@pytest.mark.slow
def test_it_is_the_commands_run(trained, tmp_path):
    words = ["--rounds", "4", "--every", "2", "--seeds", "2", "--algorithms", "dp_fed_avg"]
    assert main([*WORDS, *words, "--output", str(tmp_path / "r")]) == 0
    assert lines(tmp_path / "r") == lines(trained.folder)
    for model in (tmp_path / "r" / "model").rglob("*.safetensors"):
        same = trained.folder / model.relative_to(tmp_path / "r")
        assert model.read_bytes() == same.read_bytes()


@pytest.mark.slow
def test_what_is_interrupted_is_returned_and_goes_on_in_a_thread(trained, tmp_path, monkeypatch):
    evaluation = Recorder.evaluation

    def interrupting(self, *given):
        evaluation(self, *given)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "evaluation", interrupting)
        run = experiments.run("quickstart", folder=tmp_path / "r", progress=False, **SHORT)
    assert run.status == "interrupted"
    assert run.summary.rounds == {"dp_fed_avg": 2}
    for one in (run, trained):
        own = one.certificates["dp_fed_avg"]["third_party"]
        assert one.history["dp_fed_avg"].certificate == own
        assert Shown(one._repr_html_()).seen.count(f"{own.epsilon:.4g}") == 1
    with ThreadPoolExecutor(1) as pool:  # a thread hears of no signals
        again = pool.submit(experiments.resume, tmp_path / "r", progress=False).result()
    assert again.status == "complete"
    assert lines(tmp_path / "r") == lines(trained.folder)


@pytest.mark.slow
def test_what_fails_is_an_exception_with_what_there_is(tmp_path):
    hot = SHORT | {"algorithms": ("fed_avg",), "local": {"epochs": 1, "learning_rate": 1e30}}
    with pytest.raises(experiments.TrainingError, match="diverged: fed_avg") as caught:
        experiments.run("quickstart", folder=tmp_path / "r", progress=False, **hot)
    assert caught.value.run.folder == tmp_path / "r"
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["status"].startswith(
        "diverged"
    )


def test_settings_of_any_form_are_the_same():
    config = quickstart.settings
    wanted = dataclasses.replace(
        config, rounds=3, local=dataclasses.replace(config.local, epochs=2)
    )
    for given in ({"local.epochs": 2}, {"local": {"epochs": 2}}, {"local": wanted.local}):
        assert changed(config, {"rounds": np.int64(3), **given}) == wanted


@pytest.mark.slow
def test_a_sweep_is_a_table_a_figure_and_a_page(trained, tmp_path):
    noises = {"noise_multiplier": [2, 3.0]}
    swept = experiments.sweep("quickstart", noises, folder=tmp_path / "s", progress=False, **SHORT)
    assert swept.complete
    assert [run.settings["noise_multiplier"] for run in swept.runs] == [2.0, 3.0]
    frame = experiments.table([trained, swept])
    assert frame["run"].tolist() == [f"noise multiplier = {noise}" for noise in (4, 2, 3)]
    accuracy = np.mean(trained.history["dp_fed_avg"].accuracy[-1], dtype=float)
    assert frame["accuracy_final_mean"][0] == pytest.approx(accuracy)
    drawn = experiments.figure(swept, tmp_path / "f.png")
    assert drawn.path.stat().st_size > 5000
    assert "on the test set" in drawn.caption
    page = experiments.report([trained, tmp_path / "s"], tmp_path / "page.html")
    assert "noise_multiplier" in page.read_text()


@pytest.mark.slow
def test_a_budget_costs_what_a_run_with_it_would():
    """The noise that is solved for, and the rounds that are allowed, not the config's."""
    (aimed,) = experiments.privacy("quickstart", **SHORT, target_epsilon=2.0, view="third_party")
    assert 2 * (1 - 1e-3) < aimed.certificates[0].epsilon <= 2
    within = SHORT | {"algorithms": ("fed_avg", "dp_fed_avg"), "rounds": 60}
    private, plain = experiments.privacy("quickstart", **within, stop_at_epsilon=1.0, delta=0.065)
    assert private.rounds < plain.rounds == 60
    assert {c.view: c for c in private.certificates}["third_party"].epsilon <= 1


def test_an_edited_file_is_another_config(tmp_path):
    file = tmp_path / "edited.py"
    for noise in (2.0, 3.0):
        text = (
            '"""One\'s own."""\nfrom dataclasses import replace\nfrom configs import quickstart\n'
        )
        text += f"settings = replace(quickstart.settings, noise_multiplier={noise})\n"
        text += "load, on = quickstart.load, quickstart.on\n"
        file.write_text(text)
        name, module = modules.named(file)
        assert name == str(file)
        assert module.settings.noise_multiplier == noise


class Mine:
    """A config that is an object."""

    def __init__(self):
        self.settings = dataclasses.replace(quickstart.settings, rounds=2, every=2, seeds=1)

    def build(self, settings):
        found = quickstart.on(settings, quickstart.load(settings))
        named = {key: of._replace(name="Ours, $q$") for key, of in found.entries.items()}
        return dataclasses.replace(found, entries=named)


@pytest.mark.slow
def test_an_object_is_a_config(tmp_path):
    own = {**SMALL, "algorithms": ("fed_avg",), "folder": tmp_path / "r", "progress": False}
    run = experiments.run(Mine(), **own)
    about = json.loads((tmp_path / "r" / "config.json").read_text())
    assert about["config"] == "Mine"
    assert experiments.resume(tmp_path / "r", config=Mine()).summary == run.summary
    assert experiments.table(run)["name"].tolist() == ["Ours, $q$"]
    swept = experiments.sweep(
        Mine(), {"local.learning_rate": [0.1]}, **own | {"folder": tmp_path / "s"}
    )
    assert "| Ours, $q$ |" in (swept.folder / "table.md").read_text()


@pytest.mark.parametrize(("old", "now"), [("train", "run"), ("cost", "privacy")])
def test_functions_of_before_warn(old, now):
    with pytest.warns(FutureWarning, match=rf"^experiments\.{old}: now experiments\.{now}; "):
        found = getattr(experiments, old)
    assert found is getattr(experiments, now)
    assert old not in dir(experiments)


@pytest.mark.slow
def test_importing_it_imports_nothing_heavy():
    script = (
        "import sys; from fedpriv import experiments; print({'jax', 'jinja2', 'pandas'} & set(sys.modules)); "
        "experiments.config.Settings, experiments.runs.read"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
    importlib.import_module("fedpriv.experiments.commands.sweep")  # the command
    assert callable(experiments.sweep)
    assert set(experiments.__all__) <= set(dir(experiments))
    for name in experiments.__all__:
        assert getattr(experiments, name).__doc__
