"""Options of the commands: complaints in one line, exit code 2."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see --help)\n")


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
