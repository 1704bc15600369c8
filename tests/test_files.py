"""Files that are there as a whole or not at all."""

import ast
import errno
import os
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fedpriv.core.files import replacing, save_figure

ROOT = Path(__file__).parents[1]


def contents(folder):
    return {file.name: file.read_text() for file in folder.iterdir()}


def fail_halfway(path, error):
    path.write_text("half")
    raise error


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "table.md"
    path.write_text("before")
    for error in (OSError("No space left on device"), ValueError("a bug"), KeyboardInterrupt()):
        with pytest.raises(type(error)), replacing(path) as unfinished:
            fail_halfway(unfinished, error)
        assert contents(tmp_path) == {"table.md": "before"}
    with replacing(path) as unfinished:
        unfinished.write_text("after")
        assert path.read_text() == "before"
    assert contents(tmp_path) == {"table.md": "after"}


def test_what_a_killed_process_leaves_is_overwritten(tmp_path):
    path = tmp_path / "table.md"
    with pytest.raises(KeyboardInterrupt), replacing(path) as unfinished:
        raise KeyboardInterrupt
    unfinished.write_text("half of something longer")
    with replacing(path) as unfinished:
        unfinished.write_text("whole")
    assert contents(tmp_path) == {"table.md": "whole"}


def test_a_full_disk_is_an_error_of_the_file_that_was_asked_for(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(OSError, match="No space left") as error,
        replacing(tmp_path / "table.md") as unfinished,
    ):
        unfinished.write_text("whole")
    assert error.value.filename == str(tmp_path / "table.md")
    assert contents(tmp_path) == {}


def test_two_who_write_one_shared_file_do_not_meet(tmp_path):
    path = tmp_path / "cache.npz"
    with replacing(path, shared=True) as one, replacing(path, shared=True) as other:
        one.write_text("one")
        other.write_text("other")
    assert contents(tmp_path) == {"cache.npz": "one"}


def test_a_figure_has_the_format_of_its_ending(tmp_path):
    figure = Figure()
    begin = {"a.png": b"\x89PNG", "a.pdf": b"%PDF", "a.svg": b"<?xml", "a.": b"\x89PNG"}
    for name, first in begin.items():
        save_figure(figure, tmp_path / name)
        written = tmp_path / name if name != "a." else tmp_path / "a.png"
        assert written.read_bytes().startswith(first)
    assert sorted(contents_of(tmp_path)) == ["a.pdf", "a.png", "a.svg"]
    with pytest.raises(ValueError, match="'doc' is not supported"):
        save_figure(figure, tmp_path / "a.doc")
    assert sorted(contents_of(tmp_path)) == ["a.pdf", "a.png", "a.svg"]


def contents_of(folder):
    return [file.name for file in folder.iterdir()]


SAVERS = {"savefig", "imsave", "imwrite"}


def test_every_picture_is_written_whole():
    """Of the package and the launcher: by `save_figure`, or into memory first, as `written`."""
    files = [f for room in ("fedpriv", "experiments") for f in (ROOT / room).rglob("*.py")]
    saved = 0
    for file in files:
        text = file.read_text()
        if not any(name in text for name in SAVERS) or file == ROOT / "fedpriv/core/files.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in SAVERS:
                saved += 1
                assert ast.unparse(node.args[0]) == "written", file
                assert re.search(r"written = io\.(Bytes|String)IO\(\)", text), file
    assert saved == 3
