"""The commands, as a registry: each is listed, explains itself, and refuses what it does not know in a line."""

import dataclasses
import importlib
import runpy
from pathlib import Path

import pytest
import tiers
from every_config import CONFIGS, kind

import fedpriv.__main__ as fedpriv_command
from experiments import benchmark, odd_calls
from fedpriv.experiments import commands
from fedpriv.experiments.config.settings import Settings

CHECKOUT = {"benchmark": benchmark, "odd_calls": odd_calls}
COMMANDS = [*commands.listed(), *CHECKOUT]
PART = {"benchmark": ["start"]}  # of a command that has several
NEEDED = {
    "sweep": ["--grid", "p=0.1"],
    "uplink": ["--dimension", "3"],
    "uploads": ["x", "--accuracy", "1"],
}


def loaded(name):
    return CHECKOUT.get(name) or importlib.import_module(f"fedpriv.experiments.commands.{name}")


def test_it_lists_every_command_once(capsys):
    assert fedpriv_command.main([]) == 0
    _, _, listed = capsys.readouterr().out.partition("COMMAND [--help]")
    names = [line.split()[0] for line in listed.split("\n") if line.strip()]
    assert names == list(commands.listed())
    here = Path(commands.__file__).parent
    assert sorted(names) == sorted(f.stem for f in here.glob("*.py") if f.stem != "__init__")
    assert names[0] == "run"


def test_each_is_a_module_of_the_checkout_too():
    """`python -m experiments.NAME` is `fedpriv NAME`."""
    for name in commands.listed():
        assert importlib.import_module(f"experiments.{name}").main is loaded(name).main


@pytest.mark.parametrize("name", commands.listed())
def test_its_file_is_no_program(name, capsys):
    """It does not end as if something had been done."""
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(loaded(name).__file__, run_name="__main__")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.strip().endswith(f"type: fedpriv {name}")


def test_a_command_that_is_not_there(capsys):
    assert fedpriv_command.main(["comapre"]) == 2
    assert "did you mean compare? Choose" in capsys.readouterr().err


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
