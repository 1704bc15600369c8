"""The launcher, end to end on the quickstart at a few rounds."""

import contextlib
import io
import json
import shutil
import stat

import numpy as np
import pytest
import recorded
import tiers
from resumed import files_of, spelt, tell

import fedpriv as fp
from fedpriv import experiments
from fedpriv.experiments.commands import privacy, sweep
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.runs import run_folder, secret_seed

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = ["--clients", "30", "--cohort", "6", "--sampling", "fixed_size", "--local.epochs", "1"]


def launch(*args):
    return main([str(a) for a in args])


def read(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return json.loads((folder / "summary.json").read_text()), [json.loads(x) for x in lines]


RUN = ["--algorithms", "rand_k", "--rounds", 5, "--every", 2, "--seeds", 2]


@pytest.fixture(scope="module")
def printed():
    return io.StringIO()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, printed):
    """With a secret seed: what else trains through the launcher is slow, as are runs of several algorithms."""
    folder = tmp_path_factory.mktemp("run") / "here"
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        assert launch("quickstart", *SMALL, *RUN, "--secret-seed", "--output", folder) == 0
    return folder


@pytest.fixture(scope="module")
def secret(finished):
    """As the system drew it."""
    return secret_seed.read(finished)


def test_a_run_folder_holds_everything(finished):
    assert {f.name for f in finished.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "accuracy.png",
        "model",
        "secret_seed",
    }
    begun = json.loads((finished / "config.json").read_text())
    summary = json.loads((finished / "summary.json").read_text())
    assert begun["rounds_planned"] == summary["rounds_planned"]
    settings = begun["settings"]
    assert settings["rounds"] == 5
    assert settings["local"]["epochs"] == 1
    assert (finished / "accuracy.png").read_bytes()[:4] == b"\x89PNG"


