r"""Decisions of least mean cost where the residuals' weights move with the row.

Nothing is common to all rows then, so that no cuts serve them. Costs that fall apart into a term a decision need none:
their best decisions are weighted quantiles of sorted residuals, by the weights of the outcome that a term sees.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.planning.separable import Separable

_BLOCK = 2**20
"""Entries of a matrix of rows and residuals that is worked on at a time."""


def least_weighted(separable: Separable, points: Array, contexts: Array, weights: tuple[sp.csr_array, ...]) -> Array:
    """Decisions (N, p) of least mean cost at contexts (N, d).

    Weights (N, n) of the points (n, d) are common to all outcomes, or one matrix an outcome.
    """
    step = max(_BLOCK // len(points), 1)
    parts = [slice(k, k + step) for k in range(0, len(contexts), step)]
    decisions = [_least(separable, points, contexts[part], [own[part].toarray() for own in weights]) for part in parts]
    return np.vstack([np.zeros((0, len(separable.slope))), *decisions])


def _least(separable: Separable, points: Array, contexts: Array, weights: list[Array]) -> Array:
    tables = []
    for beta, j in zip(separable.beta, separable.outcome, strict=True):
        kinks, own = beta * points[:, j], weights[j if len(weights) > 1 else 0]
        order = np.argsort(kinks, kind="stable")
        shares = np.zeros((len(contexts), len(points) + 1))
        np.cumsum(own[:, order], axis=1, out=shares[:, 1:])
        tables.append((kinks[order], shares))
    return separable.least_of_shares(tables, contexts)
