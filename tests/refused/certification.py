"""What is certified or checked, of runs and of algorithms, before a round is traced."""

import optax
from small import regression, squared, start

import fedpriv as fp
from refused.row import Refusal

COMMON = {
    "sampler": fp.everyone(3),
    "optimizer": lambda t: optax.sgd(0.1),
    "batches": fp.full_batch(),
}
MADE = fp.dp_fed_avg(squared, **COMMON, clip_norm=1.0, noise_multiplier=1.0)
SPLIT = {
    "splitting": fp.papers.splitting.uniform(0.3),
    "coupling": fp.papers.consensus.coupling(0.4, 0.1),
    "exchanges": fp.papers.consensus.constant(3),
}


def together(runs, delta=1e-3, **options):
    return fp.certify_together(runs, start(), regression([3] * 3), delta, **options)


def unscheduled(make, **more):
    return make(squared, **COMMON | {"optimizer": optax.sgd(0.1)} | more)


RUNS = [
    Refusal("no runs", lambda: together([]), "runs", "[]", remedy="give (algorithm, rounds)"),
    Refusal("an algorithm in the place of runs", lambda: together(MADE), "runs", "Algorithm"),
    Refusal("a number in the place of runs", lambda: together(3), "runs", "3"),
    Refusal("one run that is no list", lambda: together((MADE, 3)), "runs[0]", "Algorithm"),
    Refusal("a number among runs", lambda: together([(MADE, 3), 4]), "runs[1]", "4"),
    Refusal("a run without rounds", lambda: together([(MADE,)]), "runs[0]"),
    Refusal("a run of too much", lambda: together([(MADE, 1, start(), 2)]), "runs[0]"),
    Refusal("a loss that runs", lambda: together([(squared, 3)]), "runs[0][0]", "squared"),
    Refusal("negative rounds", lambda: together([(MADE, 3), (MADE, -1)]), "runs[1]", "-1"),
    Refusal("half a round", lambda: together([(MADE, 2.5)]), "runs[0]", "2.5"),
    Refusal("runs towards nobody", lambda: together([(MADE, 1)], view="phone"), "view", "'phone'"),
    Refusal("nobody honest", lambda: together([(MADE, 1)], honest=0.0), "honest", "0.0"),
    Refusal("runs at delta 2", lambda: together([(MADE, 1)], 2.0), "delta", "2.0"),
]

OPTIMIZERS = [
    Refusal("an optimiser of fed_avg", lambda: unscheduled(fp.fed_avg), "optimizer"),
    Refusal(
        "an optimiser of sparse averaging",
        lambda: unscheduled(fp.papers.fed_avg_sparse, sparsifier=fp.papers.select_rand_k(0.5)),
        "optimizer",
    ),
    Refusal(
        "an optimiser of adaptive clipping",
        lambda: unscheduled(fp.adaptive_fed_avg, quantile=0.5, clip_norm=1.0, noise_multiplier=0.0),
        "optimizer",
    ),
    Refusal(
        "an optimiser of splitting", lambda: unscheduled(fp.papers.msp_fl, **SPLIT), "optimizer"
    ),
    Refusal(
        "an optimiser of local steps",
        lambda: fp.LocalSteps(
            fp.per_example(squared), fp.fixed_size(3, 2), 1, optax.sgd(0.1), fp.gaussian(1, 1)
        ),
        "optimizer",
        remedy="give a function of the round",
    ),
]

ROWS = [*RUNS, *OPTIMIZERS]
