"""A federation holds what it was given; every inconsistency is an error that names it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import assert_identical

import fedpriv as fp
from fedpriv.data.federation import Federation, stack
from fedpriv.proof.calls import may_make
from fedpriv.proof.given import Given
from fedpriv.proof.marks import Marks
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.cohort_calls import CohortCalls
from fedpriv.rounds.round_arguments import shape_of
from fedpriv.rounds.samplers import Answer


def examples(count=6):
    image = np.arange(count * 4, dtype=np.uint8).reshape(count, 2, 2, 1)
    return {"image": image, "label": np.arange(count) % 3}


CLIENTS = [np.array([4, 0, 2]), np.array([5])]


def test_rows_sizes_and_padding():
    federation = Federation.from_arrays(examples(), CLIENTS, public=[3, 1], num_classes=3)
    assert (federation.num_clients, federation.capacity) == (2, 3)
    np.testing.assert_array_equal(federation.rows, [[4, 0, 2], [5, 5, 5]])
    np.testing.assert_array_equal(federation.size, [3, 1])
    np.testing.assert_array_equal(federation.public, [3, 1])
    np.testing.assert_array_equal(federation.examples["image"], examples()["image"])
    for leaf in (federation.rows, federation.size, federation.public, federation.examples["label"]):
        assert leaf.dtype == jnp.int32
    assert federation.examples["image"].dtype == jnp.uint8


def test_it_is_printed_without_records():
    examples = {"x": np.full((3, 2), 1234.5, np.float32)}
    printed = repr(Federation.from_arrays(examples, [[0, 1], [2]]))
    assert printed == "Federation(2 clients, up to 2 records each, {'x': 'float32[3, 2]'})"


def test_what_holds_records_prints_none_of_them():
    """Sizes alone, of whatever data a user may have in hand."""
    x = np.full((4, 3), 1234.5, np.float32)
    examples = {"x": x, "who": np.array([7131, 7131, 8242, 8242])}
    rows = [[0], [2]]
    memory = Federation.from_arrays(examples, rows, held_out=[[1], [3]], public=())
    streamed = fp.StreamedFederation.from_arrays(examples, rows, held_out=[[1], [3]])
    holders, records = streamed.read(np.arange(2))
    cohort = replace(streamed.empty(), holders=jnp.asarray(holders), holder_records=records)
    sampler = fp.everyone(2)
    with may_make():
        given = Given(jax.random.key(0), jnp.int32(0), jnp.int32(2), examples)
        whole = Cohort(CohortCalls(given, shape_of(memory), sampler, Answer(), Marks()))
    for held in (
        memory,
        memory.held_out,
        streamed,
        streamed.held_out,
        cohort,
        stack([memory, memory]),
        fp.datasets.Dataset("own", examples, examples, 2, keys=examples["who"]),
        fp.Shard(examples, jnp.int32(4)),
        fp.with_keys(jax.random.key(0), examples),
        whole,
    ):
        for printed in (repr(held), str(held), f"{[held]}"):
            assert type(held).__name__ in printed
            assert len(printed) < 200
            assert "\n" not in printed
            assert not any(number in printed for number in ("1234", "7131", "8242"))


def test_no_public_rows():
    federation = Federation.from_arrays(examples(), CLIENTS)
    assert federation.public.shape == (0,)
    assert federation.public.dtype == jnp.int32


def test_it_is_a_pytree():
    federation = Federation.from_arrays(examples(), CLIENTS)

    @jax.jit
    def labels(f):
        assert (f.num_clients, f.capacity) == (2, 3)
        return f.examples["label"][f.rows]

    np.testing.assert_array_equal(labels(federation), [[1, 0, 2], [2, 2, 2]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.bool_, np.int8])
def test_data_types(dtype):
    stored = Federation.from_arrays({"x": np.ones((6, 2), dtype)}, CLIENTS).examples["x"]
    assert stored.dtype == (np.float32 if dtype is np.float64 else dtype)


def test_nested_examples_with_arrays_on_the_device():
    label = jnp.zeros(6, jnp.int32)
    federation = Federation.from_arrays(({"x": [np.ones((6, 2))]}, label), CLIENTS)
    assert federation.examples[1] is label
    assert federation.examples[0]["x"][0].shape == (6, 2)


@pytest.mark.parametrize("ids", [[7, 3, 7, 3, 3, 9], list("babaac")])
def test_clients_by_a_leaf(ids):
    given = examples() | {"who": np.array(ids)}
    by_name = Federation.from_arrays(given, "who", public=[4])
    by_rows = Federation.from_arrays(examples(), [[0, 2], [1, 3], [5]], public=[4])
    assert set(by_name.examples) == {"image", "label"}
    jax.tree.map(np.testing.assert_array_equal, by_name, by_rows)
    assert set(given) == {"image", "label", "who"}  # the arrays given are left as they are


def test_labels_are_checked_per_position():
    label = np.zeros((6, 4), int)
    label[2, 3] = 9
    with pytest.raises(ValueError, match=": 9 in row 2"):
        Federation.from_arrays({"label": label}, CLIENTS, num_classes=9)


def test_repartition_shares_the_examples():
    first = Federation.from_arrays(examples(), CLIENTS)
    other = first.repartition([[1], [0, 2, 3, 4]], public=[5])
    assert other.examples is first.examples
    np.testing.assert_array_equal(other.rows, [[1, 1, 1, 1], [0, 2, 3, 4]])


def test_another_partition_says_by_whom_records_are_held_out():
    """Or begins with a federation that holds nothing out."""
    first = Federation.from_arrays(examples(), [[4, 0, 2], [5]], held_out=[[1], []])
    again = first.repartition([[1], [0]], held_out=[[4], [2]])
    np.testing.assert_array_equal(again.held_out.rows, [[4], [2]])
    assert first.for_training.repartition([[1], [0]]).held_out_rows is None


def test_stack():
    first = Federation.from_arrays(examples(), CLIENTS, public=[3])
    other = first.repartition([[1], [0, 2, 3, 4]], public=[5])
    stacked = stack([first, other])
    assert (stacked.num_clients, stacked.capacity) == (2, 4)
    np.testing.assert_array_equal(
        stacked.rows, [[[4, 0, 2, 4], [5, 5, 5, 5]], [[1, 1, 1, 1], [0, 2, 3, 4]]]
    )
    np.testing.assert_array_equal(stacked.size, [[3, 1], [1, 4]])
    np.testing.assert_array_equal(stacked.public, [[3], [5]])
    assert stacked.examples is first.examples

    axes = Federation(examples=None, client_rows=0, public=0)
    labels = jax.vmap(lambda f: f.examples["label"][f.public], in_axes=(axes,))(stacked)
    np.testing.assert_array_equal(labels, [[0], [2]])


def test_federations_that_were_made_apart_stack_as_repartitions_do():
    """From the same arrays, with one copy of them."""
    first, rows = Federation.from_arrays(examples(), CLIENTS, public=[3]), [[1], [0, 2, 3, 4]]
    expected = stack([first, first.repartition(rows, public=[5])])
    found = stack([first, Federation.from_arrays(examples(), rows, public=[5])])
    assert found.examples is first.examples
    assert_identical(found, expected)


class Series:
    """As pandas has it, as far as it is used."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def to_numpy(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __len__(self):
        return len(self.values)


class Frame:
    """A table; to Python neither a mapping nor an array."""

    def __init__(self, columns):
        self._columns = columns

    @property
    def columns(self):
        return list(self._columns)

    def __getitem__(self, name):
        return Series(self._columns[name])


def test_a_table_is_the_dict_of_its_columns():
    columns = {"x": np.arange(4.0), "label": [0, 1, 1, 0], "who": ["ada", "ben", "ada", "cem"]}
    of_table = Federation.from_arrays(Frame(columns), "who", num_classes=2)
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for same in (arrays, {name: Series(column) for name, column in columns.items()}):
        of_dict = Federation.from_arrays(same, "who", num_classes=2)
        jax.tree.map(np.testing.assert_array_equal, of_table, of_dict)
    with pytest.raises(ValueError, match=r"examples\['who'\]: .* column.s name as `clients`"):
        Federation.from_arrays(Frame(columns), [[0, 1], [2, 3]])
