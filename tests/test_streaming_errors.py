"""What a streamed federation cannot do is said in one line, and no thread is left behind."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import classification, refused

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 6
FEDERATION, TEST, MODEL = classification(CLIENTS, 3, public=0)
EXAMPLES = jax.tree.map(np.asarray, FEDERATION.examples)
PARTITION = np.arange(18).reshape(CLIENTS, 3)


def streamed(**changed):
    return fp.StreamedFederation.from_arrays(EXAMPLES | changed, PARTITION)


def averaging(rate=0.1, sampler=None):
    return fp.fed_avg(
        MODEL.loss,
        sampler=sampler or fp.fixed_size(CLIENTS, 3),
        optimizer=lambda t: optax.sgd(rate),
        batches=fp.full_batch(),
    )


def run(federation=None, algorithm=None, strategy=None, **kwargs):
    return fp.simulate(
        algorithm or averaging(),
        MODEL.init,
        federation or streamed(),
        TEST,
        strategy=strategy or fp.Strategy(),
        **{"score": MODEL.score, "rounds": 4, "every": 2} | kwargs,
    )


def is_refused(call, message):
    with refused(message):
        call()
    assert_no_thread()


def assert_no_thread():
    assert not [t for t in threading.enumerate() if t.name.startswith("fedpriv-prefetch")]


class Broken(np.ndarray):
    """An array on a disk that fails while a client's records are read."""

    def __getitem__(self, rows):
        if isinstance(rows, np.ndarray) and len(rows):
            raise OSError("disk on fire")
        return super().__getitem__(rows)


def test_a_disk_that_fails():
    with pytest.raises(OSError, match="disk on fire"):
        run(streamed(label=EXAMPLES["label"].view(Broken)))
    assert_no_thread()


@pytest.mark.slow
def test_an_interrupted_run():
    def interrupt(evaluation):
        assert [t for t in threading.enumerate() if t.name.startswith("fedpriv-prefetch")]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(on_evaluation=interrupt)
    assert_no_thread()


def test_values_are_checked_when_they_are_read():
    image = EXAMPLES["image"].astype(np.float32)
    image[PARTITION[4, 1]] = np.nan
    wanted = r"client 4: examples\['image'\]: nan in row 1"  # labels: `refused/labels.py`
    is_refused(lambda: run(streamed(image=image), averaging(0.0)), wanted)


def drawing(*ids):
    """A sampler that draws these, whatever there is."""
    drawn = fp.types.Draw(jnp.array(ids, jnp.int32), jnp.ones(len(ids), bool))
    return fp.fixed_size(CLIENTS, len(ids))._replace(draw=lambda key: drawn)


def by_rows(params, federation):
    return fp.start(jax.tree.map(lambda p: p * len(federation.rows), params), federation)


def by_records(params, federation):
    drawn = fp.everyone(CLIENTS).draw(jax.random.key(0))
    federation.records(drawn.ids, drawn.mask)
    return fp.start(params, federation)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"sampler": drawing(0, -1)}, "cohort: it holds client -1, but there are 6"),
        ({"sampler": drawing(7)}, "cohort: it holds client 7, but there are 6"),
        ({"init": by_rows}, r"federation\.rows: a streamed federation gives records only to"),
        ({"init": by_records}, r"federation\.records: a streamed federation gives records only to"),
    ],
)
def test_algorithms_that_ask_for_what_is_not_there(part, message):
    is_refused(lambda: run(algorithm=averaging()._replace(**part)), message)


def test_what_needs_all_records():
    federation, params = streamed(), MODEL.init(jax.random.key(0))
    view = jax.jit(
        lambda state, f: fp.attacks.server_view(averaging(), jax.random.key(0), state, f)
    )
    alone = "a StreamedFederation works only in `simulate`"
    for call, message in [
        (
            lambda: run(measure=fp.measures.heterogeneity(MODEL.loss)),
            "^federation.records: a streamed",
        ),
        (lambda: fp.measures.minimum_of(MODEL.loss, params, federation), "^federation: .*Stream"),
        (lambda: fp.check_algorithm(averaging(), params, federation), alone),
        (lambda: view(fp.ModelState(params, jnp.int32(0)), federation), alone),
        (
            lambda: fp.papers.median_update_norm(
                jax.random.key(0),
                MODEL.loss,
                params,
                federation,
                optimizer=optax.sgd(0.1),
                batches=fp.full_batch(),
            ),
            "^proxies: .*Stream",
        ),
    ]:
        is_refused(call, message)


def test_federations_that_do_not_go_together():
    small = fp.StreamedFederation.from_arrays(EXAMPLES, PARTITION[:5])
    shared = fp.StreamedFederation.from_arrays(EXAMPLES, PARTITION[:, :2], public=[2])
    other = streamed(image=np.zeros((18, 4), np.uint8))
    two = {"seeds": (0, 1)}
    is_refused(lambda: run([streamed(), FEDERATION], **two), r"federation\[1\] is in memory")
    is_refused(lambda: run([streamed(), small], **two), r"federation\[1\] has num_clients=5")
    is_refused(lambda: run([streamed(), shared], **two), r"federation\[1\] has public rows=1")
    is_refused(lambda: run([streamed(), other], **two), r"federation\[1\] has examples=\{'image': ")
    is_refused(lambda: run([streamed()], **two), "federation: 1 given for 2 seeds")
    is_refused(lambda: run(small), "sampler: made for 6 clients, but the federation has 5")
