"""Mistakes in one's own functions: the user's frames and one line."""

import re
import traceback
from pathlib import Path

import jax
import mistakes
import pytest
import tiers
from mistakes import JAXS, OURS, TRACED, look, of_label, sums

from fedpriv.certification import certificate
from fedpriv.core.complaints import require
from fedpriv.experiments.base.command import explained


def shown(mistake):
    """(the functions of the user's frames, what Python prints after them) of a mistake."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        mistake()
    printed = traceback.TracebackException.from_exception(caught.value)
    assert {frame.filename for frame in printed.stack} <= {__file__, mistakes.__file__}
    assert printed.__cause__ is None
    assert printed.__context__ is None or printed.__suppress_context__
    last = "".join(printed.format_exception_only()).splitlines()
    return [frame.name for frame in printed.stack], last


def is_jaxs_note(line):
    """What JAX adds where the user's own `jax.jit` comes first."""
    return "-----" in line or "JAX has removed its internal frames" in line


@pytest.mark.parametrize("name", JAXS)
def test_the_users_line_comes_last_and_then_what_is_wrong_with_it(name):
    mistake, said = JAXS[name]
    functions, (line, *notes) = shown(mistake)
    assert re.fullmatch(rf"[\w.]*: {said}", line), line
    assert [note for note in notes if not is_jaxs_note(note)] == []
    assert len(functions) > 2  # beyond the call


WHERE = list(of_label(float))
PAIRS = [(name, WHERE[(i + k) % len(WHERE)]) for k in range(8) for i, name in enumerate(TRACED)]
"""What reads a value and in which of the user's functions: the first eight have each once."""


@tiers.every("pair", PAIRS, kind=lambda pair: pair[0])
def test_what_reads_a_traced_value_is_told_what_to_do_and_where(pair):
    name, where = pair
    read, remedy = TRACED[name]
    _, (line, *notes) = shown(of_label(read)[where])
    assert re.search(rf"; use .*{remedy}|; leave .*{remedy}", line), line
    assert re.search(r" \(mistakes\.py:\d+\)$", line), line
    assert line.count("; use") + line.count("; leave") == 1
    assert [note for note in notes if not is_jaxs_note(note)] == []


@pytest.mark.parametrize("name", OURS)
def test_what_fedpriv_sees_itself_is_one_line(name):
    mistake, said = OURS[name]
    _, (line, *notes) = shown(mistake)
    assert line.startswith("ValueError: ")
    assert re.search(said, line), line
    assert [note for note in notes if not is_jaxs_note(note)] == []


def test_what_the_user_caught_before_is_shown_too():
    def client(key, shard):
        try:
            return shard.examples["z"]
        except KeyError as error:
            raise RuntimeError("two lines\nof one's own") from error

    with pytest.raises(RuntimeError, match="two lines\nof one's own") as caught:
        look(sums(client))
    chain = traceback.TracebackException.from_exception(caught.value)
    for one in (chain, chain.__cause__):
        assert {frame.filename for frame in one.stack} <= {__file__, mistakes.__file__}
        assert one.stack[-1].name == "client"


def test_an_error_of_fedprivs_own_shows_where_it_was(monkeypatch):
    """Where no code of the user's has a part: a bug."""
    monkeypatch.setattr(certificate, "require_algorithm", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        look(sums())
    files = [Path(frame.filename).name for frame in traceback.extract_tb(caught.tb)]
    assert files == ["test_user_code.py", "mistakes.py", "certificate.py"]
    assert caught.value.__notes__ == ["JAX_TRACEBACK_FILTERING=off shows all frames"]


@pytest.mark.parametrize("name", ["client", "if", "turned sum"])
def test_all_frames_where_they_are_asked_for(name):
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            (JAXS | OURS)[name][0]()
    finally:
        jax.config.update("jax_traceback_filtering", before)
    files = {frame.filename for frame in traceback.extract_tb(caught.tb)}
    assert any("fedpriv/certification" in file for file in files)
    assert any("site-packages/jax" in file for file in files)
    assert name != "if" or "for jit" in str(caught.value)


def test_what_jax_adds_of_left_out_frames_is_no_part_of_a_commands_message():
    """Where a trace of JAX's own comes first, such as of a measure that a command looks at."""
    with pytest.raises(ValueError, match="bound: 2; give less") as caught:
        jax.eval_shape(lambda: require(False, "bound", 2, "give less"))
    assert any(is_jaxs_note(note) for note in caught.value.__notes__)
    message, code = explained(caught.value)
    assert re.fullmatch(r"bound: 2; give less \(\S+\)", message)
    assert code == 2
