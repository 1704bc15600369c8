"""The DP-SCAFFOLD experiments, end to end at a few rounds, and their settings."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedpriv as fp
from configs import dp_scaffold_synthetic
from fedpriv import experiments
from fedpriv.experiments.commands import privacy, run
from fedpriv.experiments.config.made import experiment_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SMALL = [
    "--clients",
    "10",
    "--records",
    "50",
    "--rounds",
    "6",
    "--every",
    "3",
    "--local-steps",
    "4",
]


D = 40 * 10 + 10


def launch(*args):
    return run.main(["dp_scaffold_synthetic", *SMALL, *(str(a) for a in args)])


@pytest.mark.slow
def test_scaffold_trains_and_is_measured(tmp_path):
    warm = ["--warm-start", 2, "--seeds", 2]
    folder = tmp_path / "r"
    assert launch("--algorithms", "scaffold", *warm, "--output", folder) == 0
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        found = line["diagnostics_not_private"]
        gap = np.array(found["log_gap"]["per_seed"])
        assert gap.shape == (2,)
        assert (10**gap > 0).all()
        assert found["dissimilarity"]["mean"] > 0
    # Two warm rounds of one message, four of two.
    both = 2 * 0.2 * (2 * D + 4 * 2 * D) * 32 / 8e6 / 2
    assert summary["uplink_mb_per_client_not_private"]["scaffold"] == pytest.approx(both)
    assert "standardised" in summary["privacy_notes"][0]
    assert summary["privacy"]["scaffold"]["certified"]["server"]["epsilon"] == "inf"


@pytest.mark.slow
def test_scaffold_without_noise_comes_closer_to_the_minimum_than_it_started(tmp_path):
    folder = tmp_path / "r"
    chosen = ["--algorithms", "scaffold", "--client-rate", 1, "--warm-start", 0, "--record-rate", 1]
    assert launch(*chosen, "--rounds", 60, "--every", 20, "--output", folder) == 0
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    gaps = [x["diagnostics_not_private"]["log_gap"]["mean"] for x in lines]
    assert gaps[0] > gaps[1] > gaps[2]


def ask(capsys, *args):
    given = ["--algorithms", "dp_scaffold", *args, "--json"]
    assert privacy.main(["dp_scaffold_synthetic", *given]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [(10, 5, 488), (20, 40, 83), (80, 1, 546)])
def test_the_rounds_of_table_1_come_from_the_ledger(cell, capsys):
    sigma, steps, rounds = cell
    answer = ask(
        capsys,
        *("--client-rate", "0.05", "--noise-multiplier", str(sigma), "--local-steps", str(steps)),
        *("--solve", "rounds", "--target-epsilon", "3", "--claimed"),
    )
    assert answer["solved"]["value"] == rounds
    assert answer["solved"]["unit"] == "record"


def test_the_paper_s_setting_claimed_and_certified(capsys):
    answer = ask(capsys)
    assert "no epsilon covers the preprocessing" in answer["notes"][0]
    assert answer["claimed"]["epsilon"] == pytest.approx(12.91, rel=1e-3)
    assert {c["unit"] for c in answer["certified"]} == {"record"}
    assert all(c["epsilon"] < 1 for c in answer["certified"])
    median = ask(capsys, "--clip-norm", "median")
    assert {c["epsilon"] for c in median["certified"]} == {"inf"}
    assert "median" in median["certified"][0]["assumptions"][0]
    poisson = ask(capsys, "--record-sampling", "poisson")
    assert {c["relation"] for c in poisson["certified"]} == {"add_or_remove"}
    assert all(c["epsilon"] == pytest.approx(0.404, abs=1e-3) for c in poisson["certified"])


def certified(capsys, *args):
    """Third party's epsilon."""
    return ask(capsys, *args)["certified"][0]["epsilon"]


@pytest.mark.slow
def test_the_authors_options_and_the_certificate(capsys):
    paper = certified(capsys)
    assert certified(capsys, "--authors.rounded-steps", "--authors.record-ranges") == paper
    assert certified(capsys, "--authors.everyone-first") > paper
    joint = certified(capsys, "--noise-multiplier", str(60 / 2**0.5))
    assert certified(capsys, "--authors.per-tensor") == pytest.approx(joint)
    assert certified(capsys, "--authors.one-seed") == "inf"


@pytest.mark.slow
def test_the_authors_options_train(tmp_path):
    names = ("one-seed", "record-ranges", "per-tensor", "rounded-steps", "everyone-first")
    options = [f"--authors.{name}" for name in names]
    warm = ["--warm-start", 2, "--noise-multiplier", 1, "--clip-norm", "median", "--any-label"]
    chosen = ["--algorithms", "dp_scaffold"]
    assert launch(*chosen, *warm, *options, "--output", tmp_path / "r") == 0
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(x)["diagnostics_not_private"]["user_drift"]["mean"] > 0 for x in lines)
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    first_all = (10 * D + 2 * D + 4 * 2 * 2 * D) / 10  # everyone, two of ten, two of ten twice
    assert summary["uplink_mb_per_client_not_private"]["dp_scaffold"] == pytest.approx(
        first_all * 32 / 8e6
    )


