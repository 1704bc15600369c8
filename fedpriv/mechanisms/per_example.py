"""Gradients of single records: their norms, and weighted sums of them, which is all that clipping needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.arguments import Count, CountOrZero, NonNegative, Positive, checked
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.parameters import check_params
from fedpriv.core.places import region, tap
from fedpriv.core.random_losses import GradientFunction, of_one, takes_key
from fedpriv.core.trees import real, widened
from fedpriv.core.types import Example, Key, LossFn, Params, PyTree
from fedpriv.mechanisms.clipping import over_tensors, separately
from fedpriv.mechanisms.described import scaling_of
from fedpriv.mechanisms.factored_program import FactoredProgram
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.mechanisms import Mechanism, gaussian, mechanism
from fedpriv.mechanisms.micro_batches import checked_micro, sum_of_parts
from fedpriv.mechanisms.noise import isotropic
from fedpriv.mechanisms.not_finite_counts import count_records
from fedpriv.mechanisms.outer_products import EXACT, counted
from fedpriv.mechanisms.recomputed_gradients import asked_twice, kept
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.proof.seen import NO_NOISE


class PerExample(NamedTuple):
    """The gradients g_1..g_B of a batch, without forming them one by one.

    Attributes:
      norms: a tree like the parameters, with f32[B], the l2 norms of the records' gradients in that tensor.
      weighted: a tree of weights f32[B], one set per tensor -> sum_j w_j g_j. A gradient of weight 0 does not count,
        even if it is not finite.
      each: () -> the gradients, leaves [B, ...], for clipping that needs more than norms.
    """

    norms: PyTree
    weighted: Callable[[PyTree], Params]
    each: Callable[[], PyTree]


Gradients: TypeAlias = Callable[[Params, Example], PerExample]
"""(params, batch with leading axis B) -> PerExample."""


class RecordGradients(GradientFunction):
    """Gradients that are proved to be of one record each, with their true norms: a certificate need not measure them.

    A wrapper, or a subclass, is none.

    Args:
      fn, needs_keys: as for any gradients.
      micro: records whose gradients private sums take together, one such part after another; None: the whole batch.
    """

    __slots__ = ("_micro",)

    def __init__(
        self, fn: Callable[..., PerExample], needs_keys: bool = False, micro: int | None = None
    ):
        super().__init__(fn, needs_keys)
        self._micro = micro

    @property
    def micro(self) -> int | None:
        """Records whose gradients are taken together."""
        return self._micro


CLOSED_FORMS: WeakKeyDictionary[LossFn, Callable[[float], Gradients]] = WeakKeyDictionary()
"""Losses whose gradients have a closed form, which is made for an l2."""


def per_example(
    loss: LossFn,
    l2: NonNegative = 0.0,
    *,
    closed_form: bool = False,
    micro: Count | None = None,
) -> Gradients:
    """Gradients of single records: of `loss + l2 / 2 ||params||^2` of any model.

    Gradients of dense layers and of tables whose rows are looked up stay factored, which saves memory: batch times
    layer is never stored. So it is with tensors that are used several times (tied heads), and within `lax.scan`. Those
    of other tensors are formed by `vmap`; with a regulariser all are. Where the loss has `jax.checkpoint`, gradients
    are computed twice, for norms and for the sum, and not kept.

    Args:
      loss: loss of ONE example. If it takes a key, the batch is `fp.with_keys(key, examples)`.
      l2: weight of the regulariser, which belongs to each record's loss and is clipped with it.
      closed_form: for the loss of `models.classifier` with `LogisticRegression` or `MLP`. The same gradients up to
        rounding, none of which is formed: five times as fast with a regulariser, 1.3 to 2 times without.
      micro: records that are clipped together: a private sum takes a batch in parts of so many, one after another, with
        the memory of one part, and gets one noise. The same sum up to rounding.

    Raises:
      ValueError: `loss` is no function of these parameters, or has no closed form that is asked for, l2 below 0, or
        micro below 1; when called, as the gradients of `fedpriv.mean_grad`, or a loss with a `custom_vmap`.
    """
    l2 = checked("l2", l2, NonNegative)
    micro = checked_micro(micro)
    one = of_one(loss, apart=True)
    if checked("closed_form", closed_form, bool):
        remedy = "only losses of fp.models.classifier with LogisticRegression or MLP have one; leave it out"
        require(loss in CLOSED_FORMS, "closed_form", closed_form, remedy)
        return RecordGradients(CLOSED_FORMS[loss](l2), micro=micro)

    def regularised(params: Params, example: Example) -> jax.Array:
        penalty = l2 / 2 * optax.tree.norm(params, squared=True) if l2 else 0.0
        return one(params, example) + penalty

    def gradients(params: Params, batch: Example) -> PerExample:
        check_params(params)
        program = FactoredProgram(regularised, params, batch)
        of_leaves = asked_twice(program) if program.recomputes else kept(program)
        tree = jax.tree.structure(params)
        return PerExample(
            jax.tree.unflatten(tree, of_leaves.norms),
            lambda weights: jax.tree.unflatten(tree, of_leaves.weighted(jax.tree.leaves(weights))),
            lambda: jax.tree.unflatten(tree, of_leaves.each()),
        )

    return RecordGradients(gradients, takes_key(loss), micro)


@checking_fields
class MedianClipping(NamedTuple):
    """Gaussian noise on gradients clipped at the median of their own batch's norms.

    The heuristic of M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278, Appendix D.1.

    The median is not private, so nothing is certified.

    Attributes:
      noise_multiplier: sigma, relative to the median.
      tensors: if above 1, the number of the model's tensors; each is clipped to its own median and perturbed with sigma
        separately.
    """

    noise_multiplier: NonNegative
    tensors: Count = 1

    def in_round(self, t: jax.Array | CountOrZero) -> MedianClipping:
        """The mechanism of round t: this one."""
        checked("t", t, jax.Array | CountOrZero)
        return self

    def for_batch(self, norms: PyTree, mask: jax.Array) -> Mechanism:
        """The Gaussian mechanism at the median of these norms.

        Args:
          norms: a tree of f32[B], the norms of each tensor.
          mask: bool[B], which contributions count.
        """
        if self.tensors == 1:
            median = _median(over_tensors(norms), mask)
            return gaussian(1.0, 1.0).at(median, self.noise_multiplier)  # type: ignore[misc]
        medians = jax.tree.map(lambda n: _median(n, mask), norms)
        each = mechanism(separately(self.tensors), isotropic(), clip_norm=1.0, noise_multiplier=1.0)
        return each.at(medians, self.noise_multiplier)  # type: ignore[misc]

    def multipliers(self, rounds: CountOrZero) -> tuple[tuple[int, float], ...]:
        """(number of rounds, multiplier) for the whole run; the multiplier is 0."""
        rounds = checked("rounds", rounds, CountOrZero)
        return ((rounds, 0.0),)

    @property
    def reason(self) -> str:
        """Why nothing is hidden."""
        if self.noise_multiplier == 0:
            return NO_NOISE
        return "the clip norm is the median of private gradients' norms"

    @property
    def noise(self) -> str:
        """The noise's kind."""
        return "gaussian"


