"""Names that left the front door: each still works, warns, and goes with 1.0."""

import pkgutil
import warnings
from typing import Any

RETIRED: dict[str, str] = {
    "consensus": "fp.papers.consensus",
    "fed_avg_sparse": "fp.papers.fed_avg_sparse",
    "jopeq": "fp.papers.jopeq",
    "ldp_fed_avg": "fp.papers.ldp_fed_avg",
    "load_model": "fp.models.load_model",
    "msp_fl": "fp.papers.msp_fl",
    "mspdq_fl": "fp.papers.mspdq_fl",
    "quantization": "fp.papers.quantization",
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
