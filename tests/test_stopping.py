"""Training that ends before its last round, because a metric is good enough or no better."""

import json

import numpy as np
import optax
import pytest
import tiers
from resumed import OFTEN, SMALL, assert_same, launch, lines
from small import assert_identical, compiler_of_one_program, regression, squared, start

import fedpriv as fp
from fedpriv.engine.history import Evaluation
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.config.stopping import Stopping, decided

CLIENTS = 4
FEDERATION = regression([3] * CLIENTS)
COMPILER = compiler_of_one_program()  # the number of rounds changes no program
RUN = [*SMALL, *OFTEN, "--algorithms", "fed_avg", "rand_k", "--rounds", "6", "--every", "2"]


GIVEN = {"rounds": 7, "every": 2, "compiler": COMPILER, "strategy": fp.Strategy()}


def simulated(**options):
    """FedSGD for seven rounds, evaluated after 2, 4, 6 and 7."""
    return fp.simulate(
        fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1),
        start(),
        FEDERATION,
        FEDERATION.examples,
        score=lambda params, example: {"loss": squared(params, example)},
        **GIVEN | {"measure": private} | options,
    )


def run(stop_at=None, **options):
    """As `simulated`, and the rounds at which it called back."""
    called = []

    def on_evaluation(e):
        called.append(e.round)
        return np.bool_(e.round >= stop_at) if stop_at else e.loss

    return simulated(on_evaluation=on_evaluation, **options), called


def test_true_ends_the_run_and_the_checkpoint_says_so(tmp_path):
    """With the state and the evaluations so far; the same call trains no further."""
    checkpoints = fp.Checkpoints(tmp_path / "c")
    history, called = run(4, checkpoints=checkpoints)
    assert called == [2, 4]
    assert list(history.rounds) == [2, 4]
    assert_identical(history.state, run(rounds=4)[0].state)
    assert int(history.state.round[0]) == 4
    again, called = run(4, checkpoints=checkpoints)
    assert called == []
    assert_identical(again.state, history.state)
    np.testing.assert_array_equal(again.loss, history.loss)


def private(state, federation):
    """Measured on the training records."""
    return {"train_loss": (federation.examples["x"] ** 2).mean() + state.round}


def test_what_may_stop_sees_public_numbers_alone():
    """Whatever else is measured goes to `record`, which stops nothing."""
    seen, recorded = [], []
    history = simulated(
        on_evaluation=lambda e: seen.append(e) or False,
        record=lambda e: recorded.append(e) or True,
    )
    assert [e.round for e in recorded] == [2, 4, 6, 7]
    assert recorded[0].measures["train_loss"].shape == (1,)
    assert history.not_covered == ()
    for e in seen:
        assert set(e._fields) == {"round", "metrics", "not_covered"}
        assert (set(e.metrics), dict(e.not_covered)) == ({"loss"}, {})
        with pytest.raises(ValueError, match=r"no 'train_loss'.*not_covered=\('train_loss',\)"):
            e.metric("train_loss")


@pytest.mark.slow
def test_what_is_recorded_changes_nothing_that_may_stop():
    """Such as a private number that `record` puts beside the metrics, or in their place."""
    seen = []

    def record(e):
        e.metrics["train_loss"] = e.metrics["loss"] = e.measures["train_loss"]

    simulated(rounds=2, record=record, on_evaluation=lambda e: seen.append(e))
    (alone,) = simulated(rounds=2).loss
    assert seen[0].metrics.keys() == {"loss"}
    np.testing.assert_array_equal(seen[0].loss, alone)


@pytest.mark.slow
def test_a_private_number_is_asked_for_by_name(tmp_path):
    """The history says so, also one from a checkpoint, and also where the callback ended nothing."""
    asked = {"not_covered": ("train_loss",), "checkpoints": fp.Checkpoints(tmp_path / "c")}
    history = simulated(on_evaluation=lambda e: e.metric("train_loss").mean() > 4, **asked)
    assert history.rounds.tolist() == [2, 4]
    again = simulated(on_evaluation=lambda e: False, checkpoints=asked["checkpoints"])
    assert again.rounds.tolist() == [2, 4]
    assert history.not_covered == again.not_covered == ("train_loss",)
    assert simulated(on_evaluation=lambda e: False, not_covered=["train_loss"]).not_covered


def test_no_epsilon_covers_a_run_that_private_numbers_ended():
    model = {"w": np.zeros(3, np.float32)}
    certificate = fp.certify(
        fp.dp_fed_avg(
            lambda params, example: (params["w"] * example["x"]).sum(),
            sampler=fp.poisson(CLIENTS, rate=0.5),
            batches=fp.epochs(1, batch_size=1),
            optimizer=lambda t: optax.sgd(0.1),
            clip_norm=1.0,
            noise_multiplier=4.0,
        ),
        model,
        fp.Federation.blank({"x": np.zeros(3, np.float32)}, CLIENTS, 2),
        rounds=7,
        delta=1e-3,
    )
    assert certificate.not_covered(()) is certificate
    no_more = certificate.not_covered(("train_loss",))
    assert np.isinf(no_more.epsilon)
    assert np.isinf(no_more.profile().epsilon(0.5))
    why = "not covered: the last round was chosen by train_loss"
    assert why == no_more.assumptions[0] == no_more.why_infinite()
    assert why in str(no_more)
    assert not any("metrics on private records" in text for text in no_more.assumptions)


def test_what_is_not_true_goes_on():
    """Such as an array, or a list that `append` of something returns."""
    assert run()[1] == [2, 4, 6, 7]


def evaluations(*means, metric="accuracy"):
    return [
        Evaluation(5 * i, {metric: np.array([m - 0.1, m + 0.1])}, *[np.zeros(2)] * 2, {}, 0.0)
        for i, m in enumerate(means, 1)
    ]


