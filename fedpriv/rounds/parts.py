"""What an algorithm is made of: parts of another kind are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedpriv.compression.codecs import ALREADY_CODED, UNCODED, Codec
from fedpriv.core.complaints import require
from fedpriv.mechanisms.clipping import Clipping
from fedpriv.mechanisms.schedules import MECHANISM, is_mechanism
from fedpriv.rounds.local_training import epochs, full_batch, random_batches
from fedpriv.rounds.optimizers import check_optimizer, check_schedule
from fedpriv.rounds.record_samplers import is_record_sampler
from fedpriv.rounds.samplers import Opening, Sampler
from fedpriv.rounds.scheduled_samplers import ScheduledSampler
from fedpriv.rounds.weighting import ByExamples, ByPublicSizes, Weighting


def _of_type(*types: type) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, types)


def _is_batches(value: Any) -> bool:
    return callable(value) and value not in (epochs, random_batches, full_batch)


_OPTIMIZERS: dict[str, Callable[[str, Any], None]] = {
    "optimizer": check_schedule,
    "server": check_optimizer,
}
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "sampler": (
        _of_type(Sampler, Opening, ScheduledSampler),
        "one such as fp.poisson(1000, rate=0.1); fp.FreeClients goes with fp.buffered_fed_avg alone",
    ),
    "records": (
        is_record_sampler,
        "one such as fp.poisson(100, rate=0.1), of a client's records; of groups fp.PublicGroups",
    ),
    "batches": (_is_batches, "one such as fp.epochs(5, batch_size=10) or fp.full_batch()"),
    "work": (_is_batches, "one such as fp.epochs(5, batch_size=10) or fp.LocalSteps(...)"),
    "grad": (callable, "one such as fp.mean_grad(loss)"),
    "gradients": (callable, "one such as fp.per_example(loss)"),
    "mechanism": (is_mechanism, MECHANISM),
    "codec": (_of_type(Codec), "one such as fp.qsgd(8)"),
    "weighting": (
        lambda given: type(given) in (Weighting, ByExamples, ByPublicSizes),
        "one such as fp.ByExamples(cap=20), where a client of 20 examples or more counts 1",
    ),
    "clipping": (_of_type(Clipping), "one such as fp.clipping.flat()"),
}


def check_parts(**parts: Any) -> None:
    """Raises ValueError: a part is not of the kind that its name says, such as a number in the place of a sampler.

    Nor does a codec go with a mechanism of integers, where both are given.
    """
    for name, given in parts.items():
        if name in _OPTIMIZERS:
            _OPTIMIZERS[name](name, given)
            continue
        fits, such_as = _WANTED[name]
        require(fits(given), name, given, f"give {such_as}")
    if getattr(parts.get("mechanism"), "integers", None) is not None and "codec" in parts:
        require(parts["codec"] is UNCODED, "codec", parts["codec"], ALREADY_CODED)
