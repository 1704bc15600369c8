"""What `simulate` shows while it trains, where, and the certificate of the rounds that it trains."""

import ast
import io
import logging
import math
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
from small import assert_identical, compiler_of_one_program, refused, regression, squared, start

import fedpriv as fp
from fedpriv.certification.traced_round import TracedRound
from fedpriv.core.waiting import LOG
from fedpriv.engine import own_progress, progress
from fedpriv.experiments.accounting.budget import planned_rounds
from fedpriv.experiments.config.ledger import Entry, Ledger
from fedpriv.experiments.config.settings import Settings
from fedpriv.privacy.epsilon_words import short_epsilon

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROOT = Path(__file__).parents[1]
DELTA = 1e-5
FEDERATION = regression([3] * 6)
COMPILER = compiler_of_one_program()
ALGORITHM = fp.dp_fed_avg(
    squared,
    sampler=fp.poisson(6, 0.5, 6),
    optimizer=lambda t: optax.sgd(0.1),
    batches=fp.full_batch(),
    clip_norm=1.0,
    noise_multiplier=2.0,
)


def score(params, example):
    loss = squared(params, example)
    return {"accuracy": loss < 0.5, "loss": loss}


def run(**options):
    """Two seeds, seven rounds, evaluated after 2, 4, 6 and 7."""
    given = {"rounds": 7, "every": 2, "seeds": (1, 2), "compiler": COMPILER}
    given |= {"score": score, "strategy": fp.Strategy()}
    examples = FEDERATION.examples
    return fp.simulate(ALGORITHM, start(), FEDERATION, examples, **given | options)


def certified(rounds, **options):
    return fp.certify(ALGORITHM, start(), FEDERATION, rounds, DELTA, **options)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def said(capsys):
    """Gives what went to standard error, which is no terminal, since it was called last."""
    return lambda: capsys.readouterr().err


def in_a_kernel(monkeypatch, stream):
    """As in a notebook without widgets."""
    shell = SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr("sys.stderr", stream)


def test_where_nobody_watches_nothing_is_shown(capfd):
    history = run(delta=DELTA)
    assert capfd.readouterr() == ("", "")
    assert history.certificate == certified(7)


def test_every_evaluation_is_a_line_with_the_certified_epsilon(said, monkeypatch):
    """Asked for, without a terminal; unit, view, adjacency, delta and basis stand in the heading."""
    monkeypatch.setattr(own_progress, "SHARE", math.inf)
    history = run(progress=True, delta=DELTA, compiler=compiler_of_one_program())
    head, _, rest = said().partition("fed_avg compiling\n")
    assert " ".join(head.split()) == (
        "fed_avg: 7 rounds; eps (of ONE model (one seed) released alone): client level, view third party, "
        "add-or-remove adjacency, δ = 1e-05, certified (constructed)"
    )
    compiled, *lines = rest.splitlines()
    assert compiled.startswith("fed_avg compiled in ")
    assert lines == [
        f"fed_avg {t}/7 accuracy {100 * history.accuracy[i].mean():.1f} % eps {short_epsilon(certified(t).epsilon)}"
        for i, t in enumerate((2, 4, 6, 7))
    ]


def test_without_a_delta_there_is_no_epsilon(said):
    history = run(progress=True)
    assert history.certificate is None
    lines = said()
    assert "eps" not in lines
    assert "fed_avg 7/7 accuracy" in lines


@pytest.mark.parametrize("where", ["terminal", "notebook"])
def test_where_somebody_watches_there_is_a_bar(where, monkeypatch):
    stream = Terminal() if where == "terminal" else io.StringIO()
    if where == "notebook":
        in_a_kernel(monkeypatch, stream)
    monkeypatch.setattr("sys.stderr", stream)
    run()
    last = stream.getvalue().split("\r")[-1]
    assert "100%" in last
    assert "7/7" in last
    assert "accuracy" in last
    monkeypatch.setattr("sys.stderr", quiet := type(stream)())
    run(progress=False)
    assert quiet.getvalue() == ""


def test_a_bar_ends_with_its_run_however_that_ends(monkeypatch):
    """And the logger is as it was."""
    monkeypatch.setattr("sys.stderr", Terminal())
    closed = []
    monkeypatch.setattr(progress.Progress, "close", close_and(closed, progress.Progress.close))
    before = LOG.level, LOG.propagate, list(LOG.handlers)

    def fails(evaluation):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        run(record=fails)
    assert len(closed) == 1
    assert (LOG.level, LOG.propagate, list(LOG.handlers)) == before


def close_and(closed, close):
    def done(self):
        closed.append(self)
        close(self)

    return done


def test_who_has_asked_for_the_log_gets_it_beside_the_bar(monkeypatch, caplog):
    monkeypatch.setattr("sys.stderr", Terminal())
    run()
    assert not caplog.records
    with caplog.at_level("INFO", "fedpriv.engine"):
        run()
    assert caplog.records


