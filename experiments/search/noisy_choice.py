"""The best step of a secret number of trials, scored with noise on records of the clients (`tune --best-of MEAN`).

A trial shows no more than its model and the noisy share of held-out records that it is right about: both are counted,
so that it does not matter on which side a record is. That its place fixes the side holds for a record that is replaced,
not for one more or less. K trials, K geometric, of which only the best is told (Papernot and Steinke 2022,
arXiv:2110.03620).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import config as configuration
from experiments.config import Experiment, Run
from experiments.config.modules import Config
from experiments.search.best_of import best, drawn
from experiments.training.prepare import check
from experiments.training.train_algorithms import simulated
from fedpriv.core.types import Example, Params
from fedpriv.data.datasets import Dataset
from fedpriv.devices.layout import Strategy
from fedpriv.engine.history import DivergedError
from fedpriv.models.score import WEIGHT, Score, is_fraction, main_metric
from fedpriv.privacy import Certificate, Everyone, Release, certify_choice
from fedpriv.privacy.release import NO_OTHERS

SECRET = (
    "publish these lines alone: how many trials there were, the others and the time it took stay secret; asking again, "
    "also after an interruption, is another release; a model that is trained with this step costs an epsilon and a "
    "delta of its own, which add to these under the same adjacency"
)
HELD_OUT = (
    "public examples are not the unit's; a record's place alone says whether it is held out; the config's `on` makes "
    "one test example of each such record and uses it for nothing else"
)
GRID = 2.0**-20  # of scores, as the last bits of a float would show more than its value


class Chosen(NamedTuple):
    """What may be told of the trials.

    Attributes:
      value: eta_0 of the best.
      metric: that was best on the held-out records.
      mean: the metric's, with noise, in multiples of GRID.
      certificate: of value and mean, and of the trial's model.
      notes: what the certificate leaves out.
    """

    algorithm: str
    value: float
    metric: str
    mean: float
    certificate: Certificate
    notes: tuple[str, ...]


def choose(
    module: Config,
    config: Any,
    part: Dataset,
    values: Sequence[float],
    mean: float,
    noise: float,
    delta: float,
) -> Chosen:
    """Trains on all but the held-out records of `part`, which are in the place of its test records.

    Args:
      config: of one algorithm and one seed, with the number of records that `part` has.
      values: of eta_0, of which each trial takes one at random.
      mean: of the number of trials.
      noise: standard deviation, as a fraction of the held-out records.
      delta: of the certificate.

    Raises:
      ValueError: settings that no certificate covers.
    """
    made = [module.on(replace(config, eta_0=value), part) for value in values]
    first = made[0]
    metric = _fraction(first, config)
    certificate = certified(made, part, config, mean, noise, delta)
    system = random.SystemRandom()
    strategy = configuration.strategy(config.layout)
    scores = []
    trials = drawn(len(values), mean, system)
    for i, key in trials:
        own = replace(config, eta_0=values[i])
        check(made[i], own)
        right = _right(made[i], own, strategy, metric, key)
        scores.append(GRID * round((right + system.gauss(0, noise)) / GRID))
    at = best(scores, higher=True)
    assert at is not None
    (name,) = first.entries
    return Chosen(name, values[trials[at][0]], metric, scores[at], certificate, first.notes)


def certified(
    made: Sequence[Experiment], part: Dataset, config: Run, mean: float, noise: float, delta: float
) -> Certificate:
    """Of the best trial's model and noisy score, when each trial is one of these at random; declared, as the score is.

    Raises:
      ValueError: nothing is certified for a trial; a client is the unit, or the score may move by more than a record.
    """
    (name,) = made[0].entries
    own = [experiment.ledger.certify(name, config.rounds, best_of=mean) for experiment in made]
    if own[0].unit != "record":
        raise ValueError(
            "unit: client does not go with --best-of, whose noise hides one held-out record; take unit record"
        )
    if not np.isfinite(own[0].epsilon):
        raise ValueError(f"--best-of: {name} has no finite epsilon ({own[0].assumptions[0]})")
    held = len(jax.tree.leaves(part.test)[0])
    rows = {len(leaf) for experiment in made for leaf in jax.tree.leaves(experiment.test)}
    if rows != {held}:
        raise ValueError(
            f"CONFIG: its `on` makes {max(rows)} test examples of {held} held-out records, so that one moves the score "
            "by more than itself; make one of each for --best-of"
        )
    # One record moves the number of those that a model is right about by one at most.
    multiplier, given = noise * held, {"noise_is_split": False, "server_adds_noise": True}
    score = Release("third_party", "record", multiplier, Everyone(held), 1, **given)
    settings = [(*e.ledger.trace(name).releases(config.rounds), score) for e in made]
    found = certify_choice(settings, delta, mean)
    if not np.isfinite(found.epsilon):
        raise ValueError(f"--score-noise: {noise:g} of {held} records hides none; give more")
    if found.relation == "add_or_remove":
        raise ValueError(
            "--best-of: with a record more or less others would be held out, and records that are drawn by themselves "
            "(record_sampling poisson) are certified for that alone; take subsets of a fixed size"
        )
    told = dict.fromkeys(text for c in (*own, found) for text in c.assumptions)
    return replace(found, assumptions=tuple(HELD_OUT if t == NO_OTHERS else t for t in told))


def _fraction(experiment: Experiment, config: Run) -> str:
    """The metric that decides."""
    metric = main_metric(experiment.metrics, config.metric)
    if not is_fraction(metric) or metric in Score.of(experiment.model.score).derived:
        raise ValueError(
            f"metric: {metric} is not an accuracy, of which one record moves little; give another with --best-of"
        )
    params = jax.eval_shape(experiment.model.init, jax.random.key(0))
    example = jax.tree.map(lambda leaf: leaf[0], experiment.test)
    if WEIGHT in jax.eval_shape(Score.of(experiment.model.score).function, params, example):
        raise ValueError(
            f"metric: {metric} is weighted, and a record of large weight moves it by more than others; give --best-of "
            "a score without weight"
        )
    return metric


def _right(experiment: Experiment, config: Run, strategy: Strategy, metric: str, key: int) -> float:
    """The fraction of the held-out records that the trained model is right about; 0 if the model diverged.

    Nothing else of these records is evaluated: a loss that overflows on one would end the trial.
    """
    score = Score.of(experiment.model.score)

    def bounded(params: Params, example: Example) -> dict[str, jax.Array]:
        value = score.function(params, example)[metric]
        return {metric: jnp.clip(jnp.nan_to_num(value), 0, 1)}

    model = experiment.model._replace(score=bounded)
    (name,) = experiment.entries
    try:
        once = replace(config, every=config.rounds)
        trained = replace(experiment, model=model, measure=None)
        with jax.debug_nans(False):  # it would say which trial fails
            history = simulated(name, trained, once, strategy, seeds=(key,))
    except DivergedError:
        return 0.0
    return float(history.evaluations[-1].metrics[metric][0])


def shown(chosen: Chosen, noise: float) -> str:
    """For people."""
    assumed = (f"  {text}" for text in chosen.certificate.assumptions)
    lines = [
        f"chosen: {chosen.algorithm}, eta_0 {chosen.value:g}; {chosen.metric} {100 * chosen.mean:.4g} % on held-out "
        f"records, with noise of deviation {100 * noise:g} points",
        str(chosen.certificate),
        "on the assumption that",
        *assumed,
        *(f"note: {note}" for note in chosen.notes),
        SECRET,
    ]
    return "\n".join(lines)
