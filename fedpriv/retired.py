"""Names that left the front door: each still works, warns, and goes with 1.0."""

import math
import pkgutil
import warnings
from typing import Any, Literal

import optax

from fedpriv.algorithms.dp_sgd import dp_sgd
from fedpriv.certification.certificate import certify
from fedpriv.core.arguments import Norm, Positive, checked
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
    "Claim": "fp.privacy.Claim",
    "ClientValues": "fp.types.ClientValues",
    "Codec": "fp.types.Codec",
    "Coded": "fp.types.Coded",
    "Draw": "fp.types.Draw",
    "Dynamic": "fp.types.Dynamic",
    "Evaluation": "fp.types.Evaluation",
    "MedianClipping": "fp.papers.MedianClipping",
    "PerExample": "fp.types.PerExample",
    "Release": "fp.privacy.declared",
    "ScheduledSampler": "fp.types.ScheduledSampler",
    "Summed": "fp.types.Summed",
    "UNPROTECTED": "fp.unprotected()",
    "VIEWS": "fp.privacy.VIEWS",
    "Weighting": "fp.types.Weighting",
    "Wire": "fp.types.Wire",
    "certify_each_client": "fp.certify(..., each_client=True).of_clients",
    "consensus": "fp.papers.consensus",
    "dp_fed_avg_wav": "fp.papers.dp_fed_avg_wav",
    "dp_scaffold_steps": "fp.LocalSteps(..., mechanism=fp.gaussian(C, 2 * sigma_g))",
    "dp_sgd_wav": "fp.papers.dp_sgd_wav",
    "fed_avg_sparse": "fp.papers.fed_avg_sparse",
    "fixed_interval": "fp.papers.fixed_interval",
    "jopeq": "fp.papers.jopeq",
    "ldp_fed_avg": "fp.papers.ldp_fed_avg",
    "load_model": "fp.models.load_model",
    "median_norm": "fp.papers.median_norm",
    "median_update_norm": "fp.papers.median_update_norm",
    "msp_fl": "fp.papers.msp_fl",
    "mspdq_fl": "fp.papers.mspdq_fl",
    "per_example_dense": "fp.per_example(model.loss, l2, closed_form=True)",
    "privacy.DrawCase": "fp.privacy.Case",
    "privacy.Release": "fp.privacy.declared",
    "privacy.certify_releases": "fp.privacy.certify_seen",
    "privacy.dp_scaffold_claim": "fp.papers.dp_scaffold_claim",
    "privacy.fed_smp_claim": "fp.papers.fed_smp_claim",
    "privacy.haar_multiplier": "fp.papers.haar_multiplier",
    "privacy.jopeq_claim": "fp.papers.jopeq_claim",
    "privacy.msp_laplace_claim": "fp.papers.msp_laplace_claim",
    "privacy.mspdq_claim": "fp.papers.mspdq_claim",
    "privacy.noise_cohort_claim": "fp.papers.noise_cohort_claim",
    "privacy.t_epsilon": "fp.papers.t_epsilon",
    "privacy.wavelet_claim": "fp.papers.wavelet_claim",
    "private_mean": "shard.private_mean, or cohort.private_mean",
    "quantization": "fp.papers.quantization",
    "record_fed_avg": 'fp.dp_sgd(..., claim="dp_scaffold")',
    "save_model": "fp.models.save_model",
    "select_rand_k": "fp.papers.select_rand_k",
    "select_top_k": "fp.papers.select_top_k",
    "split_cpu": "fp.distributed.split_cpu",
    "splitting": "fp.papers.splitting",
    "steps": "fp.random_batches",
    "train": "fp.train_locally",
    "wavelet": "fp.papers.haar",
    "wavelet_mechanism": "fp.papers.haar_mechanism",
}
"""Old name -> what to write instead. A function here of the old name is for a call that has to change as well."""


def retired(old: str) -> Any:
    """What a retired name of `fp` stood for, with a warning that says what to write instead.

    Raises:
      AttributeError: there never was such a name.
    """
    if old not in RETIRED:
        raise AttributeError(f"module 'fedpriv' has no attribute {old!r}", name=old)
    now = RETIRED[old]
    warnings.warn(f"fp.{old}: now {now}; it goes with 1.0", FutureWarning, stacklevel=4)
    if old in globals():
        return globals()[old]
    return pkgutil.resolve_name(f"fedpriv:{now.removeprefix('fp.')}")


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
    learning_rate = checked("learning_rate", learning_rate, Positive)
    clip_norm = checked("clip_norm", clip_norm, Norm | Literal["median"])
    sigma = 2 * noise_multiplier * (most_records(records) if unit == "client" else 1)
    used: Mechanism | MedianClipping
    if isinstance(clip_norm, str):
        used = MedianClipping(sigma, tensors)
    else:
        clipping = flat() if tensors == 1 else separately(tensors)
        used = mechanism(clipping, isotropic(), clip_norm=clip_norm, noise_multiplier=sigma)
    return LocalSteps(gradients, records, steps, lambda t: optax.sgd(learning_rate), used, unit)
