"""Names that left the front door: each still works, warns, and goes with 1.0."""

import pkgutil
import warnings
from typing import Any

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
    "Release": "fp.privacy.Release",
    "ScheduledSampler": "fp.types.ScheduledSampler",
    "Summed": "fp.types.Summed",
    "VIEWS": "fp.privacy.VIEWS",
    "Weighting": "fp.types.Weighting",
    "Wire": "fp.types.Wire",
    "consensus": "fp.papers.consensus",
    "dp_fed_avg_wav": "fp.papers.dp_fed_avg_wav",
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
    "privacy.dp_scaffold_claim": "fp.papers.dp_scaffold_claim",
    "privacy.fed_smp_claim": "fp.papers.fed_smp_claim",
    "privacy.haar_multiplier": "fp.papers.haar_multiplier",
    "privacy.jopeq_claim": "fp.papers.jopeq_claim",
    "privacy.msp_laplace_claim": "fp.papers.msp_laplace_claim",
    "privacy.mspdq_claim": "fp.papers.mspdq_claim",
    "privacy.noise_cohort_claim": "fp.papers.noise_cohort_claim",
    "privacy.t_epsilon": "fp.papers.t_epsilon",
    "privacy.wavelet_claim": "fp.papers.wavelet_claim",
    "quantization": "fp.papers.quantization",
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
    warnings.warn(f"fp.{old}: now {now}; it goes with 1.0", FutureWarning, stacklevel=3)
    if old in globals():
        return globals()[old]
    return pkgutil.resolve_name(f"fedpriv.{now.removeprefix('fp.')}")
