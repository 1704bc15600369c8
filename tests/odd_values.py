"""What users may type: command lines for a config, drawn from the types of its fields, sane and odd.

FEDPRIV_FUZZ=thorough draws thousands of cases at random; without it, fewer, and always the same ones.
"""

import dataclasses
import os
import typing
from pathlib import Path
from types import NoneType

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

THOROUGH = os.environ.get("FEDPRIV_FUZZ") == "thorough"

INTEGERS = ["0", "-1", "1", "2", "3", "5", "7", "20", "60", "101", "4096", "16777217"]
INTEGERS += ["2147483647", "2147483648", "-2147483649", "9223372036854775808", str(10**30)]
INTEGERS += ["1e3", "1_000", "0x10", "2.0", "+4", "\u0661"]
FLOATS = ["nan", "inf", "-inf", "-0.0", "0", "1e-320", "5e-324", "1e-300", "1e-30", "1e-9", "1e-4"]
FLOATS += ["0.01", "0.1", "0.5", "0.9999999999999999", "1", "1.0000000000000002", "2", "30", "1e4"]
FLOATS += ["1e16", "1e39", "1e300", "1.7976931348623157e308", "1e309", "-1", "-1e-320", "1e", "½"]
WORDS = [
    "",
    " ",
    "None",
    "none",
    "True",
    "é",
    "💥",
    "\x00",
    "a\nb",
    "-",
    "--",
    "=",
    "[]",
    "{}",
    "%s",
]
WORDS += ["\x1b[31m", "../..", "\ud800", "x" * 300]


def cases(ordinary: int, thorough: int) -> settings:
    return settings(
        max_examples=thorough if THOROUGH else ordinary,
        derandomize=not THOROUGH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def fields_of(kind: type, prefix: str = "--") -> dict[str, typing.Any]:
    """Flag -> type, of a config's fields and those nested in it."""
    hints, found = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        own, flag = hints[field.name], prefix + field.name.replace("_", "-")
        found |= fields_of(own, flag + ".") if dataclasses.is_dataclass(own) else {flag: own}
    return found


def texts(kind: typing.Any) -> st.SearchStrategy[list[str]]:
    """Arguments for a field of that type, sometimes of the wrong one."""
    return st.one_of(_of(kind), _of(kind), _of(kind), st.sampled_from(WORDS).map(lambda w: [w]))


def _of(kind: typing.Any) -> st.SearchStrategy[list[str]]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is int:
        return st.sampled_from(INTEGERS).map(lambda x: [x])
    if kind is float:
        number = st.one_of(st.sampled_from(FLOATS), st.floats().map(repr))
        return number.map(lambda x: [x])
    if kind is str:
        return st.sampled_from(WORDS).map(lambda word: [word])
    if kind is NoneType:
        return st.just(["None"])
    if kind is bool:
        return st.sampled_from([[], [], ["true"], ["maybe"]])
    if kind is Path:
        return st.sampled_from([["/nonexistent/é"], ["/dev/null/x"], [""], ["~"], ["a b"]])
    if origin is typing.Literal:
        return st.sampled_from([[x] for x in inner] + [[str(inner[0]).upper()]])
    if origin is tuple:
        of = _of(inner[0])
        several = (
            st.lists(of, max_size=4) if inner[-1] is ... else st.lists(of, min_size=1, max_size=3)
        )
        return several.map(lambda parts: [word for part in parts for word in part])
    return st.one_of(*(_of(one) for one in inner))  # a union


@st.composite
def overrides(draw: st.DrawFn, kind: type, without: tuple[str, ...] = ()) -> list[str]:
    """A few fields of a config with new values, as on a command line."""
    known = {flag: own for flag, own in fields_of(kind).items() if flag not in without}
    args: list[str] = []
    for flag in draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=4)):
        words = draw(texts(known[flag]))
        head, dot, last = flag.rpartition(".")
        if known[flag] is bool and draw(st.booleans()):
            flag = f"{head}.no-{last}" if dot else f"--no-{last[2:]}"
        joined = len(words) == 1 and draw(st.booleans())
        args += [f"{flag}={words[0]}"] if joined else [flag, *words]
    return args
