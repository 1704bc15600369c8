"""Checkpoints: what was interrupted goes on to the same end, to the bit, whatever happened to the last file."""

import contextlib
import errno
import os
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiers
from checkpointed import (
    CLIENTS,
    COMMON,
    FED_AVG,
    FEDERATION,
    FIXED,
    ODD,
    OTHER,
    SCAFFOLD,
    assert_same,
    rounds_in,
    score,
)
from checkpointed import run as run_of
from small import compiler_of_one_program, squared

import fedpriv as fp
from fedpriv.engine import checkpoint

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def run(algorithm=ODD, *args, **options):
    """Of FedAvg with a state that has every kind of leaf."""
    return run_of(algorithm, *args, **options)


@pytest.fixture(scope="module")
def whole():
    """A run that is undisturbed and without checkpoints."""
    return run()[0]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Its folder when it was killed after round 6, with the checkpoints of rounds 2 and 4."""
    folder = tmp_path_factory.mktemp("checkpoints") / "stopped"
    _, called = run(folder=folder, stop=4)
    assert called == [2, 4, 6]
    assert rounds_in(folder) == [2, 4]
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    """A copy of it."""
    return shutil.copytree(stopped, tmp_path / "copy")


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_to_the_same_end(tmp_path):
    """One whose state has clients' rows, and an optimiser's state and schedule."""
    of_clients = fp.measures.per_client(score)
    measure = {
        "measure": lambda s, f: {"sum": jax.tree.leaves(s.params)[0].sum(), **of_clients(s, f)},
        "compiler": compiler_of_one_program(),
    }
    expected, _ = run(SCAFFOLD, **measure)
    assert expected.evaluations[0].clients["per_client"].metrics["loss"].shape == (2, CLIENTS)
    run(SCAFFOLD, tmp_path, stop=2, **measure)
    history, called = run(SCAFFOLD, tmp_path, **measure)
    assert called == [4, 6, 7]
    assert_same(history, expected)
    assert rounds_in(tmp_path) == [6, 7]


@pytest.mark.slow
def test_a_run_of_a_secret_seed_goes_on_with_the_same_alone(whole, tmp_path):
    secret, other = {"secret_seed": 2**62 + 12345}, {"secret_seed": 2**62 + 12346}
    expected, _ = run(**secret)
    run(folder=tmp_path, stop=2, **secret)
    before = {f: f.read_bytes() for f in tmp_path.iterdir()}
    for given, here in ((other, r"\w{16}"), ({}, "None")):
        said = rf"of another run: secret_seed_check \w{{16}} there, {here} here; give what"
        with pytest.raises(ValueError, match=said) as error:
            run(folder=tmp_path, **given)
        assert not any(str(2**62 + n) in str(error.value) for n in (12345, 12346))
    assert {f: f.read_bytes() for f in tmp_path.iterdir()} == before
    history, called = run(folder=tmp_path, **secret)
    assert called == [4, 6, 7]
    assert_same(history, expected)
    assert not np.array_equal(history.loss, whole.loss)


def test_a_run_without_a_secret_seed_does_not_go_on_with_one(folder):
    with pytest.raises(ValueError, match=r"run: secret_seed_check None there, \w{16} here; give"):
        run(folder=folder, secret_seed=1)


def test_what_was_killed_goes_on_and_what_is_finished_is_given_back(whole, folder):
    """To the same end; from a folder that holds it, without training."""
    history, called = run(folder=folder)
    assert called == [6, 7]
    assert_same(history, whole)
    history, called = run(folder=folder)
    assert called == []
    assert history.compile_seconds is None
    assert_same(history, whole)


@pytest.mark.slow
def test_a_streamed_run_goes_on(tmp_path):
    examples, public = jax.tree.map(np.asarray, (FEDERATION.examples, FEDERATION.public))
    rows, size = np.asarray(FEDERATION.rows), np.asarray(FEDERATION.size)
    parts = [own[:n] for own, n in zip(rows, size, strict=True)]
    streamed = fp.StreamedFederation.from_arrays(examples, parts, public=public)
    expected, _ = run(federation=streamed)
    run(folder=tmp_path, federation=streamed, stop=4)
    history, called = run(folder=tmp_path, federation=streamed)
    assert called == [6, 7]
    assert_same(history, expected)
    other = jax.tree.map(lambda leaf: leaf if leaf.dtype == np.int32 else leaf + 1, examples)
    other = fp.StreamedFederation.from_arrays(other, parts, public=public)
    with pytest.raises(ValueError, match=r"is of another run: data \w+ there, \w+ here;"):
        run(folder=tmp_path, federation=other)
    one = np.where(np.arange(len(examples["y"])) == parts[2][1], 9, examples["y"])
    other = fp.StreamedFederation.from_arrays(examples | {"y": one}, parts, public=public)
    with pytest.raises(ValueError, match=r"is of another run: data \w+ there, \w+ here;"):
        run(folder=tmp_path, federation=other)
    assert run(folder=tmp_path, federation=streamed)[1] == []  # it has ended


@pytest.mark.slow
def test_the_number_of_clients_that_fit_is_kept(whole, tmp_path, monkeypatch):
    """Free memory may be another one when the run goes on."""
    fit, free = fp.Strategy("fit"), "fedpriv.devices.memory.free_memory"
    monkeypatch.setattr(free, lambda: 2**40)
    expected, _ = run(strategy=fit)
    run(folder=tmp_path, strategy=fit, stop=4)
    monkeypatch.setattr(free, lambda: 1)
    assert_same(run(folder=tmp_path, strategy=fit)[0], expected)
    with pytest.raises(ValueError, match=r"layout\.clients \d+ there, 1 here"):
        run(folder=tmp_path, strategy=fp.Strategy(1))


ANOTHER = {
    "seeds": ({"seeds": (3, 9)}, "seeds 3 8 there, 3 9 here;"),
    "every": ({"rounds": 9, "every": 3}, "every 2 there, 3 here;"),
    "side by side": ({"strategy": fp.Strategy(2)}, "layout.clients map there, 2 here;"),
    "devices": ({"strategy": fp.Strategy(devices=2)}, "layout.devices 1 there, 2 here;"),
    "data": ({"federation": OTHER}, "data "),
    "algorithm": ({"algorithm": SCAFFOLD}, "seen.server "),
    "state": ({"algorithm": FED_AVG}, "state.half: bfloat16[2] there, nothing here"),
}


@tiers.every("name", ANOTHER, lambda case: tuple(case[0]) if len(case[0]) == 1 else "seeds")
def test_another_run_is_refused_with_all_that_differs(name, folder):
    given, said = ANOTHER[name]
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    with pytest.raises(ValueError, match="is of another run") as error:
        run(folder=folder, **given)
    assert said in str(error.value).replace(", 6, ", ", ")
    assert "give what was given there, or another folder" in str(error.value)
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before


@pytest.mark.slow
def test_rounds_of_other_noise_are_not_certified_as_of_this(tmp_path):
    """States are of the same shapes, and no settings were given to compare."""

    def noisy(multiplier):
        given = {"clip_norm": 0.5, "noise_multiplier": multiplier, "sampler": FIXED}
        return fp.dp_fed_avg(squared, **COMMON, **given)

    run(noisy(1.0), tmp_path, stop=2)
    with pytest.raises(ValueError, match=r"seen\.third_party client, 7 x .*gaussian") as error:
        run(noisy(1.25), tmp_path)
    assert "seen.server " in str(error.value)
    assert run(noisy(1.0), tmp_path)[1] == [4, 6, 7]


@pytest.mark.slow
def test_settings_of_ones_own_are_compared_field_by_field(tmp_path):
    there = {"local": {"rate": 0.1, "steps": [1, 2]}, "clip": 1.0}
    here = {"local": {"rate": 0.2, "steps": (1, 2)}, "clip": None}
    checkpoints = partial(fp.Checkpoints, tmp_path, rounds=1)
    odd = {"none": float("nan"), "most": float("inf")}
    run(checkpoints=checkpoints(settings=there | odd))
    run(checkpoints=checkpoints(settings=there | odd))
    with pytest.raises(
        ValueError, match=r"local\.rate 0\.1 there, 0\.2 here; clip 1\.0 there, Non"
    ):
        run(checkpoints=checkpoints(settings=here | odd))


def truncate(folder):
    file = folder / "4.npz"
    file.write_bytes(file.read_bytes()[:-7])


def flip(folder):
    """One bit of the number of bits that were sent."""
    file = folder / "4.npz"
    content = bytearray(file.read_bytes())
    content[content.index("sent".encode("utf-32-le")) + 4 * len('sent": [')] ^= 1
    file.write_bytes(content)


def flip_arrays(folder):
    """One bit of the model."""
    file = folder / "4.npz"
    with np.load(file) as found:
        weights = next(a for a in found.values() if a.dtype == np.float32).tobytes()
    content = bytearray(file.read_bytes())
    content[content.index(weights) + 5] ^= 8
    file.write_bytes(content)


def empty(folder):
    (folder / "4.npz").write_bytes(b"")


def unfinished(folder):
    """As a file is called until all is written."""
    (folder / "4.npz").rename(folder / "4.npz.unfinished")


DAMAGE = {each.__name__: each for each in (flip_arrays, truncate, flip, empty, unfinished)}


@tiers.every("name", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(name, whole, folder):
    damage = DAMAGE[name]
    damage(folder)
    said = []
    history, called = run(checkpoints=fp.Checkpoints(folder, rounds=1, say=said.append))
    assert called == [4, 6, 7]
    assert_same(history, whole)
    assert rounds_in(folder) == [6, 7]
    assert len(said) == (damage is not unfinished)
    assert all("checkpoint of round 4" in line and "\n" not in line for line in said)
    assert all(line.endswith("the one before it is taken") for line in said)


def test_without_any_that_can_be_read_it_begins_anew(whole, folder):
    (folder / "2.npz").unlink()
    truncate(folder)
    said = (
        r"checkpoint of round 4 in .* cannot be read .*; there is none before it: this begins again"
    )
    with pytest.warns(UserWarning, match=said):
        history, called = run(folder=folder)
    assert called == [2, 4, 6, 7]
    assert_same(history, whole)


def test_fewer_rounds_than_are_done_are_refused(folder):
    with pytest.raises(ValueError, match=r"rounds: 3; .* a checkpoint of round 4; give at least"):
        run(folder=folder, rounds=3)
    assert rounds_in(folder) == [2, 4]


def test_one_that_the_system_does_not_give_is_not_taken_for_damaged(folder, monkeypatch):
    before = rounds_in(folder)

    def stale(path):
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    monkeypatch.setattr(checkpoint, "read", stale)
    with pytest.raises(OSError, match="Stale"):
        run(folder=folder)
    assert rounds_in(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["canonical", "xla"])
def test_kernels_that_earlier_revisions_could_choose(kernels, whole, folder, monkeypatch):
    read = checkpoint.read

    def of_before(path):
        named, about = read(path)
        about["settings"]["layout"] |= {"convolution": kernels, "dense": "auto"}
        return named, about

    monkeypatch.setattr(checkpoint, "read", of_before)
    if kernels == "canonical":
        assert_same(run(folder=folder)[0], whole)
        return
    with pytest.raises(ValueError, match=r"layout\.convolution xla there"):
        run(folder=folder)


class Disk:
    """A folder in which nothing more can be written after so many bytes, or from some moment on."""

    def __init__(self, monkeypatch, number, room):
        self.full, opened = False, Path.open

        def open_(path, mode="r", *args, **kwargs):
            file = opened(path, mode, *args, **kwargs)
            if self.full and "w" in mode:
                left, write = [room], file.write

                def some(data):
                    left[0] -= len(bytes(data))
                    if left[0] < 0:
                        raise OSError(number, os.strerror(number), str(path))
                    return write(data)

                file = SimpleNamespace(
                    **{name: getattr(file, name) for name in dir(file) if name[0] != "_"}
                    | {"write": some},
                )
                file = contextlib.closing(file)
            return file

        monkeypatch.setattr(Path, "open", open_)


@tiers.every("room", [700, 0, 1, 2500])
def test_a_checkpoint_that_cannot_be_written_leaves_those_before(
    room, whole, tmp_path, monkeypatch
):
    """The first is written; training goes on, which is said once, and no partial file is left."""
    number = {0: errno.ENOSPC, 1: errno.EDQUOT, 700: errno.EFBIG, 2500: errno.EIO}[room]
    disk, said = Disk(monkeypatch, number, room), []

    def on_evaluation(e):
        disk.full = e.round > 2

    checkpoints = fp.Checkpoints(tmp_path, rounds=1, say=said.append)
    history, _ = run(checkpoints=checkpoints, on_evaluation=on_evaluation)
    assert_same(history, whole)
    assert [file.name for file in tmp_path.iterdir()] == ["2.npz"]
    (line,) = said
    assert line.startswith(f"checkpoint of round 4 in {tmp_path} cannot be written")
    assert os.strerror(number) in line
    assert "\n" not in line
    disk.full = False
    assert run(folder=tmp_path)[1] == [4, 6, 7]


@pytest.mark.slow
def test_a_folder_that_is_deleted_during_the_run_is_made_again(whole, tmp_path):
    folder = tmp_path / "made"

    def on_evaluation(e):
        if e.round == 4:
            shutil.rmtree(folder)

    checkpoints = fp.Checkpoints(folder, rounds=1, say=pytest.fail)
    history, _ = run(checkpoints=checkpoints, on_evaluation=on_evaluation)
    assert_same(history, whole)
    assert rounds_in(folder) == [6, 7]


OFTEN = {
    "by rounds": ({"rounds": 3}, None, [4, 7]),
    "where a run is asked to stop": ({}, 4, [4]),
    "by the clock": ({"minutes": 0}, None, [2, 4, 6, 7]),
}


@tiers.every("name", OFTEN)
def test_how_often(name, tmp_path, monkeypatch):
    """By rounds, at the first evaluation at or after them; a short run takes none by the clock."""
    (often, stop, expected), taken, save = OFTEN[name], [], checkpoint.Keeper._save
    monkeypatch.setattr(
        checkpoint.Keeper, "_save", lambda k, s: (taken.append(s.round), save(k, s))
    )

    def on_evaluation(e):
        if e.round == stop:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run(checkpoints=fp.Checkpoints(tmp_path, **often), on_evaluation=on_evaluation)
    assert taken == expected
