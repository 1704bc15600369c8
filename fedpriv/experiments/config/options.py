"""What the commands are given: configs, their fields, options; complaints in one line, exit code 2."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from fedpriv.core.arguments import checked, kinds_of_fields
from fedpriv.core.json_values import field_kinds, flat
from fedpriv.experiments.base.command import WHOLE
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings

MOST_DIGITS = 40  # of a number that a message repeats
HELP = ("-h", "--help")


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """Options of a command that takes a config alone."""


def config_name(args: list[str], default: str = "quickstart") -> str:
    """Takes the config's name, which comes first, out of `args`; a file's is its whole path, wherever it is used."""
    if not args or args[0].startswith("-"):
        return default
    name = args.pop(0)
    return str(Path(name).absolute()) if name.endswith(".py") else name


def listing(wanted: Callable[[Config], bool] = lambda module: True) -> str:
    """A line per config that is wanted: the first of its docstring."""
    lines = []
    for name in modules.names():
        module = modules.load(name)
        if not wanted(module):
            continue
        document = str(module.__doc__)
        lines.append(f"{name:<24} {document.strip().splitlines()[0]}")
    return "\n".join(lines)


AnyOptions = TypeVar("AnyOptions")


def only_options(
    options: type[AnyOptions], args: Sequence[str], prog: str, document: str | None
) -> AnyOptions:
    """The options of a command that takes no config.

    Args:
      options: a dataclass; its fields of a kind of `fedpriv.core.arguments` are checked.
      prog: how the command is called.
      document: the command's docstring; --help shows all but its first paragraph.

    Raises:
      ValueError: an unknown option, or a value that it does not take.
      SystemExit: after --help.
    """
    description = (document or "").partition("\n\n")[2]
    (own,), unknown = _parsed([options], tyro.MISSING_NONPROP, args, prog, description)
    _refuse(unknown, [options], prog)
    return own


def split_options(options: type[AnyOptions], args: Sequence[str]) -> tuple[AnyOptions, list[str]]:
    """The options of a command that takes a config, too, and the arguments that are left for `parse`.

    Args:
      options: a dataclass with a default for each field.

    Raises:
      ValueError: a value that an option does not take.
    """
    asked = [arg for arg in args if arg in HELP]
    kept = [arg for arg in args if arg not in HELP]
    (own,), rest = _parsed([options], tyro.MISSING_NONPROP, kept)
    return own, [*rest, *asked]


def parse(
    config: Config,
    name: str,
    args: Sequence[str],
    command: str = "run",
    options: type = NoOptions,
    description: str = "",
) -> Settings:
    """The config's settings, as a command's arguments change them.

    Args:
      command: its name.
      options: what the command takes itself, for --help alone.
      description: of the command, for --help.

    Raises:
      ValueError: an unknown setting, or a value that it does not take.
      SystemExit: after --help.
    """
    prog = f"fedpriv {command} {name}"
    others = f"Other configs: fedpriv {command} --list"
    text = "\n\n".join([description, str(config.__doc__).strip(), others])
    parts = [options, type(config.settings)]
    if shared := _fields(parts[0]).keys() & _fields(parts[1]).keys():
        raise ValueError(
            f"{name}: its field {min(shared)} has the name of an option of {command}; rename it"
        )
    (_, settings), unknown = _parsed(parts, (options(), config.settings), args, prog, text)
    _refuse(unknown, parts, prog)
    return settings


def _parsed(
    parts: Sequence[type],
    defaults: Any,
    args: Sequence[str],
    prog: str = "",
    description: str = "",
) -> tuple[Sequence[Any], list[str]]:
    """An object of each dataclass, and the arguments that none of them has.

    Raises: as `only_options`.
    """
    _check_digits(args)
    complaint = io.StringIO()
    kinds: Any = tuple[tuple(Annotated[part, tyro.conf.arg(name="")] for part in parts)]  # type: ignore[misc]
    try:
        with contextlib.redirect_stderr(complaint):
            found, unknown = tyro.cli(
                kinds,
                prog=prog,
                description=f"{description.strip()}\n\n{WHOLE} shows the whole trace of an error.",
                default=defaults,
                args=_switched(args, parts),
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ValueError(_unboxed(complaint.getvalue())) from None
    for own in found:
        of: Any = type(own)
        for field, kind in kinds_of_fields(of).items():
            checked(words(field, None)[0], getattr(own, field), kind)
    return found, unknown


def _refuse(unknown: Sequence[str], parts: Sequence[type], prog: str) -> None:
    if unknown:
        known = [words(field, None)[0] for part in parts for field in _fields(part)]
        raise ValueError(f"{_unknown(unknown[0], known)} (see {prog} --help)")


def _fields(part: type, prefix: str = "") -> dict[str, Any]:
    """The hints of a dataclass's fields; nested ones by dots."""
    found: dict[str, Any] = {}
    for name, hint in field_kinds(part).items():
        nested = dataclasses.is_dataclass(hint)
        found |= _fields(hint, f"{prefix}{name}.") if nested else {prefix + name: hint}
    return found


