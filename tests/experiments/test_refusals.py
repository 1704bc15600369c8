"""What is not of its field's kind is refused, for every field of every config: in one line that names the field."""

import dataclasses
import math
import re
import typing
from pathlib import Path

import pytest

from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import changed

ODD = [object(), {}, "no such thing", math.nan, -1, -1.0, 10**400]
FREE = {"bound": (math.nan, -1.0)}  # read where the metric is known
TEXT = {str, Path}


def fields_of(cls, group=""):
    """(class that declares it, field, nested ones by dots; its kind), of a config's class."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind, name = hints[field.name], group + field.name
        if dataclasses.is_dataclass(kind):
            yield from fields_of(kind, f"{name}.")
        owner = next(c for c in cls.__mro__ if field.name in vars(c).get("__annotations__", {}))
        yield owner, name, kind


def by_class():
    """Class -> {field: (a config that has it, its kind)}."""
    found = {}
    for config in modules.names():
        for owner, field, kind in fields_of(type(modules.load(config).settings)):
            found.setdefault(owner.__qualname__, {}).setdefault(field, (config, kind))
    return found


FIELDS = by_class()


def refusal(config, given):
    """The line with which a config refuses settings."""
    with pytest.raises(ValueError, match=r"^[^\n]{1,300}$") as error:
        changed(modules.load(config).settings, given)
    return str(error.value)


@pytest.mark.parametrize("owner", FIELDS)
def test_what_is_not_of_its_kind_is_refused_by_its_name(owner):
    for field, (config, kind) in FIELDS[owner].items():
        fine = [*FREE.get(field, ())]
        fine += ["no such thing"] if TEXT & {kind, *typing.get_args(kind)} else []
        fine += [{}] if dataclasses.is_dataclass(kind) else []
        given = {"weighting.cap": 9.0} if field == "weighting.mean" else {}  # goes with it
        for value in ODD:
            if value not in fine:
                said = refusal(config, given | {field: value})
                named = re.escape(field.rpartition(".")[2])
                assert re.match(rf"([a-z0-9_]+\.)?{named}\b", said), (field, value, said)
    assert FIELDS[owner]
