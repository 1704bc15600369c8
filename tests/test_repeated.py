"""Warnings of records that are there more than once."""

import json
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from small import sgd

import fedpriv as fp
from fedpriv.data import repeated
from fedpriv.engine.example_fit import examples_of_test, rows_trained_on

CLIENTS, EACH = 6, 4
N = CLIENTS * EACH
RNG = np.random.default_rng(0)
IMAGES = {
    "image": RNG.integers(0, 256, (2 * N, 4, 4, 1), np.uint8),
    "label": RNG.integers(0, 3, 2 * N),
}
TEXTS = {"text": RNG.integers(0, 60, (2 * N, 20)), "label": RNG.integers(0, 60, (2 * N, 20))}
TABLE = {"x": RNG.normal(size=(2 * N, 5)), "label": RNG.integers(0, 2, 2 * N)}
KINDS = {"images": IMAGES, "texts": TEXTS, "tables": TABLE}
DEALT = np.split(np.arange(N), CLIENTS)


def of(kind, rows):
    return {name: leaf[rows] for name, leaf in KINDS[kind].items()}


def streamed(examples, clients, **options):
    return fp.StreamedFederation.from_arrays(examples, clients, **options)


def sorted_by_client(examples, clients, **options):
    rows = np.concatenate(clients)
    mine = {name: leaf[rows] for name, leaf in examples.items()}
    return fp.StreamedFederation.from_sorted(mine, [len(own) for own in clients], **options)


def of_jax_arrays(examples, clients, **options):
    given = {name: jnp.asarray(leaf) for name, leaf in examples.items()}
    return fp.Federation.from_arrays(given, clients, **options)


def by_column(examples, clients):
    names = np.empty(len(examples["label"]), object)
    for i, rows in enumerate(clients):
        names[rows] = f"client {i}"
    return fp.Federation.from_arrays({**examples, "client": names}, "client")


MAKERS = [fp.Federation.from_arrays, streamed, sorted_by_client, of_jax_arrays, by_column]


