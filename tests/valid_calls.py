"""For each public function and class that takes numbers, choices or flags: arguments with which it can be called.

Numbers are sums of a few powers of two, so that every type of numbers holds them exactly.
"""

import atexit
import tempfile
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image
from small import filled, regression, squared, start

import fedpriv as fp
from fedpriv.privacy.profile import PrivacyProfile
from fedpriv.privacy.sampling import Accounting

FOLDER = tempfile.TemporaryDirectory()
atexit.register(FOLDER.cleanup)
CLIENTS = Path(FOLDER.name) / "clients"
fp.write_clients(CLIENTS, [{"x": np.ones((2, 3), np.float32), "label": np.arange(2)}] * 2)
IMAGES = Path(FOLDER.name) / "images"
(IMAGES / "cat").mkdir(parents=True)
Image.new("L", (4, 4)).save(IMAGES / "cat" / "1.png")

FEDERATION = regression([4, 4, 4])
EXAMPLES = {"x": np.ones((12, 3), np.float32), "y": np.zeros(12, np.float32)}
EXAMPLE = {"x": np.ones(3, np.float32), "y": np.float32(0)}
PARAMS, KEY, ROWS = start(), jax.random.key(0), np.arange(12)
LABELS, OWNERS = ROWS % 2, [ROWS[:4], ROWS[4:8], ROWS[8:]]
PERSONS = np.array([0, 1, 1])
OF_PERSONS = fp.Federation.from_arrays(EXAMPLES, OWNERS, person=PERSONS)
DENSE = fp.models.classifier(fp.models.LogisticRegression(2), (3,))
SAMPLER, BATCHES, GAUSSIAN = fp.everyone(3), fp.full_batch(), fp.gaussian(0.5, 2.0)
GRADIENTS, SCORES = fp.per_example(squared), np.linspace(0, 1, 8).astype(np.float32)
PRESENT = ROWS[:8] % 2 == 0
PROFILE = PrivacyProfile(np.array([0.0, 1.0]), np.array([0.5, 0.0]))


def optimizer(t):
    """Of the clients."""
    return optax.sgd(0.5)


def smooth(t):
    """A learning rate."""
    return 1 / (2.0 + t)


def score(params, example):
    """The loss, as a metric."""
    return {"loss": squared(params, example)}


DELAY = fp.delays.geometric(1.5, 2)
TRAINED = {"sampler": SAMPLER, "optimizer": optimizer, "batches": BATCHES}
ALGORITHM = fp.fed_avg(squared, **TRAINED, mechanism=GAUSSIAN)
PERSONS = {"person": [0, 0, 1], "per_person": 2, "seed": 1}
IN_GROUPS = fp.grouped(["a", "a", "b"], {"a": fp.poisson(2, 0.5), "b": fp.poisson(1, 0.25)})
GROUPED = fp.fed_avg(squared, **TRAINED | {"sampler": IN_GROUPS}, mechanism=GAUSSIAN)
STEPS = fp.LocalSteps(GRADIENTS, fp.fixed_size(4, 2), 2, optimizer, GAUSSIAN)
DYNAMIC = fp.dynamic(GAUSSIAN, rounds=4)
TREE = fp.noise_matrices.tree(4)
RELEASE = fp.privacy.Release(
    "server", "client", multiplier=2.0, rounds=3, sampling=SAMPLER.accounting
)
SPLIT = {
    "sampler": fp.fixed_size(3, 2),
    "optimizer": optimizer,
    "batches": BATCHES,
    "splitting": fp.papers.splitting.uniform(0.5),
    "coupling": fp.papers.consensus.coupling(0.25, 0.125),
    "exchanges": fp.papers.consensus.constant(2),
}
SUBMODELS = fp.papers.splitting.Submodels(jnp.ones((2, 4)), jnp.ones((2, 1, 4)), jnp.ones((2, 1)))
MESSAGES = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2, 4)), jnp.float32)
SENT = fp.papers.quantization.quantize(KEY, MESSAGES[0], jnp.float32(-1), jnp.float32(1), 8)
COHORTS = fp.privacy.Poisson(8, 0.5)
SEEN_BY_ALL = fp.privacy.Release("third_party", "client", 4.0, COHORTS, 2)
PRIVACY = {"delta": 2.0**-10, "view": "third_party", "honest": 1.0}
CHECKED = (ALGORITHM, PARAMS, FEDERATION)


def _named(*values, **more):
    """The arguments of a call that begins with an algorithm, parameters and a federation."""
    return dict(zip(("algorithm", "params", "federation"), values, strict=True)) | more


def observed(image, label):
    """What a client shows."""
    return image.reshape(-1)[:2] * (1.0 + label)


