"""What the site shows of functions, classes, types and commands."""

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from signatures import readable

import fedpriv as fp

DEFAULT = object()


def of_objects(loss: "LossFn", *rest: int, mechanism: "Mechanism | None" = DEFAULT, p: float = 0.1):  # noqa: F821
    pass


class Pair(NamedTuple):
    first: int
    second: dict = DEFAULT  # type: ignore[assignment]
    seal: tuple = ()


@dataclass
class Base:
    size: int
    _hidden: int = 0
    kept: dict = field(default_factory=dict, repr=False)
    scale: float = field(default=2.0)


@dataclass
class Derived(Base):
    name: str = "a"


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        (
            of_objects,
            "(loss: LossFn, *rest: int, mechanism: Mechanism | None = DEFAULT, p: float = 0.1)",
        ),
        (Pair, "(first: int, second: dict = DEFAULT)"),
        (Derived, "(size: int, kept: dict = dict(), scale: float = 2.0, name: str = 'a')"),
        (Base.__eq__, "(other)"),
    ],
)
def test_a_signature_is_what_the_source_says(value, arguments):
    assert readable(value) == (arguments, "")


def test_what_is_returned_is_shown():
    assert readable(fp.poisson) == (
        "(population: Count, rate: Rate, capacity: Count | None = None)",
        "Sampler",
    )
    assert "mechanism: Mechanism | Dynamic = unprotected()" in readable(fp.fed_avg)[0]


def test_there_may_be_no_signature():
    assert readable(range.__len__) == ("()", "")
    assert readable(type) is None


def test_help_is_the_parsers_own():
    pytest.importorskip("sphinx", reason='pip install -e ".[docs]"')
    from command_help import WIDTH, help_of

    own, with_fields, alone = help_of("sweep"), help_of("run", "quickstart"), help_of("report")
    assert "--best-of" in own
    assert "--noise-multiplier" not in own
    assert "--noise-multiplier FLOAT" in with_fields
    assert "--output" in alone
    assert max(map(len, own.splitlines())) <= WIDTH


def test_a_type_is_explained_by_its_docstring_its_range_or_its_definition():
    pytest.importorskip("sphinx", reason='pip install -e ".[docs]"')
    from type_names import meanings

    types = meanings("fedpriv.core.types")
    assert types["LossFn"].startswith("Loss of ONE example")
    assert types["Params"] == "PyTree"
    assert meanings("fedpriv.core.kinds")["Rate"] == "a number above 0 and at most 1"
