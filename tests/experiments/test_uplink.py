"""The command `uplink`: its cells are what rounds that run report, and what codecs and protocols of the papers send."""

import jax
import numpy as np
import pytest
from small import one_round

import fedpriv as fp
from fedpriv.experiments.accounting.uplink import ADDED_UP, Messages
from fedpriv.experiments.commands import uplink as command

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.mark.slow
def test_cells_are_the_formulas(capsys):
    """60 values fill a block of 64, and 6 three of 2; a place of 60 has 6 bits."""
    args = "--dimension 60 --clients 4 --kept 0.1 --noise-multiplier 0 --exchanges 3 --bits 2 10"
    assert command.main(args.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    cells = {row[0]: row[1:] for row in rows}
    assert cells["DP-FedAvg"] == ["1,920", "too few", "640"]
    assert cells["Fed-SMP rand_k"] == cells["Fed-SMP top_k"] == ["192", "too few", "60"]
    assert cells["each its own top_k, with places"] == [str(6 * 32 + 6 * 6), "-", "-"]
    assert cells["QSGD"] == ["-", str(2 * 60 + 32), str(10 * 60 + 32)]
    assert cells["JoPEQ, Laplace"] == ["-", "too few", "600"]
    assert cells["MSPDQ-FL"] == ["-", str(4 * (2 * 60 + 32)), f"{4 * (10 * 60 + 32):,}"]
    # 2 keys, 2 shares to each of 3 others and 4 shares back, 3 seals
    added = 2 * 256 + (2 * 3 + 4) * 256 + 3 * (96 + 128)
    assert (cells["SecAgg"][0], cells["SecAgg"][4]) == ("3", f"{added:,}")


@pytest.mark.slow
def test_a_round_that_runs_reports_what_a_cell_says():
    messages = Messages(60, 4, kept=0.1, noise_multiplier=0.0, exchanges=3)
    make = ADDED_UP["Fed-SMP rand_k"]
    algorithm, federation = make(messages, 10), fp.Federation.blank(np.zeros(1, np.float32), 4, 1)
    state = algorithm.init(np.zeros(60, np.float32), federation)
    _, metrics = one_round(algorithm)(jax.random.key(0), state, federation)
    assert str(metrics["uplink"].bits()) == messages.reported(make, 10)
