"""fedpriv audit: the audits of a config, their words, exit codes; wrong input."""

import json
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiers import every

import fedpriv as fp
from configs import quickstart
from fedpriv import experiments
from fedpriv.experiments.attacks.audit.canary import SEEN
from fedpriv.experiments.attacks.audit.mechanisms import audit_mechanisms
from fedpriv.experiments.attacks.audit.report import Audited, text
from fedpriv.experiments.attacks.audit.row import Row
from fedpriv.experiments.commands import audit
from fedpriv.experiments.config import Entry, Experiment, Ledger, Settings, blank
from fedpriv.privacy import Claim

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = ["--rounds", "2", "--seeds", "2", "--clients", "40", "--cohort", "10", "--local.epochs", "1"]
TINY += ["--layout.devices", "1", "--draws", "2000"]


def ask(capsys, *args):
    code = audit.main([*args])
    return code, capsys.readouterr()


def test_units_that_are_not_alike_are_refused_in_one_line():
    """Persons with one record of ten, or three of thirty."""

    def build(settings):
        data = {"x": np.zeros((40, 2), np.float32), "y": np.zeros(40, np.float32)}
        local = fp.LocalSteps(
            fp.per_example(lambda params, example: (params @ example["x"] - example["y"]) ** 2),
            fp.PublicSizes((10, 30), batch=3),
            1,
            lambda t: optax.sgd(0.1),
            fp.gaussian(1.0, 4.0),
        )
        person = [*range(10), *[10] * 3, *range(11, 38)]
        of = fp.Federation.from_arrays(data, [np.arange(10), np.arange(10, 40)], person=person)
        entries = {"dp_sgd": Entry(fp.dp_sgd(local, sampler=fp.everyone(2)), [of])}
        model = SimpleNamespace(init=jnp.zeros(2), loss=lambda p, e: p @ e["x"])
        return Experiment(model, data, 1e-3, entries)

    config = SimpleNamespace(settings=Settings(rounds=1), build=build)
    with pytest.raises(ValueError, match=r"^persons: dp_sgd has persons who hold different"):
        experiments.audit(config, parts=["mechanism"])


@pytest.mark.slow
def test_the_usual_three_side_by_side(capsys, tmp_path):
    """As words, and as an object in the folder."""
    args = [*TINY, "--algorithms", "fed_avg", "rand_k", "--output", str(tmp_path / "there")]
    code, shown = ask(capsys, *args)
    assert code == 0
    found = json.loads((tmp_path / "there" / "audit.json").read_text())
    assert (tmp_path / "there" / "audit.png").read_bytes()[:4] == b"\x89PNG"
    assert found["config"] == "quickstart"
    by_view = {row["views"][0]: row for row in found["mechanisms"]}
    assert set(by_view) == {"third_party", "server", "server_secagg"}
    for row in by_view.values():
        assert row["algorithms"] == ["rand_k"]
        assert row["rounds"] == row["drawn_rounds"] == 2
        assert row["audited"]["least"] <= row["certified"]["epsilon"]
        assert not row["certificate_refuted"]
    assert by_view["third_party"]["claimed"]["epsilon"] > 0
    assert by_view["server"]["claimed"] is None
    (bare,) = found["nothing_to_draw"]
    assert (bare["names"], bare["reason"]) == (["fed_avg"], "no noise is added")
    runs = [(row["algorithm"], *row["views"], row["canaries"]) for row in found["one_run"]]
    assert runs == [("rand_k", view, 20) for view in SEEN]
    assert [row["certified"]["view"] for row in found["one_run"]] == list(SEEN)
    assert "many_runs" not in found  # takes too long to be usual
    assert [row["algorithm"] for row in found["membership"]] == ["fed_avg", "rand_k"]
    for row in found["membership"]:
        assert len(row["seeds"]) == 2
        assert all(0.3 < seed["auc"] < 0.7 for seed in row["seeds"])
    for words in ("The mechanism", "One run", "Membership inference"):
        assert words in shown.out
    for words in (
        "client, add-or-remove",
        "claimed",
        "certified",
        "audited",
        "AUC",
        "delta = 1e-06",
    ):
        assert words in shown.out
    nothing = "FedAvg: certified inf towards every view, nothing to draw: no noise is added"
    assert nothing in shown.out
    assert "no power" in shown.out


