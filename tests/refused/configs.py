"""What configs refuse of their settings, beside what is not of a field's kind (experiments/test_refusals.py)."""

import math
from functools import partial

from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import changed

LATE_CLIENTS = {"clients": 20, "at_work": 4, "buffer": 2}
NAMED = {"statistics": 0.25, "target_epsilon": 2.0}
TWO = {"groups.names": ("a", "b")}
BUDGETS = TWO | {"groups.epsilons": (1, 8)}

# Settings, the field that is named, what is shown.
QUICKSTART = [
    ({"rounds": 0}, "rounds", "0"),
    ({"stop_at_epsilon": math.inf}, "stop_at_epsilon", "inf"),
    ({"target_epsilon": 0}, "target_epsilon", "0.0"),
    ({"target_epsilon": 1, "stop_at_epsilon": 1}, "stop_at_epsilon", ("1.0", "target_epsilon")),
    ({"bound": 0.5}, "bound", ("0.5", "--per-client")),
    ({"fold": (1, 1)}, "fold", "1 1"),
    ({"fold": (4, 3)}, "fold", "4 3"),
    ({"layout.devices": 1000000}, "layout.devices", "1000000"),
    ({"layout.clients": 0}, "layout.clients", "0"),
    ({"checkpoint.minutes": math.inf}, "checkpoint.minutes", "inf"),
    ({"local.micro": 6}, "local.micro", ("6", "local.batch_size, 5")),
    ({"local.learning_rate": math.inf}, "learning_rate", "inf"),
    ({"clip_norm": math.inf}, "clip_norm", "inf"),
    ({"clip_norm": 1e-45}, "clip_norm", "1e-45"),
    ({"clip_norm": 1e39}, "clip_norm", "1e+39"),
    ({"noise_multiplier": 1e-300}, "clip_norm x noise_multiplier", "1e-300"),
    ({"algorithms": ()}, "algorithms", "()"),
    ({"algorithms": ("rand_k", "rand_k")}, "algorithms", "('rand_k', 'rand_k')"),
    ({"algorithms": ("fed_avg", "best")}, "algorithms", "'best'"),
    ({"weighting.mean": 0.5}, "cap", "none"),
    ({"roundz": 3}, "roundz", "did you mean rounds"),
    ({"local": {"epoch": 3}}, "local.epoch", "did you mean local.epochs"),
    ({"seeds": 99999999999}, "seeds", "99999999999"),
    ({"statistics": 1.0, "target_epsilon": 2.0}, "statistics", "1.0"),
    ({"statistics": 0.0, "target_epsilon": 2.0}, "statistics", "0.0"),
    ({"statistics": 0.25}, "statistics", ("0.25", "target_epsilon")),
    ({"statistics_bounds": (0.0, 1.0)}, "statistics_bounds", "(0.0, 1.0)"),
    (
        {"statistics": 0.25, "target_epsilon": 2.0, "statistics_bounds": (1.0, 0.0)},
        "statistics_bounds",
        "(1.0, 0.0)",
    ),
    (NAMED | {"statistics_bounds": ("age=5:1",)}, "statistics_bounds", "age=5:1"),
    (NAMED | {"statistics_bounds": ("age",)}, "statistics_bounds", ("age", "NAME=LOW:HIGH")),
    (NAMED | {"statistics_bounds": ("a=0:1", "a=0:2")}, "statistics_bounds", "each feature once"),
    ({"groups.epsilons": (1, 8)}, "groups.epsilons", "name the groups"),
    (TWO | {"groups.epsilons": (1,)}, "groups.epsilons", "(1.0,)"),
    ({"groups.names": ("a", "a")}, "groups.names", "('a', 'a')"),
    (TWO | {"groups.shares": (0.5, 0.6)}, "groups.shares", "(0.5, 0.6)"),
    (TWO | {"groups.labels": ("a", "c", "a")}, "groups.labels", "('a', 'c', 'a')"),
    (BUDGETS | {"groups.rates": (0.1, 0.2)}, "groups.rates", ("(0.1, 0.2)", "groups.epsilons")),
    (BUDGETS | {"target_epsilon": 1}, "groups.epsilons", "leave out target_epsilon"),
    (BUDGETS | {"statistics": 0.1}, "statistics", ("0.1", "groups.epsilons")),
    (BUDGETS | {"sampling": "fixed_size"}, "groups.by", "poisson"),
    (TWO | {"capacity": 40}, "capacity", "40"),
    ({"bits": 1}, "bits", "1"),
    ({"integer_noise": "skellam"}, "integer_noise", "'skellam'"),
    ({"dropout": 0.1}, "dropout", "0.1"),
]
OTHERS = [
    ("mspdq_mnist", {"learning_rate": 0}, "learning_rate", "0.0"),
    ("dp_scaffold_synthetic", {"client_rate": 1e-3}, "client_rate", "0.001"),
    (
        "dp_scaffold_synthetic",
        {"warm_start": 0, "authors.everyone_first": True},
        "authors.everyone_first",
        "no warm start",
    ),
    ("dp_scaffold_synthetic", {"rounds": 6, "warm_start": 6}, "warm_start", "6"),
    ("dp_scaffold_synthetic", {"warm_start": 1, "records": 3}, "records", "3"),
    ("dp_scaffold_synthetic", {"warm_start": 1, "sizes": "secret"}, "record_sampling", "poisson"),
    ("wavelet_mnist", {"clients": 4, "cohort": 5}, "cohort", "5"),
    ("pfl_cifar10", {"cohort": 2000}, "cohort", "2000"),
    ("pfl_cifar10", {"noise_cohort": 40}, "noise_cohort", "40"),
    (
        "race",
        {"algorithms": ("ldp_fed_avg",), "weighting.cap": 3.0},
        "weighting.cap",
        "ldp_fed_avg",
    ),
    ("race", {"bits": 14, "algorithms": ("rand_k", "ldp_fed_avg")}, "bits", ("14", "ldp_fed_avg")),
    ("own_budgets", {"bits": 14, "algorithms": ("dp_sgd",)}, "bits", ("14", "dp_sgd")),
    ("late", LATE_CLIENTS | {"shares": (0.5, 0.4)}, "shares", "(0.5, 0.4)"),
    ("late", LATE_CLIENTS | {"shares": (0.5, 0.4, 0.3)}, "shares", "(0.5, 0.4, 0.3)"),
    ("late", LATE_CLIENTS | {"hours": (1, -2, 8)}, "hours[1]", "-2.0"),
    ("late", LATE_CLIENTS | {"buffer": 21}, "buffer", "21"),
    ("late", LATE_CLIENTS | {"at_work": 21}, "at_work", "21"),
    ("late", LATE_CLIENTS | {"slowest": 0.5}, "slowest", "0.5"),
    ("late", LATE_CLIENTS | {"slow_labels": 10}, "slow_labels", "10"),
    ("adapters", {"length": 81}, "length", "81"),
    ("few_authors", {"authors": 0}, "authors", "0"),
]


def given(config, settings):
    return changed(modules.load(config).settings, settings)


ROWS = [
    (f"{config} {settings}", partial(given, config, settings), field, shown)
    for config, settings, field, shown in [*(("quickstart", *row) for row in QUICKSTART), *OTHERS]
]
