"""Attacks: what an adversary learns from what it sees, measured instead of trusted."""

from fedpriv.attacks.bounds import LowerBounds, Thresholds, best_thresholds, lower_bounds
from fedpriv.attacks.canaries import with_canaries
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.attacks.estimates import GaussianEstimate, gaussian_estimate
from fedpriv.attacks.image_scores import mse, psnr, ssim
from fedpriv.attacks.inversion import Reconstruction, infer_label, invert
from fedpriv.attacks.mechanism_audit import Scores, draw_scores
from fedpriv.attacks.membership import Membership, infer_membership, losses
from fedpriv.attacks.one_run import epsilon_one_run, p_value_one_run
from fedpriv.attacks.server_views import (
    View,
    by_models,
    infer_labels,
    invert_view,
    local_update,
    server_view,
)
from fedpriv.attacks.transcript import (
    Recovered,
    fit_weights,
    least_squares,
    nearest,
    state_sum,
    unmixed,
)

__all__ = [
    "GaussianEstimate",
    "LowerBounds",
    "Membership",
    "NoPlaceError",
    "Reconstruction",
    "Recovered",
    "Scores",
    "Thresholds",
    "View",
    "best_thresholds",
    "by_models",
    "draw_scores",
    "epsilon_one_run",
    "fit_weights",
    "gaussian_estimate",
    "infer_label",
    "infer_labels",
    "infer_membership",
    "invert",
    "invert_view",
    "least_squares",
    "local_update",
    "losses",
    "lower_bounds",
    "mse",
    "nearest",
    "p_value_one_run",
    "psnr",
    "server_view",
    "ssim",
    "state_sum",
    "unmixed",
    "with_canaries",
]