def said(make, *args, **kwargs):
    """The warnings that it gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(*args, **kwargs)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_counted_once_in_one_line(make, kind):
    """Whoever makes the federation: all records twice at one more client each, some of them, and none."""
    assert said(make, of(kind, np.arange(N)), DEALT) == []
    twice = of(kind, np.r_[np.arange(N), np.arange(N)])
    (line,) = said(make, twice, [*DEALT, *(rows + N for rows in DEALT)])
    assert f"{N} of {2 * N} training records repeat another ({N} at another client)" in line
    some = of(kind, np.r_[np.arange(N), [0, 1, 5]])  # clients 0 and 1 hold what is copied
    (line,) = said(make, some, [np.r_[DEALT[0], N + np.arange(3)], *DEALT[1:]])
    assert f"3 of {N + 3} training records repeat another (1 at another client)" in line
    assert "\n" not in line


IDS = {
    "a row's place": lambda n: np.arange(n),
    "with gaps": lambda n: RNG.permutation(n) * 7919 + 2**30,
    "beside others": lambda n: RNG.permutation(n)[:, None].astype(np.uint16),
}


@pytest.mark.parametrize("make", MAKERS[:4])
@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_records_hide_no_copies(make, ids, kind):
    rows = np.r_[np.arange(N), np.arange(N)]
    examples = of(kind, rows) | {"id": IDS[ids](2 * N)}
    clients = [*DEALT, *(rows + N for rows in DEALT)]
    without = said(make, of(kind, rows), clients)
    assert len(without) == 1
    assert said(make, examples, clients) == without


def test_texts_numbers_hide_no_copies():
    """Nor where a text has several rows."""
    texts = [RNG.integers(0, 256, 150) for _ in range(N)]
    made = fp.datasets.from_tokens(
        texts * 2, np.repeat(list("abcd"), N // 2), length=64, vocabulary=256
    )
    n = len(made["text"])
    (line,) = said(fp.Federation.from_arrays, made, "client")
    assert n > 2 * N
    assert f"{n // 2} of {n} training records repeat another" in line


@pytest.mark.parametrize("make", MAKERS[:2])
def test_held_out_and_public_records_are_compared_with_those_trained_on(make):
    rows = np.r_[np.arange(N), [0, 7], np.arange(N, N + 5), 3]
    examples = of("images", rows)
    shared, own = np.arange(N, N + 4), np.arange(N + 4, N + 8)
    (line,) = said(make, examples, DEALT, public=shared, held_out=[own, *[own[:0]] * 5])
    assert "2 of 4 public records are equal" in line
    assert "1 of 4 held-out records are equal" in line
    assert "repeat another" not in line


def test_rows_that_nobody_holds_do_not_count():
    examples = of("images", np.r_[np.arange(N), np.arange(N)])
    assert said(fp.Federation.from_arrays, examples, DEALT) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"x": RNG.integers(0, 2, (300, 3))},
        {"x": np.ones((300, 50))},
        {"x": RNG.integers(0, 5, (300, 4)), "label": RNG.integers(0, 2, 300)},
        {"x": np.eye(20, dtype=np.float32)[RNG.integers(0, 20, 300)]},
        {"age": RNG.integers(20, 90, 300)},
    ],
)
def test_what_chance_explains_is_not_said(columns):
    assert len(np.unique(np.hstack([c.reshape(300, -1) for c in columns.values()]), axis=0)) < 300
    assert said(fp.Federation.from_arrays, columns, np.split(np.arange(300), 3)) == []


def hospital(n):
    rng = np.random.default_rng(n)
    return {
        "age": rng.integers(20, 90, n),
        "sex": rng.integers(0, 2, n),
        "bmi": np.round(rng.normal(25, 4, n), 1),
        "smoker": rng.integers(0, 2, n),
        "label": rng.integers(0, 2, n),
    }


def floats(rows, columns):
    return {"x": np.random.default_rng(rows).normal(size=(rows, columns)).astype(np.float32)}


@pytest.mark.parametrize(
    ("table", "times"),
    [
        (hospital(1000), 2),  # of which chance makes a few
        (hospital(5000), 2),
        (floats(20, 3), 10),
        (floats(4, 5), 50),
        (floats(18, 2), 2),
        (floats(1000, 3), 1.3),
        ({"id": np.arange(1000), "age": np.arange(1000) % 60}, 2),
    ],
)
def test_copies_of_tables_are_counted(table, times):
    n = len(next(iter(table.values())))
    rows = np.arange(int(n * times)) % n
    copied = {name: leaf[rows] for name, leaf in table.items()}
    clients = np.array_split(np.arange(len(rows)), 3)
    (line,) = said(fp.Federation.from_arrays, copied, clients)
    assert f"of {len(rows)} training records repeat another" in line
    assert said(fp.Federation.from_arrays, table, np.array_split(np.arange(n), 3)) == []
    dealt = fp.Federation.from_arrays(table, np.array_split(np.arange(n), 3))
    assert f"{n} of {n} test records" in "".join(said(compared, table, dealt))


def leaf_folder(folder):
    for name in ("all.json", "copy of all.json"):
        user_data = {
            f"u{i}": {"x": TABLE["x"][rows].tolist(), "y": TABLE["label"][rows].tolist()}
            for i, rows in enumerate(DEALT)
        }
        told = {"users": [*user_data], "num_samples": [EACH] * CLIENTS, "user_data": user_data}
        (folder / name).write_text(json.dumps(told))
    return fp.Federation.from_arrays(fp.datasets.from_leaf(folder), "client")


def image_folder(folder):
    for client in range(CLIENTS):
        (folder / f"c{client}" / "cat").mkdir(parents=True)
        for row in DEALT[client]:
            picture = Image.fromarray(np.tile(IMAGES["image"][row], 3))
            for copy in ("one", "other"):
                picture.save(folder / f"c{client}" / "cat" / f"{row} {copy}.png")
    arrays = fp.datasets.from_image_folder(folder, ("client", "label"))
    return fp.Federation.from_arrays(arrays, "client")


def client_files(folder):
    twice = ({name: leaf[np.r_[rows, rows]] for name, leaf in TEXTS.items()} for rows in DEALT)
    fp.write_clients(folder / "files", twice)
    return fp.StreamedFederation.from_folder(folder / "files")


def csv_file(folder):
    frame = pd.DataFrame(TABLE["x"][:N]).assign(client=np.repeat(np.arange(CLIENTS), EACH))
    frame.to_csv(folder / "all.csv", index=False)
    read = pd.read_csv(folder / "all.csv")
    return fp.Federation.from_arrays(pd.concat([read, read]), "client")


@pytest.mark.parametrize("load", [leaf_folder, image_folder, client_files, csv_file])
def test_copies_in_files_are_counted(load, tmp_path):
    (line,) = said(load, tmp_path)
    assert f"{N} of {2 * N} training records repeat another." in line


def compared(test, federation):
    trained = [(federation.examples, rows_trained_on(federation))]
    repeated.warn_of_trained(examples_of_test(test, federation), trained)


@pytest.mark.parametrize("make", MAKERS[:2])
@pytest.mark.parametrize("kind", KINDS)
def test_test_records_are_compared_with_those_trained_on(make, kind):
    """Also where their numbers are of another type, and some records are nobody's."""
    clients = [rows[1:] for rows in DEALT]
    federation = make(of(kind, np.arange(N)), clients)
    known = of(kind, np.r_[1, 2, 3, 5, 0, 4, np.arange(N, N + 4)])
    wider = {k: v.astype(np.float64 if v.dtype.kind == "f" else np.int64) for k, v in known.items()}
    for test in (known, wider):
        (line,) = said(compared, test, federation)
        assert line.startswith("test: 4 of 10 test records are equal to a training record")
    assert said(compared, of(kind, np.arange(N, 2 * N)), federation) == []


