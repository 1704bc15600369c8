"""A mistake in the user's own config or algorithm: its line, exit code 1; the whole trace where it is asked for."""

import re

import pytest
from tiers import every

from fedpriv.experiments.commands import audit, privacy, run, sweep
from fedpriv.experiments.training import prepare

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CONFIG = '''"""One's own."""
from dataclasses import replace

import jax.numpy as jnp

from configs import quickstart

settings = quickstart.settings


def loss(x):
    return jnp.dot(x, jnp.ones(3))


def round(key, state, cohort):
    {round}
    return state, {{}}


def build(settings):
    {build}
    experiment = quickstart.on(settings, quickstart.load(settings))
    entries = experiment.entries.items()
    own = {{n: e._replace(algorithm=e.algorithm._replace(round=round)) for n, e in entries}}
    return replace(experiment, entries=own)
'''
MISTAKES = {
    "build": (
        "pass",
        "x = 1 / 0",
        "ZeroDivisionError: division by zero",
        "in build: x = 1 / 0",
    ),
    "round": (
        "cohort.summ()",
        "pass",
        "AttributeError: 'Cohort' object has no attribute 'summ'",
        "in round: cohort.summ()",
    ),
    "loss": (
        "loss(jnp.ones(2))",
        "pass",
        "TypeError: dot_general requires contracting dimensions to have the same shape, got (2,) and (3,).",
        "in loss: return jnp.dot(x, jnp.ones(3))",
    ),
    "value": (
        "pass",
        'int("a")',
        "ValueError: invalid literal for int() with base 10: 'a'",
        'in build: int("a")',
    ),
}


def own(folder, build="pass", round="pass"):
    file = folder / "my_config.py"
    file.write_text(CONFIG.format(build=build, round=round))
    return str(file)


def shown(command, args, capsys):
    """The two lines of an error in one's own code."""
    assert command(args) == 1
    return capsys.readouterr().err.splitlines()


@every("mistake", MISTAKES, kind=lambda mistake: mistake[1] == "pass")
def test_a_mistake_is_shown_with_its_line(mistake, tmp_path, capsys):
    round, build, said, place = MISTAKES[mistake]
    args = [own(tmp_path, build, round), "--algorithms", "fed_avg", "--output", tmp_path / "never"]
    first, second = shown(run.main, list(map(str, args)), capsys)
    assert first.startswith(f"error: {said}")
    place = rf"  my_config\.py:\d+, {re.escape(place)}  \(--traceback shows all\)"
    assert re.fullmatch(place, second)


COMMANDS = {"run": run.main, "sweep": sweep.main, "audit": audit.main, "privacy": privacy.main}


@every("name", COMMANDS)
def test_every_command_shows_it_and_all_of_it_when_asked(name, tmp_path, capsys):
    command = COMMANDS[name]
    grid = ["--grid", "rounds=2,3"] if name == "sweep" else []
    args = [own(tmp_path, "x = 1 / 0"), "--output", str(tmp_path / "never"), *grid]
    first, second = shown(command, args, capsys)
    assert first == "error: ZeroDivisionError: division by zero"
    assert "in build: x = 1 / 0" in second
    with pytest.raises(ZeroDivisionError):
        command([*args, "--traceback"])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ('raise ValueError("clients: 3 are too few; give 4")', "clients: 3 are too few; give 4"),
        ("open('/nowhere/data.csv')", "/nowhere/data.csv: No such file or directory"),
        ("import fedpriv; fedpriv.fixed_size(2, 3)", "(my_config.py:21)"),
    ],
)
def test_a_complaint_of_ones_own_is_one_line_and_exit_code_2(build, said, tmp_path, capsys):
    assert run.main([own(tmp_path, build), "--output", str(tmp_path / "never")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_bug_of_the_launcher_keeps_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "check", None)
    with pytest.raises(TypeError, match="not callable"):
        run.main(["quickstart", "--algorithms", "fed_avg", "--output", str(tmp_path / "never")])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("settings = quickstart.settings", "settings = 3"),
            "has int as its settings; derive them",
        ),
        (
            ("    return replace(experiment, entries=own)", "    return own"),
            "its build gives dict;",
        ),
        (("def build(settings):", "def build(settings:"), "SyntaxError"),
    ],
)
def test_a_config_that_is_none(change, said, tmp_path, capsys):
    file = tmp_path / "my_config.py"
    file.write_text(CONFIG.format(build="pass", round="pass").replace(*change))
    code = run.main([str(file), "--output", str(tmp_path / "never")])
    assert code == (1 if said == "SyntaxError" else 2)
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == (2 if said == "SyntaxError" else 1)
