"""The law of what is refused: one line that names the field and shows the value, of the stated type."""

import importlib
import pkgutil
import re

import pytest
import refused
from refused.row import Refusal

TABLES = {
    room.name: importlib.import_module(f"refused.{room.name}")
    for room in pkgutil.iter_modules(refused.__path__)
    if room.name != "row"
}


def has(said: str, part: str) -> bool:
    """As words and numbers of their own, so that no line says "p" or "1" by chance."""
    before, after = (r"(?<!\w)" * part[0].isalnum(), r"(?!\w|\.\d)" * part[-1].isalnum())
    return re.search(before + re.escape(part) + after, said) is not None


def wrong_with(row: Refusal) -> str:
    """Nothing, or what the line lacks."""
    try:
        row.call()
    except Exception as error:
        said, kind = str(error), type(error)
    else:
        return "it is not refused"
    wanted = [row.field, *([row.shown] if isinstance(row.shown, str) else row.shown)]
    lacks = [part for part in wanted if not has(said, part)]
    fine = kind is row.error and "\n" not in said and not lacks
    return "" if fine else f"{kind.__name__}: {said!r} lacks {lacks}"


def check(rows, tmp_path, monkeypatch):
    """All, each in a folder of its own: an item of pytest for each would cost more than the rows."""
    wrong = {}
    for i, row in enumerate(rows):
        (tmp_path / str(i)).mkdir()
        monkeypatch.chdir(tmp_path / str(i))
        wrong[f"{i}: {Refusal(*row).name}"] = wrong_with(Refusal(*row))
    assert {name: said for name, said in wrong.items() if said} == {}


@pytest.mark.parametrize("table", TABLES)
def test_each_is_refused_in_a_line(table, tmp_path, monkeypatch):
    assert TABLES[table].ROWS
    check(TABLES[table].ROWS, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("table", [name for name in TABLES if hasattr(TABLES[name], "LATE")])
def test_each_is_refused_in_a_line_after_work(table, tmp_path, monkeypatch):
    """Those that are told after data are loaded, or a round is traced or certified."""
    check(TABLES[table].LATE, tmp_path, monkeypatch)