def _switched(args: Sequence[str], parts: Sequence[type]) -> list[str]:
    """`--field true` and `--field false`, also with =, as the parser has them: --field and --no-field."""
    hints = {field: hint for part in parts for field, hint in _fields(part).items()}
    switches = [field for field, hint in hints.items() if hint is bool]
    forms = {
        words(f, True)[0]: {"true": words(f, True), "false": words(f, False)} for f in switches
    }
    found: list[str] = []
    for arg in args:
        flag, _, value = arg.partition("=")
        if found and (given := forms.get(_dashed(found[-1]), {}).get(arg.lower())):
            found[-1:] = given
        else:
            found += forms.get(_dashed(flag), {}).get(value.lower(), [arg])
    return found


def _check_digits(args: Sequence[str]) -> None:
    """Raises ValueError: a number that no field takes, and no message can hold."""
    flag = ""
    for arg in args:
        name, _, value = arg.partition("=")
        flag, value = (name, value) if name.startswith("--") else (flag, arg)
        if len(value) > MOST_DIGITS and value.strip("+-").isdecimal():
            raise ValueError(f"{flag}: a number of {len(value)} digits; give a smaller one")


def _dashed(flag: str) -> str:
    return flag.replace("_", "-")


def _unknown(word: str, flags: list[str]) -> str:
    if not word.startswith("--"):
        return (
            f"{word!r}: belongs to no field; fields begin with --, and take yes or no as --field true or --field "
            "false"
        )
    name = word.lstrip("-")
    part = [flag for flag in flags if name in re.split(r"[.-]", flag)]
    begins = [flag for flag in flags if flag.startswith(word)]
    near = (begins or difflib.get_close_matches(word, flags, 1) or part)[:3]
    return f"{word}: unknown field" + (f"; did you mean {' or '.join(near)}?" if near else "")


def words(field: str, value: Any) -> list[str]:
    """Of a command line: a field, nested ones by dots, as a user types it."""
    *groups, last = field.replace("_", "-").split(".")
    if value is False:
        last = f"no-{last}"
    given = [] if isinstance(value, bool) else value if isinstance(value, list) else [value]
    return ["--" + ".".join([*groups, last]), *map(str, given)]


def _unboxed(text: str) -> str:
    """tyro's framed message on one line."""
    text = re.sub(r"\x1b\[[0-9;]*m|[─-╿]|-{5,}", " ", text)
    text = re.split(r"Argument helptext|For full helptext", text)[0]
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(
        r"Missing argument|Value error|Error parsing [A-Z]\w*:|Error parsing|Invalid choice (?=invalid)",
        "",
        text,
    ).strip()
    text = re.sub(r"^\d+(\.|: )", "", text)  # which of the dataclasses
    text = re.sub(r"^(\w+): (?:\1\.)?(\w+: )", r"\1.\2", text)  # a group and its field
    return functools.reduce(lambda said, change: re.sub(change[0], change[1], said), _PLAINLY, text)


_PLAINLY = (
    (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not an integer"),
    (r"could not convert string to float: (.*)", r"\1 is not a number"),
    (r"Required options.*? Missing from [^:]*: (\S+).*", r"\1: missing; give it"),
    (r"Missing value for argument '(\S+)'\. Expected .*", r"\1: lacks its value"),
    (r"no type matching (.*) could be instantiated from (.*)\. Got errors: .*", r"\2 is not \1"),
    (r"\[(.*)\] is not \{None\}\|INT$", r"\1 is not an integer"),
    (r"\[(.*)\] is not \{None\}\|FLOAT$", r"\1 is not a number"),
    (r"is not \{None\}\|", "is not "),
)
"""What Python and tyro say of a value, and what a user can do with."""


def flags(settings: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """What a user types for the settings that are not the default."""
    standard = flat(default)
    changed = {f: v for f, v in flat(settings).items() if f not in standard or standard[f] != v}
    return [word for item in changed.items() for word in words(*item)]