RecordMechanism: TypeAlias = Mechanism | MedianClipping | Dynamic


def private_mean(
    gradients: Gradients,
    mechanism: Mechanism | MedianClipping,
    expected_size: Positive | jax.Array,
) -> Callable[..., Params]:
    """(key, params, batch, mask) -> the mean gradient of the batch: each is clipped and their sum perturbed, in f32.

    Formal guarantees: those of the mechanism, per record; a record that `mask` leaves out does not count. With
    `MedianClipping`, none.

    The mean may be told, last, which records those of the batch are (i32[B]), for audits.

    Args:
      expected_size: divisor of the sum, whatever the number of records: the lot size L, or s R.

    Raises:
      ValueError: no gradients, no mechanism, or a size that is not positive; when called, parameters that are not real,
        such as complex ones.
    """
    require(callable(gradients), "gradients", gradients, "give one such as fp.per_example(loss)")
    known = isinstance(mechanism, Mechanism) or hasattr(mechanism, "for_batch")
    fits = known and not isinstance(mechanism, type)
    require(
        fits, "mechanism", mechanism, "give one such as fp.gaussian(clip_norm, noise_multiplier)"
    )
    expected_size = checked("expected_size", expected_size, Positive | jax.Array)

    def clipped(
        params: Params, part: tuple[Example, jax.Array | None], mask: jax.Array
    ) -> tuple[Params, jax.Array]:
        total, lengths, _ = _clipped_sum(gradients, mechanism, params, part, mask)
        return total, lengths

    def mean(
        key: Key, params: Params, batch: Example, mask: jax.Array, rows: jax.Array | None = None
    ) -> Params:
        real(params, "params")
        micro = _micro_of(gradients, mask)
        told, mask = _place(rows, "batch", ((batch, rows), mask))
        if micro is None:
            total, lengths, now = _clipped_sum(gradients, mechanism, params, told, mask)
        else:
            now = _whatever_the_batch(mechanism, micro)
            start = jax.tree.map(jnp.zeros_like, widened(params))
            of_part = partial(clipped, params)
            total, lengths = sum_of_parts(of_part, start, told, mask, micro)
            lengths = lengths.reshape(-1)[: mask.shape[0]]
        count_records(lengths, mask)
        perturb = now.perturb if rows is None else partial(region, "record_noise", now.perturb)
        noisy = perturb(key, total)
        return jax.tree.map(lambda s: s / expected_size, noisy)

    return mean


