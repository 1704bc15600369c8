"""What `.ci/draw_mutants.py` draws is there, is found again, and is replaced when it is gone."""

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

TEXT = """
def price(rate, *, most: int = 3):
    if rate > 1 and not most:
        raise ValueError(f"rate: {rate + 1}")
    return min(rate * 2.0, most - 1)


class Draw:
    def rate(self):
        return len("é") < 2 or self.rate(strict=False)
"""


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    file = Path(__file__).parents[1] / ".ci" / "draw_mutants.py"
    spec = importlib.util.spec_from_file_location("draw_mutants", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_changes_of_a_text(mutants):
    sites = mutants.sites_of("a.py", TEXT)
    changes = {(s.key.scope, s.key.old, s.key.new) for s in sites}
    price = [("3", "4"), (">", ">="), ("1", "2"), ("and", "or"), ("not ", ""), ("min", "max")]
    price += [("*", "/"), ("2.0", "4.0"), ("-", "+")]
    price += [("rate > 1 and not most", "not (rate > 1 and not most)")]
    price += [('raise ValueError(f"rate: {rate + 1}")', "pass")]  # nothing that errors say
    rate = [("<", "<="), ("2", "3"), ("or", "and"), ("False", "True")]  # zip has `strict`, too
    expected = {("price", *change) for change in price} | {("Draw.rate", *c) for c in rate}
    assert changes == expected
    for site in sites:
        assert TEXT[site.span] == site.key.old
        compile(mutants.mutated(TEXT, site), "a.py", "exec")


def test_a_moved_line_is_found_and_a_gone_one_replaced(mutants):
    before = mutants.all_sites({"a/a.py": TEXT})
    text = TEXT.replace("rate > 1 and", "rate >= top and").replace("def price", "\n\ndef price")
    after = mutants.all_sites({"a/b.py": text})
    gone = [key for key in before if mutants.located(key, after) is None]
    assert {key.line for key in gone} == {"if rate > 1 and not most:"}
    boolean = next(key for key in gone if key.kind == "boolean")
    assert mutants.nearest(boolean, after).line == "if rate >= top and not most:"
    assert mutants.nearest(boolean._replace(scope="Draw.rate"), after).scope == "Draw.rate"
    assert mutants.nearest(boolean._replace(kind="unknown"), after) is None


@pytest.fixture
def few(mutants, monkeypatch):
    """A file of each room in the place of all."""
    texts, chosen = mutants.sources(), {}
    for path in sorted(texts, key=lambda path: (len(texts[path]) < 4000, len(texts[path]))):
        chosen.setdefault(mutants.room_of(path), path)
    monkeypatch.setattr(mutants, "sources", lambda: {path: texts[path] for path in chosen.values()})


@pytest.mark.usefixtures("few")
def test_sets(mutants, tmp_path):
    first, again, other = (mutants.draw(2, 1, seed) for seed in (0, 0, 1))
    assert first == again != other
    rooms = Counter(mutants.room_of(mutant["path"]) for mutant in first)
    assert rooms == {room: 2 if room in mutants.CORE else 1 for room in rooms}
    assert len({tuple(mutant.values()) for mutant in first}) == len(first) > 20
    told = [first[0] | {"outcome": "killed"}, first[1] | {"line": "gone = 1", "outcome": "killed"}]
    (tmp_path / "set.json").write_text(json.dumps(told))
    kept, new = mutants.replaced(tmp_path / "set.json")
    assert kept == told[0]
    assert new["kind"] == told[1]["kind"]
    assert "outcome" not in new
    assert new["replaces"] == tuple(told[1].values())[:-1]