@pytest.mark.slow
def test_records_are_canaries_where_records_are_protected(capsys):
    args = "dp_scaffold_synthetic --rounds 1 --warm-start 0 --clients 10 --client-rate 0.5 --records 50"
    args += " --local-steps 1 --algorithms dp_fed_avg"
    code, shown = ask(capsys, *args.split(), "--parts", "one_run", "--canaries", "30", "--json")
    assert (code, shown.err) == (0, "")
    rows = json.loads(shown.out)["one_run"]
    assert {row["certified"]["unit"] for row in rows} == {"record"}
    assert {row["canaries"] for row in rows} == {30}


def loss(params, example):
    return jnp.vdot(params, example["x"])


def ledger(delta: float, params: int = 4, clients: int = 9, records: int = 1, **algorithms):
    """Of algorithms that train so many parameters."""
    example = {"x": np.zeros(params, np.float32)}
    entries = {name: blank(a, example, clients, records) for name, a in algorithms.items()}
    return Ledger(entries, delta, jax.ShapeDtypeStruct((params,), np.float32))


def summing(used: fp.Mechanism) -> fp.Algorithm:
    """Updates of nine clients, all of them, summed by a mechanism."""
    common = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}
    return fp.fed_avg(loss, sampler=fp.everyone(9), mechanism=used, **common)


def overstated(says: float, does: float) -> Ledger:
    """Of a mechanism that says to have another noise than it has."""
    used = fp.gaussian(1.0, does)._replace(certified_multiplier=says, seal=())
    return ledger(1e-3, dp_fed_avg=summing(used))


@every("does", [1.0, 2.0])
def test_a_certificate_that_is_wrong_is_refuted_by_exit_code_1(does, capsys, monkeypatch):
    monkeypatch.setattr(quickstart, "ledger", lambda settings: overstated(2.0, does))
    code, shown = ask(capsys, *TINY, "--parts", "mechanism", "--draws", "20000")
    assert code == (does < 2)
    assert ("BY HAND IS REFUTED" in shown.out) == (does < 2)


@pytest.mark.slow
def test_a_refuted_claim_is_said_in_words():
    """The paper's DP-SGD-WAV for 16 parameters; nothing of the certificate is."""
    local = fp.LocalSteps(
        fp.per_example(loss),
        fp.poisson(594, 60 / 594, 90),
        steps=10,
        optimizer=lambda t: optax.sgd(0.1),
        mechanism=fp.papers.haar_mechanism(16, clip_norm=1.0, noise_multiplier=3.0),
    )
    made = fp.papers.dp_sgd_wav(local, sampler=fp.fixed_size(50, 10))
    (row,), _ = audit_mechanisms(ledger(1e-5, 16, 50, 594, dp_sgd_wav=made), 2, 2_000, 0)
    assert row.claim_refuted
    assert not row.refuted
    said = text(Audited(1e-5, mechanisms=([row], [])))
    refuted = f"REFUTED, for whoever sees every noisy step, epsilon is at least {row.least:.3g}"
    assert f"DP-SGD-WAV [third_party, server, server_secagg]: {refuted}" in said


@cache
def drawn_rows(multiplier: float) -> list[Row]:
    """An audit of a mechanism with so much noise."""
    return audit_mechanisms(overstated(multiplier, multiplier), 1, 500, 0)[0]


def of_many_runs(epsilon=1.0, low=0.9, p_value=0.5, **changes) -> Row:
    """A line of `many_runs` with such an estimate; its certificate is of a mechanism."""
    (drawn, *_) = drawn_rows(20.0)
    estimate = {"epsilon": epsilon, "low": low, "high": 2 * epsilon, "mu": 1.0, "p_value": p_value}
    made = replace(
        drawn,
        least=0.0,
        surely=0.0,
        about={"runs": 1000, "rounds": 1, "seconds": 60.0, "canary": "worst_case"},
        audited={"limit": 2.0, "limits": [2.0], "share": 0.0, "estimate": estimate},
    )
    return replace(made, **changes)


