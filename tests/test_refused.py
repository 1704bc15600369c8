"""The law of what is refused: one line that names the field and shows the value, of the stated type."""

import importlib
import pkgutil
import re

import pytest
import refused
from refused.row import Refusal

ROWS: dict[str, Refusal] = {
    f"{room.name} {i}: {row.name}": row
    for room in pkgutil.iter_modules(refused.__path__)
    if room.name != "row"
    for i, row in enumerate(importlib.import_module(f"refused.{room.name}").ROWS)
}


def has(said: str, part: str) -> bool:
    """As words and numbers of their own, so that no line says "p" or "1" by chance."""
    before, after = (r"(?<!\w)" * part[:1].isalnum(), r"(?!\w|\.\d)" * part[-1:].isalnum())
    return re.search(before + re.escape(part) + after, said) is not None


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
    assert has(said, row.field)
    assert has(said, row.value) if row.value.replace(".", "").isdigit() else row.value in said
    assert row.remedy in said
