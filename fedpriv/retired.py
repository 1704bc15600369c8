"""Names that left the front door: each still works, warns, and goes with 1.0."""

import math
import pkgutil
import warnings
from typing import Any, Literal

import optax

from fedpriv.algorithms.dp_sgd import dp_sgd
from fedpriv.certification.certificate import certify
from fedpriv.core.arguments import Norm, checked
from fedpriv.mechanisms import per_example
from fedpriv.mechanisms.clipping import flat, separately
from fedpriv.mechanisms.dense_gradients import dense_gradients
from fedpriv.mechanisms.mechanisms import Mechanism, mechanism, unprotected
from fedpriv.mechanisms.noise import isotropic
from fedpriv.mechanisms.per_example import Gradients, MedianClipping
from fedpriv.privacy import Certificate
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.local_dp_sgd import LocalSteps
from fedpriv.rounds.record_samplers import RecordSampler, most_records

RETIRED: dict[str, str] = {
    "UNPROTECTED": "fp.unprotected()",
    "certify_each_client": "fp.certify(..., each_client=True).of_clients",
    "consensus": "fp.papers.consensus",
    "dp_scaffold_steps": "fp.LocalSteps(..., mechanism=fp.gaussian(C, 2 * sigma_g))",
    "fed_avg_sparse": "fp.papers.fed_avg_sparse",
    "jopeq": "fp.papers.jopeq",
    "ldp_fed_avg": "fp.papers.ldp_fed_avg",
    "load_model": "fp.models.load_model",
    "msp_fl": "fp.papers.msp_fl",
    "mspdq_fl": "fp.papers.mspdq_fl",
    "per_example_dense": "fp.per_example(model.loss, l2, closed_form=True)",
    "private_mean": "shard.private_mean, or cohort.private_mean",
    "quantization": "fp.papers.quantization",
    "record_fed_avg": 'fp.dp_sgd(..., claim="dp_scaffold")',
    "save_model": "fp.models.save_model",
    "splitting": "fp.papers.splitting",
}
"""Old name -> what to write instead. A function here of the old name is for a call that has to change as well."""


def retired(old: str) -> Any:
    """What `fp.old` was, with a warning that says what to write instead.

    Raises:
      AttributeError: there never was such a name.
    """
    if old not in RETIRED:
        raise AttributeError(f"module 'fedpriv' has no attribute {old!r}", name=old)
    now = RETIRED[old]
    warnings.warn(f"fp.{old}: now {now}; it goes with 1.0", FutureWarning, stacklevel=3)
    if old in globals():
        return globals()[old]
    return pkgutil.resolve_name(f"fedpriv.{now.removeprefix('fp.')}")


UNPROTECTED = unprotected()
private_mean = per_example.private_mean


def certify_each_client(
    algorithm: Algorithm, params: Any, federation: Any, rounds: int, delta: float, **view: Any
) -> tuple[Certificate, ...]:
    """Certificates of each client's records, [clients]."""
    made = certify(algorithm, params, federation, rounds, delta, each_client=True, **view)
    return made.of_clients


def record_fed_avg(local: LocalSteps, **options: Any) -> Algorithm:
    """DP-FedAvg by noisy local steps, with the claim of DP-SCAFFOLD's paper."""
    return dp_sgd(local, claim="dp_scaffold", **options)


def per_example_dense(l2: float = 0.0) -> Gradients:
    """Gradients of single records of dense networks in closed form."""
    return dense_gradients(l2)


def dp_scaffold_steps(
    gradients: Gradients,
    records: RecordSampler,
    steps: int,
    learning_rate: float,
    clip_norm: float | Literal["median"] = math.inf,
    noise_multiplier: float = 0.0,
    unit: Literal["record", "client"] = "record",
    tensors: int = 1,
) -> LocalSteps:
    """Local steps with sigma_g of DP-SCAFFOLD's paper, which is relative to 2 C (of a client: times its records)."""
    clip_norm = checked("clip_norm", clip_norm, Norm | Literal["median"])
    sigma = 2 * noise_multiplier * (most_records(records) if unit == "client" else 1)
    used: Mechanism | MedianClipping
    if isinstance(clip_norm, str):
        used = MedianClipping(sigma, tensors)
    else:
        clipping = flat() if tensors == 1 else separately(tensors)
        used = mechanism(clipping, isotropic(), clip_norm=clip_norm, noise_multiplier=sigma)
    return LocalSteps(gradients, records, steps, lambda t: optax.sgd(learning_rate), used, unit)