SEEN = {
    "observe": observed,
    "labels": jnp.zeros(1, jnp.int32),
    "image_shape": (2, 1, 1),
    "key": KEY,
    "steps": 1,
}
VIEW = fp.attacks.View(jnp.ones((1, 2)), jnp.ones(2, bool), SAMPLER.draw(KEY))
DRAWN = fp.attacks.Scores(SCORES, SCORES / 2, frozenset({"gaussian"}), True)
AUDITED = RELEASE.__class__(
    "server", "client", multiplier=2.0, rounds=1, sampling=SAMPLER.accounting, mechanism=GAUSSIAN
)
CLASSIFIER = fp.models.classifier(fp.models.LogisticRegression(2), (2, 1, 1))
BASE = {"model": CLASSIFIER, "base": filled(CLASSIFIER.init)}
MODEL = SimpleNamespace(init=None, built=None, merged=None)

FUNCTIONS = {
    "Algorithm": {"init": fp.start, "round": ALGORITHM.round, "sampler": SAMPLER, "unit": "client"},
    "ByPublicSizes": {"sizes": [4, 2, 1]},
    "PublicSizes": {"sizes": [4, 2, 1], "batch": None, "rate": 0.5, "capacity": 4},
    "ByExamples": {"cap": 4.0, "mean": 0.5, "estimator": "fixed"},
    "Checkpoints": {"folder": FOLDER.name, "rounds": 2, "minutes": 0.5},
    "types.Codec": {"code": fp.qsgd(8).code, "wire": fp.types.Wire, "lossy": True},
    "types.Dynamic": {
        "start": GAUSSIAN,
        "rounds": 3,
        "clip_decay": 2.0,
        "noise_decay": 2.0,
        "parts": 2,
    },
    "Federation.blank": {
        "example": EXAMPLE,
        "clients": 2,
        "per_client": 3,
        "public": 1,
        "held_out": 1,
    },
    "Federation.from_arrays": {
        "examples": EXAMPLES | {"label": LABELS},
        "clients": OWNERS,
        "num_classes": 2,
        **PERSONS,
    },
    "LocalSteps": {
        "gradients": GRADIENTS,
        "records": fp.everyone(4),
        "steps": 2,
        "optimizer": optimizer,
        "mechanism": GAUSSIAN,
        "unit": "record",
        "stragglers": 0.5,
    },
    "Mechanism": {
        "clip": GAUSSIAN.clip,
        "perturb": GAUSSIAN.perturb,
        "certified_multiplier": 2.0,
        "noise": "gaussian",
    },
    "papers.MedianClipping": {"noise_multiplier": 2.0, "tensors": 2},
    "Opening": {"first": SAMPLER, "rounds": 1, "then": SAMPLER},
    "privacy.Release": {
        "view": "server",
        "unit": "client",
        "multiplier": 2.0,
        "rounds": 3,
        "sampling": SAMPLER.accounting,
        "noise": "gaussian",
        "adder": "own",
        "local_steps": 1,
        "by_record": False,
    },
    "types.ScheduledSampler": {
        "draw": fp.fixed_order(4, 2).draw,
        "slots": 2,
        "expected_size": 2.0,
        "accounting": fp.fixed_order(4, 2).accounting,
        "init": fp.fixed_order(4, 2).init,
    },
    "Sampler": {
        "draw": SAMPLER.draw,
        "slots": 3,
        "expected_size": 3.0,
        "accounting": SAMPLER.accounting,
    },
    "Strategy": {"clients": 2, "devices": 1, "memory": 2**30},
    "StreamedFederation.from_arrays": {
        "examples": EXAMPLES | {"label": LABELS},
        "clients": OWNERS,
        "num_classes": 2,
        "capacity": 5,
        **PERSONS,
    },
    "StreamedFederation.from_folder": {
        "folder": CLIENTS,
        "num_classes": 2,
        "capacity": 5,
        **PERSONS,
        "person": [0, 0],
    },
    "StreamedFederation.from_sorted": {
        "examples": EXAMPLES | {"label": LABELS},
        "sizes": [4, 4, 4],
        "num_classes": 2,
        "capacity": 5,
        **PERSONS,
    },
    "types.Wire": {"values": 5, "bits_per_value": 8, "overhead": 32},
    "adaptive_fed_avg": {
        "loss": squared,
        **TRAINED,
        "quantile": 0.5,
        "clip_norm": 0.5,
        "noise_multiplier": 1.0,
        "count_noise": 2.0,
        "clip_rate": 0.25,
    },
    "FreeClients": {"population": 6, "buffer": 2, "separation": 2},
    "buffered": {
        "client_update": lambda key, params, shard: params,
        "server_step": lambda state, mean: state,
        "sampler": SAMPLER,
        "delay": DELAY,
        "staleness": [1.0, 0.5, 0.25],
        "most_late": 4,
        "mechanism": GAUSSIAN,
    },
    "buffered_fed_avg": {
        "loss": squared,
        **TRAINED,
        "delay": DELAY,
        "staleness": [1.0, 0.5, 0.25],
        "most_late": 4,
        "mechanism": GAUSSIAN,
    },
    "delays.DelayLaw": {"chances": [[0.5, 0.5], [1.0]], "classes": [0, 1, 1]},
    "delays.by_class": {"classes": ["a", "b", "b"], "laws": {"a": DELAY, "b": DELAY}},
    "delays.constant": {"steps": 2},
    "delays.geometric": {"mean": 1.5, "most_late": 2},
    "attacks.draw_scores": {
        "releases": [AUDITED],
        "view": "server",
        "draws": 4,
        "seed": 1,
        "dimension": 2,
    },
    "attacks.best_thresholds": {
        "scores": DRAWN,
        "delta": 2.0**-10,
        "significance": 0.25,
        "runs": 8,
    },
    "attacks.epsilon_one_run": {
        "scores": SCORES,
        "present": PRESENT,
        "delta": 2.0**-10,
        "significance": 0.25,
        "method": "epsilon_delta",
        "guesses": (2, 4),
    },
    "attacks.fit_weights": {
        "messages": MESSAGES,
        "step": 0.25,
        "decay": smooth,
        "number": 1,
        "largest": 0.5,
    },
    "attacks.gaussian_estimate": {"scores": SCORES, "present": PRESENT, "delta": 2.0**-10},
    "attacks.infer_membership": {
        "members": SCORES,
        "others": SCORES,
        "fprs": (0.5, 0.25),
    },
    "attacks.invert": {
        **SEEN,
        "observed": jnp.ones((1, 2)),
        "optimizer": optax.with_extra_args_support(optax.sgd(0.5)),
    },
    "attacks.invert_view": {**SEEN, "view": VIEW},
    "attacks.least_squares": {"messages": MESSAGES, "step": 0.25, "decay": smooth, "different": 1},
    "attacks.local_update": {
        "loss": squared,
        "params": PARAMS,
        "optimizer": optax.sgd(0.5),
        "steps": 2,
    },
    "attacks.losses": {"loss": squared, "params": PARAMS, "examples": EXAMPLES, "batch_size": 4},
    "attacks.lower_bounds": {"scores": DRAWN, "delta": 2.0**-10, "significance": 0.25},
    "attacks.p_value_one_run": {
        "scores": SCORES,
        "present": PRESENT,
        "profile": PROFILE,
        "guesses": (2, 4),
    },
    "attacks.state_sum": {"messages": MESSAGES, "step": 0.25, "number": 2.0},
    "attacks.unmixed": {
        "messages": MESSAGES,
        "received": jnp.zeros(4),
        "step": 0.25,
        "number": 2.0,
    },
    "attacks.with_canaries": {
        "algorithm": ALGORITHM,
        "count": 1,
        "release": RELEASE,
        "per_client": 1,
        "seed": 3,
        "data": dict,
    },
    "calibrate_groups": {
        "make": lambda rates: GROUPED,
        "params": PARAMS,
        "federation": FEDERATION,
        "epsilon": {"a": 512.0, "b": 512.0},
        "rounds": 1,
        **PRIVACY,
        "tolerance": 0.99609375,
    },
    "calibrate_integers": {
        "epsilon": 2.0,
        "clients": 4,
        "dimension": 3,
        "clip_norm": 0.5,
        "rounds": 2,
        "sampler": fp.fixed_size(8, 4),
        **PRIVACY,
        "view": "server_secagg",
        "bits": 12,
        "within": 2.0,
        "noise": "skellam",
    },
    "calibrate_noise": {
        "make": lambda sigma: ALGORITHM,
        "params": PARAMS,
        "federation": FEDERATION,
        "epsilon": 512.0,
        "rounds": 1,
        **PRIVACY,
        "claimed": False,
        "tolerance": 0.5,
    },
    "calibrate_rounds": _named(*CHECKED, epsilon=1.0, **PRIVACY, claimed=False, at_most=1),
    "calibrate_together": {
        "make": lambda sigma: [(ALGORITHM, 1)],
        "params": PARAMS,
        "federation": FEDERATION,
        "epsilon": 512.0,
        **PRIVACY,
        "tolerance": 0.5,
    },
    "capacity_for": {"size": 8.0, "rate": 0.5, "deviations": 4.0},
    "certify": {
        "algorithm": fp.dp_sgd(STEPS, sampler=SAMPLER),
        "params": PARAMS,
        "federation": FEDERATION,
        "rounds": 2,
        **PRIVACY,
        "best_of": 1.0,
        "each_client": True,
    },
    "certify_together": {
        "runs": [(ALGORITHM, 1), (ALGORITHM, 2)],
        "params": PARAMS,
        "federation": FEDERATION,
        **PRIVACY,
    },
    "check_algorithm": _named(*CHECKED, rounds=2, seed=1),
    "clipping.Clipping": {
        "clip": fp.clipping.flat().clip,
        "length": 1.0,
        "worst": fp.clipping.flat().worst,
        "weighted_length": 2.0,
        "dimension": 4,
        "tensors": 1,
    },
    "clipping.coefficients": {"d": 4},
    "clipping.per_layer": {"tensors": 2},
    "clipping.per_level": {"d": 4},
    "clipping.separately": {"tensors": 2},
    "papers.consensus.Coupling": {"step": 0.25, "gamma": 0.125, "decay": smooth},
    "papers.consensus.Exchanges": {"at": jnp.int32, "most": 2},
    "papers.consensus.Transmission": fp.papers.consensus.dynamic(8)._asdict(),
    "papers.consensus.agree": {
        "key": KEY,
        "start": SUBMODELS,
        "sent": SENT,
        "coupling": SPLIT["coupling"],
        "transmission": fp.papers.consensus.full_precision(),
        "rounds": 1,
        "most": 2,
    },
    "papers.consensus.by_rate": {
        "learning_rate": smooth,
        "contraction": 0.5,
        "most": 4,
        "quantized": True,
    },
    "papers.consensus.check_coupling": {
        "coupling": SPLIT["coupling"],
        "size": 3,
        "most": 1,
        "stable": True,
    },
    "papers.consensus.constant": {"count": 2},
    "papers.consensus.coupling": {"step": 0.25, "gamma": 0.125, "decay": "root"},
    "papers.consensus.dynamic": {"bits": 8, "norm": "columns"},
    "papers.consensus.eigenvalues": {"step": 0.25, "size": 3},
    "papers.consensus.exchange": {
        "now": SUBMODELS,
        "mean": jnp.ones(4),
        "sent": jnp.ones((2, 4)),
        "step": 0.25,
        "alpha": jnp.float32(0.5),
    },
    "papers.consensus.fixed": {"bits": 8, "bound": 0.5},
    "papers.consensus.interval_scale": {"step": 0.25, "size": 3},
    "datasets.encode_text": {"texts": ["a", "bc"], "length": 2},
    "datasets.from_image_folder": {"path": IMAGES, "levels": ("label",), "image_size": (2, 4)},
    "datasets.from_torch": {
        "dataset": [(np.ones(2), 0), (np.ones(2), 1)],
        "channels_first": True,
    },
    "datasets.from_tokens": {
        "texts": [[0, 1, 2], [3, 1]],
        "clients": ["a", "b"],
        "length": 2,
        "vocabulary": 4,
        "packed": True,
    },
    "datasets.load": {"name": "digits", "image_size": (8, 8), "text_length": 4},
    "datasets.read_images": {"paths": [IMAGES / "cat" / "1.png"], "image_size": (2, 4)},
    "datasets.synthetic": {
        "alpha": 0.5,
        "beta": 0.5,
        "clients": 2,
        "records": 8,
        "seed": 1,
        "preprocess": False,
        "flip_to": "any",
    },
    "distributed.initialize": {"num_processes": None, "process_id": None, "timeout": 2.0},
    "ditto": {"loss": squared, **TRAINED, "lam": 0.5, "mechanism": GAUSSIAN},
    "dp_fed_avg": {"loss": squared, **TRAINED, "clip_norm": 0.5, "noise_multiplier": 2.0},
    "papers.dp_fed_avg_wav": {
        "loss": squared,
        **TRAINED,
        "d": 4,
        "clip_norm": 0.5,
        "noise_multiplier": 2.0,
        "bounded": "update",
    },
    "dp_scaffold": {
        "local": STEPS,
        "sampler": SAMPLER,
        "warm_start": 2,
        "everyone_first": True,
    },
    "dp_sgd": {
        "local": STEPS._replace(steps=1),
        "sampler": SAMPLER,
        "together": True,
        "claim": "dp_scaffold",
    },
    "papers.dp_sgd_wav": {"local": STEPS, "sampler": SAMPLER, "noise_on_each": True},
    "dynamic": {
        "start": GAUSSIAN,
        "rounds": 3,
        "clip_decay": 2.0,
        "noise_decay": 2.0,
        "parts": 2,
    },
    "epochs": {"count": 2, "batch_size": 2, "micro": 1},
    "full_batch": {"micro": 2},
    "everyone": {"population": 3},
    "fed_avg_alternating": {
        "loss": squared,
        **TRAINED,
        "turns": ("w", "b"),
        "by": "steps",
        "after": None,
        "mechanism": GAUSSIAN,
    },
    "fed_opt.adagrad": {"learning_rate": 0.5, "momentum": 0.5, "adaptivity": 0.25},
    "fed_opt.adam": {
        "learning_rate": 0.5,
        "momentum": 0.5,
        "second_momentum": 0.5,
        "adaptivity": 0.25,
    },
    "fed_opt.yogi": {
        "learning_rate": 0.5,
        "momentum": 0.5,
        "second_momentum": 0.5,
        "adaptivity": 0.25,
    },
    "fed_sgd": {"loss": squared, "sampler": SAMPLER, "learning_rate": 0.5},
    "fed_smp": {
        "loss": squared,
        **TRAINED,
        "sparsifier": fp.papers.select_rand_k(0.5),
        "clip_norm": 0.5,
        "noise_multiplier": 2.0,
    },
    "correlated": {"mechanism": GAUSSIAN, "factorization": TREE, "adder": "enclave"},
    "cyclic_poisson": {"population": 4, "groups": 2, "rate": 0.5, "capacity": 2},
    "by_person": {"sampler": fp.poisson(2, 0.5), "federation": OF_PERSONS},
    "dropping": {"sampler": SAMPLER, "rate": 0.5, "noise": "lost"},
    "fixed_order": {"population": 4, "size": 2, "participations": 2},
    "random_allocation": {"population": 4, "block": 2, "capacity": 3},
    "random_availability": {
        "population": 4,
        "size": 2,
        "separation": 2,
        "availability": 0.5,
        "participations": 2,
    },
    "shuffled_blocks": {"population": 4, "size": 2, "participations": 2},
    "papers.fixed_interval": {"bits": 8, "bound": 0.5},
    "fixed_size": {"population": 5, "size": 2},
    "gaussian": {"clip_norm": 0.5, "noise_multiplier": 2.0},
    "discrete_gaussian": {"clip_norm": 0.5, "noise_multiplier": 2.0, "bits": 16},
    "skellam": {"clip_norm": 0.5, "noise_multiplier": 2.0, "bits": 16},
    "papers.jopeq": {
        "loss": squared,
        **TRAINED,
        "bits": 8,
        "bound": 0.5,
        "epsilon": 2.0,
        "noise": "t",
    },
    "laplace": {"clip_norm": 0.5, "noise_multiplier": 2.0},
    "models.load_model": {"folder": FOLDER.name, "algorithm": "none", "seed": 1},
    "measures.heterogeneity": {"loss": squared, "l2": 0.5, "minimum": 0.25},
    "measures.minimum_of": {
        "loss": squared,
        "params": PARAMS,
        "federation": FEDERATION,
        "l2": 0.5,
    },
    "measures.objective": {"loss": squared, "l2": 0.5},
    "measures.per_client": {
        "score": score,
        "clients": 2,
        "bound": {"loss": 0.5},
        "on": "held_out",
    },
    "measures.per_group": {
        "score": score,
        "groups": ["a", "b", "a"],
        "clients": 2,
        "on": "held_out",
    },
    "mechanism": {
        "clipping": fp.clipping.flat(),
        "noise": fp.noise.isotropic(),
        "clip_norm": 0.5,
        "noise_multiplier": 2.0,
        "calibrated": True,
    },
    "papers.median_norm": {
        "gradients": GRADIENTS,
        "params": PARAMS,
        "examples": EXAMPLES,
        "chunk": 4,
    },
    "models.CNN": {"filters": (4,), "hidden": (4, 4), "classes": 2, "weights": "pytorch"},
    "models.CharacterLSTM": {"vocabulary": 4, "embedding": 2, "hidden": 2},
    "models.CharacterTransformer": {"vocabulary": 4, "width": 4, "heads": 2, "blocks": 1},
    "models.DropoutCNN": {"classes": 2, "mean": (0.5,), "std": (0.25,)},
    "models.LogisticRegression": {"classes": 2},
    "models.MLP": {"hidden": (4, 4), "classes": 2},
    "models.SigmoidLeNet": {"classes": 2},
    "models.adapters": {**BASE, "rank": 1, "where": "kernel", "alpha": 2.0, "stacked": None},
    "models.Prompted": {
        "module": fp.models.CharacterTransformer(4, 4, 2, 1),
        "vectors": 2,
        "width": 4,
        "embedding": "Embed_0",
    },
    "models.Transformer": {
        "vocabulary": 4,
        "width": 4,
        "heads": 2,
        "layers": 1,
        "scan_layers": False,
        "remat": False,
    },
    "models.classification_score": {"apply": lambda params, x: x, "classes": 2},
    "models.fashion_mnist_cnn": {"weights": "pytorch"},
    "models.frozen": {**BASE, "trainable": "kernel"},
    "models.initializers": {"weights": "pytorch", "fan_in": 4},
    "models.refactored": {"params": {"w": {"A": jnp.ones((4, 2)), "B": jnp.ones((2, 3))}}},
    "models.next_token": {"network": fp.models.CharacterLSTM(4, 2, 2), "length": 2},
    "models.svhn_cnn": {"weights": "pytorch"},
    "papers.msp_fl": {
        "loss": squared,
        **SPLIT,
        "submodels": (1, 1),
        "secret": 1,
        "unstable": False,
    },
    "papers.mspdq_fl": {"loss": squared, **SPLIT, "bits": 8, "norm": "columns"},
    "noise.Noise": {
        "draw": fp.noise.isotropic().draw,
        "reach": fp.noise.isotropic().reach,
        "whiten": fp.noise.isotropic().whiten,
        "dimension": 4,
    },
    "noise_matrices.banded": {"rounds": 4, "bands": 2, "momentum": 0.5},
    "noise_matrices.banded_inverse": {"rounds": 4, "bands": 2, "momentum": 0.5},
    "noise_matrices.banded_toeplitz": {"rounds": 4, "bands": 2, "momentum": 0.5},
    "noise_matrices.blt": {
        "rounds": 4,
        "separation": 2,
        "participations": 2,
        "buffers": 1,
        "momentum": 0.5,
    },
    "noise_matrices.error": {
        "factorization": TREE,
        "rounds": 4,
        "separation": 2,
        "most": 2,
        "momentum": 0.5,
    },
    "noise_matrices.least_error": {
        "candidates": [TREE],
        "rounds": 4,
        "separation": 2,
        "most": 2,
        "momentum": 0.5,
    },
    "noise_matrices.identity": {"rounds": 4},
    "noise_matrices.tree": {"rounds": 4, "restart_every": 2},
    "noise.haar_noise": {"d": 4, "form": "orthonormal"},
    "partition.dirichlet": {"labels": LABELS, "clients": 2, "alpha": 64.0, "min_size": 1},
    "partition.dirichlet_mixtures": {"labels": LABELS, "clients": 2, "alpha": 0.5},
    "partition.hold_out": {"total_or_rows": 12, "count": 2, "stratify": [0, 1] * 6},
    "partition.iid": {"total_or_rows": 12, "clients": 2},
    "partition.quantity_skew": {
        "total_or_rows": 12,
        "clients": 2,
        "alpha": 64.0,
        "min_size": 1,
    },
    "partition.shards": {"labels": LABELS, "clients": 2, "shards_per_client": 2},
    "partition.similar": {"labels": LABELS, "clients": 2, "percent": 50.0},
    "per_example": {"loss": DENSE.loss, "l2": 0.5, "closed_form": True, "micro": 2},
    "poisson": {"population": 5, "rate": 0.5, "capacity": 4},
    "proximal": {"optimizer": optax.sgd(0.5), "mu": 0.5},
    "qsgd": {"bits": 8},
    "papers.quantization.quantize": {
        "key": KEY,
        "x": jnp.ones(3),
        "low": jnp.float32(0),
        "high": jnp.float32(2),
        "bits": 4,
    },
    "models.save_model": {
        "folder": FOLDER.name,
        "algorithm": "kept",
        "seed": 1,
        "model": MODEL,
        "params": PARAMS,
    },
    "papers.select_rand_k": {"p": 0.5, "unbiased": True, "period": 2},
    "papers.select_top_k": {"p": 0.5, "batches": BATCHES, "period": 2},
    "simulate": _named(
        *CHECKED, test=EXAMPLES, score=score, rounds=1, every=1, seeds=(0,), secret_seed=1
    ),
    "distributed.split_cpu": {"devices": 2},
    "papers.splitting.equal": {"key": KEY, "shape": (2, 1)},
    "papers.splitting.gaussian": {"std": 0.5},
    "papers.splitting.invisible": {
        "key": KEY,
        "w": jnp.ones(4),
        "a": jnp.ones(4),
        "m": jnp.int32(1),
        "most": 2,
    },
    "papers.splitting.laplace": {"sensitivity": 0.5, "epsilon": 2.0},
    "papers.splitting.per_client": {"least": 0.5},
    "papers.splitting.per_submodel": {"least": 0.5},
    "papers.splitting.uniform": {"factor": 0.5},
    "random_batches": {"count": 2, "batch_size": 2, "micro": 1},
    "straggling": {"work": BATCHES, "rate": 0.5},
    "top_k": {"k": 2},
    "papers.haar.haar": {"x": jnp.ones(4), "form": "orthonormal"},
    "papers.haar.inverse_haar": {"coefficients": jnp.ones(4), "length": 3, "form": "orthonormal"},
    "papers.haar.padded_length": {"length": 3},
    "papers.haar.variance_left": {"variances": np.ones(4), "form": "orthonormal"},
    "papers.haar.weights": {"m": 4},
    "papers.haar_mechanism": {
        "d": 4,
        "clip_norm": 0.5,
        "noise_multiplier": 2.0,
        "clip": "levels",
        "calibrated": True,
    },
    "with_replacement": {"sizes": [1.0, 2.0], "size": 2},
    "papers.dp_scaffold_claim": {
        "noise_multiplier": 4.0,
        "clients_per_round": 4,
        "client_rate": 0.5,
        "record_rate": 0.5,
        "local_steps": 2,
        "rounds": 2,
        "delta": 2.0**-10,
        "view": "server",
        "median_clip": False,
    },
    "papers.fed_smp_claim": {
        "multiplier": 4.0,
        "sampling": COHORTS,
        "rounds": 2,
        "delta": 2.0**-10,
    },
    "papers.haar_multiplier": {"noise_multiplier": 2.0, "m": 4, "clip": "gradient"},
    "papers.jopeq_claim": {"epsilon": 2.0, "noise": "t"},
    "papers.msp_laplace_claim": {"epsilon": 2.0},
    "papers.mspdq_claim": {"levels": 16, "bits": 4, "interval": 0.5, "difference": 0.125},
    "papers.noise_cohort_claim": {
        "noise_multiplier": 2.0,
        "cohort": 4,
        "population": 8,
        "rounds": 2,
        "delta": 2.0**-10,
    },
    "papers.t_epsilon": {"distance": 0.5, "scale": 2.0, "degrees": 4.0, "dim": 2},
    "papers.wavelet_claim": {
        "noise_multiplier": 4.0,
        "sampling": COHORTS,
        "rounds": 2,
        "delta": 2.0**-10,
        "unit": "client",
        "reach": 2.0,
    },
    "privacy.Allocation": {"population": 8, "block": 4, "capacity": 4, "neighbour": "removed"},
    "privacy.CyclicPoisson": {"population": 8, "groups": 2, "rate": 0.5, "capacity": 4},
    "privacy.Dropping": {"population": 8, "size": 4, "dropout": 0.25, "noise_is_lost": True},
    "privacy.Everyone": {"population": 8},
    "privacy.FixedSize": {"population": 8, "size": 4},
    "privacy.MinimumSeparation": {
        "population": 8,
        "most": 2,
        "separation": 2,
        "participations": 2,
    },
    "privacy.Poisson": {"population": 8, "rate": 0.5, "capacity": 4, "neighbour": "removed"},
    "privacy.RandomAllocation": {"population": 8, "block": 4, "capacity": 4},
    "privacy.WithReplacement": {"population": 8, "size": 4, "largest": 0.25},
    "privacy.certify_choice": {"settings": [[SEEN_BY_ALL]], "delta": 2.0**-10, "best_of": 2.0},
    "privacy.certify_releases": {
        "releases": [RELEASE],
        "delta": 2.0**-10,
        "view": "server",
        "honest": 1.0,
        "best_of": 1.0,
    },
    "privacy.whitened_multiplier": {"noise_std": np.ones(3), "clip_norm": 0.5},
}