def first(stopping, found):
    """After how many evaluations it stops, and why."""
    said = ((i, stopping.why(found[:i])) for i in range(len(found) + 1))
    return next(((i, why) for i, why in said if why), None)


def test_a_target_is_reached_by_the_mean_over_the_seeds_in_its_direction():
    up = Stopping.of("accuracy=0.6", None, None, ["accuracy", "loss"], ())
    assert first(up, evaluations(0.4, 0.55, 0.7, 0.5)) == (
        3,
        "stopped at round 15: accuracy reached 0.6 or higher",
    )
    down = Stopping.of("mse=0.5", None, None, ["mse"], ())
    assert first(down, evaluations(0.9, 0.4, metric="mse"))[0] == 2
    score = Stopping.of("f1=0.5", None, None, ["f1"], ("f1",))
    assert first(score, evaluations(0.4, 0.9, metric="f1"))[0] == 2
    assert first(up, evaluations(0.1, 0.2, 0.3)) is None


def test_patience_counts_evaluations_without_a_better_one():
    wait = Stopping.of(None, 2, None, ["accuracy"], ())
    assert first(wait, evaluations(0.1, 0.5, 0.4, 0.6, 0.6, 0.3, 0.9)) == (
        6,
        "stopped at round 30: accuracy no higher for 2 evaluations",
    )
    nothing_yet = evaluations(np.nan, 0.1, 0.5, 0.4, 0.3)
    assert first(wait, nothing_yet)[0] == 5
    lower = Stopping.of(None, 2, None, ["loss"], ())
    found = evaluations(0.5, 0.4, 0.6, 0.5, metric="loss")
    assert first(lower, found) == (4, "stopped at round 20: loss no lower for 2 evaluations")


@pytest.mark.parametrize(
    ("higher", "said"),
    [((), "no lower for 1 evaluation (lower is better, unless"), (True, "no higher for 1 eval")],
)
def test_what_stops_says_which_way_is_better(higher, said):
    """Of a metric whose name does not tell; and which one it was can be told from it."""
    name = "held_out_specificity_mean"
    given = (None, 1, name, [name], (name,) if higher else ())
    values = (0.9, 0.8) if higher else (0.8, 0.9)
    why = first(Stopping.of(*given), evaluations(*values, metric=name))[1]
    assert why.startswith(f"stopped at round 10: {name} {said}")
    assert decided(why) == name
    wanted = Stopping.of(f"{name}=0.85", None, None, *given[3:])
    way = "higher" if higher else "lower (lower is better"
    assert f"reached 0.85 or {way}" in wanted.why(evaluations(0.85, metric=name))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile", "compiled_once")
def test_a_run_that_stops_early_is_complete_and_goes_on_where_it_was(tmp_path, capsys):
    """FedAvg stops at its second evaluation; killed in the next algorithm, the run ends as an undisturbed one."""
    bar = [*RUN, "--stop-at", "loss=2.4", "--per-client", "3", "--seeds", "2"]
    assert launch(*bar, "--output", tmp_path / "whole") == 0
    told = capsys.readouterr().out
    for word in ("2 of 6", "FedAvg, where rounds", "stopped early", "loss reached 2.4"):
        assert word in " ".join(told.split())
    assert "not private: no epsilon covers publishing these numbers" in told
    found = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert found["status"] == "complete"
    assert found["rounds"]["fed_avg"] == 2
    assert found["rounds_planned"]["fed_avg"] == 6
    for name, report in found["privacy"].items():  # the models chose when to stop
        assert report["rounds"] == found["rounds_planned"][name]
    last = [x for x in lines(tmp_path / "whole") if x["algorithm"] == "rand_k"][-1]
    shown = found["per_client_not_private"]["rand_k"]
    assert shown["per_client_accuracy_mean"]["mean"] == pytest.approx(
        last["diagnostics_not_private"]["per_client_accuracy_mean"]["mean"]
    )

    class Kill:
        def write(self, record):
            if record["algorithm"] == "rand_k":
                raise SystemExit

    with pytest.raises(SystemExit):
        main([*bar, "--output", str(tmp_path / "cut")], sinks=[Kill()])
    assert launch("--resume", tmp_path / "cut") == 0
    assert_same(tmp_path / "cut", tmp_path / "whole")


LAUNCHED = [
    (["--stop-at", "f1=0.8"], "stop_at: there is no 'f1'; the score gives accuracy, loss"),
    (["--stop-at", "accuracy"], "stop_at: 'accuracy' is not NAME=VALUE"),
    (["--metric", "f1"], "metric: there is no 'f1'; the score gives accuracy, loss"),
    (
        ["--metric", "personal_accuracy_mean"],
        "gives accuracy, loss; per_client=N (--per-client N) adds those of single clients",
    ),
    (
        ["--stop-at", "personal_accuracy_mean=1", "--per-client", "3"],
        "; those of personal models need an Algorithm with personal=",
    ),
    (
        ["--metric", "held_out_accuracy_mean", "--per-client", "3"],
        "; those of held-out records need a federation with held_out=",
    ),
    (["--metric", "per_client_f1_mean", "--per-client", "3"], "per_client_f1_mean"),
    (["--patience", "0"], "patience: 0; give"),
    (["--per-client", "0"], "per_client: 0; give"),
    (["--bound", "0.5"], "bound: 0.5 has no effect without per_client"),
]


@pytest.mark.slow
@tiers.every("place", range(len(LAUNCHED)))
def test_what_the_launcher_refuses(place, tmp_path, capsys):
    args, said = LAUNCHED[place]
    assert launch(*RUN, *args, "--output", tmp_path / "r") == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
