"""Arrays and partitions of every wrong and right kind: kept to the last record, or refused in one line."""

import tempfile
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_values import cases

import fedpriv as fp

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint32", "uint64", "float16"]
DTYPES += ["float32", "float64", "longdouble", "complex64", "complex128", "U3", "S2", "O", "M8[s]"]
NUMBERS = [0, 1, 2, 3, -1, 127, 128, 255, 256, 65504, 2**31 - 1, 2**31, -(2**31) - 1, 2**63]
NUMBERS += [0.5, 1e-320, 3.4e38, 3.5e38, -1e300, float("nan"), float("inf"), None, "a", [1], 1j]


@st.composite
def arrays(draw, rows, numbers=NUMBERS):
    """Of about so many rows: an array of some type, jax's own, a list, ragged, a scalar, or no array at all."""
    shape = draw(st.sampled_from([(rows,), (rows, 2), (rows, 0), (rows + 1,), (), (0,), (1, rows)]))
    dtype = draw(st.sampled_from(DTYPES))
    values = draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            array = np.resize(np.array(values, dtype), shape)
        except (ValueError, TypeError, OverflowError):
            array = np.resize(np.array([1, 0]), shape)
    kind = draw(st.sampled_from(["numpy", "numpy", "jax", "list", "ragged", "none", "masked"]))
    if kind == "jax" and array.dtype.kind in "biuf" and array.dtype.itemsize <= 4:
        return jnp.asarray(array)
    others = {"list": array.tolist(), "ragged": [[1], [2, 3]], "none": None}
    others["masked"] = np.ma.masked_array(array, mask=np.zeros(array.shape, bool))
    return others.get(kind, array)


@st.composite
def partitions(draw, rows):
    index = st.one_of(st.integers(0, rows - 1), st.integers(0, rows - 1), st.integers(-1, rows))
    odd = st.sampled_from([[], [0.0], [True], ["0"], [[0]], 0, None, [2**63], [2**64], [-(2**31)]])
    client = st.one_of(st.lists(index, min_size=1, max_size=3), odd)
    dealt = np.array_split(np.random.default_rng(draw(st.integers(0, 9))).permutation(rows), 3)
    fine = st.just(
        [np.asarray(part, draw(st.sampled_from(["int64", "uint8", "int8"]))) for part in dealt]
    )
    return draw(st.one_of(fine, fine, st.lists(client, max_size=4), odd))


def kept(given, stored):
    """Whether what is stored is what was given, up to float32's rounding."""
    given, stored = np.asarray(given), np.asarray(stored)
    assert given.shape == stored.shape
    assert np.all(np.isfinite(stored.astype(np.float64)))
    if given.dtype.kind in "biu":
        np.testing.assert_array_equal(given, stored)
    else:
        np.testing.assert_allclose(stored.astype(float), given.astype(float), rtol=1e-3, atol=1e-38)


def refused_or(make):
    """What is made, or None where it is refused in one line."""
    try:
        return make()
    except ValueError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 400
    assert "jax." not in said.lower()
    return None


@cases(50, 6000)
@given(st.data())
def test_every_record_is_kept_once_or_refused(data):
    rows = data.draw(st.integers(1, 6))
    names = data.draw(st.sampled_from([["x"], ["x", "label"], []]))
    examples = {name: data.draw(arrays(rows)) for name in names}
    clients, public = (
        data.draw(partitions(rows)),
        data.draw(st.sampled_from([(), (), [0], [rows], None])),
    )
    classes = data.draw(st.sampled_from([None, None, 3, 256, 0, -1, 2.5, "3", np.int64(3), True]))
    options = {"public": public, "num_classes": classes}
    for kind in (fp.Federation, fp.StreamedFederation):
        made = refused_or(lambda kind=kind: kind.from_arrays(examples, clients, **options))
        if made is None:
            continue
        assert made.num_clients == len(clients)
        np.testing.assert_array_equal(made.size, [len(own) for own in clients])
        if kind is fp.StreamedFederation:
            read = refused_or(lambda made=made: made.read(np.arange(made.num_clients)))
            for name in names if read else ():
                rows = np.concatenate([np.asarray(own) for own in clients])
                kept(np.asarray(examples[name])[rows], read[1][name])
            continue
        held = [np.asarray(r)[:n].tolist() for r, n in zip(made.rows, made.size, strict=True)]
        assert held == [np.asarray(own).tolist() for own in clients]
        for name in names:
            kept(examples[name], made.examples[name])


def test_long_doubles_are_stored_in_float32_or_refused():
    """They became infinite, or an error of JAX's."""
    rows = [[0], [1]]
    made = fp.Federation.from_arrays({"x": np.array([1, 2], np.longdouble)}, rows)
    assert made.examples["x"].dtype == np.float32
    with pytest.raises(ValueError, match=r"examples\['x'\]: inf in row 1"):
        fp.Federation.from_arrays({"x": np.array([1, 1e300], np.longdouble)}, rows)


@cases(40, 2000)
@given(st.data())
def test_files_of_clients_hold_what_was_written_or_nothing_that_can_be_read(data):
    with tempfile.TemporaryDirectory() as folder:
        written_and_read(data, folder)


def written_and_read(data, folder):
    each = data.draw(st.lists(st.integers(0, 3), min_size=0, max_size=3))
    kind = st.sampled_from(["int64", "uint8", "float64", "float16", "bool", "O", "U1"])
    dtype, name = (
        data.draw(kind),
        data.draw(st.sampled_from(["x", "sizes", "a b", "é", "a/b", "", ".."])),
    )
    values = data.draw(st.sampled_from([0, 1, 2**40, float("nan"), 1e300]))
    with np.errstate(all="ignore"):
        try:
            clients = [{name: np.full((n, 2), values).astype(dtype)} for n in each]
        except (ValueError, TypeError):
            return
    written = refused_or(lambda: fp.write_clients(folder, clients) or True)
    made = refused_or(lambda: fp.StreamedFederation.from_folder(folder))
    assert (made is not None) == bool(written)
    if made:
        np.testing.assert_array_equal(made.size, each)
        for i, n in enumerate(each):
            kept(clients[i][name], made.read(np.array([i]))[1][name][:n])
