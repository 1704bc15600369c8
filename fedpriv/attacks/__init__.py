"""Attacks: what an adversary learns from what it sees, measured instead of trusted."""

from fedpriv.attacks.bounds import LowerBounds, epsilon_estimate, epsilon_one_run, lower_bounds
from fedpriv.attacks.canaries import NoPlaceError, with_canaries
from fedpriv.attacks.image_scores import mse, psnr, ssim
from fedpriv.attacks.inversion import Reconstruction, infer_label, invert
from fedpriv.attacks.mechanism_audit import Scores, draw_scores
from fedpriv.attacks.membership import Membership, infer_membership, losses
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
    "LowerBounds",
    "Membership",
    "NoPlaceError",
    "Reconstruction",
    "Recovered",
    "Scores",
    "View",
    "by_models",
    "draw_scores",
    "epsilon_estimate",
    "epsilon_one_run",
    "fit_weights",
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
    "psnr",
    "server_view",
    "ssim",
    "state_sum",
    "unmixed",
    "with_canaries",
]
