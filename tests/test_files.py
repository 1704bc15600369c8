"""Files that are there as a whole or not at all."""

import errno
import os

import pytest

from fedpriv.core.files import replacing


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
