"""Columns that say whose each record is: of any one type; who is missing is named with column and row."""

import datetime
import decimal
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_values import cases
from small import refused

import fedpriv as fp

NAN = float("nan")
NAT = np.datetime64("NaT", "D")


class Unknown:
    """As pandas.NA: neither equal to itself nor different."""

    def __eq__(self, other):
        return self

    __hash__ = object.__hash__

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self):
        return "<NA>"


TYPES = {
    "integers": [7, 3, 9],
    "whole floats": [7.0, 3.0, 9.0],
    "floats": [0.5, -0.25, float("inf")],
    "numbers of several types": [7, 3.5, True],
    "booleans": [True, False],
    "strings": ["ben", "ada", "cem"],
    "bytes": [b"ben", b"ada"],
    "dates": [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)],
    "tags": [uuid.UUID(int=2), uuid.UUID(int=1)],
    "decimals": [decimal.Decimal("2.5"), decimal.Decimal("1")],
}
FORMS = {"list": list, "array": np.array, "objects": lambda ids: np.array(ids, object)}
MISSING = {
    "integers": [None, NAN, Unknown()],
    "whole floats": [None, NAN, np.float32(NAN)],
    "strings": [None, NAN, "", Unknown(), NAT],
    "bytes": [b"", None],
    "dates": [None, NAT, NAN],
    "decimals": [decimal.Decimal("NaN"), decimal.Decimal("sNaN"), None],
}


def by_name(ids, total):
    """Both kinds of federations; rows of each client."""
    given = {"x": np.arange(total, dtype=np.float32), "who": ids}
    federation = fp.Federation.from_arrays(given, "who")
    (held,) = federation.rows_on_host
    found = [own.tolist() for own in np.split(held.rows, np.cumsum(held.size)[:-1])]
    if isinstance(ids, np.ndarray):
        held = fp.StreamedFederation.from_arrays(given, "who")
        assert [part.tolist() for part in np.split(held.order, held.offsets[1:-1])] == found
        assert set(held.examples) == {"x"}
    return found


@cases(60, 2000)
@given(st.data())
def test_ids_of_any_type_and_form(data):
    """The clients in order of first appearance, and the rows of each in order."""
    known = TYPES[data.draw(st.sampled_from(sorted(TYPES)))]
    ids = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=8))
    column = FORMS[data.draw(st.sampled_from(sorted(FORMS)))](ids)
    expected: dict = {}
    for row, one in enumerate(ids):
        expected.setdefault(one, []).append(row)
    wanted = list(expected.values())
    assert [part.tolist() for part in fp.partition.natural(column)] == wanted
    assert by_name(column, len(ids)) == wanted


@pytest.mark.parametrize("form", ["list", "objects"])
@pytest.mark.parametrize("kind", MISSING)
def test_missing_ids_are_named_with_column_and_row(kind, form):
    for missing in MISSING[kind]:
        ids = FORMS[form]([TYPES[kind][0], TYPES[kind][1], missing, TYPES[kind][0]])
        for call, column in (
            (lambda ids=ids: fp.partition.natural(ids), "keys"),
            (lambda ids=ids: by_name(ids, 4), r"examples\['who'\]"),
        ):
            with refused(rf"^{column}: .* in row 2, so nobody"):
                call()


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (np.array([1.0, NAN, 1.0]), "nan in row 1"),
        (np.array(["2020", "NaT", "2021"], "M8[ns]"), "NaT in row 1"),
        (np.array([1, "NaT", 2], "m8[s]"), "NaT in row 1"),
        (np.array([1j, complex(NAN, 0), 1]), r"\(?nan.* in row 1"),
        (np.array(["a", "", "b"]), "'' in row 1|an empty string in row 1"),
        (np.array(["a", None, "b"], np.dtypes.StringDType(na_object=None)), "None in row 1"),
        (np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]), "masked in row 1"),
        (np.array([1, "a", 2], object), "'a' in row 1 is of another type"),
        ([1, "1", 2], "'1' in row 1 is of another type"),
        (np.array([[1], [2, 3], [1]], object), r"\[1\] in row 0 is no id"),
        (np.zeros((3, 1), int), r"it has the shape \[3, 1\]"),
    ],
)
def test_arrays_of_ids_that_say_nothing(ids, said):
    for call, column in (
        (lambda: fp.partition.natural(ids), "keys"),
        (lambda: by_name(ids, 3), r"examples\['who'\]"),
    ):
        with refused(f"^{column}: ({said})"):
            call()


def test_rows_that_nobody_is_given_need_no_id():
    ids = np.array(["ada", None, "ben", "ada", ""], object)
    parts = fp.partition.natural(ids, rows=[3, 2, 0])
    assert [part.tolist() for part in parts] == [[3, 0], [2]]
    given = {"x": np.arange(5.0), "who": ids}
    made = fp.Federation.from_arrays(given, "who", public=[1, 4])
    np.testing.assert_array_equal(made.size, [2, 1])
    with pytest.raises(ValueError, match=r"^examples\['who'\]: '' in row 4"):
        fp.Federation.from_arrays(given, "who", public=[1])
