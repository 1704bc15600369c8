"""Adapters that PEFT's files cannot hold, and files that hold something else."""

import json
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
from safetensors.numpy import load_file, save_file

from fedpriv import models
from refused.pytorch_weights import CONVOLVED, IMAGE, LAYERS, MODEL, STATE, Layers

WEIGHTS, CONFIG = "new/adapter_model.safetensors", "new/adapter_config.json"
KEY = jax.random.key(0)
BASE = models.pytorch_weights(MODEL, STATE, LAYERS)
ONE = {"a.weight": STATE["a.weight"]}
LORA = models.adapters(MODEL, BASE, 2)


def saved(model=LORA, state=STATE, layers=LAYERS, params=None, **options):
    params = model.init(KEY) if params is None else params
    models.save_peft("new", model, params, state, layers, **options)


def of_convolutions():
    model = models.classifier(Layers(), np.zeros(IMAGE, np.float32))
    base = model.init(KEY)
    saved(models.adapters(model, base, 2, "second"), CONVOLVED, None, flattened={"head": 4})


class Attention(nn.Module):
    """Of one text of vectors."""

    @nn.compact
    def __call__(self, x):
        return nn.MultiHeadDotProductAttention(2, name="attention")(x).mean(0)


def of_attention():
    model = models.classifier(Attention(), np.zeros((3, 4), np.float32), "x")
    state = {"attention.in_proj_weight": np.ones((12, 4)), "attention.in_proj_bias": np.ones(12)}
    saved(models.adapters(model, model.init(KEY), 1, "query"), state, None)


def of_scanned_layers():
    model = models.next_token(models.Transformer(4, 8, 2, 2), 3)
    lora = models.adapters(model, model.init(KEY), 1, "layers", stacked="layers")
    saved(lora, {"norm.weight": np.ones(8)}, None)


def changed(rank=2, weights=None, **config):
    """Reads files that were written, and changed."""
    saved()
    file, about = Path(WEIGHTS), Path(CONFIG)
    save_file((weights or dict)(load_file(file)), file)
    about.write_text(json.dumps(json.loads(about.read_bytes()) | config))
    models.load_peft("new", models.adapters(MODEL, BASE, rank), STATE, LAYERS)


def with_bytes(name, data):
    saved()
    Path(name).write_bytes(data)
    models.load_peft("new", LORA, STATE, LAYERS)


def more(arrays):
    return arrays | {"base_model.model.a.lora_magnitude_vector": np.ones(5)}


def of_all(number, kind=np.float64):
    """Makes every number of the factors this one."""
    return lambda arrays: {name: np.full(a.shape, number, kind) for name, a in arrays.items()}


def fewer(arrays):
    return {name: array for name, array in arrays.items() if ".b." not in name}


ROWS = [
    ("no adapters", lambda: saved(MODEL), "model", "Model"),
    ("a number", lambda: saved(3, params={}), "model", "3"),
    ("parameters of another", lambda: saved(params={"a": 1}), "params", "a"),
    ("no path", lambda: models.save_peft(3, LORA, LORA.init(KEY), STATE, LAYERS), "folder", "3"),
    ("a base of no name", lambda: saved(base_model=3), "base_model", "3"),
    ("no entry", lambda: saved(state=ONE, layers={"a": "Dense_0"}), "model", "Dense_1.kernel"),
    ("scanned layers", of_scanned_layers, "model", "scanned"),
    ("a convolution", of_convolutions, "model", "[4, 4, 3, 3]"),
    ("attention", of_attention, "model", "attention.query.kernel"),
    ("other ranks", lambda: changed(rank=1), WEIGHTS, ("[16, 2]", "[16, 1]")),
    ("more than LoRA", lambda: changed(weights=more), WEIGHTS, "lora_magnitude_vector"),
    ("fewer layers", lambda: changed(weights=fewer), WEIGHTS, "lora_A.weight"),
    ("DoRA", lambda: changed(use_dora=True), CONFIG, "use_dora"),
    ("PiSSA", lambda: changed(init_lora_weights="pissa"), CONFIG, "pissa"),
    ("another method", lambda: changed(peft_type="IA3"), CONFIG, "IA3"),
    ("an alpha of zero", lambda: changed(lora_alpha=0), CONFIG, "lora_alpha"),
    ("a text for alpha", lambda: changed(lora_alpha="x"), CONFIG, "'x'"),
    ("digits for alpha", lambda: changed(lora_alpha="3"), CONFIG, ("lora_alpha", "'3'")),
    ("True for alpha", lambda: changed(lora_alpha=True), CONFIG, ("lora_alpha", "True")),
    ("no number for alpha", lambda: changed(lora_alpha=None), CONFIG, ("lora_alpha", "None")),
    ("an infinite alpha", lambda: changed(lora_alpha=np.inf), CONFIG, ("lora_alpha", "inf")),
    ("an alpha of NaN", lambda: changed(lora_alpha=np.nan), CONFIG, ("lora_alpha", "nan")),
    ("an alpha of many digits", lambda: changed(lora_alpha=10**400), CONFIG, ("lora_alpha", "digits")),
    ("an alpha beyond float32", lambda: changed(weights=of_all(1), lora_alpha=1e60), WEIGHTS, ("B", "1e+60")),
    ("an infinite product", lambda: changed(lora_alpha=1e308, weights=of_all(1e30)), WEIGHTS, ("B", "1e+308")),
    ("True for r", lambda: changed(r=True), CONFIG, ("r", "True")),
    ("digits for r", lambda: changed(r="2"), CONFIG, ("r", "'2'")),
    ("an infinite r", lambda: changed(r=np.inf), CONFIG, ("r", "inf")),
    ("digits in a pattern", lambda: changed(alpha_pattern={"a": "3"}), CONFIG, ("alpha_pattern", "'3'")),
    ("True in a pattern", lambda: changed(alpha_pattern={"a": True}), CONFIG, ("alpha_pattern", "True")),
    ("an infinite pattern", lambda: changed(alpha_pattern={"a": np.inf}), CONFIG, ("alpha_pattern", "inf")),
    ("digits in a rank's pattern", lambda: changed(rank_pattern={"a": "3"}), CONFIG, ("rank_pattern", "'3'")),
    ("patterns of a list", lambda: changed(alpha_pattern=[3]), CONFIG, "list"),
    ("factors beyond float32", lambda: changed(weights=of_all(1e300)), WEIGHTS, ("A", "float32")),
    ("infinite factors", lambda: changed(weights=of_all(np.inf, np.float32)), WEIGHTS, ("A", "float32")),
    ("factors of NaN", lambda: changed(weights=of_all(np.nan, np.float32)), WEIGHTS, ("A", "float32")),
    ("a bad pattern", lambda: changed(alpha_pattern={"(": 1}), CONFIG, "position 0"),
    ("a list", lambda: with_bytes(CONFIG, b"[]"), CONFIG, "list"),
    ("no JSON", lambda: with_bytes(CONFIG, b"{"), CONFIG, "JSONDecodeError"),
    ("no weights", lambda: with_bytes(WEIGHTS, b"1"), WEIGHTS, "SafetensorError"),
    ("no folder", lambda: models.load_peft("none", LORA, STATE, LAYERS), "none/adapter_config.json", "No such file"),
]  # fmt: skip
