"""The Haar transform of the wavelet paper as a matrix, for tests."""

import numpy as np


def haar(m):
    """The paper's Haar transform as a matrix, base first and finest details last, and its weights."""
    rows, weights = [np.full(m, 1 / m)], [m]
    block = m
    while block > 1:
        for start in range(0, m, block):
            row = np.zeros(m)
            row[start : start + block // 2] = 1 / block
            row[start + block // 2 : start + block] = -1 / block
            rows.append(row)
            weights.append(block)
        block //= 2
    return np.array(rows), np.array(weights, dtype=float)
