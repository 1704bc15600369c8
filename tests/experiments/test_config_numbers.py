"""Every field of every config that is a number: what is none gets one line that names it, before anything is built."""

import dataclasses
import math
import typing

import pytest
from commands import run

from experiments.config import modules
from experiments.config.settings import changed

NONE = {int: (math.nan, 0.5, -1, 10**400), float: (math.nan, "abc", 10**400)}
TOGETHER = {"weighting.mean": "cap"}  # which has to be given, too


def numbers(cls, group=""):
    """(field, nested ones by dots; int or float), of a config's class."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint, name = hints[field.name], group + field.name
        if dataclasses.is_dataclass(hint):
            yield from numbers(hint, f"{name}.")
        for kind in {hint, *typing.get_args(hint)} & {int, float}:
            yield name, kind


FIELDS = {
    field: (name, kind)
    for name in modules.names()
    for field, kind in numbers(type(modules.load(name).settings))
}


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_no_number_is_refused_by_its_name(field):
    name, kind = FIELDS[field]
    for value in NONE[kind]:
        with pytest.raises(ValueError, match=r"^[^\n]{1,300}$") as error:
            changed(modules.load(name).settings, {field: value})
        named = {field, field.rpartition(".")[2], TOGETHER.get(field, field)}
        assert any(each in str(error.value) for each in named), value


@pytest.mark.parametrize(
    "given",
    [
        ["--rounds", "1e3"],
        ["--rounds", "nan"],
        ["--rounds", "1" + 400 * "0"],
        ["--p", "abc"],
        ["--every", "0"],
        ["--seeds", "0"],
        ["--noise-multiplier", "inf"],
        ["--stop-at-epsilon", "nan"],
        ["--target-epsilon", "-inf"],
        ["--checkpoint.minutes", "inf"],
        ["--layout.clients", "0"],
        ["--num-processes", "0.5"],
        ["--process-id", "nan"],
    ],
)
def test_the_launcher_says_it_in_one_line(given, capsys):
    assert run.main(["quickstart", *given]) == 2
    said = capsys.readouterr().err
    name = given[0].lstrip("-")
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert name in said or name.replace("-", "_") in said
