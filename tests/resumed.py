"""What tests of resumed runs share: a small quickstart, what kills it, and when two run folders are the same."""

import json

from fedpriv.experiments.commands.run import main
from fedpriv.experiments.runs import unfinished

SMALL = ["--clients", "12", "--cohort", "5", "--sampling", "fixed_size", "--layout.devices", "1"]
SMALL += ["--local.epochs", "1", "--capacity", "5", "--public-examples", "5"]
OFTEN = ["--checkpoint.rounds", "1"]


class Stop:
    """A sink that kills the run, as nothing else ends it, at an evaluation."""

    def __init__(self, algorithm, round):
        self.at = (algorithm, round)
        self.seen = []

    def write(self, record):
        self.seen.append((record["algorithm"], record["round"]))
        if self.seen[-1] == self.at:
            raise KilledError


class KilledError(BaseException):
    pass


def launch(*args):
    return main([str(a) for a in args])


def count(folder):
    """How many evaluations are recorded so far."""
    file = folder / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def lines(folder):
    """metrics.jsonl without the seconds; every line must be whole."""
    text = (folder / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) | {"seconds_not_private": None} for line in text.splitlines()]


def values_of_clients(folder):
    """clients.jsonl, to the bit."""
    file = folder / "clients.jsonl"
    return file.read_bytes() if file.exists() else None


def summary(folder):
    """summary.json without times, folder and the list of resumes."""
    found = json.loads((folder / "summary.json").read_text())
    for name in ("rounds_per_second_not_private", "compile_seconds", "resumed", "git_revision"):
        del found[name]
    found["settings"] |= dict.fromkeys(unfinished.FREE)
    return found


def assert_same(folder, whole):
    assert lines(folder) == lines(whole)
    assert values_of_clients(folder) == values_of_clients(whole)
    assert summary(folder) == summary(whole)
    (picture,) = whole.glob("*.png")
    assert (folder / picture.name).read_bytes() == picture.read_bytes()
    assert files(folder) == files(whole)
    for file in files(whole):
        if file.suffix == ".safetensors":
            assert (folder / file).read_bytes() == (whole / file).read_bytes()


def files(folder):
    return {f.relative_to(folder) for f in folder.rglob("*")}


def spelt(secret):
    """As text, and as the bytes of a number."""
    texts = [f"{secret}", f"{secret:x}", f"{secret:X}"]
    numbers = [secret.to_bytes(8, order) for order in ("big", "little")]
    return [*(text.encode() for text in texts), *numbers]


def tell(folder, secret):
    """The files and folders that hold it, or have it in their names."""
    return [
        path.name
        for path in folder.rglob("*")
        for held in [str(path).encode() + (path.read_bytes() if path.is_file() else b"")]
        if any(word in held for word in spelt(secret))
    ]


def files_of(folder):
    """What is in them."""
    return {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
