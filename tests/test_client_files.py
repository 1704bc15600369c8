"""What is written one client at a time is the federation that it was."""

import errno
import io
import os
from pathlib import Path

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


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[1:], np.asarray])
def test_a_file_that_is_cut_short_later_is_refused_where_it_is_read(tmp_path, view):
    """Instead of the end of the process; so at every start of a run."""
    write_clients(tmp_path, ({"x": np.zeros((5000, 3))} for _ in range(4)))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    federation = StreamedFederation.from_sorted({"x": view(x)}, [5000, 4999, 5000, 5000])
    federation.read(np.array([0, 3]))
    size = (tmp_path / "x.npy").stat().st_size
    os.truncate(tmp_path / "x.npy", 5000)
    for read in (federation.empty, lambda: federation.read(np.array([3]))):
        with refused(rf"x\.npy: it has 5000 bytes, but had {size} when it was opened; restore"):
            read()


def test_a_file_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    """Such as on a full disk."""

    class Full(io.BytesIO):
        name = str(tmp_path / "x.npy")

        def write(self, array):
            if len(array) > 200:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(array)

    monkeypatch.setattr(Path, "open", lambda path, mode="r": Full())
    with pytest.raises(OSError, match=r"No space left on device: '.*x\.npy'"):
        write_clients(tmp_path, ({"x": np.zeros((50, 3))} for _ in range(2)))
