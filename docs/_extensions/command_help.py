"""The directive `command`: what a command's own parser prints of its options, and of a config's fields."""

import contextlib
import importlib
import io
import os
import textwrap
from collections.abc import Callable
from unittest import mock

import tyro
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fedpriv.experiments.commands import listed

WIDTH = 80


def help_of(name: str, config: str | None = None) -> str:
    """What the command prints of itself or, with a config, of that config's fields as well."""
    room = "fedpriv.experiments.commands" if name in listed() else "experiments"  # of a checkout
    module = importlib.import_module(f"{room}.{name}")
    if config:
        return printed(lambda: module.main([config, "--help"]))
    if not hasattr(module, "parse"):  # it takes no config
        return printed(lambda: module.main(["--help"]))
    options = getattr(module, "AllOptions", module.Options)
    prog, about = f"fedpriv {name} [CONFIG]", module.__doc__.partition("\n\n")[2]
    return printed(lambda: tyro.cli(options, args=["--help"], prog=prog, description=about))


def printed(show: Callable[[], object]) -> str:
    """What it prints in a terminal of so many columns, before it ends."""
    told = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(told),
        contextlib.suppress(SystemExit),
    ):
        show()
    return "\n".join(map(wrapped, told.getvalue().strip("\n").splitlines()))


def wrapped(line: str) -> str:
    """A command's description comes in lines as long as its paragraphs."""
    return textwrap.fill(line, WIDTH) if len(line) > WIDTH else line.rstrip()


class Command(SphinxDirective):
    """`{command} sweep`, or with a config `{command} run quickstart`."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = help_of(*self.arguments)
        block = nodes.literal_block(text, text)
        block["language"] = "text"
        return [block]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command", Command)
    return {"parallel_read_safe": True}
