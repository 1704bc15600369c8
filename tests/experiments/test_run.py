"""The launcher, end to end on the quickstart at a few rounds."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from commands import privacy, sweep

import configs
import fedpriv as fp
from experiments.config import modules
from experiments.config.options import parse
from experiments.run import main

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--clients", "30", "--cohort", "6", "--sampling", "fixed_size", "--local.epochs", "1"]


def launch(*args):
    return main([str(a) for a in args])


def read(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return json.loads((folder / "summary.json").read_text()), [json.loads(x) for x in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of a private algorithm and a plain one: 5 rounds, evaluated every 2, 2 seeds."""
    folder = tmp_path_factory.mktemp("run") / "here"
    chosen = ["--algorithms", "fed_avg", "rand_k"]
    times = ["--rounds", 5, "--every", 2, "--seeds", 2]
    assert launch("quickstart", *SMALL, *chosen, *times, "--output", folder) == 0
    return folder


def test_a_run_folder_holds_everything(finished):
    assert {f.name for f in finished.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "accuracy.png",
        "model",
    }
    settings = json.loads((finished / "config.json").read_text())["settings"]
    assert settings["rounds"] == 5
    assert settings["local"]["epochs"] == 1
    assert (finished / "accuracy.png").read_bytes()[:4] == b"\x89PNG"


def test_the_model_of_every_algorithm_and_seed_is_kept(finished):
    """To the same accuracy as its last line; the test images in three lines."""
    summary, _ = read(finished)
    data = fp.datasets.load("digits")
    for name in ("fed_avg", "rand_k"):
        for seed in (0, 1):
            trained = fp.models.load_model(finished, name, seed)
            labels = trained.predict(data.test["image"]).argmax(-1)
            right = float((labels == data.test["label"]).mean())
            assert right == pytest.approx(summary["final"][name]["accuracy"]["per_seed"][seed])


@pytest.mark.parametrize(
    "spelt", [["--keep-model", "false"], ["--keep_model=False"], ["--no-keep-model"]]
)
def test_yes_or_no_is_understood(spelt):
    assert not parse(modules.load("quickstart"), "quickstart", spelt).keep_model


@pytest.mark.slow
def test_models_may_be_left_out(tmp_path):
    few = ["--algorithms", "fed_avg", "--rounds", 1, "--keep-model", "false"]
    assert launch("quickstart", *SMALL, *few, "--output", tmp_path / "run") == 0
    assert not (tmp_path / "run" / "model").exists()
    with pytest.raises(ValueError, match=r"it has none \(--keep-model false"):
        fp.models.load_model(tmp_path / "run", "fed_avg")


def test_the_summary_agrees_with_the_metrics(finished):
    summary, lines = read(finished)
    assert [(x["algorithm"], x["round"]) for x in lines] == [
        (name, r) for name in ("fed_avg", "rand_k") for r in (2, 4, 5)
    ]
    for name in ("fed_avg", "rand_k"):
        accuracy = np.array(
            [x["metrics"]["accuracy"]["per_seed"] for x in lines if x["algorithm"] == name]
        )
        best, final = (summary[which][name]["accuracy"] for which in ("best", "final"))
        np.testing.assert_allclose(best["per_seed"], accuracy.max(0))
        np.testing.assert_allclose(best["std"], accuracy.max(0).std(ddof=1))
        np.testing.assert_allclose(final["per_seed"], accuracy[-1])
        assert summary["rounds_per_second_not_private"][name] > 0
        assert summary["compile_seconds"][name] > 0
    assert {"jax", "flax", "optax", "dp-accounting"} <= summary["versions"].keys()
    assert summary["device"]["platform"] == "cpu"
    assert summary["prng"] == "threefry2x32"
    assert summary["status"] == "complete"


def test_uplink_is_counted_as_the_paper_does(finished):
    summary, _ = read(finished)
    d = 64 * 64 + 64 + 64 * 10 + 10
    for name, k in {"fed_avg": d, "rand_k": round(0.1 * d)}.items():
        assert summary["uplink_mb_per_client_not_private"][name] == pytest.approx(
            32 * k * 5 * 6 / 30 / 8e6
        )


def test_every_epsilon_says_what_it_means(finished):
    summary, lines = read(finished)
    assert summary["privacy"]["fed_avg"]["claimed"] is None
    certified = summary["privacy"]["fed_avg"]["certified"]
    assert {c["epsilon"] for c in certified.values()} == {"inf"}
    for numbers in summary["privacy"]["rand_k"]["certified"].values():
        assert numbers["epsilon"] > 0
        assert {"unit", "view", "relation", "delta", "accountant", "bound"} <= numbers.keys()
        assert numbers["assumptions"]
    assert {"unit", "view", "relation", "source", "sound"} <= lines[-1]["privacy"]["claimed"].keys()


@pytest.mark.slow
def test_a_run_is_reproduced_by_its_seeds_and_shown(finished, tmp_path, capsys):
    """The first of two seeds, alone; the table names unit, view and adjacency."""
    options = ["--algorithms", "rand_k", "--rounds", 5, "--every", 2, "--seeds", 1]
    assert launch("quickstart", *SMALL, *options, "--output", tmp_path / "r") == 0
    alone, both = (
        read(f)[0]["final"]["rand_k"]["accuracy"]["per_seed"] for f in (tmp_path / "r", finished)
    )
    assert alone == both[:1]
    shown, progress = capsys.readouterr()
    for word in (
        "Fed-SMP rand_k",
        "client level",
        "adjacency, constructed",
        "third_party sees every global model",
        "claimed",
    ):
        assert word in " ".join(shown.split())
    assert "Fed-SMP rand_k compiled in " in progress
    assert "Fed-SMP rand_k 4/5 accuracy " in progress


