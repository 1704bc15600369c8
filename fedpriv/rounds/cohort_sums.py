"""Steps of the cohort that do more than clip messages and add noise to their sum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core import random_streams
from fedpriv.core.complaints import require
from fedpriv.core.places import region
from fedpriv.core.provenance import constructed
from fedpriv.core.trees import dimension, real
from fedpriv.core.types import Key, Metrics, PyTree
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.proof.call import OfCall
from fedpriv.proof.calls import Calls
from fedpriv.proof.given import Member
from fedpriv.proof.primitives import in_shapes
from fedpriv.proof.step import Step
from fedpriv.rounds.messages import clipped, coded, perturbed, shares_of, times
from fedpriv.rounds.private_step import PrivateStep, SumAdder, adder_of_sum
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.weighting import EQUALLY, Weighting

WRAPPED = "wrapped"
"""The fraction of the coordinates of a sum of integers that wrapped."""


def step_of_sum(
    mechanism: Mechanism | Dynamic,
    used: Mechanism,
    sampler: AnySampler,
    codec: Codec,
    weighting: Weighting,
    asked: SumAdder,
) -> PrivateStep:
    """The step of a call of the cohort.

    Args:
      used: the mechanism of the round.
      asked: who adds the noise, as `Cohort.sum`.

    Raises:
      ValueError: what does not go together.
    """
    divided = weighting.adder == "server" and not sampler.accounting.counts_equally
    remedy = (
        "it divides by what clients weigh, so that weights of groups are not counted; give 'fixed'"
    )
    require(not divided, "weighting: estimator", "clipped", remedy)
    adder = adder_of_sum(used, codec, weighting, asked)
    kind = SumOfNoisy if adder == "own" else SumOfCohort
    return kind(mechanism, sampler, adder, codec, weighting)


def plainest(step: PrivateStep, used: Mechanism, answer: Answer) -> Step:
    """The proof's own step where this one does no more than that: clips each message, and adds all of the noise.

    Args:
      used: the mechanism of the round.
      answer: of a member, in shapes.
    """
    is_plain = (
        used is step.mechanism
        and constructed(used)  # else its functions are asked, see `fedpriv.core.user_functions`
        and (used.integers is None and not is_correlated(used))
        and (step.codec is UNCODED and step.weighting is EQUALLY and step.adder == "shares")
        and not (step.sampling.accounting.of_a_round.lossy or jax.tree.leaves(answer))
    )
    return Step(step.mechanism, step.sampling, step.adder) if is_plain else step


class SumOfCohort(PrivateStep):
    """A sum of messages that weigh, are integers or have bounds of their own, or whose noise lacks shares or remembers.

    Formal guarantees: those of `Weighting`, `fedpriv.mechanisms.integers` and `fedpriv.mechanisms.correlated`, and of
    samplings whose members count by groups, answer late, or take their shares of the noise along.
    """

    def contribution(self, of: OfCall, member: Member, message: PyTree) -> tuple[PyTree, Any]:
        """As `NoisySum`."""
        answer, messages = member.given.answer, _of_clients(of)
        message, norm = clipped(messages.used, message, answer.clip_scale)
        message, messages.weight = self.weighting.weigh(message, messages.size)
        message = times(answer.weight, message)
        if (integers := self.integer_sum(dimension(message))) is not None:
            messages.like = jax.eval_shape(lambda: message)
            key = jax.random.fold_in(member.key, random_streams.ROUNDING)
            message = integers.encode(of.keys.common, key, message)
        return message, norm

    def noisy(self, of: OfCall, total: PyTree) -> tuple[PyTree, Any]:
        """As `NoisySum`."""
        messages = _of_clients(of)
        used = messages.used
        total = self.weighting.bounded(total, messages.weights, self.sampling.expected_size)
        key = jax.random.fold_in(of.keys.hidden, random_streams.NOISE)
        integers = None if messages.like is None else self.integer_sum(dimension(messages.like))
        if integers is not None:
            keys = key, of.keys.common
            return noisy_integers(of.calls, self, integers, keys, total, messages.like)
        if is_correlated(used):
            return of.calls.remembered(used, key, total), {}
        if self.adder == "server" or not self.sampling.accounting.of_a_round.lossy:
            return perturbed("noise", used, key, total), {}
        return self._of_shares(of, key, total), {}

    def _of_shares(self, of: OfCall, key: Key, total: PyTree) -> PyTree:
        """With the noise of those who stay."""
        used = _of_clients(of).used
        if used.noise == "laplace" and used.certified_multiplier > 0:
            raise ValueError(
                "mechanism: Laplace noise that has lost shares is no longer Laplace; give Gaussian noise, or "
                'fp.dropping(..., noise="whole")'
            )
        members = of.calls.counted(of.calls.given.members)
        left = jnp.sqrt(members / shares_of(self.sampling, members)).astype(jnp.float32)
        noise = perturbed("noise", used, key, jax.tree.map(jnp.zeros_like, real(total)))
        return jax.tree.map(lambda s, z: s + left.astype(z.dtype) * z, real(total), noise)


class SumOfNoisy(PrivateStep):
    """A sum of messages to which each client has added all of the noise, before coding them."""

    def released(self, of: OfCall, own: PyTree = ()) -> PyTree:
        """As `NoisySum`; each client's noisy message is what is marked as released."""
        messages, calls = _of_clients(of), of.calls

        def one(member: Member, *mine: PyTree) -> tuple[PyTree, PyTree]:
            message = messages.message(member, *mine)
            bounded, norm = clipped(messages.used, message, member.given.answer.clip_scale)
            key = messages.stream.own_noise_key
            noisy = calls.released(perturbed("own_noise", messages.used, key, bounded), self)
            message, messages.of_codec = coded(self.codec, member.key, noisy)
            message, messages.weight = self.weighting.weigh(message, messages.size)
            return times(member.given.answer.weight, message), messages.report(norm)

        total, reports = calls.over_all(one, of.keys, own)
        messages.hear(reports)
        total = self.weighting.bounded(total, messages.weights, self.sampling.expected_size)
        messages.hear_of_sum(in_shapes(total), {})
        return calls.collected(total)


def noisy_integers(
    calls: Calls,
    step: PrivateStep,
    integers: IntegerSum,
    keys: tuple[Key, Key],
    total: jax.Array,
    like: PyTree,
) -> tuple[PyTree, Metrics]:
    """The sum of messages like this one, of the sum of what they are as integers, and how much of it wrapped.

    Args:
      keys: of the noise and of the rotation.
    """
    noise_key, rotation_key = keys
    sampler = step.sampling if step.cohort is None else step.cohort
    lost = sampler.accounting.of_a_round.lossy
    members = calls.counted(calls.given.members) if lost else None

    def perturb(noise_key: Key, rotation_key: Key, total: jax.Array) -> tuple[PyTree, Metrics]:
        noisy, wrapped = integers.perturb(noise_key, total, members)
        return integers.decode(rotation_key, noisy, like), {WRAPPED: wrapped}

    return region("integer_noise", perturb, noise_key, rotation_key, total)


def _of_clients(of: OfCall) -> Any:
    """Its `ClientMessages`."""
    return of.messages
