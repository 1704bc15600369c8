"""What the commands are given: configs, their fields, options; complaints in one line, exit code 2."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import io
import linecache
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import jax

from experiments import config_files, ending
from experiments.config import Run
from experiments.plain import flat, plain
from fedpriv.core.code_places import place
from fedpriv.core.user_code import is_fedprivs, last_of_user, user_line

WHOLE = "--traceback"  # of every command
MOST_DIGITS = 40  # of a number that a message repeats


class Parser(argparse.ArgumentParser):
    """Complains in one line; its help keeps the paragraphs of the description."""

    def __init__(self, *, description: str, **options: Any):
        super().__init__(
            description=_filled(description),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        # `command` takes it out of what is given.
        self.add_argument(WHOLE, action="store_true", help="show the whole trace of an error")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see --help)\n")


_whole: ContextVar[bool] = ContextVar(
    "whole", default=False
)  # also of a command that another one calls


def command(main: Callable[..., int]) -> Callable[..., int]:
    """A command's `main`: what is wrong with what it is given is one line and exit code 2; Ctrl-C is 130.

    An error in the user's own code is its line and exit code 1. Any other bug keeps its traceback; with --traceback,
    every error does.
    """

    @functools.wraps(main)
    def ended(argv: Sequence[str] | None = None, *args: Any, **kwargs: Any) -> int:
        given = list(sys.argv[1:] if argv is None else argv)
        asked = _whole.set(_whole.get() or WHOLE in given)
        filtering = jax.config.jax_traceback_filtering  # type: ignore[attr-defined]
        jax.config.update("jax_traceback_filtering", "off" if _whole.get() else filtering)
        try:
            return main([word for word in given if word != WHOLE], *args, **kwargs)
        except Exception as error:
            said, code = explained(error)
            print(f"error: {said}", file=sys.stderr)
            return code
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return ending.INTERRUPTED
        finally:
            _whole.reset(asked)
            jax.config.update("jax_traceback_filtering", filtering)

    return ended


def explained(error: Exception) -> tuple[str, int]:
    """What a command says of an error that it handles, and its exit code; any other is raised again.

    A ValueError of fedpriv's, or one that the user's code raises by itself, is a complaint about what was given.
    """
    if _whole.get() or isinstance(error, BrokenPipeError):  # whoever read has what he wanted
        raise error
    if isinstance(error, OSError):
        return one_line(error), 2
    if ending.outside(error):
        raise error
    line = user_line(error)
    if isinstance(error, ValueError) and _is_complaint(error):
        return one_line(error) + _caller(error), 2
    if line is None:
        raise error
    text = next((text for text in str(error).splitlines() if text.strip()), "")
    return f"{type(error).__name__}: {printable(text)}\n  {line}  ({WHOLE} shows all)", 1


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Inside, nothing is wrong any more with what was given: a ValueError is a bug."""
    try:
        yield
    except ValueError as error:
        error.is_bug = True  # type: ignore[attr-defined]
        raise


def _is_complaint(error: ValueError) -> bool:
    if getattr(error, "is_bug", False):
        return False
    last = last_of_user(error)
    if last is None or is_fedprivs(error):
        return True
    source = linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno)
    return source.lstrip().startswith("raise ")


def _caller(error: ValueError) -> str:
    """The line of the user's own file that was complained about, if the message does not name it."""
    last = last_of_user(error)
    if last is None or not is_fedprivs(error):
        return ""
    path = last.tb_frame.f_code.co_filename
    ships = str(Path(path).parent) in config_files.configs.__path__
    line = place(path, last.tb_lineno)
    return "" if ships or line in str(error) else f" ({line})"


def _filled(text: str) -> str:
    """Each paragraph as wide as argparse makes what it fills itself."""
    width = shutil.get_terminal_size().columns - 2
    return "\n\n".join(
        textwrap.fill(p, width, break_on_hyphens=False) for p in text.strip().split("\n\n")
    )


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


def listing(wanted: Callable[[ModuleType], bool] = lambda module: True) -> str:
    """A line per config that is wanted: the first of its docstring."""
    lines = []
    for name in config_files.names():
        module = config_files.load(name)
        if not wanted(module):
            continue
        document = str(module.__doc__)
        lines.append(f"{name:<24} {document.strip().splitlines()[0]}")
    return "\n".join(lines)


def parse(module: ModuleType, name: str, args: list[str], command: str = "run") -> Run:
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


def one_line(error: Exception) -> str:
    """Its message."""
    return printable(re.sub(r"\s+", " ", ending.outside(error) or str(error)).strip())


def printable(text: str) -> str:
    """What a terminal would act on is shown as Python writes it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
