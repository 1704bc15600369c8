"""What pyproject.toml cannot say: the configs in the wheel, and the README as it stands outside the repository."""

import ast
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
TESTS = re.compile(
    r" `python -m experiments.run` is the same command. This runs the tests:\n\n```.*?```\n",
    re.DOTALL,
)
LINKS = "## Where to go next"  # a section of nothing else
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]+)\)")


class BuildWithConfigs(build_py):
    """Copies configs/ to fedpriv/configs/."""

    def run(self):
        super().run()
        if not self.editable_mode:
            shutil.copytree(
                HERE / "configs",
                Path(self.build_lib, "fedpriv", "configs"),
                ignore=shutil.ignore_patterns("__pycache__"),
                dirs_exist_ok=True,
            )


def address():
    """The repository's address, from fedpriv/address.py."""
    (assigned,) = [
        node
        for node in ast.parse((HERE / "fedpriv" / "address.py").read_text("utf-8")).body
        if isinstance(node, ast.Assign)
    ]
    return ast.literal_eval(assigned.value)


def outside(text, address):
    """Markdown of the repository's root as it stands elsewhere: links by address; without one, words alone."""

    def link(found):
        picture, words, path = found.groups()
        if address:
            kind = "raw" if picture else "blob"
            return f"{picture}[{words}]({address}/{kind}/main/{path})"
        return "" if picture else words

    text = (
        TESTS.sub("\n", text)
        .replace("pip install -e .", "pip install fedpriv")
        .replace("`.[", "`fedpriv[")
    )
    return LINK.sub(link, text if address else text.partition(LINKS)[0])


if __name__ == "__main__":
    setup(
        cmdclass={"build_py": BuildWithConfigs},
        long_description=outside((HERE / "README.md").read_text("utf-8"), address()),
        long_description_content_type="text/markdown",
        project_urls={"Repository": address()} if address() else {},
    )
