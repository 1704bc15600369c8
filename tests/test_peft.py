"""Adapters in PEFT's files: its products in NumPy, its logits where PyTorch and PEFT are installed, and back."""

import json

import flax.linen as nn
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from torch_networks import NETWORKS

import fedpriv as fp
from fedpriv import models
from fedpriv.models import load_peft, pytorch_weights, save_peft
from fedpriv.models.named_leaves import named_leaves

pytestmark = pytest.mark.usefixtures("quick_to_compile")


class Text(nn.Module):
    """Logits of ONE text: embeddings, two equal Linears whose names end alike, a norm, and a head."""

    @nn.compact
    def __call__(self, x):
        x = nn.Embed(11, 6, name="words")(x)
        for i in range(2):
            x = x + nn.Dense(6, name=f"fc{i}")(nn.relu(x))
        x = nn.LayerNorm(epsilon=1e-5, name="norm")(x.mean(0))
        return nn.Dense(3, name="head")(x)


def text_torch(torch):
    n = torch.nn

    class Module(n.Module):
        def __init__(self):
            super().__init__()
            self.words, self.fc, self.norm = n.Embedding(11, 6), n.Linear(6, 6), n.LayerNorm(6)
            self.inside = n.Sequential(n.Sequential(n.ReLU(), n.Linear(6, 6)))
            self.inside.add_module("fc", n.ReLU())
            self.head = n.Linear(6, 3)

        def forward(self, x):
            x = self.words(x)
            x = x + self.fc(x.relu())
            x = x + self.inside[0](x)
            return self.head(self.norm(x.mean(1)))

    return Module()


ENTRIES = {
    "words.weight": (11, 6), "fc.weight": (6, 6), "fc.bias": (6,), "inside.0.1.weight": (6, 6),
    "inside.0.1.bias": (6,), "norm.weight": (6,), "norm.bias": (6,), "head.weight": (3, 6), "head.bias": (3,),
}  # fmt: skip
TEXTS = np.random.default_rng(0).integers(0, 11, (5, 4))
TEXT = (
    models.classifier(Text(), TEXTS[0], "text"), TEXTS, TEXTS, ENTRIES,
    {"fc": "fc0", "inside.0.1": "fc1"}, {}, text_torch, "",
)  # fmt: skip


def of(name, where):
    """A network of other tests, whose leaves `where` get adapters."""
    n = NETWORKS[name]
    return (n.model, n.inputs, n.as_ours, n.entries, n.layers, n.options, n.torch, where)


CASES = {
    "text": TEXT,
    "mlp": of("mlp", "kernel"),
    "flattened": of("cnn", r"Dense_\d\.kernel"),
    "transformer": of("transformer", "up|down|tokens|head"),
    "head": of("norms and groups", "head"),
}
RANKS = ({"Dense_1|head|fc1": 1, "": 2}, 3.0)  # of different scaling, too


def random_params(shapes, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda s: rng.normal(0, 0.3, s.shape).astype(np.float32), shapes)


