"""--target-epsilon: every private algorithm gets the noise of one certified epsilon, in runs and in sweeps."""

import json
import shutil
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import pytest

import fedpriv as fp
from configs import mspdq_mnist, quickstart
from fedpriv.certification import calibration
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.commands import run, sweep
from fedpriv.experiments.config.ledger import image
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.config.settings import Settings, View
from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.runs.run_folder import read
from fedpriv.privacy import VIEWS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CONFIG = replace(quickstart.settings, clients=30, cohort=6, rounds=4, target_epsilon=2.0)
SMALL = ["--clients", "30", "--cohort", "6", "--local.epochs", "1", "--seeds", "2", "--every", "2"]
SMALL += ["--rounds", "4", "--algorithms", "fed_avg", "rand_k"]


def by_hand(config, view="third_party"):
    """fp.calibrate_noise on a DP-FedAvg of the same cohorts that knows nothing of the experiment."""
    model = quickstart.MODEL
    rate = config.cohort / config.clients

    def make(sigma):
        return fp.dp_fed_avg(
            model.loss,
            sampler=fp.poisson(config.clients, rate, fp.capacity_for(config.cohort, rate)),
            optimizer=config.local.optimizer,
            batches=fp.full_batch(),
            clip_norm=0.3,
            noise_multiplier=sigma,
        )

    example = image(8, 8, 1)
    shapes = model.init, fp.Federation.blank(example, config.clients, 3)
    target = {"epsilon": config.target_epsilon, "delta": config.delta, "view": view}
    return fp.calibrate_noise(make, *shapes, rounds=config.rounds, **target)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["third_party", "server"])
def test_every_private_algorithm_gets_the_noise_of_fp_calibrate_noise(view):
    private = ("rand_k", "top_k") if view == "server" else ("rand_k",)
    config = replace(CONFIG, view=view, algorithms=("fed_avg", *private))
    noise = budget.solved(quickstart, config)
    assert noise == dict.fromkeys(private, by_hand(config, view))
    ledger = budget.made(partial(ledger_of, quickstart), config, noise)
    assert list(ledger.entries) == ["fed_avg", *private]
    for name in noise:
        assert 2 * (1 - 1e-3) < ledger.certify(name, 4, view=view).epsilon <= 2
        assert ledger.entries[name].solved == {"noise_multiplier": noise[name]}
    assert ledger.entries["fed_avg"].solved == {}


@pytest.mark.slow
def test_noise_of_another_name_and_no_noise_at_all(monkeypatch):
    """MSPDQ's rivals have an epsilon of a message to turn; nothing gives MSP-FL one."""
    config = replace(mspdq_mnist.settings, rounds=2, target_epsilon=40.0)
    config = replace(config, algorithms=("msp_fl", "ldp_fed_avg"))
    noise = budget.solved(mspdq_mnist, config)
    assert list(noise) == ["ldp_fed_avg"]
    ledger = budget.made(partial(ledger_of, mspdq_mnist), config, noise)
    (said,) = ledger.entries["ldp_fed_avg"].solved.items()
    assert said == ("ldp.epsilon", 1 / noise["ldp_fed_avg"])
    assert 40 * (1 - 1e-3) < ledger.certify("ldp_fed_avg", 2).epsilon <= 40
    monkeypatch.setattr(calibration, "NOISE", calibration.NOISE._replace(cheapest=100.0))
    one = replace(config, algorithms=("ldp_fed_avg",), target_epsilon=1e-6)
    with pytest.raises(ValueError, match=r"target_epsilon: ldp_fed_avg cannot reach 1e-06 \("):
        budget.solved(mspdq_mnist, one)


@dataclass(frozen=True)
class Quiet(Settings):
    """A config of one's own that says nothing of noise."""


def test_what_cannot_be_is_refused_in_one_line():
    own = SimpleNamespace(ledger=lambda config: quickstart.ledger(CONFIG))
    with pytest.raises(ValueError, match=r"target_epsilon: .* no field noise_multiplier for fed"):
        budget.solved(own, Quiet(target_epsilon=1.0))


@pytest.mark.slow
def test_noise_that_was_solved_for_other_clients_is_refused():
    noise = {"rand_k": 0.8}
    fewer = quickstart.ledger(
        replace(CONFIG, clients=8, algorithms=("rand_k",), noise_multiplier=noise["rand_k"])
    )
    with pytest.raises(ValueError, match="other clients than the data's, for which rand_k costs"):
        budget.check_reached(fewer, CONFIG, noise)


@pytest.mark.slow
def test_a_run_records_its_noise_and_goes_on_with_it(tmp_path, monkeypatch, capsys):
    given = ["quickstart", *SMALL, "--target-epsilon", "2", "--output", str(tmp_path / "r")]
    assert run.main(given) == 0
    shown = capsys.readouterr()
    summary = read(tmp_path / "r").results
    assert isinstance(summary, Summary)
    noise = json.loads((tmp_path / "r" / "config.json").read_text())["noise"]["rand_k"]
    assert summary.solved == {"rand_k": {"noise_multiplier": noise}}
    assert summary.algorithm_settings["rand_k"] == {"noise_multiplier": noise}
    assert 2 * (1 - 1e-3) < summary.privacy["rand_k"].certified["third_party"].epsilon <= 2
    assert f"{noise:.4g}" in shown.out
    assert "noise_multiplier, solved for eps 2 (third_party)" in shown.out
    killed = shutil.copytree(tmp_path / "r", tmp_path / "killed")
    (killed / "summary.json").unlink()
    so_far = read(killed).results
    assert (so_far.solved, so_far.algorithm_settings) == (
        summary.solved,
        {name: of for name, of in summary.algorithm_settings.items() if of} | {"fed_avg": {}},
    )

    (tmp_path / "r" / "summary.json").unlink()  # as if it had been killed at the end
    monkeypatch.setattr(budget, "noise_for", None)  # what was solved is not solved again
    assert run.main(["--resume", str(tmp_path / "r")]) == 0
    again = read(tmp_path / "r").results
    assert (again.solved, again.final) == (summary.solved, summary.final)


@pytest.mark.slow
def test_a_sweep_over_budgets_is_accuracy_against_epsilon(tmp_path):
    grid = ["--grid", "target-epsilon=1,4", "--output", str(tmp_path / "s")]
    assert sweep.main(["quickstart", *SMALL, *grid]) == 0
    ours = {e: read(tmp_path / "s" / f"target_epsilon={e}").results for e in (1, 4)}
    for target, summary in ours.items():
        epsilon = summary.privacy["rand_k"].certified["third_party"].epsilon
        assert target * (1 - 1e-3) < epsilon <= target
    assert ours[4].reused_from == {"fed_avg": "target_epsilon=1"}
    noises = [ours[e].solved["rand_k"]["noise_multiplier"] for e in (1, 4)]
    assert noises[0] > noises[1]
    assert "compiled programs: 2 for 3 trainings" in (tmp_path / "s" / "table.md").read_text()


def test_the_views_are_those_of_a_certificate():
    assert View.__args__ == VIEWS
