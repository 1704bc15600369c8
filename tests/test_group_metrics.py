"""Metrics of public groups, against NumPy: of clients, of public examples, streamed, of several seeds."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from small import records, regression, squared, start

import fedpriv as fp
from fedpriv.engine.client_metric_names import by_group, by_kind, parsed

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 12
FEDERATION = regression([1 + i % 4 for i in range(CLIENTS)])
GROUPS = ["urban"] * 6 + ["rural"] * 4 + [None, "far off"]
PARAMS = start()
STATE = fp.ModelState(PARAMS, 0)


def score(params, example):
    """A loss, and an accuracy by a threshold on it."""
    loss = squared(params, example)
    return {"accuracy": (loss < 0.3).astype(jnp.float32), "loss": loss}


def of_rows(x, y):
    """(accuracy, loss) of records, f64[n] each."""
    loss = 0.5 * (x @ np.asarray(PARAMS["w"]) + float(PARAMS["b"]) - y) ** 2
    return (loss < 0.3).astype(float), loss


def each_client(federation):
    """name -> f64[clients], each one's mean."""
    each = [of_rows(*records(federation, i)) for i in range(federation.num_clients)]
    found = np.array([[values.mean() for values in of] for of in each]).T
    return dict(zip(("accuracy", "loss"), found, strict=True))


def measured(measure, federation=FEDERATION):
    return jax.jit(measure)(STATE, federation)


def numbers(found):
    return {k: float(v) for k, v in found.items() if not isinstance(v, fp.types.ClientValues)}


def over(kind, means):
    """What is expected of metric -> group -> mean."""
    found = {f"{kind}[{g}]_{m}_mean": x for m, of in means.items() for g, x in of.items()}
    for metric, of in means.items():
        ends = np.nanmin([*of.values()]), np.nanmax([*of.values()])
        found[f"{kind}_{metric}_worst_group"] = ends[metric == "loss"]
        found[f"{kind}_{metric}_group_gap"] = ends[1] - ends[0]
    return found


def by_label(values, groups):
    labels = np.array(groups, object)
    return {name: values[labels == name].mean() for name in set(groups) - {None}}


def test_groups_of_clients_are_those_of_numpy_and_a_client_may_be_in_none():
    means = {m: by_label(values, GROUPS) for m, values in each_client(FEDERATION).items()}
    found = measured(fp.measures.per_group(score, GROUPS))
    assert numbers(found) == pytest.approx(over("per_client", means), rel=1e-5)
    rural = found["per_client[rural]"]
    assert rural.clients.tolist() == [6, 7, 8, 9]
    np.testing.assert_allclose(rural.metrics["loss"], each_client(FEDERATION)["loss"][6:10], 1e-5)
    assert rural.records.tolist() == FEDERATION.size[6:10].tolist()


@pytest.mark.slow
def test_a_column_of_a_table_may_have_gaps_and_whole_numbers():
    column = pd.Series([10.0] * 6 + [20.0] * 4 + [np.nan, 30.0])
    found = measured(fp.measures.per_group(score, column))
    names = measured(fp.measures.per_group(score, GROUPS))
    for number, name in ((10, "urban"), (20, "rural"), (30, "far off")):
        key = f"per_client[{number}]_loss_mean"
        assert found[key] == names[f"per_client[{name}]_loss_mean"]


@pytest.mark.slow
def test_groups_of_one_client_each_are_those_by_client():
    both = fp.measures.per_client(score, CLIENTS), fp.measures.per_group(score, range(CLIENTS))
    clients, groups = map(measured, both)
    for metric, values in clients["per_client"].metrics.items():
        own = [groups[f"per_client[{i}]_{metric}_mean"] for i in range(CLIENTS)]
        np.testing.assert_array_equal(own, values)


