"""Further numbers for every evaluation: each function makes a `measure` for `simulate`. They are not private."""

from fedpriv.engine.client_metrics import per_client, together
from fedpriv.engine.group_metrics import per_group
from fedpriv.engine.heterogeneity import heterogeneity, minimum_of, objective

__all__ = ["heterogeneity", "minimum_of", "objective", "per_client", "per_group", "together"]