AGE = {"values": "y"}
FUNCTIONS |= {
    "statistics.count": {"most": 2},
    "statistics.mean": {**AGE, "bounds": (0.0, 1.0), "axis": ()},
    "statistics.mean_and_variance": {"values": "x", "bounds": (0.0, 1.0), "axis": (0,)},
    "statistics.quantile": {**AGE, "q": 0.5, "bins": (0.0, 1.0)},
    "statistics.adaptive_quantile": {**AGE, "q": 0.5, "start": 2.0, "rounds": 2, "rate": 0.25},
    "statistics.heavy_hitters": {**AGE, "candidates": (0, 1), "most": 1},
}
STATISTIC = fp.statistics.count()

METHODS = {
    "PublicGroups.accounting_of": (
        fp.PublicGroups([["a", "b"], ["a"]], batch={"a": 2, "b": 1}),
        {"size": 4, "group": "a"},
    ),
    "statistics.Statistic.algorithm": (
        STATISTIC,
        {"federation": FEDERATION, "noise_multiplier": 2.0, "unit": "client"},
    ),
    "statistics.Statistic.release": (
        STATISTIC,
        {
            "federation": FEDERATION,
            "noise_multiplier": 2.0,
            "epsilon": None,
            "unit": "client",
            "seed": 1,
            "secret_seed": None,
        }
        | PRIVACY,
    ),
    "PublicSizes.accounting_of": (fp.PublicSizes([4, 2, 1], batch=2), {"size": 4}),
    "ByExamples.bounded": (
        fp.ByExamples(4.0),
        {"total": jnp.ones(3), "weights": jnp.ones(2), "expected_size": 2.0},
    ),
    "types.Dynamic.in_round": (DYNAMIC, {"t": 1}),
    "types.Dynamic.multipliers": (DYNAMIC, {"rounds": 2}),
    "noise_matrices.Factorization.noising": (TREE, {"rounds": 4}),
    "noise_matrices.Factorization.sensitivity": (TREE, {"rounds": 4, "separation": 2, "most": 2}),
    "noise_matrices.Factorization.strategy": (TREE, {"rounds": 4}),
    "Mechanism.in_round": (GAUSSIAN, {"t": 1}),
    "Mechanism.multipliers": (GAUSSIAN, {"rounds": 2}),
    "papers.MedianClipping.in_round": (fp.papers.MedianClipping(1.0), {"t": 1}),
    "papers.MedianClipping.multipliers": (fp.papers.MedianClipping(1.0), {"rounds": 2}),
    "privacy.Release.with_honest": (RELEASE, {"fraction": 0.5}),
    "privacy.Release.moved": (RELEASE, {"times": 2.0}),
    "types.Weighting.bounded": (
        fp.types.Weighting(),
        {"total": jnp.ones(3), "weights": (), "expected_size": 2.0},
    ),
    "privacy.PrivacyProfile.epsilon": (PROFILE, {"delta": 2.0**-10}),
}