@pytest.mark.slow
def test_rounded_steps_are_longer_where_a_pass_is_not_reached():
    """s K = 0.4: eta_0 / max(round(0.4), 1) instead of eta_0 / 0.4."""
    from fedpriv.experiments.papers.dp_scaffold import Authors, algorithm

    def moved(authors):
        config = dp_scaffold_synthetic.Synthetic(
            clients=3, records=20, client_rate=1.0, local_steps=2, eta_0=1e-3, authors=authors
        )
        experiment = experiment_of(dp_scaffold_synthetic, config)
        gradients = fp.per_example(experiment.model.loss, closed_form=True)
        entry = algorithm("fed_avg", config, gradients)
        federation = experiment.entries["dp_fed_avg"].federations[0]
        state = entry.init(experiment.model.init(jax.random.key(0)), federation)
        after, _ = fp.one_round(entry)(jax.random.key(1), state, federation)
        return optax.tree.norm(jax.tree.map(jnp.subtract, after.params, state.params))

    assert moved(Authors()) / moved(Authors(rounded_steps=True)) == pytest.approx(2.5, rel=0.01)


def test_whole_clients_are_the_unit(capsys):
    answer = ask(capsys, "--unit", "client", "--local-steps", "5")
    assert {c["unit"] for c in answer["certified"]} == {"client"}
    assert {c["relation"] for c in answer["certified"]} == {"zero_out"}
    assert answer["claimed"] is None


def test_tuned_steps_are_the_default():
    config = type(dp_scaffold_synthetic.settings)
    tuned = dp_scaffold_synthetic.settings.TUNED
    assert config().step("dp_scaffold") == tuned["dp_scaffold"]
    assert config(eta_0=0.3).step("dp_scaffold") == 0.3


def test_sizes_follow_the_rates():
    config = dp_scaffold_synthetic.settings
    assert (config.training_records, config.batch, config.cohort, config.warm_rounds) == (
        4000,
        800,
        20,
        20,
    )
    changed = type(config)(clients=100, client_rate=0.05, records=5000, warm_start=0)
    assert (changed.cohort, changed.warm_rounds) == (5, 0)


WAYS = {
    "secret": ("secret", "poisson", "add_or_remove"),
    "public, subsets": ("public", "subsets", "replace_one"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_clients_of_unequal_size_cost_what_the_ledger_counts_without_data(name):
    """Of the unit and the neighbours that the sampling gives; test_unequal_training.py trains such."""
    sizes, sampling, relation = WAYS[name]
    given = {"clients": 10, "records": 50, "rounds": 3, "warm_start": 1, "local_steps": 2}
    given |= {"sizes": sizes, "record_sampling": sampling, "algorithms": ("dp_scaffold",)}
    config = replace(dp_scaffold_synthetic.settings, measured=False, **given)
    (account,) = experiments.privacy("dp_scaffold_synthetic", **given)
    ledger = experiment_of(dp_scaffold_synthetic, config).ledger
    made = [ledger.certify("dp_scaffold", 3, view=one.view) for one in account.certificates]
    assert made == [*account.certificates]
    assert {one.relation for one in made} == {relation}
    assert {one.unit for one in made} == {"record"}
    assert (sizes == "public") == bool(account.client_epsilons)


def test_unequal_sizes_are_what_clients_hold():
    config = replace(
        dp_scaffold_synthetic.settings, clients=10, records=50, sizes="public", measured=False
    )
    (federation,) = experiment_of(dp_scaffold_synthetic, config).entries["dp_scaffold"].federations
    assert tuple(federation.size.tolist()) == config.held
    assert sorted(config.held) == [4, 5, 7, 9, 11, 14, 19, 24, 31, 40]
    assert config.held != tuple(sorted(config.held))
    whole = replace(config, sizes="equal")
    (equal,) = experiment_of(dp_scaffold_synthetic, whole).entries["dp_scaffold"].federations
    assert np.unique(equal.size).tolist() == [40]
    for some, whole, held in zip(federation.rows, equal.rows, config.held, strict=True):
        np.testing.assert_array_equal(some[:held], whole[:held])


def test_the_warm_start_of_a_short_run_is_short():
    config = dp_scaffold_synthetic.settings
    of = {rounds: replace(config, rounds=rounds).warm_rounds for rounds in (1, 2, 20, 79, 80, 400)}
    assert of == {1: 0, 2: 1, 20: 5, 79: 19, 80: 20, 400: 20}
    rare = replace(config, rounds=72, client_rate=0.05)  # 4 / l alone would be 80 rounds
    assert rare.warm_rounds == 18
    assert replace(config, rounds=20, warm_start=7).warm_rounds == 7