def said_of(row: Row) -> str:
    return text(Audited(1e-3, many_runs=([row], []), command="fedpriv audit mine"))


def test_an_estimate_above_the_certificate_is_suspicious():
    """By the lower end of its interval; the line says what to run next."""
    certified = of_many_runs().certificate.epsilon
    row = of_many_runs(epsilon=certified + 0.5, low=certified + 0.1)
    (line,) = [line for line in said_of(row).splitlines() if line.startswith("SUSPICIOUS")]
    assert f"the estimate {certified + 0.5:.3g}" in line
    assert f"lies above the certificate {certified:.4g} at delta 0.001" in line
    assert line.endswith("fedpriv audit mine --parts many_runs --runs 4000")
    assert not Audited(1e-3, many_runs=([row], [])).refuted
    assert "SUSPICIOUS" not in said_of(of_many_runs(epsilon=certified + 0.5, low=certified - 0.01))
    rejected = said_of(of_many_runs(epsilon=certified + 0.5, low=certified + 0.1, p_value=0.001))
    assert "assumption rejected" in rejected
    assert "SUSPICIOUS" not in rejected


def test_a_bound_above_the_certificate_is_suspicious_until_it_is_sure():
    certified = of_many_runs().certificate.epsilon
    likely = of_many_runs(least=certified + 0.1, surely=certified - 0.1)
    assert f"the bound {certified + 0.1:.3g} (95 %) lies above" in said_of(likely)
    assert "BY HAND IS REFUTED" not in said_of(likely)
    sure = of_many_runs(least=certified + 0.2, surely=certified + 0.1)
    assert "SUSPICIOUS" not in said_of(sure)
    assert "BY HAND IS REFUTED" in said_of(sure)
    assert Audited(1e-3, many_runs=([sure], [])).refuted


def test_so_many_right_guesses_that_the_certified_curve_is_impossible_refute_it():
    row = of_many_runs()
    for p_value, refuted in ((1e-5, False), (1e-7, True)):
        assert replace(row, audited=row.audited | {"p_value": p_value}).refuted == refuted


@pytest.mark.parametrize(
    ("args", "again"),
    [
        (["mine.py", "--rounds", "3"], "mine.py --rounds 3 --audit-seed 8"),
        (
            ["--parts", "one_run", "many_runs", "--deltas", "0.1", "--json"],
            "--deltas 0.1 --audit-seed 8",
        ),
        (["--runs=100", "--output", "a b", "--data-dir", "c d"], "--data-dir 'c d' --audit-seed 8"),
    ],
)
def test_a_stronger_test_has_the_same_settings_and_other_seeds(args, again):
    assert audit._again(args, 8) == f"fedpriv audit {again}"


def claim(**changes) -> Claim:
    made = Claim(1.0, 1e-3, "client", "third_party", "add_or_remove", "nobody", False, True, ())
    return replace(made, **changes)


def test_what_refutes_a_claim():
    """Only what is about the same unit, neighbours and (or less) delta."""
    (row, *_) = drawn_rows(20.0)
    assert row.certificate.relation == "zero_out"

    def refuted(claim, surely=1.1, certificate=row.certificate):
        made = replace(row, claim=claim, least=1.1, surely=surely, certificate=certificate)
        return made.claim_refuted

    assert refuted(claim())
    assert not refuted(claim(), surely=0.9)  # at 95 % alone: one row of twenty would be so
    assert not refuted(None)
    assert not refuted(claim(unit="record"))
    assert not refuted(claim(relation="replace_one"))
    assert not refuted(claim(delta=1e-2))
    replaced = replace(row.certificate, relation="replace_one")
    assert refuted(claim(relation="replace_one"), certificate=replaced)


@pytest.mark.slow
def test_every_row_is_one_mechanism():
    """Equal multipliers by other means are drawn apart: here other clip norms."""
    one, other = summing(fp.gaussian(1.0, 1.0)), summing(fp.gaussian(5.0, 1.0))
    rows, bare = audit_mechanisms(ledger(1e-3, a=one, b=other, c=one), 1, 500, 0)
    assert not bare
    assert {row.names for row in rows} == {("a", "c"), ("b",)}
