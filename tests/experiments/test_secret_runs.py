"""Runs with a secret seed: its owner alone can read it, and the run goes on with it; `test_run.py` has a whole one."""

import contextlib
import io
import json
import os
import shutil
import stat
from dataclasses import replace

import numpy as np
import pytest
from resumed import OFTEN, SMALL, KilledError, Stop, assert_same, launch, spelt, tell

import fedpriv as fp
from configs import quickstart
from fedpriv import experiments
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.runs import secret_seed
from fedpriv.experiments.runs.run_folder import read

pytestmark = pytest.mark.usefixtures("quick_to_compile", "compiled_once")

RUN = [*SMALL, "--algorithms", "rand_k", "--rounds", "8", "--every", "2", "--seeds", "2"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """(folder, what it printed) of a run that was killed at the second evaluation, with the checkpoint of the first."""
    folder, printed = tmp_path_factory.mktemp("run") / "stopped", io.StringIO()
    args = [*RUN, *OFTEN, "--secret-seed", "--output", str(folder)]
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        pytest.raises(KilledError),
    ):
        main(args, sinks=[Stop("rand_k", 4)])
    assert [file.name for file in folder.rglob("*.npz")] == ["2.npz"]
    return folder, printed.getvalue()


@pytest.fixture(scope="module")
def secret(stopped):
    """As the system drew it."""
    return secret_seed.read(stopped[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory, secret):
    """The run with the same secret that nothing disturbed."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fp, "secret_seed", lambda: secret)
        assert launch(*RUN, "--secret-seed", "--output", folder) == 0
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Without a secret seed."""
    folder = tmp_path_factory.mktemp("run") / "plain"
    with pytest.raises(KilledError):
        main([*RUN, *OFTEN, "--output", str(folder)], sinks=[Stop("rand_k", 4)])
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    """A copy of it."""
    return shutil.copytree(stopped[0], tmp_path / "copy")


@pytest.mark.slow
def test_it_is_in_one_file_and_nowhere_else(stopped, folder, secret, whole, capfd):
    """While the run is stopped, and at its end, which is that of a run with the same secret that nothing disturbed.

    The option may be given again.
    """
    assert tell(folder, secret) == ["secret_seed"]
    assert launch("--resume", folder, "--secret-seed") == 0
    assert_same(folder, whole)
    assert tell(folder, secret) == ["secret_seed"]
    shown = "".join(capfd.readouterr()) + stopped[1]
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


@pytest.mark.slow
def test_rounds_that_are_done_again_stay_spent(folder):
    """Killed after 4 rounds with a checkpoint of 2, then stopped before any further evaluation."""

    class Interrupting(Stop):
        def write(self, record):
            if (record["algorithm"], record["round"]) == self.at:
                raise KeyboardInterrupt

    assert main(["--resume", str(folder)], sinks=[Interrupting("rand_k", 2)]) == 130
    found = json.loads((folder / "summary.json").read_text())
    assert found["status"] == "interrupted"
    assert found["rounds"] == {"rand_k": 2}
    assert found["resumed"][0]["reached"] == {"rand_k": 4}
    assert found["privacy"]["rand_k"]["rounds"] == 6  # it was on its way to the evaluation after 4


@pytest.mark.slow
def test_without_it_other_noise_is_drawn(whole, plain):
    assert (
        len({*read(whole).history["rand_k"].loss[-1], *read(plain).history["rand_k"].loss[-1]}) == 4
    )
    assert not (plain / "secret_seed").exists()


@pytest.mark.slow
def test_it_trains_what_its_secret_makes_of_its_seeds(whole, secret):
    """As `simulate` does."""
    settings = parse(modules.load("quickstart"), "quickstart", RUN)
    made = quickstart.on(settings, quickstart.load(settings))
    entry, options = made.entries["rand_k"], {"rounds": 8, "every": 2, "strategy": fp.Strategy()}
    options |= {"score": made.model.score, "seeds": (0, 1), "secret_seed": secret}
    history = fp.simulate(entry.algorithm, made.model.init, entry.federations, made.test, **options)
    np.testing.assert_allclose(read(whole).history["rand_k"].loss[-1], history.loss[-1], rtol=1e-6)


@pytest.mark.slow
def test_tables_do_not_say_that_it_shares_all_random_numbers(whole, plain):
    alike = "initial model, random numbers, unless settings change them"
    notes = experiments.table([whole, plain]).attrs["notes"]
    assert any(f"{alike}; a run with a secret seed shares the clients alone): " in n for n in notes)
    notes = experiments.table([replace(read(plain), path=whole), read(plain)]).attrs["notes"]
    assert any(f"{alike}): " in n for n in notes)


@pytest.mark.slow
def test_reports_read_it(whole, plain, secret, tmp_path):
    page = experiments.report([whole, plain], tmp_path / "report.html")
    assert "the secret seed of the run stays secret" in page.read_text()
    assert tell(tmp_path, secret) == []


@pytest.mark.slow
def test_with_another_one_the_run_does_not_go_on(folder, secret, capsys):
    (folder / "secret_seed").write_text(f"{secret ^ 1}\n")
    before = {f: f.read_bytes() for f in folder.rglob("*.npz")}
    assert launch("--resume", folder) == 2
    error = capsys.readouterr().err
    assert "is of another run: secret_seed_check " in error
    assert not any(str(n) in error for n in (secret, secret ^ 1))
    assert {f: f.read_bytes() for f in folder.rglob("*.npz")} == before


SECRET = 2**62 + 0x1234567890ABCDE


@pytest.mark.parametrize("given", [SECRET, f"{SECRET}", None])
def test_from_python_it_is_drawn_and_not_given(given, tmp_path):
    with pytest.raises(ValueError, match=r"secret_seed: .*give True") as error:
        experiments.run("quickstart", folder=tmp_path / "r", secret_seed=given)
    assert str(SECRET) not in str(error.value)
    assert not (tmp_path / "r").exists()
