"""python -m experiments: every command, a line each."""

from pathlib import Path

from experiments import __main__ as experiments


def test_it_lists_every_command_once(capsys):
    assert experiments.main([]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    here = Path(experiments.__file__).parent
    files = [*here.glob("*.py"), *here.glob("*/__main__.py")]
    ended = [f for f in files if '__name__ == "__main__"' in f.read_text()]
    names = {f.stem if f.parent == here else f.parent.name for f in ended} - {"__main__"}
    assert sorted(listed) == sorted(names)
    assert listed[0] == "run"
