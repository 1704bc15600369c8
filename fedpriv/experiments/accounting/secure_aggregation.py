"""What protocols of secure aggregation add to a client's messages, by formula; nothing of them runs here.

SecAgg: K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4
and the communication costs of Section 7. SecAgg+: J. H. Bell et al., "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead", CCS 2020, Algorithm 2 (semi-honest), which has the same messages with k neighbours in place
of all n - 1 other clients.

Messages count without headers, names of clients and signatures. Implementations send more: Flower's SecAgg+ has keys of
a curve of 384 bits as PEM text, shares a secret key as such text, and seals shares with Fernet, in base64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

KEY_BITS = 256
"""Of a public key, and of a share of a secret key or of a seed. With these the costs of Bonawitz et al. (2 n keys,
5 n - 4 shares and n bits, both directions together) have the expansions of their abstract, 1.73 and 1.98."""
SEALED_BITS = 96 + 128
"""Added to a ciphertext: nonce and tag of AES-GCM (NIST SP 800-38D); the papers' formulas leave them out."""
_SECURITY, _CORRECTNESS = 40, 20
"""As powers of two, how seldom a graph is not secure, or the sum is not recovered: as the protocol's deployment at
Google has them (federated-compute, `graph_parameter_finder.cc`)."""


class Traffic(NamedTuple):
    """Bits of one client in one round, in one direction, beside or with its masked message.

    Attributes:
      keys: public keys, one to agree on masks and one to encrypt shares.
      shares: of the own secret key and of the seed of the own mask, for each neighbour; and, when masks are taken off,
        one for each neighbour and for itself.
      sealing: what encryption adds to the shares for each neighbour.
      lists: who is still there, a bit each.
      message: the masked message.
    """

    keys: int
    shares: int
    sealing: int
    lists: int
    message: int

    @property
    def added(self) -> int:
        """All but the message."""
        return sum(self) - self.message

    @property
    def total(self) -> int:
        """All bits."""
        return sum(self)


def uplink(neighbours: int, message: int, sealed: int = SEALED_BITS) -> Traffic:
    """What a client sends; in SecAgg all n - 1 others are its neighbours.

    Args:
      message: bits of the masked message: as many as without a mask, where sums are taken modulo 2^bits already.
      sealed: bits that encryption adds to a ciphertext.
    """
    shares = (2 * neighbours + neighbours + 1) * KEY_BITS
    return Traffic(2 * KEY_BITS, shares, neighbours * sealed, 0, message)


def downlink(neighbours: int, message: int, sealed: int = SEALED_BITS) -> Traffic:
    """What a client receives: keys and shares of its neighbours, who is still there, and a message."""
    shares = 2 * neighbours * KEY_BITS
    lists = neighbours + 1
    return Traffic(2 * neighbours * KEY_BITS, shares, neighbours * sealed, lists, message)


def expansion(clients: int, dimension: int, input_bits: int) -> float:
    """All that a client of SecAgg sends and receives for the sum, over its input in clear, as Section 7 counts it."""
    of_sum = math.ceil(math.log2(clients * (2**input_bits - 1) + 1))
    sent = uplink(clients - 1, dimension * of_sum, 0).total
    received = downlink(clients - 1, 0, 0).total
    return (sent + received) / (dimension * input_bits)


def degree(clients: int, corrupt: float = 1 / 3, dropout: float = 1 / 3) -> int:
    """k, the fewest neighbours of a client of SecAgg+ with a semi-honest server; all others, where none do.

    Bell et al., Section 3: clients stand in a random order on a circle, and k / 2 on each side are neighbours (a Harary
    graph). But for a probability of 2^-40, the honest clients that stay are connected, and fewer than t neighbours of
    any client are corrupt; but for 2^-20, at least t neighbours stay, t being the threshold of the shares. Numbers of
    neighbours are hypergeometric; the graph is cut only by two gaps of k / 2 clients that are corrupt or gone.

    Args:
      corrupt: fraction of clients that collude with the server.
      dropout: fraction of clients that vanish.
    """
    bad = math.floor(corrupt * clients + 1e-9), math.floor(dropout * clients + 1e-9)
    staying = math.ceil((1 - dropout) * clients - 1e-9)
    secure = -(_SECURITY + 1) * math.log(2)
    complete = -_CORRECTNESS * math.log(2) - math.log(clients)
    for k in range(2, clients - 1, 2):
        if _log_chance_of_gaps(clients, sum(bad), k) >= secure:
            continue
        at_least = np.logaddexp.accumulate(_log_masses(clients, bad[0], k)[::-1])[::-1]
        threshold = int(np.sum(at_least > secure - math.log(clients)))
        at_most = np.logaddexp.accumulate(_log_masses(clients, staying, k))
        if threshold <= k and at_most[threshold - 1] < complete:
            return k
    return clients - 1


def _log_chance_of_gaps(clients: int, lost: int, k: int) -> float:
    """That two gaps of k / 2 are among so many clients, at most."""
    if k > lost:
        return -math.inf
    pairs = math.log(clients) + math.log(clients - k - 1) - math.log(2)
    chance = gammaln(lost + 1) + gammaln(clients - k + 1)
    return pairs + float(chance - gammaln(clients + 1) - gammaln(lost - k + 1))


def _log_masses(clients: int, marked: int, k: int) -> np.ndarray:
    """Of how many of k clients are among the marked, f64[k + 1]."""
    x = np.arange(k + 1)
    possible = (x <= marked) & (k - x <= clients - marked)
    y = x[possible]
    logs = np.full(k + 1, -np.inf)
    logs[possible] = _log_choose(marked, y) + _log_choose(clients - marked, k - y)
    return logs - _log_choose(clients, k)


def _log_choose(n: int, k: Any) -> Any:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
