"""The front door: what it offers, and names that left it, which work and say what to write instead."""

import ast
import importlib
import re
import types
from operator import attrgetter
from pathlib import Path

import pytest
from small import regression, squared, start

import fedpriv as fp
import fedpriv.retired
from fedpriv.retired import RETIRED

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGE = (REFERENCE / "stable_names.md").read_text()


@pytest.mark.parametrize("old", RETIRED)
def test_a_retired_name_works_and_says_what_to_write_instead(old):
    text = re.escape(f"fp.{old}: now {RETIRED[old]}; it goes with 1.0")
    with pytest.warns(FutureWarning, match=text) as warned:
        found = attrgetter(old)(fp)
    assert [one.filename for one in warned] == [__file__]
    kept = vars(fedpriv.retired)
    place = RETIRED[old].removeprefix("fp.")
    assert found is (kept[old] if old in kept else attrgetter(place)(fp))


def test_retired_names_are_not_shown():
    shown: dict = {}
    exec("from fedpriv import *", shown)
    assert not set(RETIRED) & {*dir(fp), *fp.__all__, *shown}
    assert not {f"privacy.{name}" for name in dir(fp.privacy)} & set(RETIRED)


@pytest.mark.parametrize("package", [fp, fp.privacy])
def test_names_come_from_where_checkers_of_types_see_them(package):
    """They are imported when they are asked for."""
    tree = ast.parse(Path(package.__file__).read_text())
    (typed,) = (
        node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    )
    for node in typed.body:
        for name in (alias.name for alias in node.names):
            home = importlib.import_module(node.module)
            found = vars(home).get(name) or importlib.import_module(f"{node.module}.{name}")
            assert getattr(package, name) is found
    seen = {alias.name for node in typed.body for alias in node.names}
    assert {*package.__all__} <= seen <= {*package.__all__, "Certificate"}


@pytest.mark.parametrize("place", [fp, fp.privacy])
def test_a_name_that_never_was_is_none(place):
    with pytest.raises(AttributeError, match=r"has no attribute .*fed_avgg"):
        place.fed_avgg  # noqa: B018
    with pytest.raises(ImportError):
        from fedpriv import fed_avgg  # noqa: F401


def test_the_page_of_stable_names_has_the_front_door_and_what_left_it():
    stable, retired = PAGE.split("## Retired\n")
    groups = dict(re.findall(r"^\| ([\w, ]+) \| (`.*`) \|$", stable, re.MULTILINE))
    listed = [name for names in groups.values() for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted(fp.__all__)
    rooms = {n for n in fp.__all__ if isinstance(getattr(fp, n), types.ModuleType)}
    assert set(re.findall(r"`(\w+)`", groups["rooms"])) == rooms
    assert dict(re.findall(r"^\| `([\w.]+)` \| `(.*)` \|$", retired, re.MULTILINE)) == RETIRED


def test_the_reference_says_what_each_room_is_for():
    table = re.findall(r"^\| (`fp.*`) \|", (REFERENCE / "index.md").read_text(), re.MULTILINE)
    rooms = {n for n in fp.__all__ if isinstance(getattr(fp, n), types.ModuleType)}
    assert set(re.findall(r"`fp\.(\w+)`", " ".join(table))) == rooms


@pytest.mark.slow
def test_calls_of_before_are_what_they_were():
    """Of names whose calls have changed: the same algorithms, and the same epsilons."""
    records, sampler = fp.fixed_size(4, 2), fp.fixed_size(3, 2)
    federation = regression([4, 4, 4])
    before = vars(fedpriv.retired)
    local = before["dp_scaffold_steps"](fp.per_example(squared), records, 2, 0.1, 0.5, 3.0)
    algorithm = before["record_fed_avg"](local, sampler=sampler)
    shapes = algorithm, start(), federation
    each = before["certify_each_client"](*shapes, 2, 1e-3, view="server")
    assert local.mechanism.noise_multiplier == 6.0
    now = fp.dp_sgd(local, sampler=sampler)
    certificate = fp.certify(now, start(), federation, 2, 1e-3, view="server")
    assert each == (certificate,) * 3
    assert algorithm.claim(2, 1e-3) == fp.dp_scaffold(local, sampler=sampler).claim(2, 1e-3)
