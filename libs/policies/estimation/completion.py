"""Filling the gaps of a matrix that is nearly of low rank.

Soft-Impute (Mazumder, Hastie and Tibshirani, "Spectral Regularization Algorithms for Learning Large Incomplete
Matrices", JMLR 2010): fill the gaps, shrink the singular values, take the gaps from that, until nothing moves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SHRINKAGE = 0.05
"""Of the largest singular value; what is smaller is noise."""
STILL = 1e-5
MOST_STEPS = 200


def completed(matrix: Floats) -> Floats:
    """The matrix with its gaps (NaN) filled; entries that are known stay as they are.

    A column of which nothing is known is filled with zeros.

    Args:
        matrix: (rows, columns), e.g. one row per configuration and one column per measurement.
    """
    known = ~np.isnan(matrix)
    counts = known.sum(axis=0)
    means = np.where(known, matrix, 0.0).sum(axis=0) / np.maximum(counts, 1)
    centred = np.where(known, matrix - means, 0.0)
    filled = centred
    for _ in range(MOST_STEPS):
        left, singular, right = np.linalg.svd(filled, full_matrices=False)
        shrunk = np.maximum(singular - SHRINKAGE * singular.max(initial=0.0), 0.0)
        again = np.where(known, centred, (left * shrunk) @ right)
        moved = np.abs(again - filled).max(initial=0.0)
        filled = again
        if moved < STILL:
            break
    whole: Floats = filled + means
    return whole
