"""The items themselves: complete against the papers' captions, numbers and epsilons as printed."""

import re

import pytest

from experiments import config as configuration
from experiments.command_line import parse
from experiments.papers.fed_smp import FedSMP
from experiments.reproduce import __main__ as reproduce
from experiments.reproduce import fed_smp
from experiments.reproduce.accounting import certificate_of, claim_of, meaning
from experiments.reproduce.catalogue import PAPERS
from experiments.reproduce.fed_smp_data import EVERY, FASHION_MNIST, SHAKESPEARE
from experiments.reproduce.item import Scale, Training
from experiments.reproduce.perform import arguments

# Every caption of the four papers, in their order, and the epsilons that two of them print in their text.
CAPTIONS = {
    "fed_smp": "fig1 table1 table2 table3 fig2 fig3 table4 table5 table6 table7 table8 table9",
    "dp_scaffold": "table1 fig1 fig2 table2 table3 fig3 fig4 fig5 fig6 fig7 fig8 table4 fig9 fig10 epsilons",
    "wavelet": "table1 fig1 fig2 fig3 table2 fig4 fig5 fig6 fig7 fig8 fig9 fig10 fig11 fig12 table3 epsilons",
    "mspdq": "fig1 fig2 fig3 fig4 fig5 fig6 fig7",
}

ALL = [item for items in PAPERS.values() for item in items]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_and_figure_is_an_item(paper):
    found = [item.name for item in PAPERS[paper]]
    assert sorted(found) == sorted(CAPTIONS[paper].split())
    assert {item.paper for item in PAPERS[paper]} == {paper}