GENERATORS = (
    "partition.dirichlet",
    "partition.dirichlet_mixtures",
    "partition.hold_out",
    "partition.iid",
    "partition.quantity_skew",
    "partition.shards",
    "partition.similar",
)
"""They draw from a generator, which is a new one for every call."""

NOT_RUN = {
    "noise_matrices.banded": "it optimises for seconds",
    "noise_matrices.banded_toeplitz": "it optimises for seconds",
    "noise_matrices.blt": "it optimises for half a minute",
    "distributed.split_cpu": "it would change the environment of all later processes",
}
NOT_COMPARED = NOT_RUN | {
    "check_algorithm": "it gives nothing back",
    "simulate": "its history has times",
}

LEFT_OUT = {
    "Certificate": "what fedpriv gives back",
    "Checkpoints.opened": "asked by fedpriv, with what it has checked",
    "privacy.Claim": "what the claims of `fedpriv.privacy` give back, whose numbers they check",
    "Cohort": "made by the engine",
    "Cohort.sum": "within a round only: tests/test_cohort.py",
    "DivergedError": "what fedpriv raises",
    "types.Evaluation": "what fedpriv gives back",
    "types.PublicEvaluation": "what fedpriv gives back",
    "Federation": "made by `from_arrays`",
    "History": "what fedpriv gives back",
    "LocalSteps.run": "within a round only: `moving` is computed there",
    "Shard": "made by the engine, within a round",
    "Shard.private_steps": "within a round only: tests/mistakes.py",
    "StreamedFederation": "made by `from_arrays` and the like",
    "History.params": "of a run: tests/test_simulate.py",
    "History.state_of": "of a run: tests/test_simulate.py",
    "attacks.GaussianEstimate": "what fedpriv gives back",
    "attacks.LowerBounds": "what fedpriv gives back",
    "attacks.Membership": "what fedpriv gives back",
    "attacks.Scores": "what fedpriv gives back",
    "attacks.Thresholds": "what fedpriv gives back",
    "datasets.Dataset": "what fedpriv gives back",
    "noise_matrices.Error": "what fedpriv gives back",
    "papers.Sparsifier": "what `select_rand_k` and `select_top_k` give back",
    "privacy.OperationalNumbers": "what fedpriv gives back",
    "privacy.PrivacyProfile": "what fedpriv gives back",
    "statistics.Released": "what fedpriv gives back",
    "statistics.Statistic": "made by the functions of `fp.statistics`",
    "types.ClientRows": "made by federations",
    "types.CohortFederation": "made by the engine",
    "types.Composition": "made by `certify_releases`",
    "types.Persons": "made by federations",
    "types.Plan": "what batches give back",
    "privacy.DrawCase": "given back by samplings",
    "privacy.Losses": "given back by samplings",
    "Sampler.accounting_of": "asked by fedpriv, with a number of records that it counted",
}
SAMPLINGS = [
    c for c in vars(fp.privacy).values() if isinstance(c, type) and issubclass(c, Accounting)
]
LEFT_OUT |= {
    f"privacy.{c.__name__}.{method}": "asked by fedpriv, with what it has checked"
    for c in SAMPLINGS
    for method in (
        "cases_of_several",
        "in_words",
        "rounds_of_a_unit",
        "losses",
        "how_drawn",
        "limits",
        "cases_of_several",
        "one_draw",
        "turn",
    )
}
