"""Whatever a run records stands by its name on a page of the reference; test_every_config.py has runs of configs."""

import jax
import jax.numpy as jnp
import numpy as np
import tiers
from every_algorithm import ALGORITHMS, ENTRIES, FEDERATION, begun
from recorded_names import explained, parts, unexplained

import fedpriv as fp
from fedpriv.engine import client_metric_names as of_clients
from fedpriv.engine.history import SHARES, ClientValues
from fedpriv.models.score import OVER_CLIENTS, OVER_GROUPS


@tiers.every("name", ENTRIES)
def test_what_a_round_tells(name):
    state = begun(ENTRIES[name].make)
    told = jax.eval_shape(fp.one_round(ALGORITHMS[name]), jax.random.key(0), state, FEDERATION)[1]
    assert unexplained([*told["diagnostics"], *SHARES]) == []


def classifier(classes):
    model = fp.models.classifier(fp.models.LogisticRegression(classes), (2,))
    return model._replace(score=fp.models.classification_score(model.apply, classes, "image"))


def test_what_scores_and_measures_tell():
    """Each number of the library's that is not of a round."""
    rng = np.random.default_rng(0)
    data = {"image": rng.normal(size=(12, 2)).astype(np.float32), "label": np.arange(12) % 2}
    clients = np.split(np.arange(12), 4)
    held_out, rest = [rows[:1] for rows in clients], [rows[1:] for rows in clients]
    model = classifier(2)
    federation = fp.Federation.from_arrays(data, rest, held_out=held_out)
    personal = {"personal": lambda state, client: state.params}
    labels = ["a", "b", "a", "b"]
    given = [
        fp.measures.heterogeneity(model.loss, minimum=0.0),
        *(fp.measures.per_client(model.score, on=on, **own)
          for on in ("train", "held_out") for own in ({}, personal)),
        fp.measures.per_group(model.score, labels, on="held_out"),
        fp.measures.per_group(model.score, [*"xy"] * 6, on=data),
    ]  # fmt: skip
    state = fp.ModelState(jax.eval_shape(model.init, jax.random.key(0)), jnp.int32(1))
    told = [jax.eval_shape(lambda now, one=one: one(now, federation), state) for one in given]
    values = {name: x for each in told for name, x in each.items()}
    names = [name for name, x in values.items() if not isinstance(x, ClientValues)]
    names += fp.models.Score.of(model.score).names(state.params, data)
    assert {"auc", "log_gap", "personal_auc_median", "test[x]_loss_mean"} <= {*names}
    assert unexplained(names) == []
    endings = [*OVER_CLIENTS, *OVER_GROUPS, of_clients.UNDEFINED, of_clients.TRAINED]
    kinds = [*of_clients.KINDS, of_clients.TEST]
    assert unexplained([*endings, *kinds, "perplexity"]) == []


def test_what_texts_tell():
    text = jnp.zeros(3, jnp.int32)
    row = {"text": text, "label": text, "mask": jnp.ones(3, bool)}
    network = fp.models.Transformer(vocabulary=4, width=2, heads=1, layers=1)
    model = fp.models.next_token(network, length=3)
    params = jax.eval_shape(model.init, jax.random.key(0))
    test = jax.tree.map(lambda leaf: leaf[None], row)
    assert unexplained(fp.models.Score.of(model.score).names(params, test)) == []


def test_a_name_that_no_page_has_is_found():
    assert unexplained(["loss", "gone", "held_out_gone_mean", "per_client_loss_lost"]) == [
        "gone",
        "per_client_loss_lost",
    ]
    assert [*parts("personal[a b]_auc_above_0.25")] == ["personal", "auc", "above_BOUND"]
    assert explained("| name |\n|---|\n| `one`, `two` | `three` |\n") == {"one", "two"}