@pytest.mark.slow
def test_so_many_clients_of_each_group_are_drawn_once():
    measure = fp.measures.per_group(score, GROUPS, clients=2)
    found, again = measured(measure), measured(measure)
    sizes = {
        name: len(found[f"per_client[{name}]"].clients) for name in ("urban", "rural", "far off")
    }
    assert sizes == {"urban": 2, "rural": 2, "far off": 1}
    urban = found["per_client[urban]"].clients
    assert urban.tolist() == again["per_client[urban]"].clients.tolist()
    loss = each_client(FEDERATION)["loss"][np.array(urban)].mean()
    assert found["per_client[urban]_loss_mean"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("named", [False, True])
def test_groups_of_public_examples_are_those_of_numpy(named):
    """More of one group than are evaluated at a time; one example is in no group."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(700, 3)).astype(np.float32), rng.normal(size=700).astype(np.float32)
    language = np.where(np.arange(700) % 7 == 0, "sv", "en").astype(object)
    language[1] = None
    test = {"x": x, "y": y}
    given = ("language", {**test, "language": language}) if named else (language, test)
    found = measured(fp.measures.per_group(score, given[0], on=given[1]))
    means = {
        m: by_label(v, language) for m, v in zip(("accuracy", "loss"), of_rows(x, y), strict=True)
    }
    assert numbers(found) == pytest.approx(over("test", means), rel=1e-5)
    assert found["test[en]"].records.tolist() == [599]


@pytest.mark.slow
def test_a_column_of_whole_numbers_may_be_the_scores_own():
    """As of accuracy by class."""
    rng = np.random.default_rng(0)
    test = {"x": rng.normal(size=(60, 3)).astype(np.float32), "y": np.arange(60) % 3}
    by_name, by_array = (
        measured(fp.measures.per_group(score, groups, on=test)) for groups in ("y", test["y"])
    )
    assert numbers(by_name) == numbers(by_array)
    assert "test[2]_accuracy_mean" in by_name


@pytest.mark.slow
def test_in_a_run_of_several_seeds_they_are_each_seeds_own():
    """Held-out records of other clients of each seed, beside other measures; `test_held_out.py` has streamed ones."""
    rows = np.array_split(np.arange(len(FEDERATION.examples["y"])), 6)
    own = [
        fp.Federation.from_arrays(
            FEDERATION.examples, [r[2:] for r in parts], held_out=[r[:2] for r in parts]
        )
        for parts in (rows, rows[::-1])
    ]
    groups = ["a", "a", "a", "b", "b", "b"]
    measure = fp.measures.together(
        fp.measures.per_client(score, on="held_out"),
        fp.measures.per_group(score, groups, on="held_out"),
    )
    first = fp.simulate(
        fp.fed_sgd(squared, sampler=fp.everyone(6), learning_rate=0.0),
        PARAMS,
        own,
        FEDERATION.examples,
        score=score,
        rounds=1,
        seeds=(0, 1),
        measure=measure,
    )
    for seed, federation in enumerate(own):
        means = {m: by_label(v, groups) for m, v in each_client(federation.held_out).items()}
        for name, value in over("held_out", means).items():
            assert first.metric(name)[0, seed] == pytest.approx(value, rel=1e-5)
    values = first.evaluations[0].clients
    assert {*values} == {"held_out", "held_out[a]", "held_out[b]"}
    assert values["held_out[b]"].metrics["loss"].shape == (2, 3)


def _recall(params, example):
    positive = (example["y"] > 0).astype(jnp.float32)
    found = {"positive": positive[None], "right": (positive * (example["y"] < 9))[None]}
    return {"loss": jnp.where(example["y"] < -8, jnp.nan, 1.0), **found}


RECALL = fp.models.Score(_recall, {"recall": lambda m: (m["right"] / m["positive"])[0]})


def test_a_group_without_a_client_that_counts_is_undefined_and_one_that_diverged_is_worst():
    """The clients of "none" have no positive record, the one of "empty" none held out, that of "nan" has diverged."""

    def of(last):
        y = np.array([1.0, 9.5, 1.0, -1.0, -1.0, last], np.float32)
        held = [[0, 1], [2], [3], [4], [], [5]]
        rest = [[6 + i] for i in range(6)]
        examples = {"y": np.append(y, np.zeros(6, np.float32))}
        federation = fp.Federation.from_arrays(examples, rest, held_out=held)
        groups = ["some", "some", "none", "none", "empty", "nan"]
        return numbers(measured(fp.measures.per_group(RECALL, groups, on="held_out"), federation))

    found = of(1.0)
    assert found["held_out[some]_recall_mean"] == pytest.approx(0.75)
    assert np.isnan([found[f"held_out[{g}]_recall_mean"] for g in ("none", "empty")]).all()
    assert np.isnan(found["held_out[empty]_loss_mean"])
    assert found["held_out_recall_worst_group"] == pytest.approx(
        0.75
    )  # the others count as they are
    assert found["held_out_recall_group_gap"] == pytest.approx(0.25)
    assert found["held_out_loss_group_gap"] == 0
    diverged = of(-9.0)
    assert np.isnan(diverged["held_out[nan]_loss_mean"])
    assert np.isnan([diverged[f"held_out_loss_{s}"] for s in ("worst_group", "group_gap")]).all()


def test_personal_models_of_a_group_are_its_clients_own():
    def personal(state, i):
        return {"w": state.params["w"], "b": state.params["b"] + i}

    found = measured(fp.measures.per_group(score, GROUPS, personal=personal))
    clients = measured(fp.measures.per_client(score, CLIENTS, personal=personal))
    loss = np.asarray(clients["personal_per_client"].metrics["loss"])
    expected = loss[6:10].mean()
    assert found["personal_per_client[rural]_loss_mean"] == pytest.approx(expected, rel=1e-5)


def test_a_name_says_of_which_group_and_records_it_is():
    of = parsed("held_out[low_income]_balanced_accuracy_mean")
    assert of == ("held_out[low_income]", "balanced_accuracy", "mean")
    assert (of.records, of.group, of.by_group) == ("held_out", "low_income", True)
    assert parsed("held_out[a[1]]_loss_mean").group == "a[1]"
    assert parsed("personal_per_client_auc_group_gap").records == "personal_per_client"
    assert parsed("test_accuracy_worst_group").by_group
    for other in ("test_accuracy_mean", "held_out_loss_mean", "accuracy", "accuracy_group_gap"):
        of = parsed(other)
        assert of is None or not of.by_group
    every = ["held_out_loss_mean", "held_out_loss_group_gap", "held_out[b]_loss_mean"]
    assert by_kind(every) == {("held_out", "loss"): {"mean": every[0]}}
    assert by_group(every) == {("held_out", "loss"): {"b": every[2], "group gap": every[1]}}