def test_the_secret_is_in_one_file_and_nowhere_else(finished, secret, printed):
    file = finished / "secret_seed"
    assert int(file.read_text()) == secret
    assert tell(finished, secret) == ["secret_seed"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {f.name for f in (finished / "model" / "rand_k").iterdir()} == {"seed-0", "seed-1"}
    shown = printed.getvalue()
    assert "Fed-SMP rand_k" in shown
    assert not any(word in shown.encode() for word in spelt(secret))


def test_the_certificate_assumes_no_more_than_that_the_secret_stays_one(finished):
    """In the lines and in the summary; what it assumes of other things is the same."""
    run = run_folder.read(finished)
    certificates = [c for of in run.certificates.values() for c in of.values()]
    certificates += [line.privacy.certified for line in run.lines["rand_k"]]
    for c in certificates:
        about_seeds = [text for text in c.assumptions if "seed" in text]
        assert about_seeds == [
            "the noise is real-valued; a simulator's seeded float32 noise is not",
            "the secret seed of the run stays secret",
            "one model, trained once, is released; runs with the same secret seed and the same number (seed-0, "
            "seed-1, ..) share their noise",
        ]
    quickstart = modules.load("quickstart")
    settings = parse(quickstart, "quickstart", [*SMALL, *map(str, RUN)])
    usual = quickstart.ledger(settings).certify("rand_k", 2)
    ours = run.lines["rand_k"][0].privacy.certified
    assert ours.epsilon == usual.epsilon
    assert len(set(ours.assumptions) - set(usual.assumptions)) == 2
    assert any("such as 0 or 1" in text for text in usual.assumptions)


def test_what_is_recorded_says_that_there_is_a_secret(finished):
    for file in ("config.json", "summary.json"):
        assert json.loads((finished / file).read_text())["secret_seed"] is True
    assert run_folder.read(finished).begun.secret_seed
    assert "secret_seed" not in json.loads((recorded.OLD / "config.json").read_text())
    assert not run_folder.read(recorded.OLD).begun.secret_seed


HARMED = {
    "removed": (lambda file: file.unlink(), "cannot read"),
    "empty": (lambda file: file.write_text(""), "is empty"),
    "twice": (lambda file: file.write_text(file.read_text().strip() * 2), "holds no seed"),
    "no text": (lambda file: file.write_bytes(b"\xff\xfe"), "holds no seed"),
}


@pytest.mark.parametrize("harm", HARMED)
def test_without_its_secret_a_run_does_not_go_on(harm, finished, secret, tmp_path, capsys):
    """And one that has ended is read."""
    folder = shutil.copytree(finished, tmp_path / "copy")
    file, (harmed, said) = folder / "secret_seed", HARMED[harm]
    harmed(file)
    assert experiments.resume(folder).ended_before
    (folder / "summary.json").unlink()
    before = files_of(folder)
    assert launch("--resume", folder) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said in error
    assert "restore it" in error
    assert str(file) in error
    assert str(secret) not in error
    assert files_of(folder) == before


def test_the_model_of_every_seed_is_kept(finished):
    """To the same accuracy as its last line; the test images in three lines."""
    summary, _ = read(finished)
    data = fp.datasets.load("digits")
    for seed in (0, 1):
        trained = fp.models.load_model(finished, "rand_k", seed)
        labels = trained.predict(data.test["image"]).argmax(-1)
        right = float((labels == data.test["label"]).mean())
        assert right == pytest.approx(summary["final"]["rand_k"]["accuracy"]["per_seed"][seed])


@pytest.mark.parametrize(
    "spelt", [["--keep-model", "false"], ["--keep_model=False"], ["--no-keep-model"]]
)
def test_yes_or_no_is_understood(spelt):
    assert not parse(modules.load("quickstart"), "quickstart", spelt).keep_model


def test_models_may_be_left_out():
    with pytest.raises(ValueError, match=r"it has none \(--keep-model false"):
        fp.models.load_model(recorded.OLD, "rand_k")


def test_the_summary_agrees_with_the_metrics(finished):
    summary, lines = read(finished)
    assert [(x["algorithm"], x["round"]) for x in lines] == [("rand_k", r) for r in (2, 4, 5)]
    accuracy = np.array([x["metrics"]["accuracy"]["per_seed"] for x in lines])
    best, final = (summary[which]["rand_k"]["accuracy"] for which in ("best", "final"))
    np.testing.assert_allclose(best["per_seed"], accuracy.max(0))
    np.testing.assert_allclose(best["std"], accuracy.max(0).std(ddof=1))
    np.testing.assert_allclose(final["per_seed"], accuracy[-1])
    assert summary["rounds_per_second_not_private"]["rand_k"] > 0
    assert summary["compile_seconds"]["rand_k"] > 0
    assert {"jax", "flax", "optax", "dp-accounting"} <= summary["versions"].keys()
    assert summary["device"]["platform"] == "cpu"
    assert summary["prng"] == "threefry2x32"
    assert summary["status"] == "complete"


def test_uplink_is_counted_as_the_paper_does(finished):
    summary, _ = read(finished)
    k = round(0.1 * (64 * 64 + 64 + 64 * 10 + 10))
    found = summary["uplink_mb_per_client_not_private"]["rand_k"]
    assert found == pytest.approx(32 * k * 5 * 6 / 30 / 8e6)


def test_every_epsilon_says_what_it_means(finished):
    summary, lines = read(finished)
    for numbers in summary["privacy"]["rand_k"]["certified"].values():
        assert numbers["epsilon"] > 0
        assert {"unit", "view", "relation", "delta", "accountant", "bound"} <= numbers.keys()
        assert numbers["assumptions"]
    assert {"unit", "view", "relation", "source", "sound"} <= lines[-1]["privacy"]["claimed"].keys()


@pytest.mark.slow
def test_a_run_is_reproduced_by_its_seeds_and_shown(
    finished, secret, tmp_path, capsys, monkeypatch
):
    """The first of two seeds, alone; the table names unit, view and adjacency."""
    monkeypatch.setattr(fp, "secret_seed", lambda: secret)
    options = ["--algorithms", "rand_k", "--rounds", 5, "--every", 2, "--seeds", 1]
    options += ["--secret-seed", "--output", tmp_path / "r"]
    assert launch("quickstart", *SMALL, *options) == 0
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
    assert launch("--resume", folder) == 1
    assert "has ended: diverged: dp_fed_avg" in capsys.readouterr().err


def test_public_shakespeare_comes_from_whole_roles():
    """A role that also trained would choose top_k's coordinates with its own data."""
    from fedpriv.data.datasets import Dataset
    from fedpriv.experiments.papers.fed_smp import FedSMP, _partition

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