def test_it_changes_no_program_and_no_number(said):
    compiled = []

    def compiler(*program):
        compiled.append(str(jax.make_jaxpr(program[0])(*program[1])))
        return COMPILER(*program)

    plain, shown = run(compiler=compiler), run(compiler=compiler, progress=True, delta=DELTA)
    assert compiled[0] == compiled[1]
    assert_identical(plain.state, shown.state)
    assert [e.metrics["loss"].tolist() for e in plain.evaluations] == [
        e.metrics["loss"].tolist() for e in shown.evaluations
    ]


def test_a_certificate_is_of_all_planned_rounds(tmp_path, said):
    """Also where the test set ended the run, as the models chose the end; of one that has ended before, the same."""
    checkpoints = fp.Checkpoints(tmp_path / "c")

    def enough(e):
        return e.round >= 4

    for _ in range(2):
        history = run(delta=DELTA, on_evaluation=enough, checkpoints=checkpoints)
        assert history.rounds[-1] == 4
        assert history.certificate == certified(7)
        assert history.certificate.programs == history.programs
    for rounds, planned in ((5, 7), (4, 7), (9, 9)):  # it has ended: what was planned before counts
        again = run(delta=DELTA, on_evaluation=enough, checkpoints=checkpoints, rounds=rounds)
        assert again.rounds[-1] == 4
        assert again.certificate == certified(planned)
    server = run(delta=DELTA, view="server")
    assert server.certificate == certified(7, view="server")


def test_private_numbers_that_choose_the_last_round_are_not_covered(said):
    chosen = {"not_covered": ("mean_update_norm",), "on_evaluation": lambda e: e.round >= 4}
    history = run(delta=DELTA, progress=True, **chosen)
    assert math.isinf(history.certificate.epsilon)
    assert history.certificate == certified(7).not_covered(("mean_update_norm",))
    lines = said()
    assert " eps " not in lines
    assert "not private" in lines


def test_certifying_takes_a_share_of_the_time_at_most(said, monkeypatch):
    """Not asked before rounds have taken so long; the last evaluation has its epsilon always."""
    asked = []
    certify = TracedRound.certify

    def counted(self, rounds, *args, **options):
        asked.append(rounds)
        return certify(self, rounds, *args, **options)

    monkeypatch.setattr(TracedRound, "certify", counted)
    monkeypatch.setattr(own_progress, "SHARE", 0.0)
    run(delta=DELTA, progress=True)
    assert asked == [7]  # of all rounds before training
    lines = said().splitlines()
    assert " eps " not in lines[-2]
    assert lines[-1].endswith(f"eps {short_epsilon(certified(7).epsilon)}")


