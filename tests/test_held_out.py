"""Records that are held out: which they are, that nothing trains on them, and what is measured on them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import assert_close, assert_identical, refused, regression, squared, start

import fedpriv as fp
from fedpriv.data.partition import hold_out
from fedpriv.engine.client_metric_names import parsed

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 12
WHOLE = regression([3 + i % 4 for i in range(CLIENTS)], public=3)
PARAMS = start()
EXAMPLES, PUBLIC = jax.tree.map(np.asarray, (WHOLE.examples, WHOLE.public))
PARTS = [np.asarray(rows)[: int(n)] for rows, n in zip(WHOLE.rows, WHOLE.size, strict=True)]
TOTAL = len(EXAMPLES["y"])


def divided(seed=0):
    """(held out, for training) of each client; the last one holds nothing out."""
    held, rest = hold_out(np.random.default_rng(seed), PARTS, 0.4)
    return [*held[:-1], held[-1][:0]], [*rest[:-1], PARTS[-1]]


HELD, REST = divided()
FEDERATION = fp.Federation.from_arrays(EXAMPLES, REST, public=PUBLIC, held_out=HELD)


def streamed(held=HELD, rest=REST):
    return fp.StreamedFederation.from_arrays(EXAMPLES, rest, public=PUBLIC, held_out=held)


def rows_of(federation):
    """The rows of each client of a federation in memory, sorted."""
    pairs = zip(np.asarray(federation.rows), np.asarray(federation.size), strict=True)
    return [sorted(rows[:n].tolist()) for rows, n in pairs]


def score(params, example):
    loss = squared(params, example)
    return {"accuracy": (loss < 0.3).astype(jnp.float32), "loss": loss}


DITTO = fp.ditto(
    squared,
    lam=0.5,
    sampler=fp.poisson(CLIENTS, 0.5),
    optimizer=lambda t: optax.sgd(0.1),
    batches=fp.epochs(1, 2),
    mechanism=fp.gaussian(0.5, 1.0),
)
MEASURE = fp.measures.together(
    fp.measures.per_client(score, 100, {"loss": 0.4}, on="held_out"),
    fp.measures.per_client(score, 5, on="held_out", personal=DITTO.personal),
)


def run(federation, **options):
    return fp.simulate(
        DITTO, PARAMS, federation, EXAMPLES, score=score, rounds=3, every=2,
        measure=MEASURE, **options,
    )  # fmt: skip


def test_a_share_of_every_client_s_rows():
    held, rest = hold_out(np.random.default_rng(1), PARTS, 0.4)
    for own, out, left in zip(PARTS, held, rest, strict=True):
        assert len(out) == int(0.4 * len(own) + 0.5)
        np.testing.assert_array_equal(np.sort([*out, *left]), np.sort(own))
    held, rest = hold_out(np.random.default_rng(1), PARTS, 2)
    assert {len(out) for out in held} == {2}
    out, left = hold_out(np.random.default_rng(1), 10, 0.3)
    assert (len(out), len(left)) == (3, 7)


@pytest.mark.parametrize("count", [0.2, 0.5, 0.75, 1])
def test_each_label_has_its_share_of_what_is_held_out(count):
    """Of clients of any size and labels of any kind: to within one row, and as many rows as without labels."""
    rng = np.random.default_rng(5)
    cuts = np.cumsum(rng.integers(4, 60, 15))
    clients = np.split(rng.permutation(600), cuts[cuts < 590])
    labels = rng.choice(["a", "b", "c"], 600, p=[0.85, 0.12, 0.03])
    held, rest = hold_out(np.random.default_rng(1), clients, count, stratify=labels)
    plain, _ = hold_out(np.random.default_rng(1), clients, count)
    for own, out, left, like in zip(clients, held, rest, plain, strict=True):
        assert len(out) == len(like)
        np.testing.assert_array_equal(np.sort([*out, *left]), np.sort(own))
        for label in "abc":
            share = len(out) * np.mean(labels[own] == label)
            assert abs(np.sum(labels[out] == label) - share) < 1
    again, _ = hold_out(np.random.default_rng(1), clients, count, stratify=labels)
    assert_identical(again, held)
    assert any(not np.array_equal(a, b) for a, b in zip(held, plain, strict=True))


def test_a_single_row_of_a_label_stays_where_most_rows_stay():
    labels = np.array([1, *np.zeros(9)])
    for share, there in ((0.4, 0), (0.6, 1)):
        for seed in range(5):
            rng = np.random.default_rng(seed)
            (out,), _ = hold_out(rng, [np.arange(10)], share, stratify=labels)
            assert labels[out].sum() == there


def test_rows_and_columns_say_the_same():
    flags = np.zeros(TOTAL, bool)
    flags[np.concatenate(HELD)] = True
    by_column = fp.Federation.from_arrays(
        EXAMPLES | {"test": flags}, PARTS, public=PUBLIC, held_out="test"
    )
    assert by_column.examples.keys() == EXAMPLES.keys()
    for one, other in ((FEDERATION, by_column), (FEDERATION.held_out, by_column.held_out)):
        assert rows_of(one) == rows_of(other)
    assert rows_of(FEDERATION) == [sorted(rows.tolist()) for rows in REST]
    assert rows_of(FEDERATION.held_out) == [sorted(rows.tolist()) for rows in HELD]
    again = WHOLE.repartition(REST, public=PUBLIC, held_out=HELD)
    assert_identical(again.held_out_rows, FEDERATION.held_out_rows)


def test_columns_of_streamed_files(tmp_path):
    """The rest of the records trains as a federation of them alone does."""
    flags = np.isin(np.arange(TOTAL), np.concatenate(HELD))
    parts = [{"test": flags[r]} | {k: v[r] for k, v in EXAMPLES.items()} for r in PARTS]
    public = {"test": flags[PUBLIC]} | {k: v[PUBLIC] for k, v in EXAMPLES.items()}
    fp.write_clients(tmp_path / "c", parts, public=public)
    made = fp.StreamedFederation.from_folder(tmp_path / "c", held_out="test")
    np.testing.assert_array_equal(made.size, [len(rows) for rows in REST])
    np.testing.assert_array_equal(made.held_out.size, [len(rows) for rows in HELD])
    for of, rows in ((made, REST), (made.held_out, HELD)):
        _, found = of.read(np.array([4], np.int32))
        expected = np.sort(EXAMPLES["y"][rows[4]])
        np.testing.assert_array_equal(np.sort(found["y"][: len(rows[4])]), expected)


def test_training_does_not_see_what_is_held_out():
    """Their values make no difference; nor is there one to clients that do not have them."""
    spoilt = {name: leaf.copy() for name, leaf in EXAMPLES.items()}
    for leaf in spoilt.values():
        leaf[np.concatenate(HELD)] = 1e4
    others = (
        fp.Federation.from_arrays(spoilt, REST, public=PUBLIC, held_out=HELD),
        fp.Federation.from_arrays(EXAMPLES, REST, public=PUBLIC),
    )
    algorithm = fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1)
    trained = jax.jit(fp.one_round(algorithm))
    begun = algorithm.init(PARAMS, FEDERATION)
    expected, _ = trained(jax.random.key(0), begun, FEDERATION)
    assert not np.array_equal(expected.params["w"], PARAMS["w"])
    for other in others:
        assert_identical(trained(jax.random.key(0), begun, other)[0], expected)


def test_what_is_measured_is_that_of_numpy():
    def losses(theta, client):
        rows = HELD[client]
        x, y = (EXAMPLES[name][rows].astype(np.float64) for name in "xy")
        return 0.5 * (x @ np.asarray(theta["w"], np.float64) + float(theta["b"]) - y) ** 2

    rng = np.random.default_rng(2)
    begun = jax.eval_shape(DITTO.init, PARAMS, FEDERATION)
    state = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), begun)
    shared, own = state.params, state.own
    each = [losses(shared, i) for i in range(CLIENTS - 1)]  # the last one has none
    means = np.array([loss.mean() for loss in each])
    found = jax.jit(MEASURE)(state, FEDERATION)
    assert found["held_out_loss_mean"] == pytest.approx(means.mean(), rel=1e-5)
    assert found["held_out_loss_pooled"] == pytest.approx(np.concatenate(each).mean(), rel=1e-5)
    assert found["held_out_loss_above_0.4"] == pytest.approx((means > 0.4).mean())
    shown = found["held_out"]
    np.testing.assert_array_equal(shown.clients, range(CLIENTS))
    np.testing.assert_array_equal(shown.records, [len(rows) for rows in HELD])
    np.testing.assert_allclose(shown.metrics["loss"], [*means, np.nan], rtol=1e-5)
    chosen = np.sort(np.random.default_rng(0).choice(CLIENTS, 5, replace=False))
    own_models = [jax.tree.map(lambda leaf, i=i: leaf[i], own) for i in chosen]
    hits = [losses(theta, i) < 0.3 for theta, i in zip(own_models, chosen, strict=True)]
    accuracies = [np.mean(hit) if len(hit) else np.nan for hit in hits]
    assert found["personal_accuracy_mean"] == pytest.approx(np.nanmean(accuracies), rel=1e-5)
    np.testing.assert_array_equal(found["personal"].clients, chosen)
    np.testing.assert_allclose(found["personal"].metrics["accuracy"], accuracies, rtol=1e-5)


def of_each_seed():
    """Federations in memory and streamed, with a split of its own for each seed."""
    splits = [divided(seed) for seed in (0, 1)]
    first = fp.Federation.from_arrays(EXAMPLES, splits[0][1], public=PUBLIC, held_out=splits[0][0])
    other = first.repartition(splits[1][1], public=PUBLIC, held_out=splits[1][0])
    return [first, other], [streamed(*split) for split in splits]


def test_streamed_clients_are_measured_alike():
    """Their numbers are those of the same model on the federation in memory."""
    measure = fp.measures.per_client(score, 100, on="held_out")
    state = fp.start(PARAMS, FEDERATION)
    expected = jax.jit(measure)(state, FEDERATION)
    found = jax.jit(lambda state: measure(state, streamed()))(state)
    assert "held_out_loss_mean" in expected
    assert_close(found, expected, 1e-5)


@pytest.mark.slow
def test_streamed_clients_models_are_measured_alike_on_several_devices():
    options = {"seeds": (0, 1), "strategy": fp.Strategy(2, 2)}
    expected, found = (run(made, **options).evaluations[-1] for made in of_each_seed())
    assert expected.clients.keys() == {"held_out", "personal"}
    assert found.measures.keys() == expected.measures.keys()
    assert_close(dict(found.measures), dict(expected.measures), 1e-5)
    assert found.clients.keys() == expected.clients.keys()
    for kind, values in expected.clients.items():
        assert_identical(found.clients[kind][:2], values[:2])  # who, and with how many records
        for a, b in zip(found.clients[kind].metrics.values(), values.metrics.values(), strict=True):
            np.testing.assert_allclose(a, b, 1e-5)


@pytest.mark.parametrize("where", ["round", "init"])
def test_an_algorithm_that_reads_what_is_held_out_is_refused(where):
    plain = fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1)

    def round(key, state, cohort):
        state, metrics = plain.round(key, state, cohort)
        rows = FEDERATION.held_out.rows
        shift = jnp.sum(rows).astype(jnp.float32)
        return state._replace(params=jax.tree.map(lambda p: p + shift, state.params)), metrics

    def init(params, federation):
        shift = jnp.sum(federation.held_out.size).astype(jnp.float32)
        return plain.init(jax.tree.map(lambda p: p + shift, params), federation)

    own = {"round": round, "init": init}[where]
    with pytest.raises(fp.LeakError):
        fp.trace_round(plain._replace(**{where: own}), PARAMS, FEDERATION)


@pytest.mark.parametrize("of", [FEDERATION, FEDERATION.held_out], ids=["trained on", "held out"])
def test_a_table_of_rows_that_is_made_before_the_round_is_refused(of):
    """Although a federation keeps them one client after another."""
    plain = fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1)
    table = of.rows

    def round(key, state, cohort):
        state, metrics = plain.round(key, state, cohort)
        shift = jnp.sum(table).astype(jnp.float32)
        return state._replace(params=jax.tree.map(lambda p: p + shift, state.params)), metrics

    with pytest.raises(
        fp.LeakError, match=r"^round: it closes over federation\['\w+_rows'\].table;"
    ):
        fp.trace_round(plain._replace(round=round), PARAMS, FEDERATION)


def test_the_worst_tenth_is_of_the_clients_that_have_records():
    """40 clients, of whom ten hold something out: the worst of these, not the mean of the worst four."""
    labels = np.arange(80)
    parts = np.split(labels, 40)
    held = [part[:1] if i < 10 else part[:0] for i, part in enumerate(parts)]
    rest = [part[1:] if i < 10 else part for i, part in enumerate(parts)]
    federation = fp.Federation.from_arrays({"y": labels / 80}, rest, held_out=held)
    right = {"w": jnp.zeros(())}
    measure = fp.measures.per_client(
        lambda params, example: {"accuracy": jnp.where(example["y"] == 0, 0.1, 0.9)},
        100,
        on="held_out",
    )
    found = jax.jit(measure)(fp.start(right, federation), federation)
    assert found["held_out_accuracy_worst_decile"] == pytest.approx(0.1)
    assert found["held_out_accuracy_mean"] == pytest.approx(0.82)


def test_personal_numbers_say_on_which_records_they_are():
    def personal(state, i):
        return state.params

    measure = fp.measures.together(
        fp.measures.per_client(score, 5, on="train", personal=personal),
        fp.measures.per_client(score, 5, on="held_out", personal=personal),
    )
    begun = fp.start(PARAMS, FEDERATION)
    found = jax.eval_shape(measure, begun, FEDERATION)
    assert {"personal_accuracy_mean", "personal_per_client_accuracy_mean"} <= found.keys()
    twice = fp.measures.together(*[fp.measures.per_client(score, 5)] * 2)
    with refused("measures: two of them give 'per_client'; leave"):
        jax.eval_shape(twice, begun, FEDERATION)
    others = regression([3] * (CLIENTS + 1))
    foreign = fp.measures.per_client(score, 5, on=others, personal=personal)
    with refused("on: 13 clients, but there are personal models of 12"):
        jax.eval_shape(foreign, begun, FEDERATION)


@pytest.mark.parametrize("higher", [True, False])
def test_a_model_that_gives_no_number_is_worse_than_all_others(higher):
    """It is not left out, as a client without records is: the third of four that have some."""
    held = [[0], [1], [2], [], [3]]
    rest = [[4], [5], [6], [7], [8]]
    federation = fp.Federation.from_arrays({"y": np.arange(9.0)}, rest, held_out=held)
    values = jnp.array([0.1, 0.6, np.nan, 0.9])
    of_record = lambda params, example: {"gain": values[example["y"].astype(int)]}  # noqa: E731
    each = fp.models.Score(of_record, higher=["gain"] if higher else [])
    measure = fp.measures.per_client(each, bound={"gain": 0.5}, on="held_out")
    found = measure(fp.start({"w": jnp.zeros(())}, federation), federation)
    assert np.isnan([found["held_out_gain_mean"], found["held_out_gain_pooled"]]).all()
    worst = -np.inf if higher else np.inf
    ranked = sorted([0.1, 0.6, 0.9, worst])
    assert found["held_out_gain_median"] == pytest.approx((ranked[1] + ranked[2]) / 2)
    assert found["held_out_gain_worst_decile"] == worst
    share = found[f"held_out_gain_{'below' if higher else 'above'}_0.5"]
    assert share == pytest.approx(0.5 if higher else 0.75)


def test_names_of_numbers_are_read_as_they_were_made():
    metrics = ("loss", "mean_error", "error_below_x", "top_5_accuracy")
    ends = ("mean_of_trained", "trained", "worst_decile", "below_0.7", "above_-1e-05", "above_80")
    for made in itertools.product(["personal_per_client"], metrics, ends):
        assert parsed("_".join(made)) == made
