"""Parts of another kind than is needed: functions for what they return, numbers for parts."""

from functools import partial

import optax
from small import squared

import fedpriv as fp
from fedpriv.core.arguments import check_path
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import isotropic

SAMPLER, GAUSSIAN = fp.everyone(2), fp.gaussian(1.0, 1.0)
BATCHES, OPENING = fp.full_batch(), fp.Opening(SAMPLER, 1, SAMPLER)


def averaging(make=fp.fed_avg, optimizer=lambda t: optax.sgd(0.1), **options):
    given = {"sampler": SAMPLER, "batches": BATCHES, "optimizer": optimizer} | options
    return partial(make, squared, **given)


sparse = partial(
    averaging,
    fp.papers.fed_avg_sparse,
    mechanism=GAUSSIAN,
    sparsifier=fp.papers.select_rand_k(0.5),
)
split = partial(
    averaging,
    fp.papers.msp_fl,
    splitting=fp.papers.splitting.uniform(0.3),
    coupling=fp.papers.consensus.coupling(0.4, 0.1),
    exchanges=fp.papers.consensus.constant(3),
)


def steps(optimizer=lambda t: optax.sgd(0.1), mechanism=GAUSSIAN):
    gradients = fp.per_example(squared)
    local = fp.LocalSteps(gradients, fp.fixed_size(3, 2), 1, optimizer, mechanism)
    return fp.dp_sgd(local, sampler=SAMPLER)


def mechanism(clipping, noise):
    return lambda: fp.mechanism(clipping, noise, clip_norm=1.0, noise_multiplier=1.0)


SGD, SCHEDULE = optax.sgd(0.1), "a function of the round"
OF_QUANTILE = {"quantile": 0.5, "clip_norm": 1.0, "noise_multiplier": 0.0}
quantile = partial(averaging, fp.adaptive_fed_avg, **OF_QUANTILE)
ROWS = [
    ("noise not made", mechanism(flat(), isotropic), "noise", "the function isotropic"),
    ("clipping not made", mechanism(flat, isotropic()), "clipping", "the function flat"),
    ("a number for noise", mechanism(flat(), 2.0), "noise", "2.0"),
    ("noise for clipping", mechanism(isotropic(), isotropic()), "clipping", "Noise"),
    ("no mechanism", averaging(mechanism=None), "mechanism", "None"),
    ("a mechanism not made", averaging(mechanism=fp.gaussian), "mechanism", "function gaussian"),
    ("no mechanism of records", partial(steps, mechanism=None), "mechanism", "None"),
    ("a number for weighting", averaging(weighting=20), "weighting", "20"),
    ("weighting not made", averaging(weighting=fp.ByExamples), "weighting", "function ByExamples"),
    ("a number for sparse weighting", sparse(weighting=20), "weighting", "20"),
    ("a number for batches", averaging(batches=2), "batches", "2"),
    ("batches not made", averaging(batches=fp.epochs), "batches", "the function epochs"),
    ("a number for an optimiser", lambda: fp.proximal(0.1, 0.3), "optimizer", "0.1"),
    ("an optimiser not made", lambda: fp.proximal(optax.sgd, 0.3), "optimizer", "function sgd"),
    ("an optimiser for a schedule", averaging(optimizer=SGD), "optimizer", SCHEDULE),
    ("an optimiser of sparse averaging", sparse(optimizer=SGD), "optimizer", SCHEDULE),
    ("an optimiser of adaptive clipping", quantile(optimizer=SGD), "optimizer", SCHEDULE),
    ("an optimiser of splitting", split(optimizer=SGD), "optimizer", SCHEDULE),
    ("an optimiser of local steps", partial(steps, SGD), "optimizer", SCHEDULE),
    ("an opening of -1", lambda: fp.Opening(SAMPLER, -1, SAMPLER), "rounds", "-1"),
    ("one changed to -1", lambda: OPENING._replace(rounds=-1), "rounds", "-1"),
    ("one made of -1", lambda: fp.Opening._make([SAMPLER, -1, SAMPLER]), "rounds", "-1"),
]
for path in (3, None, b"runs", "a\0b", ["runs"]):
    call = partial(check_path, "folder", path, "give one")
    ROWS.append((f"{path!r} for a folder", call, "folder", f"{path!r}; give one"))

FUNCTIONS = {
    "draw": (SAMPLER, isotropic(), fp.papers.splitting.uniform(0.5)),
    "clip": (GAUSSIAN, flat()),
    "wire": (fp.qsgd(8),),
    "decay": (fp.papers.consensus.coupling(0.25, 0.125),),
    "at": (fp.papers.consensus.constant(2),),
    "round": (fp.Algorithm(fp.start, averaging, SAMPLER),),
}
for name, bundles in FUNCTIONS.items():
    for bundle, given in zip(bundles, (5, "x", None), strict=False):
        call = partial(bundle._replace, **{name: given})
        ROWS.append((f"{given!r} for {name} of {type(bundle).__name__}", call, name, f"{given!r}"))
