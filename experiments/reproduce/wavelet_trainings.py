"""Trainings of the wavelet paper's figures and of its Table III."""

from __future__ import annotations

from typing import Any, Literal

from experiments.reproduce.item import Training

Level = Literal["record", "user"]
ROUNDS, LOCAL_EPOCHS, EVERY = 300, 50, 10

NOTES = (
    "networks, learning rates, lots, the number of clients per round and C are not printed: CNNs of 28,874 (MNIST, "
    "Fashion-MNIST) and 131,562 parameters, 20 of 100 clients per round (record level) or all of them (user level), "
    "lots of 60, C the median norm on 600 public images; learning rates as in configs/wavelet_*.py, 0.1 at user level",
    "one seed; the paper prints no spread. The non-private form is the same at every sigma",
    "sigma is the paper's; what it claims for the wavelet forms is the vanilla epsilon, which is not proved and "
    "not true (see experiments/results/wavelet.md)",
)
RECORD_NOTE = (
    "the non-private form is not clipped, and takes the same number of steps",
    "Dyn-DP-SGD: the clip norm halves and sigma falls by 1.5 over the run, at the certificate of the constant sigma",
)
USER_NOTE = (
    "DP-FedAvg and DP-FedAvg-WAV clip single gradients, as in section 6.4: that bounds no update, so that nothing is "
    "certified; `--bounded update` of the config is the form that is. Dyn-DP-FedAvg clips updates",
)


def training(level: Level, data: str, algorithm: str, sigma: float) -> Training:
    """One of the paper's, without the settings that its algorithm has no use for, so that it is trained once."""
    settings: dict[str, Any] = {"local_epochs": LOCAL_EPOCHS}
    if level == "user":
        settings |= {"cohort": 100, "learning_rate": 0.1}
    if algorithm in ("dp_fed_avg", "dp_fed_avg_wav"):
        settings["bounded"] = "gradients"
    if algorithm != "fed_avg":
        settings["noise_multiplier"] = sigma
    return Training(
        f"wavelet_{data}",
        algorithm,
        settings,
        rounds=ROUNDS,
        every=EVERY,
        shrinking=("local_epochs",),
    )
