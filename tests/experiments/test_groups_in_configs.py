"""Public groups in configs: what each costs, in a config's cost, a run's folder and its pages; budgets of their own."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import optax
import pytest
from reported import record, text, tree
from small import squared, start

import fedpriv as fp
from configs import own_budgets, quickstart
from fedpriv import experiments
from fedpriv.certification import calibration
from fedpriv.core.json_values import plain
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.accounting.found import GroupsFound, read_back
from fedpriv.experiments.commands import run
from fedpriv.experiments.config.groups import Groups
from fedpriv.experiments.config.ledger import Ledger, blank, image
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.tables import terminal
from fedpriv.privacy import VIEWS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

NAMES = ("strict", "lenient")
RATES = Groups(NAMES, shares=(0.75, 0.25), rates=(0.1, 0.3))
ONE = ("dp_fed_avg",)


def alone(clients, rate, settings, view="third_party", scale=1.0):
    """The epsilon of DP-FedAvg where one group is all there is."""
    algorithm = fp.dp_fed_avg(
        quickstart.MODEL.loss,
        sampler=fp.poisson(clients, rate),
        optimizer=settings.local.optimizer,
        batches=fp.full_batch(),
        clip_norm=0.3,
        noise_multiplier=settings.noise_multiplier / scale,
    )
    federation = fp.Federation.blank(image(8, 8, 1), clients, 3)
    shapes = quickstart.MODEL.init, federation
    return fp.certify(algorithm, *shapes, settings.rounds, settings.delta, view=view).epsilon


@pytest.mark.slow
def test_each_group_costs_what_it_would_alone():
    config = replace(quickstart.settings, rounds=4, algorithms=ONE, groups=RATES)
    (account,) = experiments.privacy("quickstart", rounds=4, algorithms=ONE, groups=plain(RATES))
    assert account.group_epsilons.keys() == set(VIEWS)
    own = [alone(*group, config, "third_party") for group in ((90, 0.1), (30, 0.3))]
    found = account.group_epsilons["third_party"]
    assert [found[name] for name in NAMES] == pytest.approx(own, rel=1e-6)


@pytest.mark.slow
def test_every_page_says_what_each_group_costs(tmp_path):
    (account,) = experiments.privacy("quickstart", rounds=4, algorithms=ONE, groups=plain(RATES))
    folder = tmp_path / "run"
    record(folder, name="quickstart", algorithms=ONE, rounds=(2, 4), groups=RATES)
    report = experiments.runs.read(folder).summary.privacy["dp_fed_avg"]
    assert report.group_epsilons == account.group_epsilons
    for view, groups in report.group_epsilons.items():
        assert max(groups.values()) == report.certified[view].epsilon
    shown = account.group_epsilons["third_party"]
    said = f"by group: strict {shown['strict']:.4g}, lenient {shown['lenient']:.4g}"
    assert said in " ".join(terminal.table(experiments.runs.read(folder).results).split())
    assert said in text(tree(experiments.report(folder, tmp_path / "page.html")))
    (row,) = experiments.table(folder).to_dict("records")
    assert row["certified_third_party_epsilon_of_strict"] == shown["strict"]


def test_a_run_that_was_cut_short_says_what_each_group_has_cost(tmp_path):
    folder = tmp_path / "run"
    record(folder, algorithms=ONE, rounds=(2, 4), status=None, groups=RATES)
    first, last = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    spent = experiments.runs.read(folder).results.privacy["dp_fed_avg"].group_epsilons
    assert spent == {"third_party": last["privacy"]["group_epsilons"]}
    for name in NAMES:
        assert first["privacy"]["group_epsilons"][name] < spent["third_party"][name]


def solved(groups, module=quickstart, **changes):
    """(settings, what was found, the ledger) of DP-FedAvg."""
    given = {"rounds": 3, "clients": 60, "cohort": 12, "algorithms": ONE, **changes}
    config = replace(quickstart.settings, groups=groups, **given)
    found = budget.solved(module, config)
    return config, found, budget.made(partial(ledger_of, module), config, found)


@pytest.mark.slow
def test_epsilons_by_clip_norms():
    """Everybody is drawn alike, and the noise is that of the largest epsilon."""
    groups = Groups(NAMES, epsilons=(2.0, 8.0), by="clip_scales")
    view = "server_secagg"
    names = ("fed_avg", "dp_fed_avg", "rand_k")
    config, found, ledger = solved(groups, algorithms=names, view=view)
    assert [*found] == ["dp_fed_avg", "rand_k"]
    assert found["dp_fed_avg"] == found["rand_k"]
    noise, scales = found["rand_k"]
    costs = ledger.group_epsilons("rand_k", 3, [view])[view]
    for name, epsilon, scale in zip(NAMES, groups.epsilons, scales, strict=True):
        assert epsilon * (1 - 1e-3) < costs[name] <= epsilon
        own = alone(30, 0.2, replace(config, noise_multiplier=noise), view, scale)
        assert costs[name] == pytest.approx(own, rel=1e-4)
    assert scales[0] < scales[1] == 1
    turned = {"groups.clip_scales": dict(zip(NAMES, scales, strict=True))}
    assert ledger.entries["rand_k"].solved == {"noise_multiplier": noise, **turned}
    assert ledger.entries["fed_avg"].solved == {}
    assert read_back(json.loads(json.dumps(plain(found["rand_k"])))) == found["rand_k"]
    assert read_back(1.5) == 1.5


def averaging(settings):
    """The ledger of DP-FedAvg of a loss that is traced at once; the search prices hundreds of noises and rates."""
    algorithm = fp.dp_fed_avg(
        squared,
        sampler=fed_smp.sampler(settings, settings.clients),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=settings.noise_multiplier,
    )
    example = {"x": np.zeros(3, np.float32), "y": np.float32(0)}
    entries = {"dp_fed_avg": blank(algorithm, example, settings.clients, 3)}
    return Ledger(entries, settings.delta, start())


@pytest.mark.slow
def test_epsilons_by_rates():
    """As many are drawn as without groups, with less noise than everybody at the smallest epsilon takes."""
    groups = Groups(NAMES, epsilons=(1.0, 3.0))
    config, found, ledger = solved(groups, SimpleNamespace(ledger=averaging), rounds=1)
    noise, rates = found["dp_fed_avg"]
    costs = ledger.group_epsilons("dp_fed_avg", 1, ["third_party"])["third_party"]
    for name, epsilon in zip(NAMES, groups.epsilons, strict=True):
        assert epsilon * (1 - 1e-3) < costs[name] <= epsilon
    assert 30 * sum(rates) == pytest.approx(12, rel=0.02)
    assert rates[0] < 12 / 60 < rates[1]
    alike = averaging(replace(config, groups=Groups(), noise_multiplier=noise))
    assert 1.0 < alike.certify("dp_fed_avg", 1).epsilon < 3.0


@pytest.mark.slow
def test_records_in_groups():
    """DP-SGD draws each group's records at its rate, and says what each costs."""
    config = replace(
        own_budgets.settings,
        algorithms=("dp_sgd",),
        rounds=2,
        images=60,
        groups=Groups(NAMES, shares=(0.25, 0.75), rates=(0.02, 0.1)),
    )
    ledger = own_budgets.ledger(config)
    costs = ledger.group_epsilons("dp_sgd", 2, ["third_party"])["third_party"]
    for name, (size, rate) in zip(NAMES, ((15, 0.02), (45, 0.1)), strict=True):
        one = replace(config, groups=Groups(), images=size, image_rate=rate)
        assert costs[name] == own_budgets.ledger(one).certify("dp_sgd", 2).epsilon
    assert ledger.client_epsilons("dp_sgd", 2, ["third_party"]) == {}


