"""Names that left the front door: they work, and say what to write instead."""

import pkgutil
import re
import subprocess
import sys

import pytest
from small import regression, squared, start

import fedpriv as fp
from fedpriv.retired import RETIRED


@pytest.mark.parametrize("old", RETIRED)
def test_a_retired_name_works_and_says_what_to_write_instead(old):
    text = re.escape(f"fp.{old}: now {RETIRED[old]}; it goes with 1.0")
    with pytest.warns(FutureWarning, match=text) as warned:
        found = getattr(fp, old)
    assert [one.filename for one in warned] == [__file__]
    kept = fp.retired.__globals__
    place = f"fedpriv.{RETIRED[old].removeprefix('fp.')}"
    assert found is (kept[old] if old in kept else pkgutil.resolve_name(place))


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


def test_calls_of_before_are_what_they_were():
    """Of names whose calls have changed: the same algorithms, and the same epsilons."""
    records, sampler = fp.fixed_size(4, 2), fp.fixed_size(3, 2)
    federation = regression([4, 4, 4])
    before = fp.retired.__globals__
    local = before["dp_scaffold_steps"](fp.per_example(squared), records, 2, 0.1, 0.5, 3.0)
    algorithm = before["record_fed_avg"](local, sampler=sampler)
    shapes = algorithm, start(), federation
    each = before["certify_each_client"](*shapes, 2, 1e-3, view="server")
    assert local.mechanism.noise_multiplier == 6.0
    now = fp.dp_sgd(local, sampler=sampler)
    certificate = fp.certify(now, start(), federation, 2, 1e-3, view="server")
    assert each == (certificate,) * 3
    assert algorithm.claim(2, 1e-3) == fp.dp_scaffold(local, sampler=sampler).claim(2, 1e-3)
