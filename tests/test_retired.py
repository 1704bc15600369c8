"""Names that left the front door: they work, and say what to write instead."""

import pkgutil
import re
import subprocess
import sys

import pytest

import fedpriv as fp
from fedpriv.retired import RETIRED


@pytest.mark.parametrize("old", RETIRED)
def test_a_retired_name_works_and_says_what_to_write_instead(old):
    text = re.escape(f"fp.{old}: now {RETIRED[old]}; it goes with 1.0")
    with pytest.warns(FutureWarning, match=text) as warned:
        found = getattr(fp, old)
    assert [one.filename for one in warned] == [__file__]
    place = RETIRED[old].removeprefix("fp.")
    if re.fullmatch(r"[\w.]+", place) and not hasattr(fp.retired, old):
        assert found is pkgutil.resolve_name(f"fedpriv.{place}")
    else:
        assert callable(found)


def test_retired_names_are_not_shown():
    shown: dict = {}
    exec("from fedpriv import *", shown)
    assert not set(RETIRED) & {*dir(fp), *fp.__all__, *shown}


def test_a_name_that_never_was_is_none():
    with pytest.raises(AttributeError, match="module 'fedpriv' has no attribute 'fed_avgg'"):
        fp.fed_avgg  # noqa: B018
    with pytest.raises(ImportError):
        from fedpriv import fed_avgg  # noqa: F401


def test_a_script_of_before_runs_and_is_told_once():
    script = "from fedpriv import msp_fl\nprint(msp_fl.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "msp_fl\n"
    assert done.stderr.count("FutureWarning: fp.msp_fl: now fp.papers.msp_fl") == 1
