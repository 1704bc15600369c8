"""What a server has of each client after one round of any algorithm, and gradient inversion from there.

The scale of what a client sends is often lost: clipping divides by an unknown norm, rand_k multiplies by d / k. Its
direction is not, so that directions are matched, of a dummy image's update and of what was seen: 2 - 2 cos of the angle
between them, as in J. Geiping, H. Bauermeister, H. Dröge, M. Moeller, "Inverting Gradients", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from fedpriv.attacks.audited import Audited
from fedpriv.attacks.inversion import Reconstruction, invert
from fedpriv.attacks.places import Places
from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.core.parameters import check_params
from fedpriv.core.random_losses import without_key
from fedpriv.core.trees import dimension, flatten, unflatten
from fedpriv.core.types import Key, LossFn, Params, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.data.federation import Federation
from fedpriv.proof.given import OfClient
from fedpriv.proof.primitives import in_shapes
from fedpriv.proof.program import RoundProgram
from fedpriv.proof.reference import Call
from fedpriv.proof.stream import public_key, root_of, round_of
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.cohort_program import program_of_round
from fedpriv.rounds.messages import shares_of
from fedpriv.rounds.one_round import who_takes_part
from fedpriv.rounds.optimizers import ready
from fedpriv.rounds.round_arguments import shape_of
from fedpriv.rounds.running import RoundToRun, run_by
from fedpriv.rounds.samplers import Draw, parts_of
from fedpriv.rounds.scheduled_samplers import first_memories


class View(NamedTuple):
    """What the server sees of every client of a cohort.

    Attributes:
      update: f32[slots, d], theta - theta_i as far as it is seen (theta what clients received), so that it points along
        the gradient; 0 where nothing was sent and in empty slots.
      sent: bool[d], the coordinates that were sent.
      cohort: who is in which slot.
      transcript: f32[K + 1, slots, d], the visible submodels as sent, for `fedpriv.attacks.transcript`; None without
        model splitting.
    """

    update: jax.Array
    sent: jax.Array
    cohort: Draw
    transcript: jax.Array | None = None


@names_user_code
def server_view(algorithm: Algorithm, key: Key, state: Any, federation: Federation) -> View:
    """The view of a round of `algorithm` (`fedpriv.one_round` with this key); to be jitted as a whole.

    A message counts as the update that it alone would make of the model, times the cohort's expected size. Where the
    clients' noise is drawn for their sum, a message gets a share of its own, 1 / s of the variance for s clients, those
    who vanished with their shares included; where the server adds it, as noise that is correlated over rounds, and of
    Laplace noise, the message stays bare. With model splitting the update is by the first visible submodel, see
    `by_models` for others.

    Args:
      state: of the algorithm, with the model in `params`; after the first rounds of an `Opening`.

    Raises:
      ValueError: the server's optimiser remembers earlier rounds, so that the model's move is no mean of messages.
    """
    if jax.tree.leaves(getattr(state, "server", ())):
        raise ValueError(
            "server: its optimiser moves the model by more than the mean update; leave it out, messages are the same"
        )
    sampler = parts_of(algorithm.sampler, 1)[-1][1]
    root, t = root_of(key), state.round
    part = len(parts_of(algorithm.sampler, 1)) - 1
    (memory,) = first_memories(sampler)
    drawn, _ = who_takes_part(sampler, part, root, t, memory)

    keys = round_of(root, t), public_key(root, t + 1)
    of = RoundToRun(*keys, state, t, sampler, drawn, federation, None)
    program = program_of_round(algorithm, sampler, shape_of(federation), in_shapes(state))

    def step(added: list[list[jax.Array]]) -> tuple[Params, tuple[list[list[jax.Array]], Any]]:
        server = _Server(added, program, of)
        after = run_by(server, program, of).state
        return after.params, (server.messages, server.transcript)

    messages, transcript = jax.eval_shape(step, [])[1]
    if transcript is not None:
        transcript = step([])[1][1]
        everything = jnp.ones(dimension(state.params), bool)
        view = View(jnp.zeros(transcript.shape[1:]), everything, drawn, transcript)
        return by_models(view, state.params, transcript[0])
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), messages)
    _, moves, (messages, _) = jax.linearize(step, nothing, has_aux=True)
    update = jax.vmap(lambda message: -sampler.expected_size * flatten(moves(message)))(messages)
    sent = flatten(moves(jax.tree.map(jnp.ones_like, nothing))) != 0
    return View(update, sent, drawn)


class _Server(Audited):
    """Hears messages, each with its share of the noise; sums get the arrays `added`."""

    def __init__(self, added: list[list[jax.Array]], program: RoundProgram, of: RoundToRun):
        places = Places({"protocol": self._hear_all}, {"noise": self._share})
        super().__init__(program, of, places)
        self._added, self._shares = added, shares_of(of.sampler, jnp.sum(of.drawn.mask))
        self.messages: list[list[jax.Array]] = []
        self.transcript: Any = None

    def clients(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """As `Engine`, aloud."""
        self._call = call = Call.of(eqn, values)
        run = jaxpr_as_fun(call.program)

        def aloud(given: OfClient, rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            found = run(*call.arguments(given, rows))
            messages, kept = found[: call.summed], found[call.summed :]
            return messages, [*kept, *messages]

        total, stacked = self.over_clients(call, aloud, self._drawn)
        kept = len(stacked) - call.summed
        self.messages.append(stacked[kept:])
        return [*total, *stacked[:kept]]

    def mark(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """As `Engine`, of a sum with what is added."""
        added = self._added[len(self.messages) - 1] if self._added and self.is_sum(eqn) else []
        return [*map(jnp.add, values, added), *values[len(added) :]]

    def remember(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """Without noise that is correlated over rounds, which is the server's own."""
        return values[2 : 2 + len(eqn.outvars)]

    def _share(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        """Messages get their shares of the noise, if clients add it."""
        step = self.released(self._call).step
        if step.mechanism.noise == "gaussian" and step.adder == "shares":
            run, held = jaxpr_as_fun(eqn.params["jaxpr"]), values[: -1 - len(eqn.outvars)]
            own_key = jax.random.fold_in(self._call.hidden, random_streams.OWN_NOISE)
            messages, mask = self.messages[-1], self._drawn.mask
            self.messages[-1] = _with_shares(
                own_key, messages, mask, self._shares, lambda key, total: run(*held, key, *total)
            )
        return NotImplemented

    def _hear_all(self, outcome: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
        """Of (what comes of a protocol, what travels)."""
        _, self.transcript = outcome
        return outcome


def by_models(view: View, params: Params, models: jax.Array) -> View:
    """The view of who takes `models` for the clients' own.

    Args:
      params: what clients received.
      models: f32[slots, d], the last of a transcript, or what an attack on it found.
    """
    return view._replace(update=flatten(params) - models)


def _with_shares(
    key: Key,
    updates: PyTree,
    present: jax.Array,
    shares: jax.Array | int,
    perturb: Callable[[Key, PyTree], PyTree],
) -> PyTree:
    def one(key: Key, update: PyTree, real: jax.Array) -> PyTree:
        noise = perturb(key, jax.tree.map(jnp.zeros_like, update))
        return jax.tree.map(
            lambda u, z: u + jnp.where(real, z, 0.0) / jnp.sqrt(shares), update, noise
        )

    return jax.vmap(one)(jax.random.split(key, len(present)), updates, present)


def local_update(
    loss: LossFn, params: Params, optimizer: optax.GradientTransformation, steps: Count = 1
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """What a server sees, (image, label) -> f32[d]: theta - theta_i of a client's so many steps on that one example.

    The simulated training is part of what the attack differentiates: an update of several steps is no gradient.

    Raises:
      ValueError: no optimiser, steps below 1, or a loss or parameters that `fedpriv.mean_grad` refuses.
    """
    of_one = without_key(loss)
    check_params(params)
    optimizer = ready("optimizer", optimizer)
    steps = checked("steps", steps, Count)

    def update(image: jax.Array, label: jax.Array) -> jax.Array:
        example = {"image": image, "label": label}

        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            model, state = carry
            updates, state = optimizer.update(jax.grad(of_one)(model, example), state, model)
            return (optax.apply_updates(model, updates), state), None

        start = (params, optimizer.init(params))
        (model, _), _ = lax.scan(step, start, length=steps)
        return flatten(params) - flatten(model)

    return update


@names_user_code
def infer_labels(view: View, params: Params, last: Callable[[Params], PyTree]) -> jax.Array:
    """i32[slots]: the label of the one example behind each update, by what was sent of the last layer.

    As `inversion.infer_label`, with the weights beside the bias: those of class i have the gradient h (p_i - 1{i =
    label}), and h >= 0 after a sigmoid or ReLU. So the mean of what was sent for a class is negative for the label
    alone.

    Args:
      last: picks the last layer's parameters, leaves [..., classes], out of all.
    """
    numbers = unflatten(jnp.arange(view.sent.size), params)
    layer = [leaf.reshape(-1, leaf.shape[-1]) for leaf in jax.tree.leaves(last(numbers))]
    where = jnp.concatenate(layer)
    sent = view.sent[where]
    mean = jnp.sum(view.update[:, where], 1) / jnp.maximum(jnp.sum(sent, 0), 1)
    return jnp.argmin(jnp.where(sent.any(0), mean, math.inf), -1).astype(jnp.int32)


@names_user_code
def invert_view(
    view: View,
    observe: Callable[[jax.Array, jax.Array], jax.Array],
    labels: jax.Array,
    image_shape: tuple[Count, Count, Count],
    key: Key,
    *,
    steps: Count = 300,
    optimizer: optax.GradientTransformationExtraArgs | None = None,
) -> Reconstruction:
    """`invert` of every client of a view by direction (Geiping et al. 2020), on the coordinates that were sent.

    The distance is 2 - 2 cos of the angle between the update seen and the reconstructed image's.

    Args:
      observe: as `local_update` makes it, the clients' own training.
      labels: i32[slots], such as from `infer_labels`.
      image_shape, key, steps: as `invert`.
      optimizer: by default Adam(0.1), which bears noise.

    Raises:
      ValueError: as `invert`.
    """
    require(isinstance(view, View), "view", view, "give that of fp.attacks.server_view")
    require(callable(observe), "observe", observe, "give such as fp.attacks.local_update(...)")
    image_shape = checked("image_shape", image_shape, tuple[Count, Count, Count])
    steps = checked("steps", steps, Count)

    def direction(update: jax.Array) -> jax.Array:
        sent = jnp.where(view.sent, update, 0.0)
        tiny = jnp.finfo(jnp.float32).tiny
        return sent * lax.rsqrt(jnp.maximum(jnp.sum(sent**2), tiny))

    return invert(
        lambda image, label: direction(observe(image, label)),
        jax.vmap(direction)(view.update),
        labels,
        image_shape,
        key,
        steps=steps,
        optimizer=optax.adam(0.1) if optimizer is None else optimizer,
    )
