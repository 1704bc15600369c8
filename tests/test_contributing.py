"""CONTRIBUTING.md's worked example runs as it stands there: the algorithm, its tests, its config."""

import json
import re
import sys
from pathlib import Path

import pytest

import configs
import fedpriv.algorithms
from fedpriv.experiments.commands.run import main

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", TEXT, re.DOTALL))
ALGORITHM, TESTS, CONFIG = FILES


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The example's files, in the packages to which they would be added."""
    for name, source in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(source)
    for package in (fedpriv.algorithms, configs):
        folder = tmp_path / package.__name__.replace(".", "/")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    yield tmp_path
    for package, name in ((fedpriv.algorithms, ALGORITHM), (configs, CONFIG)):
        if sys.modules.pop(f"{package.__name__}.{Path(name).stem}", None):
            delattr(package, Path(name).stem)


def test_the_files_are_where_the_text_says():
    folders = [str(Path(name).parent) for name in FILES]
    assert folders == ["fedpriv/algorithms", "tests/algorithms", "configs"]
    assert TEXT.count("```python") == len(FILES)


@pytest.mark.slow
def test_its_tests_pass(checkout, quick_to_compile):
    names: dict = {}
    exec(FILES[TESTS], names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


@pytest.mark.slow
def test_its_config_is_launched(checkout, capsys):
    folder = checkout / "run"
    options = ["--rounds", "2", "--every", "2", "--output", str(folder)]
    assert main([Path(CONFIG).stem, *options]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rounds"] == {"averaged": 2}
    assert 0 < summary["privacy"]["averaged"]["certified"]["third_party"]["epsilon"] < 10
    assert "averaged" in capsys.readouterr().out


def test_its_config_refuses_in_one_line(checkout, capsys):
    assert main([Path(CONFIG).stem, "--decay", "1"]) == 2
    assert "decay: 1.0; give" in capsys.readouterr().err


def test_test_files_have_names_of_their_own_and_at_most_400_lines():
    files = [*Path(__file__).parent.rglob("test_*.py")]
    assert len({file.name for file in files}) == len(files) > 200
    assert [f.name for f in files if len(f.read_text().splitlines()) > 400] == []
