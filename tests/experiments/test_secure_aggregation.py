"""What protocols of secure aggregation add, against what their papers and an implementation print."""

import pytest

from fedpriv.experiments.accounting.secure_aggregation import degree, downlink, expansion, uplink


def test_the_expansion_is_that_of_the_paper():
    """Bonawitz et al., abstract: 1.73 for 2^10 users and 2^20 values of 16 bits, 1.98 for 2^14 and 2^24."""
    assert round(expansion(2**10, 2**20, 16), 2) == 1.73
    assert round(expansion(2**14, 2**24, 16), 2) == 1.98


@pytest.mark.parametrize("n", [2, 100, 1000])
def test_both_directions_are_the_sum_of_the_paper(n):
    """Section 7: 2 n keys, 5 n - 4 shares and n bits."""
    added = uplink(n - 1, 0, 0).added + downlink(n - 1, 0, 0).added
    assert added == 2 * n * 256 + (5 * n - 4) * 256 + n


@pytest.mark.parametrize(
    ("corrupt", "dropout", "degrees"),
    [
        (0.33, 0.33, (8, 68, 286, 422, 480, 518)),
        (0.05, 0.33, (4, 28, 72, 86, 96, 102)),
        (0.33, 0.05, (4, 34, 78, 92, 102, 110)),
    ],
)
def test_degrees_are_those_of_the_implementation_at_google(corrupt, dropout, degrees):
    """federated-compute, graph_parameter_finder_test.cc: semi-honest, 10 to 10^6 clients."""
    assert tuple(degree(10**i, corrupt, dropout) for i in range(1, 7)) == degrees


def test_a_billion_clients_cost_no_more_than_a_thousand_of_secagg():
    """Bell et al., abstract."""
    assert uplink(degree(10**9), 0).added <= uplink(999, 0).added
