"""What is written one client at a time is the federation that it was."""

import numpy as np
import pytest
from small import refused

from fedpriv import StreamedFederation, write_clients

SIZES = [2, 1, 3]


def clients(**changed):
    """Three clients of {"x": f64[., 2], "label": i64[.]}; `changed` is of the second."""
    for i, count in enumerate(SIZES):
        x = np.full((count, 2), i) + np.arange(count)[:, None] / 8
        yield {"x": x, "label": np.arange(count) + i} | (changed if i == 1 else {})


def test_a_folder_holds_what_was_written(tmp_path):
    public = {"x": np.ones((4, 2)), "label": np.zeros(4, int)}
    write_clients(tmp_path / "new", clients(), public=public)
    federation = StreamedFederation.from_folder(tmp_path / "new", num_classes=5)
    assert isinstance(federation.examples["x"], np.memmap)
    np.testing.assert_array_equal(federation.size, SIZES)
    np.testing.assert_array_equal(federation.public, [6, 7, 8, 9])
    assert federation.examples["x"].dtype == np.float32
    assert federation.examples["label"].dtype == np.int32
    for name in ("x", "label"):
        written = np.concatenate([*(c[name] for c in clients()), public[name]])
        np.testing.assert_array_equal(federation.examples[name], written)
        np.testing.assert_array_equal(np.load(tmp_path / "new" / f"{name}.npy"), written)


def test_many_rows_fit_into_a_header_written_for_none(tmp_path):
    """The length in the header grows by digits, the header does not."""
    many = ({"x": np.full(1000, i, np.uint8)} for i in range(200))
    write_clients(tmp_path, many)
    x = StreamedFederation.from_folder(tmp_path).examples["x"]
    np.testing.assert_array_equal(x, np.repeat(np.arange(200), 1000))


def test_what_was_broken_off_is_not_read(tmp_path):
    def broken():
        yield from clients()
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_clients(tmp_path, broken())
    with pytest.raises(ValueError, match=r"^folder: .* has no sizes\.npy; make it with"):
        StreamedFederation.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (
            clients(x=np.zeros((1, 3))),
            {},
            r"clients\[1\]: 'x' is float32\[records, 3\], but float32",
        ),
        (
            clients(x=np.zeros((1, 2), int)),
            {},
            r"clients\[1\]: 'x' is int32\[records, 2\], but float32",
        ),
        (clients(y=np.zeros(1)), {}, r"clients\[1\]: 'y' is float32\[records\], .* missing"),
        (clients(x=np.zeros((2, 2))), {}, r"clients\[1\]: examples\['x'\]: 2 rows"),
        (clients(x=np.full((1, 2), np.nan)), {}, r"clients\[1\]: examples\['x'\]: nan in row 0"),
        (clients(x=np.zeros((0, 2)), label=np.zeros(0)), {}, r"clients\[1\] has no records"),
        (clients(), {"public": {"x": np.zeros((1, 2))}}, "public: 'label' is missing"),
        ([], {}, "clients: there are none"),
        ([{"sizes": np.ones(2)}], {}, r"examples\['sizes'\]: the name is taken"),
    ],
)
def test_errors(tmp_path, given, options, message):
    with refused(message):
        write_clients(tmp_path, given, **options)


def test_nothing_is_overwritten(tmp_path):
    write_clients(tmp_path, clients())
    with pytest.raises(ValueError, match=r"there are \.npy files in it; give an empty folder"):
        write_clients(tmp_path, clients())