@pytest.mark.slow
def test_a_run_compares_the_records_of_every_seed():
    def score(w, example):
        return {"loss": (example["x"].mean() - w) ** 2}

    algorithm = fp.fed_avg(
        lambda w, example: score(w, example)["loss"],
        sampler=fp.everyone(CLIENTS),
        optimizer=sgd,
        batches=fp.full_batch(),
    )
    first = fp.Federation.from_arrays(of("tables", np.arange(2 * N)), DEALT)
    given = [first, first.repartition([rows + N for rows in DEALT])]
    test, how = of("tables", np.r_[0, N]), {"score": score, "rounds": 1}
    (line,) = said(fp.simulate, algorithm, jnp.float32(0), given, test, **how, seeds=(0, 1))
    assert line.startswith("test: 2 of 2 test records are equal to a training record")


def test_rows_are_fetched_from_a_device():
    leaf = jnp.asarray(IMAGES["image"])
    for rows in (np.r_[3, 1, 40], np.arange(2 * N), np.r_[0:0]):
        np.testing.assert_array_equal(repeated._fetched(leaf, rows), IMAGES["image"][rows])


def test_of_many_a_sample_is_looked_at_and_the_line_says_so(monkeypatch):
    monkeypatch.setattr(repeated, "LOOKED_AT", 1)
    monkeypatch.setattr(repeated, "_ROWS", 40)
    twice = of("images", np.r_[np.arange(N), np.arange(N)])
    (line,) = said(fp.Federation.from_arrays, twice, np.split(np.arange(2 * N), CLIENTS))
    assert "in a random sample of 40 of 48 records" in line
    counted = int(line.split("records, ")[1].split(" of 40")[0])
    assert 40 - N <= counted < N
