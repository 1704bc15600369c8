"""The standalone checker of `docs/`: what dp-accounting alone says of a certificate's file."""

import ast
import json
import math
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fedpriv.pairs.blocks import Block
from fedpriv.pairs.end_of_run import Best, Slack
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.pairs.search import epsilon
from fedpriv.pairs.several import moved
from fedpriv.pairs.written import written
from fedpriv.privacy import FixedSize, Poisson, certify_seen, declared
from fedpriv.proof.pairs import NOTHING, SEEN, All, Moved, Times, Told

CHECKER = Path(__file__).parents[1] / "docs" / "check_certificate.py"
DELTA = 1e-5
POISSON = Moved("gaussian", ((0.25, 0.25),))
SURE, LAPLACE = Moved("gaussian", ((0.5, 1.0),)), moved("laplace", ((0.1, 0.2),))
SEVERAL = moved("gaussian", ((0.02, 0.1), (0.04, 0.01)))
INTEGERS = IntegerNoise("skellam", 10, 4.0, 9, 4)
HAS = {
    "Poisson": Times(POISSON, 60),
    "sure": SURE,
    "Laplace": Times(LAPLACE, 20),
    "told": Times(Told(((0.9, POISSON), (0.1, NOTHING))), 20),
    "rarely seen": Told(((1 - 1e-7, POISSON), (1e-7, SEEN))),
    "several kinds": All((Times(POISSON, 10), SURE, Times(LAPLACE, 5))),
    "several of a person": Times(SEVERAL, 2000),
    "nothing": NOTHING,
}
LACKS = {
    "block": Block("gaussian", 4, ((1.0, 0.25, 0),)),
    "slack": Slack(SURE, 1e-9, 0.0),
    "best": Best((Times(POISSON, 10),), 3.0),
    "a unit replaced in a secret draw": Moved("gaussian", ((0.5, 0.1),), True, 0.1),
    "a unit seen in a secret draw": Moved("gaussian", ((math.inf, 0.1),)),
    "Laplace noise that several units move": moved("laplace", ((0.1, 0.2), (0.2, 0.1))),
}


def certificate(pair, value, delta=DELTA):
    """The JSON of a claim that a pair has this epsilon."""
    unit = {"pair": written(pair), "relation": "zero_out", "epsilon": value}
    return {"epsilon": value, "delta": delta, "compositions": [unit]}


def checked(said, path, monkeypatch, capsys) -> tuple[int, list[str]]:
    """(Exit code, what is printed) of a file that says so."""
    path.write_text(said if isinstance(said, str) else json.dumps(said))
    monkeypatch.setattr(sys, "argv", [str(CHECKER), str(path)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(CHECKER), run_name="__main__")
    return end.value.code, capsys.readouterr().out.splitlines()


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    return lambda said: checked(said, tmp_path / "certificate.json", monkeypatch, capsys)


ROUNDED = "several of a person"
"""In thousands of rounds, each of which it rounds down: its lower bound is a tenth below."""
DEAR = (ROUNDED, "told", "rarely seen", "several kinds")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in HAS]
)
def test_what_dp_accounting_has_is_confirmed_and_a_lower_epsilon_contradicted(name, check):
    value = epsilon(HAS[name], DELTA).epsilon
    code, (line,) = check(certificate(HAS[name], value))
    assert (code, "confirmed: epsilon" in line) == (0, True), line
    if value > 0:
        code, (line,) = check(certificate(HAS[name], (0.7 if name == ROUNDED else 0.97) * value))
        assert (code, "contradicted: epsilon" in line) == (1, True), line


@pytest.mark.parametrize("name", LACKS)
def test_what_dp_accounting_has_not_is_named(name, check):
    code, (line,) = check(certificate(All((SURE, LACKS[name])), 1.0))
    assert (code, line.endswith(f"not checkable: {name}")) == (0, True), line


