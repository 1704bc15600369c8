"""A model that was kept is what it was, to the bit; a folder from somebody else runs no code."""

import json
import os
import pickle
import subprocess
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from small import assert_identical, filled, refused

import fedpriv as fp
from fedpriv.models.kept_model import NETWORK, PARAMETERS, model_folder

SMALL = {
    "LogisticRegression": fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1)),
    "MLP": fp.models.classifier(fp.models.MLP((4, 3), 3), (2, 2, 1)),
    "CNN": fp.models.classifier(fp.models.CNN((2, 3), (5,), 3, "pytorch"), (4, 4, 1)),
    "DropoutCNN": fp.models.classifier(fp.models.DropoutCNN(3, (0.5,), (0.2,)), (6, 6, 1)),
    "SigmoidLeNet": fp.models.classifier(fp.models.SigmoidLeNet(3), (8, 8, 1)),
    "CharacterLSTM": fp.models.shakespeare_lstm(),
    "CharacterTransformer": fp.models.next_character(fp.models.CharacterTransformer(9, 4, 2, 1)),
    "Transformer": fp.models.next_token(fp.models.Transformer(9, 4, 2, 1, remat=True), 6),
}


@pytest.fixture
def kept(tmp_path):
    """A folder with the model of an MLP."""
    fp.models.save_model(tmp_path, "a", 0, SMALL["MLP"], filled(SMALL["MLP"].init))
    return tmp_path


@tiers.every("name", SMALL)
def test_every_network_of_the_package_comes_back_to_the_bit(name, tmp_path):
    model = SMALL[name]
    params = filled(model.init)
    fp.models.save_model(tmp_path, "dp_sgd p=0.1", 3, model, params)
    found, apply = fp.models.load_model(tmp_path, "dp_sgd p=0.1", 3)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    assert_identical(found, params)
    shape, dtype = model.built.input.shape, model.built.input.dtype
    x = jnp.asarray(np.random.default_rng(0).integers(0, 90, shape), dtype)
    assert_identical(jax.jit(apply)(found, x), jax.jit(model.built.module.apply)(params, x))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_short_types_survive(dtype, tmp_path):
    params = jax.tree.map(lambda p: p.astype(dtype), filled(SMALL["MLP"].init))
    fp.models.save_model(tmp_path, "a", 0, SMALL["MLP"], params)
    found = fp.models.load_model(tmp_path, "a").params
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(dtype)}
    assert_identical(found, params)


@pytest.mark.slow
def test_predict_is_apply_of_each_in_batches(kept):
    trained = fp.models.load_model(kept, "a")
    images = np.random.default_rng(0).integers(0, 255, (501, 2, 2, 1)).astype(np.uint8)
    found = trained.predict(images)
    one_by_one = jax.vmap(lambda x: SMALL["MLP"].apply(trained.params, x))(images)
    np.testing.assert_allclose(found, one_by_one, rtol=1e-5)
    assert_identical(SMALL["MLP"].predict(trained.params, images), found)


ODD = {
    "lists and tuples": {"layers": [(jnp.ones(2), jnp.zeros(())), jnp.arange(3.0)]},
    "names with dots": {"a.b": jnp.ones(1), "a": {"b": jnp.zeros(1), "%2E": jnp.ones((2, 0))}},
    "one array": jnp.arange(4.0),
}


@pytest.mark.parametrize("name", ODD)
def test_a_model_of_ones_own_needs_the_model(name, tmp_path):
    params = ODD[name]
    model = fp.models.Model(lambda key: params, None, None, lambda p, x: x)
    fp.models.save_model(tmp_path, "own", 0, model, params)
    assert_identical(fp.models.load_model(tmp_path, "own", model=model).params, params)
    assert fp.models.load_model(tmp_path, "own", model=model).apply(params, 3) == 3
    with pytest.warns(UserWarning, match="none of this package.*parameters alone"):
        alone = fp.models.load_model(tmp_path, "own")
    assert_identical(alone.params, params)
    with pytest.raises(ValueError, match=r"none of this package; give load_model\(..., model="):
        alone.apply(alone.params, 3)


