"""Every optimiser of optax, at every door: it trains as optax alone does, or is refused in one line."""

import inspect
import warnings

import jax
import jax.numpy as jnp
import optax
import pytest
import tiers
from small import assert_close, blank, one_round, refused, regression, squared, start

import fedpriv as fp
from fedpriv.attacks.inversion import invert
from fedpriv.attacks.server_views import local_update

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SGD, PARAMS, KEY = optax.sgd(0.1), start(), jax.random.key(0)
ONE = regression([6])
SHARD = fp.Shard(ONE.examples, jnp.int32(6))
GRAD, BATCHES, SAMPLER = fp.mean_grad(squared), fp.full_batch(), fp.everyone(1)
COMMON = {"sampler": SAMPLER, "batches": BATCHES}
ARGUMENTS = {
    "learning_rate": 0.1,
    "decay": 0.9,
    "eta": 0.1,
    "gamma": 0.5,
    "seed": 0,
    "l2_norm_clip": 1.0,
    "noise_multiplier": 1.0,
    "step_size": -0.1,
    "step_size_fn": lambda t: -0.1,
    "max_norm": 1.0,
    "max_delta": 1.0,
    "threshold": 1.0,
    "clipping": 1.0,
    "sync_period": 2,
    "slow_step_size": 0.5,
    "max_consecutive_errors": 3,
    "max_backtracking_steps": 3,
    "max_linesearch_steps": 3,
    "every_k_schedule": 2,
    "mask": {"b": True, "w": False},
    **dict.fromkeys(("inner", "tx", "opt", "optimizer", "adv_optimizer"), SGD),
    **dict.fromkeys(("fast_optimizer", "base_optimizer"), SGD),
}
ASKING = {
    "polyak_sgd": "scale_by_polyak asks for value",
    "lbfgs": "asks for value, grad, value_fn",
    "scale_by_backtracking_linesearch": "asks for value, grad, value_fn",
    "contrib.reduce_on_plateau": "reduce_on_plateau asks for value",
    "contrib.momo": "momo asks for value",
    "contrib.sophia": "asks for obj_fn",
    "contrib.dpsgd": "gradients of single records",
    "contrib.schedule_free_sgd": "other parameters than those to evaluate",
    "contrib.schedule_free": "other parameters than those to evaluate",
    "contrib.sam": "a perturbed point",
    "lookahead": "a pair of models",
    "MultiSteps": r"give its gradient_transformation\(\)",
}
"""What no door takes, and what is said of it."""


def offered():
    """Name -> optimiser, of all that optax makes of nothing or of arguments like these."""
    found = {}
    for module, prefix in ((optax, ""), (optax.contrib, "contrib.")):
        for name, make in inspect.getmembers(module, callable):
            try:
                wanted = inspect.signature(make).parameters.values()
            except ValueError:
                continue
            needed = [
                p.name
                for p in wanted
                if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            ]
            if set(needed) <= set(ARGUMENTS) and name != "GradientTransformation":
                try:
                    with warnings.catch_warnings(action="ignore"):
                        made = make(**{p: ARGUMENTS[p] for p in needed})
                except Exception:  # no optimiser
                    continue
                if isinstance(made, optax.GradientTransformation | optax.MultiSteps):
                    found[prefix + name] = made
    return found


OFFERED = offered()
DOORS = {
    "server": lambda o: fp.fed_avg(squared, optimizer=lambda t: SGD, server=o, **COMMON),
    "clients": lambda o: fp.fed_avg(squared, optimizer=lambda t: o, **COMMON),
    "personal": lambda o: fp.fed_per(squared, head=("b",), optimizer=lambda t: o, **COMMON),
    "private steps": lambda o: fp.dp_sgd(
        fp.LocalSteps(
            fp.per_example(squared), fp.fixed_size(6, 3), 1, lambda t: o, fp.gaussian(1.0, 1.0)
        ),
        sampler=SAMPLER,
    ),
    "train": lambda o: jax.eval_shape(
        lambda: fp.train_locally(KEY, PARAMS, SHARD, grad=GRAD, optimizer=o, batches=BATCHES)
    ),
    "proximal": lambda o: fp.proximal(o, 0.1),
    "attack": lambda o: local_update(squared, PARAMS, o),
}


