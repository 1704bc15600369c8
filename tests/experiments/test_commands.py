"""The commands, as a registry: each is listed, explains itself, and refuses what it does not know in a line."""

import dataclasses
from pathlib import Path

import pytest
import tiers
from commands import loaded
from every_config import CONFIGS, kind

from experiments import __main__ as experiments
from fedpriv.experiments.config.settings import Settings

COMMANDS = experiments.commands()
PART = {"benchmark": ["start"]}  # of a command that has several
NEEDED = {
    "sweep": ["--grid", "p=0.1"],
    "uplink": ["--dimension", "3"],
    "uploads": ["x", "--accuracy", "1"],
}


def test_it_lists_every_command_once(capsys):
    assert experiments.main([]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    here = Path(experiments.__file__).parent
    files = [*here.glob("*.py"), *here.glob("*/__main__.py")]
    ended = [f for f in files if '__name__ == "__main__"' in f.read_text()]
    names = {f.stem if f.parent == here else f.parent.name for f in ended} - {"__main__"}
    assert sorted(listed) == sorted(names)
    assert listed[0] == "run"


def helped(command, *words):
    """The page of help, as one line."""
    try:
        code = loaded(command).main([*words, "--help"])
    except SystemExit as stop:
        code = stop.code
    assert code == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_it_does_not_know_is_refused_in_a_line(name, tmp_path, monkeypatch, capsys):
    """And nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert loaded(name).main([*PART.get(name, []), *NEEDED.get(name, []), "--nonsuch", "1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: --nonsuch: ")
    assert err.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", COMMANDS)
def test_its_help_names_its_options(name, capsys):
    helped(name, *PART.get(name, []))
    page = capsys.readouterr().out
    module = loaded(name)
    options = getattr(module, "AllOptions", None) or getattr(module, "Options", None)
    for field in dataclasses.fields(options) if options else ():
        assert field.name.replace("_", "-") in page.replace("_", "-").lower()


@tiers.every("name", CONFIGS, kind)
def test_the_help_of_a_config_names_its_settings(name, capsys):
    helped("run", name)
    page = capsys.readouterr().out
    own = {field.name for field in dataclasses.fields(CONFIGS[name].settings)}
    assert own > {field.name for field in dataclasses.fields(Settings)}
    for field in own:
        assert f"--{field.replace('_', '-')}" in page


def test_every_config_is_listed(capsys):
    assert loaded("run").main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in CONFIGS)
