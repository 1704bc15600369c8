"""Personal models: clients train a part together, in private, and keep the rest for themselves.

FedPer: M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S. Choudhary, "Federated Learning with Personalization Layers",
2019, arXiv:1912.00818.
FedRep: L. Collins, H. Hassani, A. Mokhtari, S. Shakkottai, "Exploiting Shared Representations for Personalized
Federated Learning", ICML 2021, arXiv:2102.07078, Algorithm 1.
Ditto: T. Li, S. Hu, A. Beirami, V. Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML
2021, arXiv:2012.04221, Algorithm 1.

Formal guarantees, of all three: those of `mechanism`, which bounds each client's update of the shared part and perturbs
their sum. That is all that a view sees; a personal part is no message and no release. It depends on other clients
through released models alone, so it hides their records as these do. It does not hide its own client's: no epsilon
covers it towards that client, or towards whom it is handed on to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpriv.algorithms.fed_prox import proximal
from fedpriv.compression.codecs import UNCODED, Codec, Wire
from fedpriv.core import random_streams
from fedpriv.core.arguments import LARGEST, CountOrZero, NonNegative, checked
from fedpriv.core.complaints import require
from fedpriv.core.trees import dimension
from fedpriv.core.types import Key, LossFn, Metrics, Params, PyTree
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import Mechanism, unprotected
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_training import Batches, Schedule, mean_grad, optimizer_of, train_locally
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.sent import Sent
from fedpriv.rounds.server_step import MEAN, server_init, server_update
from fedpriv.rounds.weighting import EQUALLY, Weighting


class PersonalState(NamedTuple):
    """State of personal models: the shared one, and what clients keep.

    Attributes:
      params: a whole model; of personal heads, its head is the initial one, which nobody trains.
      round: i32[], rounds done.
      server: the server's optimiser's, of the shared part.
      own: of each client its head or its model, leaves [clients, ...].
      trained: bool[clients], who has trained its own so far; () where clients keep nothing.
    """

    params: Params
    round: jax.Array
    server: optax.OptState
    own: PyTree
    trained: jax.Array | tuple[()]


def fed_per(
    loss: LossFn,
    *,
    head: Sequence[str],
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    mechanism: Mechanism | Dynamic = unprotected(),
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FedPer: clients train body and head together, and share the body.

    Formal guarantees: those of `mechanism`, of the bodies; a head stays with its client, in no release.

    Args:
      head: the parameters that clients keep, by parts of their paths, such as ("Dense_1",) or ("params/Dense_1/bias",);
        () keeps none, which is FedAvg.
      loss, sampler, optimizer, batches, mechanism, codec, server, weighting: as `fed_avg`, for the body's update.

    Raises:
      ValueError: as `fed_avg`; from `init`, a head that matches no parameter, or all of them.
    """
    check_parts(optimizer=optimizer, batches=batches)
    grad = mean_grad(loss)

    def local(key: Key, theta: Params, shard: Shard, t: jax.Array) -> Params:
        return train_locally(
            key, theta, shard, grad=grad, optimizer=optimizer_of(optimizer, t), batches=batches
        )

    return _with_heads(local, head, sampler, mechanism, codec, server, weighting)


