"""Folders that get their name from the time, of which two may begin at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from experiments.speed import growth
from fedpriv import experiments
from fedpriv.experiments.base.files import new_folder_by_time
from fedpriv.experiments.runs.recorder import new_folder
from fedpriv.experiments.search.sweep import folder_of
from fedpriv.experiments.training import prepare
from fedpriv.experiments.training.processes import Processes

NOW = time.gmtime(0)


@pytest.fixture(autouse=True)
def one_second(tmp_path, monkeypatch):
    """All that happens is in the same second."""
    written = time.strftime
    monkeypatch.setattr(time, "strftime", lambda form, *_: written(form, NOW))
    monkeypatch.chdir(tmp_path)


class Empty:
    name, settings, output = "configs/quickstart.py", None, None


def of_sweep():
    with folder_of(Empty, None) as folder:
        (folder / "sweep.json").touch()
    return folder


def of_growth():
    with pytest.MonkeyPatch.context() as patch:
        made = []
        patch.setattr(growth, "measure", lambda *_: {})
        patch.setattr(growth, "table", lambda found: "")
        patch.setattr(growth, "picture", lambda found, path: made.append(path.parent))
        growth.growth(growth.Options(repeats=1))
    return made[0]


@pytest.mark.parametrize(
    ("make", "stem"),
    [
        (lambda: new_folder(Empty, Empty.name), "quickstart"),
        (of_sweep, "sweep-quickstart"),
        (of_growth, "growth"),
    ],
    ids=["run", "sweep", "growth"],
)
def test_every_default_folder_is_new(make, stem):
    made = [str(make()) for _ in range(3)]
    assert made == [f"runs/{stem}-19700101-000000{number}" for number in ("", "-2", "-3")]


def test_many_at_once_get_folders_of_their_own():
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: new_folder_by_time("job"), range(64)))
    assert len(set(made)) == 64
    assert all(folder.is_dir() for folder in made)


def test_a_sweep_that_is_refused_leaves_no_folder():
    with pytest.raises(ValueError, match="grid"):
        experiments.sweep("quickstart", {}, progress=False)
    assert list(Path("runs").iterdir()) == []


def test_where_none_can_be_made():
    Path("runs").write_text("a file")
    with pytest.raises(ValueError, match=r"^output: cannot make runs/job-.* \(File exists\)"):
        new_folder_by_time("job")


@pytest.mark.parametrize("own", [b"runs/a-2", b"", b"\0\0secret\0"])
def test_all_processes_get_what_the_first_one_has(own, monkeypatch):
    """Also bytes that are 0, of which a secret may have some."""
    rows = []
    monkeypatch.setattr(prepare.distributed, "gather", lambda row: np.stack([*rows, row]))
    joined = Processes(2)
    assert prepare._of_first(own, joined) == own
    rows.append(np.frombuffer((len(own).to_bytes(2) + own).ljust(1002, b"\0"), np.uint8))
    assert prepare._of_first(b"another", joined) == own