def test_a_certificate_is_expected_to_take_as_long_as_the_one_before(said, monkeypatch):
    """By a clock that a round moves by a second, and a certificate of t rounds by t / 10: their sum stays a fifth."""
    now, asked, one = [0.0], [], certified(1)

    def certify(self, rounds, *args, **options):
        asked.append(rounds)
        now[0] += rounds / 10
        return replace(one, epsilon=float(rounds))

    monkeypatch.setattr(own_progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(TracedRound, "certify", certify)
    traced = fp.trace_round(ALGORITHM, start(), FEDERATION)
    certificates = own_progress.Certified(traced, 40, DELTA, "third_party", (), FEDERATION)
    shown, began = own_progress.OwnProgress(True, traced, certificates, 0, 1), now[0]
    zero = np.zeros(1)
    for t in range(1, 40):
        now[0] += 1.0
        shown.evaluated(fp.types.Evaluation(t, {"loss": zero}, zero, zero, {}, 1.0))
        assert sum(asked[1:]) / 10 <= 0.2 * (now[0] - began) + 0.1 * t
    shown.close()
    first, *later = asked
    assert first == 40
    assert later[0] == 20  # 4 s, as the first took, are a fifth of as many
    assert len(later) > 1
    lines = [line for line in said().splitlines() if "/40" in line]
    assert [" eps " in line for line in lines] == [t >= 20 for t in range(1, 40)]


def test_the_first_certificate_is_waited_for_aloud(caplog):
    with caplog.at_level("INFO", "fedpriv.engine"):
        run(delta=DELTA)
    assert "certifying the rounds" in caplog.messages


def test_of_several_seeds_the_heading_says_that_the_epsilon_is_of_one(said):
    """Nothing of it where there is one."""
    for seeds in ((1,), (1, 2)):
        run(progress=True, delta=DELTA, seeds=seeds, compiler=compiler_of_one_program())
        head = said().partition("compiling")[0]
        assert ("ONE model (one seed) released alone" in " ".join(head.split())) == (len(seeds) > 1)


@pytest.mark.parametrize("wanted", [None, True])
def test_without_a_standard_error_a_run_is_as_ever(wanted, monkeypatch):
    """As under pythonw, in a service, or after `2>&-`."""
    monkeypatch.setattr("sys.stderr", None)
    history = run(progress=wanted, delta=DELTA)
    assert history.rounds[-1] == 7
    in_a_kernel(monkeypatch, None)
    run(progress=wanted)


def test_bars_in_two_threads_leave_the_logger_as_it_was(monkeypatch):
    """However they overlap: the first ends first, or last."""
    monkeypatch.setattr("sys.stderr", Terminal())
    before = LOG.level, LOG.propagate, list(LOG.handlers)
    for first_ends in (True, False):
        opened, ended = threading.Event(), threading.Event()

        def other(mine=opened, wait=ended):
            bar = progress.Progress("other", 2)
            mine.set()
            wait.wait(10)
            bar.close()

        bar = progress.Progress("one", 2)
        thread = threading.Thread(target=other)
        thread.start()
        assert opened.wait(10)
        if first_ends:
            bar.close()
            assert LOG.isEnabledFor(logging.INFO)  # the other's still shows
        ended.set()
        thread.join(10)
        bar.close()
        bar.close()
        assert (LOG.level, LOG.propagate, list(LOG.handlers)) == before


def test_what_cannot_be_certified_is_refused_before_it_trains(monkeypatch):
    trained = []
    with refused("view: 'server'; .* give its delta"):
        run(view="server", record=trained.append)
    with refused("delta: 0.0"):
        run(delta=0.0, record=trained.append)
    assert trained == []


ROWS = 18
OF_PERSONS = {"x": np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)}
OF_PERSONS["y"] = OF_PERSONS["x"].sum(1)
PERSONS = {"person": np.arange(ROWS) // 6}
PAIRS = np.arange(ROWS).reshape(6, 3).tolist()
FOUR = [[0, 1], [2, 3], [4], [5], [*range(6, 12)], [*range(12, 18)]]
"""Two partitions of the records of three persons: each has two clients, or one has four and the others one."""


def test_a_certificate_of_one_seeds_persons_is_not_of_anothers():
    """Each of six clients is a person's; in the second federation one of them has two."""
    one, other = (
        fp.StreamedFederation.from_arrays(OF_PERSONS, PAIRS, person=np.array(who))
        for who in ([0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 3])
    )
    traced, asked = fp.trace_round(ALGORITHM, start(), one), (3, DELTA, "third_party", ())
    alone = fp.certify(ALGORITHM, start(), one, 3, DELTA)
    assert own_progress.Certified(traced, *asked, [one, one]).of(3) == alone
    with refused("delta: 1e-05; each seed has other persons"):
        own_progress.Certified(traced, *asked, [one, other])
    own_progress.Certified(traced, 3, None, "third_party", (), [one, other])


@pytest.mark.parametrize("kind", [fp.Federation, fp.StreamedFederation])
def test_a_certificate_is_of_what_persons_hold_in_the_worst_partition(kind):
    """Of the same persons, and in whichever order the seeds come; also of a config's run."""
    one, other = (kind.from_arrays(OF_PERSONS, rows, **PERSONS) for rows in (PAIRS, FOUR))
    assert one.persons == other.persons
    alone = [fp.certify(ALGORITHM, start(), of, 2, DELTA).epsilon for of in (one, other)]
    assert alone[0] < alone[1]
    given = {"score": score, "rounds": 2, "every": 2, "strategy": fp.Strategy(), "delta": DELTA}
    for several in ([one, other], [other, one]):
        for seeds, federations in (((0, 1), several), ((0,), several[:1])):
            history = fp.simulate(
                ALGORITHM, start(), federations, OF_PERSONS, seeds=seeds, progress=False, **given
            )
            worst = max(alone) if len(seeds) > 1 else alone[several[0] is other]
            assert history.certificate.epsilon == worst
        ledger = Ledger({"a": Entry(ALGORITHM, several)}, DELTA, start())
        assert ledger.certify("a", 2).epsilon == max(alone)
        settings = Settings(rounds=2, stop_at_epsilon=0.99 * max(alone))
        assert planned_rounds(ledger, settings) == {"a": 1}


def test_federations_with_and_without_persons_are_not_certified_together():
    several = [fp.Federation.from_arrays(OF_PERSONS, PAIRS, **how) for how in (PERSONS, {})]
    with refused("federation: '?1 of 2'?; some seeds"):
        Ledger({"a": Entry(ALGORITHM, several)}, DELTA, start()).trace("a")


def test_what_fedpriv_trains_for_itself_shows_nothing():
    """The launcher has a progress of its own, and a released statistic is no training."""
    found = 0
    for file in (ROOT / "fedpriv").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("simulate", "fp.simulate"):
                given = {key.arg: ast.unparse(key.value) for key in node.keywords}
                assert given.get("progress") == "False", file
                found += 1
    assert found == 4
