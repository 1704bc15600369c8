"""When checkpoints are taken, and folders and files that cannot be made."""

import os

import pytest
from checkpointed import run
from several import ended, started

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there are no limits of size")
def test_a_file_that_the_system_cuts_off(tmp_path):
    """By a limit of the process's own, in place of a full disk."""
    with started([["-W", "error", "-W", "ignore:test", "-c", CUT_OFF, tmp_path]]) as processes:
        (end,) = ended(processes)
    assert (end.code, end.err) == (0, "")
    said = end.out.splitlines()
    assert len(said) == 1
    assert "File too large" in said[0]
    assert list(tmp_path.iterdir()) == []


CUT_OFF = """
import resource, sys
import fedpriv as fp
fp.distributed.split_cpu(2)
import checkpointed
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
checkpointed.run(checkpoints=fp.Checkpoints(sys.argv[1], rounds=1, say=print))
"""


def test_how_often(tmp_path, monkeypatch):
    """By rounds: at the first evaluation at or after them; by the clock; and where a run is asked to stop."""

    def taken(name, stop=None, **often):
        rounds = []
        save = fp.engine.checkpoint.Keeper._save
        monkeypatch.setattr(
            fp.engine.checkpoint.Keeper, "_save", lambda k, s: (rounds.append(s.round), save(k, s))
        )

        def on_evaluation(e):
            if e.round == stop:
                raise KeyboardInterrupt

        try:
            checkpoints = fp.Checkpoints(tmp_path / name, **often)
            run(checkpoints=checkpoints, on_evaluation=on_evaluation)
        except KeyboardInterrupt:
            pass
        monkeypatch.setattr(fp.engine.checkpoint.Keeper, "_save", save)
        return rounds

    assert taken("short") == []
    assert taken("rounds", rounds=3) == [4, 7]
    assert taken("clock", minutes=0) == [2, 4, 6, 7]
    assert taken("stop", stop=4) == [4]