def _place(rows: jax.Array | None, name: str, tree: PyTree) -> PyTree:
    """The tree, in a place of this name where it is known of which records it is."""
    return tree if rows is None else tap(name, tree)


def _clipped_sum(
    gradients: Gradients,
    mechanism: Mechanism | MedianClipping,
    params: Params,
    batch: tuple[Example, jax.Array | None],
    mask: jax.Array,
) -> tuple[Params, jax.Array, Mechanism]:
    """(the sum of the records' clipped gradients, their norms f32[B] before, the mechanism for this batch)."""
    examples, rows = batch
    place = partial(_place, rows)
    params, _ = place("params", (params, rows))
    of_batch = gradients(params, examples)
    norms = place("norms", of_batch.norms)
    by_batch = getattr(mechanism, "for_batch", None)  # a rule that looks at the data is not private
    now: Any = by_batch(norms, mask) if by_batch else mechanism
    scaling = scaling_of(now)
    if scaling is None:
        total, lengths = _sum_of_bounded(now, place("each", of_batch.each()), mask)
        return place("bounded", total), lengths, now
    if norms_of := scaling.norms:
        norms = jax.vmap(norms_of)(place("each", of_batch.each()))
    scales, lengths = scaling.scales(norms), over_tensors(norms)
    weights = jax.tree.map(lambda s: jnp.where(mask, s, 0.0), scales)
    total = of_batch.weighted(place("weights", weights))
    return place("weighted", total), lengths, now


def _micro_of(gradients: Gradients, mask: jax.Array) -> int | None:
    """Records that gradients take together of a batch with this mask (bool[B]); None: all B of them."""
    micro = getattr(gradients, "micro", None)
    return micro if micro is not None and micro < mask.shape[0] else None


def _whatever_the_batch(mechanism: Mechanism | MedianClipping, micro: int) -> Mechanism:
    """Raises ValueError: the mechanism looks at the whole batch before it clips a record."""
    fixed = isinstance(mechanism, Mechanism)
    remedy = "the mechanism looks at a whole batch's norms, as a median does; leave it out"
    require(fixed, "micro", micro, remedy)
    return mechanism  # type: ignore[return-value]


def integer_total(
    gradients: Gradients, mechanism: Mechanism, integers: IntegerSum
) -> Callable[[Key, Key, Params, Example, jax.Array], jax.Array]:
    """(rotation's key, key, params, batch, mask) -> i32[length], the sum of the batch's gradients as integers.

    Each is clipped, rotated and rounded by itself, so that a record moves the sum by no more than a member of
    `IntegerSum`; nothing is perturbed yet.
    """

    def summed(
        rotation: Key, key: Key, params: Params, batch: Example, mask: jax.Array
    ) -> jax.Array:
        def of_part(part: tuple[Example, Key], mask: jax.Array) -> tuple[jax.Array, jax.Array]:
            batch, keys = part
            bounded, norms = jax.vmap(mechanism.clip)(gradients(params, batch).each())
            whole = jax.vmap(integers.encode, (None, 0, 0))(rotation, keys, bounded)
            return jnp.sum(jnp.where(mask[:, None], whole, 0), axis=0, dtype=jnp.int32), norms

        keyed = batch, jax.random.split(key, mask.shape[0])
        micro = _micro_of(gradients, mask)
        if micro is None:
            total, norms = of_part(keyed, mask)
        else:
            start = jnp.zeros(integers.length, jnp.int32)
            total, norms = sum_of_parts(of_part, start, keyed, mask, micro)
            norms = norms.reshape(-1)[: mask.shape[0]]
        count_records(norms, mask)
        return total

    return summed


def rounded(mean: jax.Array, like: jax.Array) -> jax.Array:
    """A private mean of records in the float type of a parameter."""
    floats = jnp.issubdtype(like.dtype, jnp.floating)
    return mean.astype(like.dtype) if floats else mean


def _sum_of_bounded(
    mechanism: Mechanism, each: PyTree, mask: jax.Array
) -> tuple[Params, jax.Array]:
    """(the sum, the norms f32[B] before)."""
    bounded, norms = jax.vmap(mechanism.clip)(each)
    weights = mask.astype(jnp.float32)
    total = jax.tree.map(
        lambda g: jnp.tensordot(weights, counted(g, weights), 1, precision=EXACT), bounded
    )
    return total, norms


def _median(norms: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.nan_to_num(jnp.nanmedian(jnp.where(mask, norms, jnp.nan)))  # 0 without a record
