"""Programs for readers, run with few rounds and draws, or traced alone, where no number that they print is asserted."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
import fedpriv as fp
from fedpriv.engine.history import Evaluation, History

SIMULATE = inspect.signature(fp.simulate)


def brief(patch: pytest.MonkeyPatch, longest: int | None = None, **most: int) -> None:
    """Trainings and audits have at most so many `rounds`, `seeds` or `draws`.

    Args:
      longest: what `simulate` would train for more rounds is traced alone; at 0 so are attacks; None: nothing is.
    """
    simulate = fewer(fp.simulate, most)

    def shorter(*given: Any, rounds: int, **options: Any) -> History:
        train = simulate if longest is None or rounds <= longest else traced
        return train(*given, rounds=rounds, **options)

    patch.setattr(fp, "simulate", shorter)
    for where, name in ((experiments, "run"), (experiments, "audit"), (fp.attacks, "draw_scores")):
        patch.setattr(where, name, fewer(getattr(where, name), most))
    for name in ("server_view", "invert_view") if longest == 0 else ():
        patch.setattr(fp.attacks, name, outlined(getattr(fp.attacks, name)))


def fewer(do: Callable[..., Any], most: dict[str, int]) -> Callable[..., Any]:
    """With at most so much of each option."""

    def done(*given: Any, **options: Any) -> Any:
        for name in most.keys() & options.keys():
            asked, few = options[name], most[name]
            options[name] = min(asked, few) if isinstance(asked, int) else list(asked)[:few]
        return do(*given, **options)

    return done


def outlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """It is traced, and gives random numbers of the shapes that it would give."""

    def done(*given: Any, **options: Any) -> Any:
        return random_as(jax.eval_shape(lambda: function(*given, **options)), true=1)

    return done


def random_as(tree: Any, *axes: int, true: float = 0.5) -> Any:
    """Leaves of these shapes and types, with more axes in front; so much of what is boolean is true."""
    rng = np.random.default_rng(0)

    def leaf(like: Any) -> jax.Array:
        shape = (*axes, *like.shape)
        if like.dtype == bool:
            return jnp.asarray(rng.random(shape) < true)
        spread = 0.1 * jnp.issubdtype(like.dtype, jnp.floating)
        return jnp.asarray(rng.normal(0, spread, shape), like.dtype)

    return jax.tree.map(leaf, tree)


def traced(*given: Any, **options: Any) -> History:
    """What `simulate` would give of one federation, in random numbers; a round and the score are traced."""
    asked = SIMULATE.bind(*given, **options)
    asked.apply_defaults()
    algorithm, params, federation, test = asked.args
    rounds, every, seeds = (asked.arguments[name] for name in ("rounds", "every", "seeds"))
    key, rng = jax.random.key(0), np.random.default_rng(0)
    start = jax.eval_shape(
        lambda key: algorithm.init(params(key) if callable(params) else params, federation), key
    )
    after, _ = jax.eval_shape(fp.one_round(algorithm), key, start, federation)
    assert jax.tree.map(np.shape, after) == jax.tree.map(np.shape, start)
    example = jax.tree.map(lambda leaf: leaf[0], dict(test))
    names = jax.eval_shape(asked.arguments["score"], start.params, example)
    history = History(tuple(seeds), state=random_as(start, len(seeds)))
    for t in sorted({*range(every, rounds + 1, every), rounds}):
        metrics = {name: rng.uniform(0.2, 0.9, len(seeds)) for name in names}
        sent = np.full(len(seeds), 0.01 * t)
        history.evaluations.append(Evaluation(t, metrics, sent, sent, {}, 1.0))
    return history
