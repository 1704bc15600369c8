"""The law of what is refused: one line that names the field and shows the value, of the stated type."""

import importlib
import pkgutil

import pytest
import refused
from refused.row import Refusal

ROWS: dict[str, Refusal] = {
    f"{room.name}: {row.name}": row
    for room in pkgutil.iter_modules(refused.__path__)
    if room.name != "row"
    for row in importlib.import_module(f"refused.{room.name}").ROWS
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """What a call writes goes there."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ROWS)
def test_it_is_refused_in_a_line(name):
    row = ROWS[name]
    with pytest.raises(row.error) as caught:
        row.call()
    said = str(caught.value)
    assert type(caught.value) is row.error
    assert "\n" not in said
    for part in (row.field, row.value, row.remedy):
        assert part in said