@pytest.mark.slow
def test_a_config_may_be_a_file_anywhere(tmp_path, monkeypatch, capsys):
    """Here of Poisson cohorts, which make the claim sound."""
    source = Path(configs.__file__).with_name("quickstart.py").read_text()
    mine = tmp_path / "my_idea.py"
    mine.write_text(source.replace("rounds=60", "rounds=2").replace("seeds=3", "seeds=1"))
    monkeypatch.chdir(tmp_path)
    assert launch("my_idea.py", "--algorithms", "dp_fed_avg", "--clients", "60") == 0
    (folder,) = (tmp_path / "runs").glob("my_idea-*")
    summary, _ = read(folder)
    assert summary["config"] == str(mine)
    assert summary["rounds"] == {"dp_fed_avg": 2}
    assert launch("--resume", folder) == 0  # it knows its config again
    assert "has ended: complete" in capsys.readouterr().err
    privacy = summary["privacy"]["dp_fed_avg"]
    assert privacy["claimed"]["sound"]
    assert privacy["certified"]["third_party"]["relation"] == "add_or_remove"
    assert privacy["certified"]["third_party"]["epsilon"] <= privacy["claimed"]["epsilon"]


@pytest.mark.slow
def test_a_model_that_becomes_nan_stops_the_run_and_keeps_what_was_recorded(tmp_path, capsys):
    # FedAvg has no noise; that of DP-FedAvg blows its model up in the first round.
    options = ["--algorithms", "fed_avg", "dp_fed_avg", "--rounds", 3, "--every", 1, "--seeds", 1]
    folder = tmp_path / "r"
    assert launch(*SMALL, *options, "--noise-multiplier", "1e30", "--output", folder) == 1
    error = capsys.readouterr().err
    assert "became NaN or infinite in round 1 (seed 0)" in error
    assert "likely causes" in error
    summary, lines = read(folder)
    recorded = [(x["algorithm"], x["round"]) for x in lines]
    assert recorded == [("fed_avg", r) for r in (1, 2, 3)]
    assert summary["status"].startswith("diverged: dp_fed_avg")
    assert summary["rounds"] == {"fed_avg": 3}


def test_public_shakespeare_comes_from_whole_roles():
    """A role that also trained would choose top_k's coordinates with its own data."""
    from experiments.papers.fed_smp import FedSMP, _partition
    from fedpriv.data.datasets import Dataset

    keys = np.repeat(np.arange(12), 5)
    rows = {"label": np.zeros(60, np.int32)}
    data = Dataset("natural", rows, rows, 2, keys)
    for held in (0, 7, 10):
        public, clients = _partition(FedSMP(), data, 3, held)
        assert len(public) == held
        assert not set(keys[public]) & set(keys[np.concatenate(clients)])
        assert len(clients) == 12 - -(-held // 5)
        assert all(len(set(keys[own])) == 1 and len(own) == 5 for own in clients)
    with pytest.raises(ValueError, match="public_examples: 59 leaves no client"):
        _partition(FedSMP(), data, 0, 59)


@pytest.mark.slow
def test_the_server_never_learns_less_than_through_secure_aggregation():
    """With cohorts of varying size, too: a member's share of the noise is then 1 / slots at worst."""
    import fedpriv as fp

    numbers = np.zeros(3, np.float32)
    blank = fp.Federation.blank(numbers, 100, 2)
    for sampler in (fp.fixed_size(100, 2), fp.poisson(100, 0.02, 14), fp.everyone(100)):
        algorithm = fp.dp_fed_avg(
            lambda params, example: jnp.sum((params - example) ** 2),
            sampler=sampler,
            optimizer=lambda t: optax.sgd(0.1),
            batches=fp.full_batch(),
            clip_norm=1.0,
            noise_multiplier=4.0,
        )
        server, behind = (
            fp.certify(algorithm, numbers, blank, 100, 1e-3, view=v)
            for v in ("server", "server_secagg")
        )
        assert server.epsilon >= behind.epsilon
        assert "multiplier" in str(server)


LEAKY = '''"""Divides by the size of the cohort, which nobody may know."""

from dataclasses import replace

import jax

from configs import quickstart

settings = quickstart.settings


def build(settings):
    experiment = quickstart.on(settings, quickstart.load(settings))
    return replace(experiment, entries={n: leaking(e) for n, e in experiment.entries.items()})


def leaking(entry):
    def round(key, state, cohort):
        state, metrics = entry.algorithm.round(key, state, cohort)
        size = cohort.size
        return state._replace(params=jax.tree.map(lambda x: x / size, state.params)), metrics

    return entry._replace(algorithm=entry.algorithm._replace(round=round))
'''


COMMANDS = {"run": main, "privacy": privacy.main, "sweep": sweep.main}


@tiers.every("name", COMMANDS)
def test_a_round_that_leaks_is_refused_in_one_line_before_anything_trains(name, tmp_path, capsys):
    file, folder = tmp_path / "leaky.py", tmp_path / "never"
    file.write_text(LEAKY)
    grid = ["--grid", "rounds=2,3"] if name == "sweep" else []
    assert (
        COMMANDS[name]([str(file), "--algorithms", "dp_fed_avg", *grid, "--output", str(folder)])
        == 2
    )
    shown, error = capsys.readouterr()
    assert shown == ""
    assert error.startswith("error: round: state.params")
    assert "depends on who takes part" in error
    assert error.count("\n") == 1
    assert not folder.exists()
