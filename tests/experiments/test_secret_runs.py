"""Runs with a secret seed: it is in one file, which its owner alone can read, and the run goes on with it."""

import json
import os
import shutil
import stat
from dataclasses import replace

import numpy as np
import pytest
from commands import sweep
from resumed import OFTEN, SMALL, KilledError, Stop, assert_same, launch, lines

import experiments
import fedpriv as fp
from configs import quickstart
from experiments.config import modules
from experiments.config.options import parse
from experiments.run import main
from experiments.runs import secret_seed
from experiments.runs.run_folder import read

pytestmark = pytest.mark.usefixtures("quick_to_compile")

RUN = [*SMALL, "--algorithms", "rand_k", "--rounds", "4", "--every", "2", "--seeds", "2"]
SECRET = 2**62 + 0x1234567890ABCDE


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fp, "secret_seed", lambda: SECRET)
        assert launch(*RUN, "--secret-seed", "--output", folder) == 0
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Without a secret seed."""
    folder = tmp_path_factory.mktemp("run") / "plain"
    with pytest.raises(KilledError):
        main([*RUN, *OFTEN, "--output", str(folder)], sinks=[Stop("rand_k", 4)])
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Killed at the second evaluation, with the checkpoint of the first."""
    folder = tmp_path_factory.mktemp("run") / "stopped"
    args = [*RUN, *OFTEN, "--secret-seed", "--output", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fp, "secret_seed", lambda: SECRET)
        with pytest.raises(KilledError):
            main(args, sinks=[Stop("rand_k", 4)])
    assert [file.name for file in folder.rglob("*.npz")] == ["2.npz"]
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    """A copy of it."""
    return shutil.copytree(stopped, tmp_path / "copy")


def spelt(secret):
    """As text, and as the bytes of a number."""
    texts = [f"{secret}", f"{secret:x}", f"{secret:X}"]
    numbers = [secret.to_bytes(8, order) for order in ("big", "little")]
    return [*(text.encode() for text in texts), *numbers]


def tell(folder, secret):
    """The files and folders that hold it, or have it in their names."""
    return [
        path.name
        for path in folder.rglob("*")
        for held in [str(path).encode() + (path.read_bytes() if path.is_file() else b"")]
        if any(word in held for word in spelt(secret))
    ]


