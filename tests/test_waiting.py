"""What a run says of its waiting, by Python's logging."""

import logging

import jax
import optax
import pytest
from small import regression, squared, start

import fedpriv as fp

FEDERATION = regression([2] * 4)


def trained(**options):
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(4),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
    )
    test = jax.tree.map(lambda leaf: leaf[:2] + 0.5, FEDERATION.examples)

    def score(params, example):
        return {"loss": squared(params, example)}

    fp.simulate(algorithm, start(), FEDERATION, test, score=score, rounds=2, **options)


def test_each_wait_is_said_before_it_begins_and_when_it_is_over(caplog, capsys):
    with caplog.at_level(logging.INFO, "fedpriv.engine"):
        trained()
    said = [r.getMessage() for r in caplog.records if r.name == "fedpriv.engine"]
    begun, over = said[::2], said[1::2]
    assert [text.rpartition(":")[0] for text in over] == begun
    assert all(float(text.split()[-2]) >= 0 and text.endswith(" s") for text in over)
    of = [
        next(i for i, text in enumerate(begun) if w in text) for w in ("check", "compil", "first")
    ]
    assert of == sorted(of)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
def test_nothing_is_said_where_nobody_asked(caplog, capsys):
    trained()
    assert not caplog.records
    assert capsys.readouterr() == ("", "")