def fed_rep(
    loss: LossFn,
    *,
    head: Sequence[str],
    head_batches: Batches,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    mechanism: Mechanism | Dynamic = unprotected(),
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FedRep: clients first train their heads for the body they receive, then the body for these heads.

    Formal guarantees: as `fed_per`.

    Args:
      head_batches: batches that train the head.
      batches: batches that train the body.
      head, loss, sampler, optimizer, mechanism, codec, server, weighting: as `fed_per`.

    Raises:
      ValueError: as `fed_per`.
    """
    check_parts(optimizer=optimizer, batches=batches)
    require(
        callable(head_batches), "head_batches", head_batches, "give one such as fp.epochs(10, 10)"
    )
    grad = mean_grad(loss)

    def local(key: Key, theta: Params, shard: Shard, t: jax.Array) -> Params:
        def only(of_head: bool) -> optax.GradientTransformation:
            labels = jax.tree.map(lambda is_in: is_in == of_head, _in_head(theta, head))
            kinds = {True: optimizer_of(optimizer, t), False: optax.set_to_zero()}
            return optax.multi_transform(kinds, labels)

        head_key = jax.random.fold_in(key, random_streams.PERSONAL)
        theta = train_locally(
            head_key, theta, shard, grad=grad, optimizer=only(True), batches=head_batches
        )
        return train_locally(key, theta, shard, grad=grad, optimizer=only(False), batches=batches)

    return _with_heads(local, head, sampler, mechanism, codec, server, weighting)


def ditto(
    loss: LossFn,
    *,
    lam: NonNegative,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    mechanism: Mechanism | Dynamic = unprotected(),
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """Ditto: beside FedAvg's model w, each client trains its own v_k on F_k(v_k) + lam / 2 ||v_k - w||^2.

    Formal guarantees: those of `mechanism`, of w; v_k stays with its client, in no release.

    Args:
      lam: how strongly personal models are pulled to the global one; with 0 each is trained on its client alone.
      loss, sampler, optimizer, batches, mechanism, codec, server: as `fed_avg`, for both models.
      weighting: as `fed_avg`, of w.

    Raises:
      ValueError: as `fed_avg`, or lam below 0.
    """
    check_parts(sampler=sampler, optimizer=optimizer, batches=batches)
    check_parts(mechanism=mechanism, codec=codec, server=server, weighting=weighting)
    lam = checked("lam", lam, NonNegative)
    grad = mean_grad(loss)

    def init(params: Params, federation: Federation) -> PersonalState:
        own, nobody = _begun(params, federation.num_clients)
        return PersonalState(*server_init(server, params, federation), own, nobody)

    def round(key: Key, state: PersonalState, cohort: Cohort) -> tuple[PersonalState, Metrics]:
        w, usual = state.params, optimizer_of(optimizer, state.round)

        def client(key: Key, shard: Shard, kept: tuple) -> Sent:
            v, trained = kept
            w_k = train_locally(key, w, shard, grad=grad, optimizer=usual, batches=batches)
            own_key = jax.random.fold_in(key, random_streams.PERSONAL)
            drawn = proximal(usual, lam, center=w)
            v = train_locally(own_key, v, shard, grad=grad, optimizer=drawn, batches=batches)
            return Sent(jax.tree.map(jnp.subtract, w, w_k), own=(v, jnp.ones_like(trained)))

        kept = state.own, state.trained
        total, metrics, (own, trained) = cohort.sum(
            client, key, mechanism=mechanism, codec=codec, own=kept, weighting=weighting
        )
        mean = jax.tree.map(lambda s: -s / cohort.expected_size, total)
        return server_update(server, state, mean)._replace(own=own, trained=trained), metrics

    def personal(state: PersonalState, i: jax.Array) -> Params:
        return _kept_by(i, state)

    return Algorithm(init, round, sampler, personal=personal)


def _with_heads(
    local: Callable[[Key, Params, Shard, jax.Array], Params],
    head: Sequence[str],
    sampler: AnySampler,
    mechanism: Mechanism | Dynamic,
    codec: Codec,
    server: optax.GradientTransformation,
    weighting: Weighting,
) -> Algorithm:
    """Clients train a whole model with `local`, share its body and keep its head."""
    check_parts(sampler=sampler, mechanism=mechanism, codec=codec, server=server)
    check_parts(weighting=weighting)
    several = isinstance(head, list | tuple) and all(isinstance(part, str) for part in head)
    require(several, "head", head, 'give parts of parameters\' paths, such as ("Dense_1",)')

    def init(params: Params, federation: Federation) -> PersonalState:
        _check_head(params, head)
        body, first = _split(params, head)
        own, nobody = _begun(first, federation.num_clients)
        begun = PersonalState(*server_init(server, body, federation), own, nobody)
        return begun._replace(params=params)

    def round(key: Key, state: PersonalState, cohort: Cohort) -> tuple[PersonalState, Metrics]:
        body, first = _split(state.params, head)

        def client(key: Key, shard: Shard, kept: tuple = (first, ())) -> Sent:
            own, trained = kept
            theta = local(key, _merged(body, own), shard, state.round)
            shared, own = _split(theta, head)
            kept = own, jax.tree.map(jnp.ones_like, trained)
            return Sent(jax.tree.map(jnp.subtract, body, shared), own=kept)

        kept = state.own, state.trained
        total, metrics, (own, trained) = cohort.sum(
            client, key, mechanism=mechanism, codec=codec, own=kept, weighting=weighting
        )
        mean = jax.tree.map(lambda s: -s / cohort.expected_size, total)
        after = server_update(server, state._replace(params=body), mean)
        metrics |= {"downlink": Wire(dimension(body))}
        params = _merged(after.params, first)
        return after._replace(params=params, own=own, trained=trained), metrics

    def personal(state: PersonalState, i: jax.Array) -> Params:
        return _merged(_split(state.params, head)[0], _kept_by(i, state))

    return Algorithm(init, round, sampler, personal=personal)


def _begun(first: PyTree, clients: int) -> tuple[PyTree, jax.Array | tuple[()]]:
    """(The same for every client, leaves [clients, ...]; that nobody has trained it, () where it is nothing)."""
    own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *jnp.shape(leaf))), first)
    return own, jnp.zeros(clients, bool) if jax.tree.leaves(first) else ()


def _kept_by(i: jax.Array, state: PersonalState) -> PyTree:
    """Raises ValueError: there is no such client; a state of several seeds."""
    client = checked("client", i, CountOrZero | jax.Array)
    if jnp.ndim(state.round):
        raise ValueError(
            "state: it has an axis of seeds; give the state of one, history.state_of(seed)"
        )
    clients = min((len(leaf) for leaf in jax.tree.leaves(state.own)), default=LARGEST)
    if isinstance(client, int) and client >= clients:
        raise ValueError(
            f"client: {client}, but there are {clients}; give one of 0 to {clients - 1}"
        )
    return jax.tree.map(lambda leaf: leaf[client], state.own)


def _in_head(params: Params, head: Sequence[str]) -> PyTree:
    """Of each parameter whether it is the head's, a tree of booleans."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: any(f"/{part}/" in f"/{_name(path)}/" for part in head), params
    )


def _name(path: tuple) -> str:
    """Such as params/Dense_1/kernel."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _split(params: Params, head: Sequence[str]) -> tuple[PyTree, PyTree]:
    """(body, head), trees like the parameters with None where a parameter is the other's."""
    in_head = _in_head(params, head)
    body = jax.tree.map(lambda is_in, leaf: None if is_in else leaf, in_head, params)
    return body, jax.tree.map(lambda is_in, leaf: leaf if is_in else None, in_head, params)


def _merged(body: PyTree, head: PyTree) -> Params:
    return jax.tree.map(lambda b, h: h if b is None else b, body, head, is_leaf=lambda x: x is None)


def _check_head(params: Params, head: Sequence[str]) -> None:
    """Raises ValueError: a part that matches no parameter, or a head of all parameters."""
    names = [_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for part in head:
        if not any(f"/{part}/" in f"/{name}/" for name in names):
            raise ValueError(
                f"head: {part!r} matches no parameter; give parts of {', '.join(names)}"
            )
    if all(jax.tree.leaves(_in_head(params, head))):
        raise ValueError(f"head: {head} matches every parameter; leave some to be shared")