def adapted(case, rank=RANKS[0], alpha=RANKS[1]):
    """(state, base, fine-tuned model, parameters) with random numbers, of B as well."""
    model, *_, entries, layers, options, _, where = case
    state = random_params({n: np.zeros(shape, np.float32) for n, shape in entries.items()}, 0)
    base = pytorch_weights(model, state, layers, **options)
    lora = fp.models.adapters(model, base, rank, where, alpha=alpha)
    return state, base, lora, random_params(jax.eval_shape(lora.init, jax.random.key(0)), 1)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_formula(name, tmp_path):
    """The weights of PyTorch with (lora_alpha / r) lora_B lora_A of the files are those of the merged network."""
    model, *_, layers, options, _, _ = case = CASES[name]
    state, _, lora, params = adapted(case)
    save_peft(tmp_path, lora, params, state, layers, **options, base_model="some/base")
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["base_model_name_or_path"]) == ("LORA", "some/base")
    file, whole = load_file(tmp_path / "adapter_model.safetensors"), dict(state)
    assert len(file) == 2 * len(params)
    for key in [key for key in file if "_A" in key]:
        module = key.removeprefix("base_model.model.").partition(".lora")[0]
        a, b = file[key].astype(np.float64), file[key.replace("_A", "_B")].astype(np.float64)
        exactly = "^" + module.replace(".", r"\.")
        rank = config["rank_pattern"].get(exactly, config["r"])
        alpha = config["alpha_pattern"].get(exactly, config["lora_alpha"])
        assert a.shape[0] == b.shape[1] == rank
        product = alpha / rank * (b @ a)
        whole[f"{module}.weight"] = state[f"{module}.weight"] + (
            product.T if "embedding" in key else product
        )
    merged = named_leaves(lora.merged(params))
    for path, leaf in named_leaves(pytorch_weights(model, whole, layers, **options)).items():
        np.testing.assert_allclose(leaf, merged[path], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_back_are_the_same_parameters(name, tmp_path):
    *_, layers, options, _, _ = case = CASES[name]
    state, base, lora, params = adapted(case)
    save_peft(tmp_path / "new", lora, params, state, layers, **options)
    back = load_peft(tmp_path / "new", lora, state, layers, **options)
    jax.tree.map(np.testing.assert_array_equal, back, params)
    other = fp.models.adapters(case[0], base, RANKS[0], case[-1], alpha=1.0)
    scaled = load_peft(tmp_path / "new", other, state, layers, **options)
    jax.tree.map(close, other.merged(scaled), lora.merged(params))


@pytest.mark.parametrize("patterns", [{}, None])
def test_no_pattern_is_none(patterns, tmp_path):
    """PEFT's own configs may say null."""
    *_, layers, options, _, _ = case = CASES[next(iter(CASES))]
    state, _, lora, params = adapted(case)
    save_peft(tmp_path, lora, params, state, layers, **options)
    file = tmp_path / "adapter_config.json"
    said = json.loads(file.read_text()) | {"alpha_pattern": patterns, "rank_pattern": patterns}
    file.write_text(json.dumps(said))
    back = load_peft(tmp_path, lora, state, layers, **options)
    jax.tree.map(np.testing.assert_array_equal, back, params)


@pytest.mark.parametrize("alpha", [3.0, None])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_peft(name, alpha, tmp_path, request):
    """Of the files written here, and, back, of those that PEFT writes of its own adapters."""
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    torch.manual_seed(0)
    fast = (
        torch.backends.mha.get_fastpath_enabled()
    )  # of a transformer's layer, which asks no Linear
    torch.backends.mha.set_fastpath_enabled(False)
    request.addfinalizer(lambda: torch.backends.mha.set_fastpath_enabled(fast))
    _, inputs, ours, _, layers, options, module_of, _ = case = CASES[name]
    state, _, lora, params = adapted(case, alpha=alpha)
    save_peft(tmp_path / "ours", lora, params, state, layers, **options)

    def module():
        made = module_of(torch)
        made.load_state_dict({n: torch.from_numpy(array) for n, array in state.items()})
        return made.eval()

    def logits(of):
        with torch.no_grad():
            return of(torch.from_numpy(inputs)).numpy()

    loaded = peft.PeftModel.from_pretrained(module(), tmp_path / "ours").eval()
    close(lora.predict(params, ours), logits(loaded))
    assert np.abs(logits(loaded) - logits(module())).max() > 1e-3
    config = peft.LoraConfig.from_pretrained(tmp_path / "ours")
    written = peft.get_peft_model(
        module(),
        peft.LoraConfig(
            r=config.r,
            lora_alpha=5,
            target_modules=config.target_modules,
            use_rslora=alpha is None,
            rank_pattern=config.rank_pattern,
            init_lora_weights=False,
        ),
    ).eval()
    written.save_pretrained(tmp_path / "theirs")
    theirs = load_peft(tmp_path / "theirs", lora, state, layers, **options)
    close(lora.predict(theirs, ours), logits(written))
