"""Command lines of every kind: a command answers, or says in one line what is wrong, and never anything else.

FEDPRIV_FUZZ=thorough draws thousands of cases instead of the same few hundred.
"""

import contextlib
import io
import json
import math
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from every_config import FIRST
from hypothesis import given
from hypothesis import strategies as st
from odd_values import WORDS, cases, overrides

from fedpriv.engine import compilation_cache
from fedpriv.experiments.commands import audit, compare, privacy, run, sweep
from fedpriv.experiments.config import modules
from fedpriv.experiments.training import prepare
from fedpriv.experiments.training import train as training
from fedpriv.experiments.training.trained_run import TrainedRun

SMALL = {
    "quickstart": "--clients 24 --cohort 4 --seeds 1",
    "dp_scaffold_synthetic": "--clients 6 --records 25 --client-rate 0.5 --local-steps 2 --warm-start 0",
}
QUICK = {"correlated": ["--clients", "6", "--cohort", "2", "--rounds", "6", "--bands", "2"]}
"""Of ledgers that take long; what is drawn comes after."""
TYPED = """
    --help --list --json --solve noise rounds --target-epsilon 1 nan --claimed --view server --honest 0.5 2
    --grid p=0.1,0.2 p= =1 nope=1 --folds --fold --parts mechanism --draws 100 --canaries --metric accuracy
    --together --process-id --num-processes --coordinator quickstart dp_scaffold_synthetic --rounds --p
    layout.devices=1 .. *
"""
OPTIONS = TYPED.split()


class RanError(BaseException):
    """A command was about to train."""


def said(main, args):
    """(exit code, standard output, standard error)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(args)
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), err.getvalue()


def is_one_line(err):
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    return True


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_networks", "tiny_transformers")
@pytest.mark.parametrize("name", FIRST.values())
@cases(4, 600)
@given(st.data())
def test_a_ledger_answers_or_says_what_is_wrong(name, data):
    kind = type(modules.load(name).settings)
    args = [*QUICK.get(name, []), *data.draw(overrides(kind, ("--output",)))]
    if any("dyn_" in word for word in args):
        return  # solves half a minute
    code, out, err = said(privacy.main, [name, "--json", *args])
    assert code in (0, 2)
    if code == 2:
        assert is_one_line(err)
        assert out == ""
        return
    assert err == ""
    assert '"nan"' not in out
    for certificate in json.loads(out)["certified"]:
        epsilon = certificate["epsilon"]
        assert certificate["assumptions"] if epsilon == "inf" else 0 <= epsilon < math.inf


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@cases(12, 600)
@given(st.data())
def test_a_run_is_prepared_or_says_what_is_wrong(name, data):
    module = modules.load(name)
    args = [*SMALL[name].split(), *data.draw(overrides(type(module.settings), ("--output",)))]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        trained = []
        patch.setattr(prepare, "new_folder", lambda *_: Path(folder))
        patch.setattr(prepare, "Recorder", lambda folder, *_: SimpleNamespace(folder=folder))
        ended = TrainedRun(Path(folder), "complete", {})
        patch.setattr(training, "train_algorithms", lambda run: trained.append(run) or ended)
        code, _, err = said(run.main, [name, *args])
    assert code in (0, 2)
    if code == 2:
        assert is_one_line(err)
        return
    (prepared,) = trained
    assert err == ""
    assert 0 < prepared.experiment.delta < 1
    assert all(1 <= rounds <= prepared.settings.rounds for rounds in prepared.planned.values())


COMMANDS = {
    "run": run,
    "privacy": privacy,
    "sweep": sweep,
    "compare": compare,
    "audit": audit,
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@cases(25, 1000)
@given(
    st.lists(
        st.one_of(st.sampled_from(OPTIONS), st.sampled_from(WORDS), st.text(max_size=4)), max_size=6
    )
)
def test_any_words_at_all(command, args):
    def stop(*_):
        raise RanError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation_cache, "cache_programs", stop)
        patch.setattr(privacy, "picture", lambda *_: None)
        try:
            code, _, err = said(COMMANDS[command].main, args)
        except RanError:
            return
    assert code in (0, 2)
    assert err == "" if code == 0 else is_one_line(err)
