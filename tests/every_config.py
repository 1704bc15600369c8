"""The configs that ship, as a registry of laws: what each is, and options that make it small."""

from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import Settings

CONFIGS = {
    name: modules.load(name)
    for name in sorted(modules.names(), key=lambda name: (name != "quickstart", name))
}


def kind(config):
    """What its settings derive from: a paper's or a feature's, or its own."""
    classes = type(config.settings).__mro__
    return classes[classes.index(Settings) - 1]


FIRST = {kind(config): name for name, config in reversed(CONFIGS.items())}
"""Kind -> the first config of it."""

FED_SMP = "--clients 6 --cohort 2 --public-examples 6 --public-epochs 1 --train-loss-examples 6"
FED_SMP += " --local.batch-size 5"
SCAFFOLD = "--clients 6 --records 50 --client-rate 0.5 --local-steps 1 --warm-start 1"
WAVELET = "--clients 4 --cohort 2 --lot 5 --proxy 12 --delta 1e-3"
MSPDQ = "--clients 4 --cohort 2 --local-epochs 1 --exchanges 2"
SMALL = {
    "adapters": FED_SMP + " --client-plays 1 --length 8 --noise-multiplier 0.01",
    "audited": "--clients 6 --cohort 2 --public-examples 6",
    "correlated": "--clients 6 --cohort 2 --bands 2",
    "correlated_text": "--clients 6 --cohort 2 --bands 2",
    "dp_scaffold_femnist": SCAFFOLD,
    "dp_scaffold_mnist": SCAFFOLD,
    "dp_scaffold_synthetic": SCAFFOLD,
    "fed_smp_fashion_mnist": FED_SMP + " --local.epochs 1",
    "fed_smp_shakespeare": FED_SMP.replace("--clients 6", "--clients 12"),
    "fed_smp_svhn": FED_SMP + " --local.epochs 1",
    "few_authors": FED_SMP
    + " --rehearse true --authors 8 --base-epochs 1 --local.steps 1 --noise-multiplier 0.01",
    "fine_tuning": FED_SMP + " --local.epochs 1 --noise-multiplier 0.01",
    "fine_tuning_text": FED_SMP + " --base-plays 1 --base-epochs 1 --noise-multiplier 0.01",
    "late": "--clients 10 --at-work 2 --buffer 2",
    "mspdq_cifar10": MSPDQ,
    "mspdq_mnist": MSPDQ,
    "own_budgets": FED_SMP + " --images 60 --image-steps 1 --groups.rates 0.2 0.4",
    "personal": "--clients 8 --cohort 2 --batch-size 5",
    "pfl_cifar10": "--clients 8 --cohort 2 --batch-size 5 --noise-multiplier 0.1",
    "quickstart": FED_SMP + " --local.epochs 1",
    "race": FED_SMP + " --local.epochs 1",
    "wavelet_cifar10": WAVELET,
    "wavelet_fashion_mnist": WAVELET,
    "wavelet_mnist": WAVELET,
    "who_is_hurt": "--clients 9 --cohort 3 --epochs 1",
}
