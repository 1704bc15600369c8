"""The golden grid: certificates, refusals and budgets are what was recorded, whatever becomes of the way to them.

A third of its rows, of the dear ones one for each level they have; `python -m golden.record --dry` compares all.
"""

import re
import zlib
from collections import Counter
from functools import cache
from itertools import combinations, product

import pytest
from golden import clients, record, records

ROWS, RECORDED = record.rows(), record.load()
DEAR = re.compile(
    r"public|cut|opening|falling|K 5|by person|persons|together|integers|discrete|skellam|groups of records"
    r"|Opacus|range|algorithm: .* third_party"
)
"""Words of rows that took half a second or more when they were recorded."""
REPRESENTATIVE = (
    "clients: dropping, lost x gaussian x",
    "clients: late, free clients x banded x",
    "clients: groups of fixed size x joint x",
    "clients: everyone x falling x",
    "clients: random allocation x discrete gaussian x",
    "clients: by person, fixed size x skellam x",
    "records: records by public sizes, rate x cohorts by fixed order x",
    "records: records by with replacement x cohorts by poisson, never cut x",
    "declared: published: Fed-SMP, fixed size, secure aggregation",
    "declared: published: 100 rounds of 1 of 100",
    "declared: published: DP-SCAFFOLD, participation",
    "declared: mixed: laplace, cut",
    "declared: mixed: poisson and fixed size",
    "declared: range: everyone x noise 300 x delta 1e-30",
    "declared: best of 3: poisson, cut",
    "runs: algorithm: ldp_fed_avg x server x",
    "unlike units: groups of clients: turns x delta 0.01",
    "runs: together: integers beside x server_secagg x",
    "budgets: calibrated rounds: fixed order",
)


ALSO = ("budgets: calibrated integers: fixed size", "budgets: calibrated together: epsilon 1")
"""Dear ones whose names have no levels."""


@cache
def found_of(name):
    return record.recorded(ROWS[name])


def check(names):
    found = {name: found_of(name) for name in names if name in ROWS}
    moved = [
        str(one)
        for name in names
        for one in record.moved(name, RECORDED.get(name), found.get(name), rounded=True)
    ]
    assert not moved, "\n".join([f"{len(moved)} fields moved, see CONTRIBUTING.md", *moved])


def starting(words):
    (name,) = (name for name in ROWS if name.startswith(words))
    return name


@pytest.mark.parametrize("words", REPRESENTATIVE)
def test_a_representative_row_is_as_recorded(words):
    check([starting(words)])


def test_all_rows_are_recorded_and_no_others():
    assert ROWS.keys() == RECORDED.keys()


def mixed(name):
    return zlib.crc32(name.encode())


def levels_of(kind):
    """Those that are met in some rows."""
    met = Counter(level for name in ROWS if name.startswith(f"{kind}: ") for level in parts(name))
    return {level for level, rows in met.items() if rows > 2}


def parts(name):
    return name.split(" x ")


@cache
def spread(kind):
    """One row in three, whatever the order they are made in; of dear ones those with a level that no other has."""
    named = [name for name in ROWS if name.startswith(f"{kind}: ")]
    lacking, found = levels_of(kind), [name for name in ALSO if name in named]
    for name in sorted(named, key=lambda name: (bool(DEAR.search(name)), mixed(name))):
        if lacking.intersection(parts(name)) if DEAR.search(name) else mixed(name) % 3 == 0:
            found.append(name)
            lacking -= {*parts(name)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", record.KINDS)
def test_a_spread_of_rows_is_as_recorded(kind):
    check(spread(kind))


@pytest.mark.parametrize("kind", record.KINDS)
def test_every_level_is_in_the_spread(kind):
    seen = Counter(level for name in spread(kind) for level in parts(name))
    assert levels_of(kind) <= seen.keys()
    if kind in ("clients", "records", "runs"):
        assert min(seen[view] for view in ("third_party", "server", "server_secagg")) > 1


@pytest.mark.parametrize("kind", [clients, records])
def test_every_sampler_meets_every_level(kind):
    """Each pair of a sampler, or a draw of records, with a noise or cohort, a view, an honest part and a delta."""
    levels = [row.name.split(" x ") for row in kind.rows()]
    for a, b in combinations((0, 1, -3, -2, -1), 2):
        every = product(*({each[i] for each in levels} for i in (a, b)))
        assert {(each[a], each[b]) for each in levels} == set(every)


def test_a_reworded_sentence_changes_one_line(tmp_path, monkeypatch):
    copy = tmp_path / "grid.json"
    copy.write_text(record.FILE.read_text())
    monkeypatch.setattr(record, "FILE", copy)
    before = copy.read_text().splitlines()
    found = record.load()
    said = found["declared: published: Fed-SMP, poisson"]["assumptions"][0]
    for row in found.values():
        if "assumptions" in row:
            row["assumptions"] = [f"a {t}" if t == said else t for t in row["assumptions"]]
    record.save(found, "")
    changed = [
        old for old, new in zip(before, copy.read_text().splitlines(), strict=True) if old != new
    ]
    assert [line for line in changed if said in line] == changed[1:]  # the first says who recorded
    assert len(changed) == 2


def test_what_moved_is_found_in_numbers_texts_and_assumptions():
    name, row = "row", {"epsilon": 2.0, "event": "3 x 0.5", "assumptions": ["a", "b"]}
    other = {"epsilon": 2.0 + 1e-9, "event": "3 x 0.6", "assumptions": ["b", "c"], "found": "inf"}
    found = {one.field: one for one in record.moved(name, row, other, rounded=True)}
    assert list(found) == ["epsilon", "event", "assumptions", "found"]
    assert found["assumptions"][2:] == (["a"], ["c"])
    near = row | {"epsilon": 2.0 + 1e-12, "event": "3 x 0.5000000000001"}
    assert not list(record.moved(name, row, near, rounded=True))
    assert [one.field for one in record.moved(name, row, near)] == ["epsilon", "event"]
    assert [one.field for one in record.moved(name, row, None)] == ["row"]