def test_it_is_in_one_file_and_nowhere_else(tmp_path, capfd):
    """As the system draws it; while the run is stopped, and at its end."""
    folder = tmp_path / "run"
    args = [*RUN, *OFTEN, "--secret-seed", "--output", str(folder)]
    with pytest.raises(KilledError):
        main(args, sinks=[Stop("rand_k", 4)])
    file = folder / "secret_seed"
    secret = int(file.read_text())
    assert [*folder.rglob("*.npz")]
    assert tell(folder, secret) == ["secret_seed"]
    assert launch("--resume", folder) == 0
    assert tell(folder, secret) == ["secret_seed"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {f.name for f in (folder / "model" / "rand_k").iterdir()} == {"seed-0", "seed-1"}
    shown = "".join(capfd.readouterr())
    assert "Fed-SMP rand_k" in shown
    assert not any(word in shown.encode() for word in spelt(secret))


def test_nobody_else_could_read_it_before_it_was_whole(tmp_path, monkeypatch):
    modes = []
    monkeypatch.setattr(os, "fsync", lambda fd: modes.append(stat.S_IMODE(os.fstat(fd).st_mode)))
    before = os.umask(0)
    try:
        secret_seed.draw(tmp_path)
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert 0 <= secret_seed.read(tmp_path) < 2**63


def test_a_disk_that_is_full_leaves_none(tmp_path, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        secret_seed.draw(tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_a_killed_run_goes_on_with_the_same_noise(folder, whole):
    """Whether the option is given again or not."""
    again = shutil.copytree(folder, folder.with_name("again"))
    assert launch("--resume", folder) == 0
    assert_same(folder, whole)
    assert launch("--resume", again, "--secret-seed") == 0
    assert_same(again, whole)


def test_it_trains_what_its_secret_makes_of_its_seeds(whole, plain):
    """As `simulate` does."""
    settings = parse(modules.load("quickstart"), "quickstart", RUN)
    made = quickstart.on(settings, quickstart.load(settings))
    entry, options = made.entries["rand_k"], {"rounds": 4, "every": 2, "strategy": fp.Strategy()}
    options |= {"score": made.model.score, "seeds": (0, 1), "secret_seed": SECRET}
    history = fp.simulate(entry.algorithm, made.model.init, entry.federations, made.test, **options)
    found = read(whole).history["rand_k"].loss[-1]
    np.testing.assert_allclose(found, history.loss[-1], rtol=1e-6)
    assert len({*found, *read(plain).history["rand_k"].loss[-1]}) == 4
    assert not (plain / "secret_seed").exists()


def test_the_certificate_assumes_no_more_than_that_it_stays_secret(whole, plain):
    """In the lines and in the summary; what it assumes of other things is the same."""
    run, other = read(whole), read(plain)
    certificates = [c for of in run.certificates.values() for c in of.values()]
    certificates += [line.privacy.certified for line in run.lines["rand_k"]]
    for c in certificates:
        about_seeds = [text for text in c.assumptions if "seed" in text]
        assert about_seeds == [
            "the noise is real-valued; a simulator's seeded float32 noise is not",
            "the secret seed of the run stays secret",
            "one model, trained once, is released; runs with the same secret seed and the same number (seed-0, "
            "seed-1, ..) share their noise",
        ]
    usual = other.lines["rand_k"][0].privacy.certified
    ours = run.lines["rand_k"][0].privacy.certified
    assert ours.epsilon == usual.epsilon
    assert len(set(ours.assumptions) - set(usual.assumptions)) == 2
    assert any("such as 0 or 1" in text for text in usual.assumptions)


def test_what_is_recorded_says_that_there_is_one(whole, plain):
    for file in ("config.json", "summary.json"):
        assert json.loads((whole / file).read_text())["secret_seed"] is True
    assert "secret_seed" not in json.loads((plain / "config.json").read_text())
    assert read(whole).begun.secret_seed
    assert not read(plain).begun.secret_seed


def test_tables_do_not_say_that_it_shares_all_random_numbers(whole, plain):
    alike = "initial model, random numbers, unless settings change them"
    notes = experiments.table([whole, plain]).attrs["notes"]
    assert any(f"{alike}; a run with a secret seed shares the clients alone): " in n for n in notes)
    notes = experiments.table([replace(read(plain), path=whole), read(plain)]).attrs["notes"]
    assert any(f"{alike}): " in n for n in notes)


def test_reports_read_it(whole, plain, tmp_path):
    page = experiments.report([whole, plain], tmp_path / "report.html")
    assert "the secret seed of the run stays secret" in page.read_text()
    assert tell(tmp_path, SECRET) == []


def one_line_of(capsys):
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def remove(file):
    file.unlink()


def empty(file):
    file.write_text("")


def damage(file):
    file.write_text(f"{SECRET}{SECRET}")


def break_text(file):
    file.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (remove, "cannot read {} (No such file or directory); restore it"),
        (empty, "{} is empty; restore it"),
        (damage, "{} holds no seed; restore it"),
        (break_text, "{} holds no seed; restore it"),
    ],
)
def test_without_it_the_run_does_not_go_on(harm, said, folder, capsys):
    file = folder / "secret_seed"
    harm(file)
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    assert launch("--resume", folder) == 2
    error = one_line_of(capsys)
    assert f"resume: {said.format(file)}" in error
    assert str(SECRET) not in error
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before


def test_with_another_one_the_run_does_not_go_on(folder, whole, capsys):
    (folder / "secret_seed").write_text(f"{SECRET + 1}\n")
    assert launch("--resume", folder) == 2
    error = capsys.readouterr().err
    assert "is of another run: secret_seed_check " in error
    assert not any(str(SECRET + n) in error for n in (0, 1))
    (folder / "secret_seed").write_text(f"{SECRET}\n")
    assert launch("--resume", folder) == 0  # nothing was lost
    assert_same(folder, whole)


def test_a_run_that_began_without_goes_on_without(plain, capsys):
    before = {f: f.read_bytes() for f in plain.rglob("*") if f.is_file()}
    assert launch("--resume", plain, "--secret-seed") == 2
    assert f"secret_seed: {plain} was begun without one; leave it out" in one_line_of(capsys)
    assert {f: f.read_bytes() for f in plain.rglob("*") if f.is_file()} == before


def test_a_run_that_has_ended_is_read_without_it(whole, tmp_path):
    copy = shutil.copytree(whole, tmp_path / "copy")
    (copy / "secret_seed").unlink()
    assert experiments.resume(copy).ended_before
    assert lines(copy) == lines(whole)


def test_from_python(tmp_path):
    few = {"algorithms": ("rand_k",), "rounds": 1, "every": 1, "seeds": 1, "keep_model": False}
    few |= {"layout": {"devices": 1}, "clients": 12, "cohort": 5, "capacity": 5}
    few |= {"sampling": "fixed_size", "public_examples": 5, "local": {"epochs": 1}}
    run = experiments.run(
        "quickstart", folder=tmp_path / "r", secret_seed=True, progress=False, **few
    )
    assert str(secret_seed.read(run.folder)) not in repr(run)
    for certificate in run.certificates["rand_k"].values():
        assert "the secret seed of the run stays secret" in certificate.assumptions


@pytest.mark.parametrize("given", [SECRET, f"{SECRET}", None])
def test_from_python_it_is_drawn_and_not_given(given, tmp_path):
    with pytest.raises(ValueError, match=r"secret_seed: .*give True") as error:
        experiments.run("quickstart", folder=tmp_path / "r", secret_seed=given)
    assert str(SECRET) not in str(error.value)
    assert not (tmp_path / "r").exists()


def test_others_take_no_secret_seed(capsys):
    """Such as a sweep, which trains many runs."""
    assert sweep.main(["quickstart", "--grid", "p=0.1", "--secret-seed"]) == 2
    assert "--secret-seed: unknown field" in one_line_of(capsys)
