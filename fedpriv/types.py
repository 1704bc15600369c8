"""Classes of what calls take and return: to annotate with, and to make parts of your own."""

from fedpriv.compression.codecs import Codec, Coded, Wire
from fedpriv.core.random_losses import Keyed
from fedpriv.data.client_rows import ClientRows
from fedpriv.data.cohort_federation import CohortFederation
from fedpriv.data.held_out import Rows
from fedpriv.data.persons import Persons
from fedpriv.engine.history import ClientValues, Evaluation, PublicEvaluation
from fedpriv.engine.own_errors import OwnErrors
from fedpriv.mechanisms.per_example import PerExample
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.models.kept_model import Trained
from fedpriv.models.networks import Built
from fedpriv.privacy.profile import Composition
from fedpriv.rounds.cohort import Summed
from fedpriv.rounds.local_training import Plan
from fedpriv.rounds.samplers import Answer, Draw
from fedpriv.rounds.scheduled_samplers import ScheduledSampler
from fedpriv.rounds.weighting import Weighting

__all__ = [
    "Answer",
    "Built",
    "ClientRows",
    "ClientValues",
    "Codec",
    "Coded",
    "CohortFederation",
    "Composition",
    "Draw",
    "Dynamic",
    "Evaluation",
    "Keyed",
    "OwnErrors",
    "PerExample",
    "Persons",
    "Plan",
    "PublicEvaluation",
    "Rows",
    "ScheduledSampler",
    "Summed",
    "Trained",
    "Weighting",
    "Wire",
]