def said(call):
    """The line that it is refused with; None where it is not."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def said_at(door, optimizer):
    """As `said`, of an optimiser."""
    return said(lambda: DOORS[door](optimizer))


@pytest.mark.parametrize("door", DOORS)
def test_what_asks_for_more_than_gradients_is_refused_at_every_door(door):
    wrong = {}
    for name, words in ASKING.items():
        with_it = OFFERED[name]
        if door != "server" and not isinstance(with_it, optax.MultiSteps):
            with_it = optax.chain(optax.clip(1.0), with_it)  # however deep it lies
        argument = "server" if door == "server" else "optimizer"
        try:
            with refused(f"^{argument}: .*{words}"):
                DOORS[door](with_it)
        except (AssertionError, pytest.fail.Exception) as error:
            wrong[name] = error
    assert wrong == {}


@pytest.mark.slow
def test_every_optimiser_trains_or_is_refused_in_one_line():
    """At the construction of an algorithm, or where it is for another model, before the first round."""
    assert len(OFFERED) > 90
    assert set(ASKING) <= set(OFFERED)
    taken = 0
    for optimizer in OFFERED.values():
        server, train = said_at("server", optimizer), said_at("train", optimizer)
        if server:
            assert said_at("clients", optimizer)
        else:
            init = DOORS["server"](optimizer).init
            server = said(lambda init=init: jax.eval_shape(lambda: init(PARAMS, ONE)))
        lines = [server, train]
        assert all(lines) or lines == [None, None]
        assert not any("\n" in line for line in lines if line)
        taken += train is None
    assert taken > 70


def alone(optimizer, steps):
    """Optax's own loop, on the one client's mean loss."""
    full = jnp.ones(6, bool)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(GRAD(params, ONE.examples, full), state, params)
        return optax.apply_updates(params, updates), state

    params, state = PARAMS, optimizer.init(PARAMS)
    for _ in range(steps):
        params, state = step(params, state)
    return params


TRAINED = {
    "adam": optax.adam(0.1),
    "multi_steps": optax.MultiSteps(optax.adam(0.1), 2).gradient_transformation(),
    "masked": optax.masked(optax.sgd(0.1, momentum=0.9), {"b": True, "w": False}),
}


@tiers.every("name", TRAINED, kind=lambda optimizer: "an optimiser")
@pytest.mark.slow
def test_one_client_without_noise_trains_as_optax_alone(name):
    """As the client's optimiser in steps, as the server's in rounds of one step of rate 1."""
    optimizer, steps = TRAINED[name], 4
    expected = alone(optimizer, steps)
    batches = fp.random_batches(steps, batch_size=6)
    with_client = fp.train_locally(
        KEY, PARAMS, SHARD, grad=GRAD, optimizer=optimizer, batches=batches
    )
    assert_close(with_client, expected, rtol=1e-4)
    algorithm = fp.fed_avg(squared, optimizer=lambda t: optax.sgd(1.0), server=optimizer, **COMMON)
    state = algorithm.init(PARAMS, ONE)
    for _ in range(steps):
        state, _ = one_round(algorithm)(KEY, state, ONE)
    assert_close(state.params, expected, rtol=1e-4)


def test_an_optimiser_for_another_model_is_refused_before_the_first_round():
    other = optax.masked(SGD, {"no": True})
    for made in (DOORS["server"](other), DOORS["clients"](other), DOORS["private steps"](other)):
        with refused("^(server|optimizer): masked cannot train this model"):
            fp.certify(made, PARAMS, blank(made, 6), 2, 1e-3)


@pytest.mark.slow
def test_an_attack_gives_the_loss_to_those_that_ask_for_it():
    def one(optimizer):
        seen = {"observed": jnp.ones((1, 2)), "labels": jnp.zeros(1, jnp.int32)}
        return jax.eval_shape(
            lambda: invert(
                lambda image, label: image.reshape(-1),
                image_shape=(1, 2, 1),
                key=KEY,
                steps=1,
                optimizer=optimizer,
                **seen,
            )
        )

    for name in ("lbfgs", "polyak_sgd", "sgd", "scale", "contrib.reduce_on_plateau"):
        assert one(OFFERED[name]).image.shape == (1, 1, 2, 1)
    with refused("optimizer: .*obj_fn|optimizer: .*cannot train"):
        one(OFFERED["contrib.sophia"])