def test_noise_of_integers_a_small_delta_and_an_older_file_are_not_checkable(check):
    of_integers = certificate(Moved(INTEGERS, ((1.0, 1.0),)), 1.0)
    assert check(of_integers)[1][0].endswith("not checkable: noise of integers")
    small = check(certificate(SURE, 1.0, delta=1e-11))[1][0]
    assert small.endswith("not checkable: a delta so small that its rounding counts")
    assert check({"epsilon": 1.0, "delta": DELTA})[1][0].endswith("not checkable: older file")


@pytest.mark.parametrize("given", [["none/summary.json"], ["."], []])
def test_what_is_no_file_is_refused_in_one_line(given, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(CHECKER), *given])
    with pytest.raises(SystemExit, match=r"^\S+ is no file; give a run's summary.json") as end:
        runpy.run_path(str(CHECKER), run_name="__main__")
    assert "\n" not in end.value.code


def test_an_epsilon_far_above_is_confirmed_and_infinity_claims_nothing(check):
    assert "confirmed" in check(certificate(SURE, 50.0))[1][0]
    assert check(certificate(SEEN, "inf"))[1][0].endswith("nothing is claimed")
    code, (line,) = check(certificate(SEEN, 50.0))
    assert (code, "contradicted" in line) == (1, True)


def test_a_total_below_its_parts_is_contradicted(check):
    said = certificate(SURE, epsilon(SURE, DELTA).epsilon)
    code, (line,) = check(said | {"epsilon": 0.9 * said["epsilon"]})
    assert (code, "contradicted" in line) == (1, True)


def test_what_lies_between_its_bounds_is_looser(check):
    """Where thousands of losses are rounded, its lower bound is too far below to contradict."""
    pair = Times(Moved("gaussian", ((1.0, 0.003),)), 10_000)
    code, (line,) = check(certificate(pair, 0.9 * epsilon(pair, DELTA).epsilon))
    assert (code, "looser: epsilon" in line) == (0, True), line


def test_every_certificate_of_a_run_has_a_line(check):
    """Real ones: a cut Poisson draw has its cases; fixed size is not checkable; without noise nothing is claimed."""
    drawn = {"poisson": Poisson(100, 0.1, 20), "fixed": FixedSize(100, 10)}
    privacy = {
        name: {"certified": {"third_party": json.loads(certified(sampling).to_json())}}
        for name, sampling in drawn.items()
    }
    bare = declared("server", "client", 0.0, drawn["fixed"], 10)
    text = certify_seen([bare], DELTA, "server").to_json()
    privacy["poisson"]["certified"]["server"] = json.loads(text)
    code, lines = check({"privacy": privacy})
    said = [line.split(":")[0] for line in lines]
    assert code == 0
    assert said == [
        "poisson third_party client add_or_remove declared confirmed",
        "poisson server client zero_out declared nothing is claimed",
        "fixed third_party client replace_one declared not checkable",
    ]


def certified(sampling):
    seen = declared("third_party", "client", 2.0, sampling, 10)
    return certify_seen([seen], DELTA, "third_party")


def test_it_imports_dp_accounting_alone_and_is_read_in_minutes():
    text = CHECKER.read_text()
    trees = list(ast.walk(ast.parse(text)))
    found = {node.module for node in trees if isinstance(node, ast.ImportFrom)}
    found |= {name.name for node in trees if isinstance(node, ast.Import) for name in node.names}
    others = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names)
    assert others == {"dp_accounting"}
    assert "__import__" not in text
    assert "importlib" not in found
    assert len([line for line in text.splitlines() if line.strip()]) <= 62


@pytest.mark.slow
def test_it_runs_where_fedpriv_is_not_on_the_path(tmp_path):
    """As a process, in a folder of its own, with a copy of the script."""
    script, file = tmp_path / CHECKER.name, tmp_path / "certificate.json"
    script.write_text(CHECKER.read_text())
    text = certified(Poisson(100, 0.1)).to_json()
    low = json.loads(text) | {"epsilon": 0.5}
    for said, code, word in ((text, 0, "confirmed"), (json.dumps(low), 1, "contradicted")):
        file.write_text(said)
        command = [sys.executable, "-I", script.name, file.name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, "")
        assert f" {word}: epsilon" in done.stdout