def test_the_list_has_them_all(tmp_path, capsys):
    assert reproduce.main(["--list", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for paper, items in PAPERS.items():
        part = out.split(f"{paper}\n")[1].split("\n\n")[0]
        rows = [re.split(r"\s{2,}", line, maxsplit=2) for line in part.splitlines()[2:]]
        assert [row[0] for row in rows] == [item.name for item in items]
        assert [row[2] for row in rows] == [item.title for item in items]
        nothing = ["nothing to measure" if item.illustration else "not yet" for item in items]
        assert [row[1] for row in rows] == nothing


@pytest.mark.parametrize("item", ALL, ids=lambda i: f"{i.paper}-{i.name}")
def test_cells_and_trainings_are_told_apart(item):
    places = [(cell.row, cell.column) for cell in item.cells]
    assert len(set(places)) == len(places)
    keys = [work.key for work in item.needs]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_launcher_takes_every_kind_of_training(paper, tmp_path):
    """One of each config and algorithm with the same fields; values are checked as the config checks them."""
    works = [w for i in PAPERS[paper] for w in i.needs if isinstance(w, Training)]
    kinds = {(w.config, w.algorithm, frozenset(w.settings)): w for w in works}
    for work in kinds.values():
        module = configuration.load(work.config)
        config = parse(module, work.config, arguments(work, Scale(0.01), None)[1:])
        assert config.algorithms == (work.algorithm,)
        assert config.rounds == max(1, round(0.01 * work.rounds))


def item(name):
    return next(i for i in fed_smp.ITEMS if i.name == name)


def published(name):
    return {(c.row, c.column): c.published for c in item(name).cells if c.published}


ACCURACY = "accuracy (%)"


@pytest.mark.parametrize(
    ("name", "row", "column", "text"),
    [
        ("table1", "p = 0.001, Fed-SMP rand_k", ACCURACY, "27.16 +- 10.20"),
        ("table1", "p = 0.005, Fed-SMP top_k", ACCURACY, "80.76 +- 0.27"),
        ("table1", "p = 0.4, Fed-SMP rand_k", ACCURACY, "79.88 +- 0.37"),
        ("table1", "p = 0.4, Fed-SMP rand_k", "uplink per client (MB)", "7.98"),
        ("table1", "p = 1, DP-FedAvg", ACCURACY, "72.72 +- 3.72"),
        ("table1", "p = 1, FedAvg", "uplink per client (MB)", "19.96"),
        ("table2", "p = 0.01, Fed-SMP top_k", ACCURACY, "81.12 +- 1.08"),
        ("table2", "p = 0.4, Fed-SMP rand_k", ACCURACY, "77.07 +- 0.48"),
        ("table2", "p = 1, DP-FedAvg", ACCURACY, "72.46 +- 0.54"),
        ("table2", "p = 1, FedAvg", "uplink per client (MB)", "41.18"),
        ("table3", "p = 0.05, Fed-SMP top_k", ACCURACY, "56.76 +- 0.13"),
        ("table3", "p = 0.2, Fed-SMP rand_k", ACCURACY, "54.22 +- 0.15"),
        ("table3", "p = 1, FedAvg", ACCURACY, "62.77 +- 0.05"),
        ("fig2", "SVHN, Fed-SMP rand_k, p = 0.4", fed_smp.SAVED_COLUMN, "82"),
        ("fig3", "Fashion-MNIST, Fed-SMP rand_k, p = 0.1", "test accuracy (%)", "77.59 +- 0.53"),
        ("table4", "sigma = 1", f"{ACCURACY} p = 0.4", "81.50"),
        ("table4", "sigma = 2.5", f"{ACCURACY} p = 0.4", "52.69"),
        ("table5", "sigma = 2", f"{ACCURACY} p = 0.005", "78.76"),
        ("table6", "sigma = 2.5", f"{ACCURACY} p = 0.8", "24.99"),
        ("table7", "sigma = 1.4", f"{ACCURACY} p = 0.1 (means 0.01)", "81.12"),
        ("table8", "sigma = 0.253", f"{ACCURACY} p = 0.4", "55.34"),
        ("table9", "sigma = 0.443", f"{ACCURACY} p = 0.01", "55.87"),
    ],
)
def test_published_numbers(name, row, column, text):
    assert published(name)[row, column] == text


@pytest.mark.parametrize(
    ("name", "count", "trainings"),
    [
        # Rows with accuracy and uplink, and the private ones' epsilon; 14 sparse rows and 2 dense ones.
        *((f"table{n}", 16 + 16 + 15, 16) for n in (1, 2, 3)),
        # Four rows of five ratios, and the epsilon of each row.
        *((f"table{n}", 4 * 5 + 4, 20) for n in range(4, 10)),
        ("fig2", 6, 12),
        ("fig3", 3 * 14, 3 * (4 * 7 + 2)),
    ],
)
def test_items_have_all_their_numbers_and_trainings(name, count, trainings):
    assert len(published(name)) == count
    assert len(item(name).needs) == trainings


def test_figures_and_trade_offs_share_the_trainings_of_the_tables():
    """Half of Figure 3 is Tables 1 to 3 again; and each trade-off has one row of its table."""
    tables = {work for name in ("table1", "table2", "table3") for work in item(name).needs}
    assert set(item("fig2").needs) < tables
    assert len(set(item("fig3").needs) & tables) == len(tables)
    for name in ("table4", "table5", "table6", "table7", "table8", "table9"):
        assert len(set(item(name).needs) & tables) == 5


def test_uplink_is_what_the_paper_counts():
    """32 k T (r / n) bits, for the printed megabytes of Table 1 and 2."""
    sizes = {"table1": 1_663_370, "table2": 3_431_754}
    for name, d in sizes.items():
        for (row, column), text in published(name).items():
            if column.startswith("uplink"):
                p = float(re.search(r"p = ([\d.]+)", row)[1])
                megabytes = 32 * round(p * d) * 180 * (100 / 6000) / 8e6
                assert float(text) == pytest.approx(megabytes, abs=0.0051)


@pytest.mark.parametrize("data", EVERY, ids=lambda data: data.title)
def test_sigma_gives_the_epsilon_that_is_printed(data):
    """To the last digit, but for 2.02: the paper's q is rounded."""
    for epsilon in data.noise:
        claim = claim_of(data.training("rand_k", 0.1, epsilon), data.claims)
        assert claim.epsilon == pytest.approx(float(epsilon), abs=0.0061)
        if epsilon != "2.02":
            assert f"{claim.epsilon:.2f}" == epsilon


@pytest.mark.parametrize("data", [FASHION_MNIST, SHAKESPEARE], ids=lambda data: data.title)
def test_epsilons_stand_below_what_they_mean(data):
    training = data.training("rand_k", 0.1)
    cells = {c.column: c for c in item("table1" if data is FASHION_MNIST else "table3").cells}
    epsilons = [column for column in cells if column.startswith("eps")]
    population = data.population or 6000
    claim, certificate = (
        claim_of(training, data.claims),
        certificate_of(training, data.counted),
    )
    clients = 1138 if data is SHAKESPEARE else 6000
    assert epsilons == [
        f"eps claimed ({meaning(claim)}, n = {population:,})",
        f"eps certified ({meaning(certificate)}, n = {clients:,})",
    ]
    assert cells[epsilons[0]].read().mean == claim.epsilon
    assert cells[epsilons[1]].read().mean == certificate.epsilon > claim.epsilon


def test_the_launcher_gets_the_papers_settings(tmp_path):
    """Of Table 1's row; what the config has by default is tested with the configs."""
    work = next(w for w in item("table1").needs if "top_k p=0.005" in w.title)
    given = " ".join(arguments(work, Scale(), tmp_path))
    assert given == (
        "fed_smp_fashion_mnist --algorithms top_k --p 0.005 --noise-multiplier 1.4 --train-loss-examples 10000 "
        f"--rounds 180 --seeds 5 --every 5 --data-dir {tmp_path}"
    )
    scaled = arguments(work, Scale(0.05), None)
    assert scaled[9:15] == ["--rounds", "9", "--seeds", "1", "--every", "1"]


def test_a_setting_that_is_not_used_makes_no_training_of_its_own():
    """FedAvg knows neither p nor noise, DP-FedAvg no p."""
    assert FASHION_MNIST.training("fed_avg").settings == {"train_loss_examples": 10_000}
    assert "p" not in FASHION_MNIST.training("dp_fed_avg").settings
    assert FedSMP().noise_multiplier == 1.4
    assert Training("x", "y").settings == {}
