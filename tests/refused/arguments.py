"""Parts of another kind than is needed: functions for what they return, numbers for parts."""

from functools import partial

import optax
from small import squared

import fedpriv as fp
from fedpriv.core.arguments import check_path
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import isotropic
from refused.row import Refusal


def optimizer(t):
    return optax.sgd(0.1)


SAMPLER, GAUSSIAN = fp.everyone(2), fp.gaussian(1.0, 1.0)
COMMON = {"sampler": SAMPLER, "optimizer": optimizer, "batches": fp.full_batch()}


def averaging(make=fp.fed_avg, **options):
    return make(squared, **COMMON | options)


sparse = partial(averaging, fp.papers.fed_avg_sparse, mechanism=GAUSSIAN)
sparse = partial(sparse, sparsifier=fp.papers.select_rand_k(0.5))


def of_records(mechanism):
    local = fp.LocalSteps(fp.per_example(squared), SAMPLER, 1, optimizer, mechanism)
    return fp.dp_sgd(local, sampler=SAMPLER)


def mechanism(clipping, noise):
    return fp.mechanism(clipping, noise, clip_norm=1.0, noise_multiplier=1.0)


ROWS = [
    Refusal(name, call, field, value)
    for name, call, field, value in (
        ("noise not made", lambda: mechanism(flat(), isotropic), "noise", "isotropic"),
        ("clipping not made", lambda: mechanism(flat, isotropic()), "clipping", "flat"),
        ("a number for noise", lambda: mechanism(flat(), 2.0), "noise", "2.0"),
        ("noise for clipping", lambda: mechanism(isotropic(), isotropic()), "clipping", "Noise"),
        ("no mechanism", lambda: averaging(mechanism=None), "mechanism", "None"),
        ("a mechanism not made", lambda: averaging(mechanism=fp.gaussian), "mechanism", "gaussian"),
        ("no mechanism of records", lambda: of_records(None), "mechanism", "None"),
        ("one not made of records", lambda: of_records(fp.gaussian), "mechanism", "gaussian"),
        ("a number for weighting", lambda: averaging(weighting=20), "weighting", "20"),
        ("weighting not made", lambda: averaging(weighting=fp.ByExamples), "weighting", "ByEx"),
        ("a number for sparse weighting", lambda: sparse(weighting=20), "weighting", "20"),
        ("a number for batches", lambda: averaging(batches=2), "batches", "2"),
        ("no batches", lambda: averaging(batches=None), "batches", "None"),
        ("batches not made", lambda: averaging(batches=fp.epochs), "batches", "epochs"),
        ("a number for an optimiser", lambda: fp.proximal(0.1, 0.3), "optimizer", "0.1"),
        ("an optimiser not made", lambda: fp.proximal(optax.sgd, 0.3), "optimizer", "sgd"),
    )
]
ROWS += [
    Refusal(f"{path!r} for a folder", lambda path=path: check_path("folder", path, "x"), "folder")
    for path in (3, None, b"runs", "a\0b", ["runs"])
]

MADE = {
    "draw": (SAMPLER, isotropic(), fp.papers.splitting.uniform(0.5)),
    "clip": (GAUSSIAN, flat()),
    "wire": (fp.qsgd(8),),
    "decay": (fp.papers.consensus.coupling(0.25, 0.125),),
    "at": (fp.papers.consensus.constant(2),),
    "round": (fp.Algorithm(fp.start, averaging, SAMPLER),),
}
ROWS += [
    Refusal(
        f"{given!r} for {name} of {type(made).__name__}",
        lambda made=made, name=name, given=given: made._replace(**{name: given}),
        name,
        repr(given),
    )
    for name, each in MADE.items()
    for made in each
    for given in (5, "x", None)
]
OPENING = fp.Opening(SAMPLER, 1, SAMPLER)
ROWS += [
    Refusal("an opening of -1", lambda: fp.Opening(SAMPLER, -1, SAMPLER), "rounds", "-1"),
    Refusal("one changed to -1", lambda: OPENING._replace(rounds=-1), "rounds", "-1"),
    Refusal("one made of -1", lambda: fp.Opening._make([SAMPLER, -1, SAMPLER]), "rounds", "-1"),
]