def test_nested_dicts_come_back_without_the_model(tmp_path):
    params = ODD["names with dots"]
    fp.models.save_model(tmp_path, "own", 0, fp.models.Model(None, None, None), params)
    with pytest.warns(UserWarning, match="none of this package"):
        found = fp.models.load_model(tmp_path, "own").params
    assert jax.tree.structure(found) == jax.tree.structure(params)


def test_a_network_of_the_users_is_named_and_not_imported(tmp_path):
    class MLP(nn.Module):  # the name of one of the package's
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x.reshape(-1))

    model = fp.models.classifier(MLP(), (2, 2, 1))
    fp.models.save_model(tmp_path, "own", 0, model, filled(model.init))
    assert "test_kept_model" in (model_folder(tmp_path, "own", 0) / NETWORK).read_text()
    with pytest.warns(UserWarning, match="test_kept_model"):
        assert_identical(fp.models.load_model(tmp_path, "own").params, filled(model.init))
    found, apply = fp.models.load_model(tmp_path, "own", model=model)
    assert apply(found, jnp.zeros((2, 2, 1), jnp.uint8)).shape == (2,)


class Bomb:
    """Unpickled, it makes a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def described(**changed):
    about = {"network": "MLP", "fields": {"hidden": [4, 3], "classes": 3}}
    return about | {"input": {"shape": [2, 2, 1], "dtype": "uint8"}} | changed


WRONG = {
    "no JSON": (b"{", "damaged"),
    "no object": (b"[]", "damaged"),
    "no network": (b"{}", "damaged"),
    "fields of another": (described(fields={"classes": 3}), "damaged"),
    "a field of another kind": (described(fields={"hidden": "x", "classes": 3}), "damaged"),
    "no input": (described(input=None), "damaged"),
    "a hundred thousand layers": (
        described(fields={"hidden": [1] * 10**5}),
        "not a file of at most",
    ),
    "what a terminal obeys": (described(input={"shape": [4], "dtype": "\x1b]0;x\x07"}), "damaged"),
    "an unknown type": (described(input={"shape": [4], "dtype": "os.system"}), "damaged"),
    "other sizes": (
        described(fields={"hidden": [4, 4], "classes": 3}),
        r"Dense_1.bias is real\[3\]",
    ),
    "more layers": (
        described(fields={"hidden": [4], "classes": 3}),
        r"is real\[3\]|is nothing|is real",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_description_is_refused_in_one_line(name, kept):
    content, said = WRONG[name]
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    (model_folder(kept, "a", 0) / NETWORK).write_bytes(content)
    with pytest.raises(ValueError, match=said) as caught:
        fp.models.load_model(kept, "a")
    assert str(caught.value).isprintable()


def test_a_pipe_or_a_description_without_end_is_not_read(kept):
    file = model_folder(kept, "a", 0) / NETWORK
    file.write_bytes(b" " * 2**21)
    with pytest.raises(ValueError, match="not a file of at most"):
        fp.models.load_model(kept, "a")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="not a file of at most"):
        fp.models.load_model(kept, "a")


def test_a_class_that_the_package_has_not_is_not_looked_for(kept):
    about = described(network="os.system", fields={"command": f"touch {kept}/ran"})
    (model_folder(kept, "a", 0) / NETWORK).write_text(json.dumps(about))
    said = r"the network \(os.system\) is none of this package"
    with pytest.warns(UserWarning, match=said):
        found = fp.models.load_model(kept, "a")
    with pytest.raises(ValueError, match=said):
        found.predict(np.zeros((1, 2, 2, 1), np.uint8))
    assert not (kept / "ran").exists()


@pytest.mark.parametrize("how", ["pickle", "npz", "cut off", "empty"])
def test_parameters_that_are_something_else_run_no_code(how, kept):
    file = model_folder(kept, "a", 0) / PARAMETERS
    bomb = np.array([Bomb(kept / "ran")], object)
    with file.open("rb+") as opened:
        if how == "cut off":
            opened.truncate(file.stat().st_size - 1)
            bomb = None
        elif how == "empty":
            opened.truncate(0)
        elif how == "pickle":
            pickle.dump(bomb, opened)
        else:
            np.savez(opened, bomb, allow_pickle=True)
    with refused(f"{PARAMETERS} is damaged"):
        fp.models.load_model(kept, "a")
    assert not (kept / "ran").exists()


def test_a_name_inside_the_file_is_no_path(kept):
    from safetensors import numpy

    place = model_folder(kept, "a", 0)
    numpy.save_file({"../../../x": np.zeros(1, np.float32)}, place / PARAMETERS)
    with pytest.raises(ValueError, match="give the model that was trained"):
        fp.models.load_model(kept, "a")
    (place / NETWORK).write_text('{"network": "of the user"}')
    with pytest.warns(UserWarning, match="parameters alone"):
        assert_identical(fp.models.load_model(kept, "a").params, [np.zeros(1)])
    assert {f.name for f in kept.rglob("*") if f.is_file()} == {NETWORK, PARAMETERS}


def test_what_is_not_there_is_said_with_what_is(kept):
    with pytest.raises(ValueError, match="no model of b, seed 0; it has a seed-0"):
        fp.models.load_model(kept, "b")
    (kept / "elsewhere").mkdir()
    with pytest.raises(ValueError, match="it has none"):
        fp.models.load_model(kept / "elsewhere", "a", 2)


def test_a_full_disk_leaves_what_was_there(kept, monkeypatch):
    before = fp.models.load_model(kept, "a").params

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fp.models.save_model(kept, "a", 0, SMALL["MLP"], jax.tree.map(jnp.zeros_like, before))
    monkeypatch.undo()
    assert_identical(fp.models.load_model(kept, "a").params, before)
    assert not list(kept.rglob("*.unfinished"))


@pytest.mark.slow
def test_another_process_reads_it_with_the_library_alone(kept):
    script = (
        "import sys, numpy as np, fedpriv as fp\n"
        "out = fp.models.load_model(sys.argv[1], 'a').predict(np.full((5, 2, 2, 1), 9, np.uint8))\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('experiments', 'configs', 'tests')]\n"
        "print(out.shape, float(out.sum()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, kept], capture_output=True, text=True, check=True
    )
    params = fp.models.load_model(kept, "a").params
    expected = SMALL["MLP"].predict(params, np.full((5, 2, 2, 1), 9, np.uint8))
    assert done.stdout.split() == ["(5,", "3)", str(float(expected.sum()))]


def test_the_model_of_a_seed():
    leaves = {"w": np.arange(6).reshape(3, 2)}
    history = fp.History((9, 5, 1), state=fp.ModelState(leaves, np.zeros(3)))
    assert_identical(history.params(), {"w": np.array([0, 1])})
    assert_identical(history.params(seed=1), {"w": np.array([4, 5])})
    assert_identical(history.state_of(1), fp.ModelState({"w": np.array([4, 5])}, np.float64(0)))


def test_a_history_without_evaluations_has_the_axes_of_any_other():
    assert fp.History((9, 5)).uplink_mb.shape == fp.History((9, 5)).metric("loss").shape == (0, 2)


def test_what_is_refused_leaves_no_folder(tmp_path):
    """`refused/engine.py` has what is."""
    with refused("params: params.Dense_1.bias is not of the model"):
        fp.models.save_model(
            tmp_path, "a", 0, SMALL["LogisticRegression"], filled(SMALL["MLP"].init)
        )
    assert not list(tmp_path.iterdir())


def test_a_leaf_of_another_shape_has_its_readable_name(tmp_path):
    """Of adapters of another rank, which are named by the paths of their matrices."""
    model = fp.models.classifier(fp.models.MLP((4,), 3), (2, 2, 1))
    base = filled(model.init)
    two, three = (fp.models.adapters(model, base, rank, "kernel") for rank in (2, 3))
    fp.models.save_model(tmp_path, "own", 0, two, filled(two.init))
    with pytest.raises(ValueError, match=r"^/.*seed-0: ") as error:
        fp.models.load_model(tmp_path, "own", model=three)
    assert "params.Dense_0.kernel.A" in str(error.value)
    assert "%" not in str(error.value)
