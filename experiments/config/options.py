"""What the commands are given: configs, their fields, options; complaints in one line, exit code 2."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.base.json_values import flat, plain
from experiments.config import Run, modules
from experiments.config.modules import Config

MOST_DIGITS = 40  # of a number that a message repeats


def own_options(
    parser: argparse.ArgumentParser, args: list[str]
) -> tuple[argparse.Namespace, list[str]]:
    """A command's own options, and what is left for its config; prints its own part of the help.

    Args:
      parser: with add_help=False and exit_on_error=False, so that nothing is printed or ended here.

    Raises:
      ValueError: a value that an option does not take.
    """
    if {"-h", "--help"} & set(args):
        parser.print_help()
        print()
    try:
        return parser.parse_known_args(args)
    except argparse.ArgumentError as error:
        raise ValueError(f"{error.argument_name}: {error.message}") from None


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


def parse(module: Config, name: str, args: list[str], command: str = "run") -> Run:
    """The module's config with the command line's overrides; `command` is the module of experiments that asks.

    Raises:
      ValueError: an unknown field or a value of the wrong type.
      SystemExit: after --help.
    """
    import tyro

    complaint = io.StringIO()
    prog, default = f"python -m experiments.{command} {name}", module.config
    args = _switched(args, default)
    _check_digits(args)
    try:
        with contextlib.redirect_stderr(complaint):
            config, unknown = tyro.cli(
                type(default),
                prog=prog,
                description=f"{module.__doc__}\nOther configs: python -m experiments.{command} --list",
                default=default,
                args=args,
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ValueError(_unboxed(complaint.getvalue())) from None
    if unknown:
        known = [words(field, None)[0] for field in flat(plain(default))]
        raise ValueError(f"{_unknown(unknown[0], known)} (see {prog} --help)")
    return config


def _switched(args: Sequence[str], default: Run) -> list[str]:
    """`--field true` and `--field false`, also with =, as the parser has them: --field and --no-field."""
    switches = [field for field, value in flat(plain(default)).items() if isinstance(value, bool)]
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
        return f"{word!r}: belongs to no field; fields begin with --, and yes or no is --field true or --field false"
    name = word.lstrip("-")
    part = [flag for flag in flags if name in re.split(r"[.-]", flag)]
    begins = [flag for flag in flags if flag.startswith(word)]
    near = (begins or difflib.get_close_matches(word, flags, 1) or part)[:3]
    return f"{word}: unknown field" + (f"; did you mean {' or '.join(near)}?" if near else "")


def words(field: str, value: Any) -> list[str]:
    """A field, nested ones by dots, as a user types it."""
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
    text = re.sub(r"^(\w+): (?:\1\.)?(\w+: )", r"\1.\2", text)  # a group and its field
    return functools.reduce(lambda said, change: re.sub(*change, said), _PLAINLY, text)


_PLAINLY = (
    (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not an integer"),
    (r"could not convert string to float: (.*)", r"\1 is not a number"),
    (r"no type matching (.*) could be instantiated from (.*)\. Got errors: .*", r"\2 is not \1"),
)
"""What Python and tyro say of a value, and what a user can do with."""


def flags(settings: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """What a user types for the settings that are not the default."""
    standard = flat(default)
    changed = {f: v for f, v in flat(settings).items() if f not in standard or standard[f] != v}
    return [word for item in changed.items() for word in words(*item)]