def test_who_is_in_which_group_is_the_same_for_every_seed_and_fits_the_shares():
    labels = RATES.of_units(101)
    assert labels == RATES.of_units(101)
    assert sorted(map(labels.count, NAMES)) == [25, 76]
    assert Groups(("a", "b"), labels=("b", "a", "a")).of_units(3) == ["b", "a", "a"]


@pytest.mark.slow
def test_epsilons_that_nothing_reaches_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(calibration, "NOISE", calibration.NOISE._replace(cheapest=1.0))
    groups = Groups(NAMES, epsilons=(0.01, 0.02), by="clip_scales")
    with pytest.raises(ValueError, match=r"dp_fed_avg cannot reach strict 0.01, lenient 0.02 \("):
        solved(groups)
    given = GroupsFound(0.1, (1.0, 1.0))
    config = replace(quickstart.settings, groups=Groups(NAMES, epsilons=(1.0, 8.0)), algorithms=ONE)
    made = budget.made(partial(ledger_of, quickstart), config, {"dp_fed_avg": given})
    with pytest.raises(ValueError, match=r"groups.epsilons: 1 was solved for other clients"):
        budget.check_reached(made, config, {"dp_fed_avg": given})


@pytest.mark.slow
def test_a_run_with_budgets_of_groups_trains_and_goes_on_with_what_was_found(tmp_path, monkeypatch):
    words = "--clients 30 --cohort 6 --rounds 2 --every 1 --seeds 1 --algorithms dp_fed_avg"
    words += " --local.epochs 1 --layout.devices 1 --view server_secagg"
    words += " --groups.names strict lenient --groups.epsilons 2 8 --groups.by clip_scales"
    folder = tmp_path / "run"
    assert run.main(["quickstart", *words.split(), "--output", str(folder)]) == 0
    before = experiments.runs.read(folder).summary
    (noise, scales) = before.solved["dp_fed_avg"].values()
    assert noise > 0
    assert scales["strict"] < scales["lenient"] == 1
    (folder / "summary.json").unlink()  # as if it had been killed at the end
    monkeypatch.setattr(budget, "for_groups", None)  # what was solved is not solved again
    assert run.main(["--resume", str(folder)]) == 0
    after = experiments.runs.read(folder).summary
    assert (after.solved, after.final) == (before.solved, before.final)
    assert after.privacy == before.privacy
