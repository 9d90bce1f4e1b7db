r"""Quantile regression of scores on features, with the new row put in: its critical value by a dual simplex method.

The fit to n scores $S_i$ and a new score S at features $\varphi_i$ and $\varphi$ has the weights of the linear program

$$\max_w \sum_i w_i S_i + w S, \qquad \sum_i w_i \varphi_i + w \varphi = \alpha \Big(\sum_i \varphi_i + \varphi\Big),
\qquad 0 \le w_i, w \le 1.$$

Its multipliers $\beta$ are the fit, $w_i = 1$ above it and $w_i = 0$ below. A score S that lies above every fit has the
weight 1, and then no fit depends on S. So the critical value is $\varphi^\top \beta$ of the program with $w = 1$, which
minimises $b^\top \beta + \sum_i (S_i - \varphi_i^\top \beta)_+$ with
$b = \alpha (\sum_i \varphi_i + \varphi) - \varphi$. It is infinite where the program has no solution.

The minimum lies at a vertex, a fit through k scores. Rows differ in b alone, so that the vertex of one row is a start
for any other: the dual simplex method needs a few pivots, each of them an exact search along an edge.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from polyhedge._support.tolerances import PIVOT, TIE
from polyhedge._support.validation import Array, Indices, Mask

_JITTER = 1e-11
"""Share of the spread of scores by which ties are broken while pivots are searched; the fit has the scores as given."""
_LOST, _FAR = 1e4, 1e2
"""Spreads above the highest score at which a row counts whose score is infinite, and beyond which a fit is infinite."""
_INSIDE = 1e-12
"""How far a weight may lie outside [0, 1]: far below what `TIE` moves it by, far above rounding."""
_MOST_PIVOTS = 20_000  # beyond which the search is at fault: some hundred are usual


class QuantileFit:
    """Scores (n,) of calibration rows with their features (n, k), ready for new rows.

    `lost` (l, k) are features of rows with an infinite score, and `alpha` is the level.
    """

    def __init__(self, features: Array, scores: Array, lost: Array, alpha: float) -> None:
        spread, highest = float(np.ptp(scores)) or 1.0, float(scores.max())
        self.alpha, self.scores, self.most = alpha, scores, highest + _FAR * spread
        known, whole = np.append(scores, np.full(len(lost), highest + _LOST * spread)), np.vstack([features, lost])
        order = np.lexsort([*whole.T, known])  # an order of the rows' own
        R, pivots = qr(whole, mode="economic", pivoting=True)[1:]
        size = np.abs(np.diag(R))
        # Independent columns, and what they say of all columns.
        self.columns: Indices = np.sort(pivots[: int((size > PIVOT * size[0]).sum())])
        self.others = np.linalg.lstsq(whole[:, self.columns], whole, rcond=None)[0]
        self.total, self.features, self.values = whole.sum(axis=0), whole[order][:, self.columns], known[order]
        self.untied = self.values + np.random.default_rng(0).uniform(size=len(known)) * _JITTER * spread
        # The vertex of the fit without a new row: the rows on it, and which rows have the weight 1.
        basis = np.asarray(qr(self.features.T, mode="r", pivoting=True)[1][: len(self.columns)])
        start = basis, self.untied > self.features @ np.linalg.solve(self.features[basis], self.untied[basis])
        self.start = self._vertex((alpha + TIE) * self.total, *start) or start

    def critical(self, new: Array) -> float:
        """The largest score that the new row with features (k,) may have within the fit; infinite if any."""
        if np.abs(new[self.columns] @ self.others - new).max() > PIVOT * (1 + np.abs(new).max()):
            return np.inf  # calibration rows do not know this direction
        # Ties: a rank that is attained exactly is not exceeded, and of several fits the highest counts.
        b = (self.alpha + TIE) * (self.total + new) - (1 + TIE / 3) * new
        found = self._vertex(b, *self.start)
        if found is None:
            return np.inf
        value = float(new[self.columns] @ np.linalg.solve(self.features[found[0]], self.values[found[0]]))
        return value if value < self.most else np.inf

    def _vertex(self, b: Array, basis: Indices, above: Mask) -> tuple[Indices, Mask] | None:
        """The vertex at which b'beta + sum of (S_i - phi_i'beta)+ is least, from another one; None if there is none."""
        features, scores = self.features, self.untied
        basis, above, b = basis.copy(), above.copy(), b[self.columns]
        for _ in range(_MOST_PIVOTS):
            above[basis] = False
            solved = np.linalg.inv(features[basis])  # its columns are the edges at the vertex
            weights = (b - features[above].sum(axis=0)) @ solved
            outside = np.maximum(-weights, weights - 1)
            leaves = int(np.argmax(outside))
            if outside[leaves] <= _INSIDE * (1 + np.abs(b).max()):
                return basis, above
            goes_up = weights[leaves] > 1  # the score of the row that leaves will lie above the fit
            slopes = features @ (-solved[:, leaves] if goes_up else solved[:, leaves])
            slopes[basis] = 0.0
            gaps = scores - features @ (solved @ scores[basis])
            crossed = np.flatnonzero(np.where(above, slopes > _INSIDE, slopes < -_INSIDE))
            crossed = crossed[np.argsort(gaps[crossed] / slopes[crossed], kind="stable")]
            passed = np.searchsorted(np.cumsum(np.abs(slopes[crossed])), outside[leaves])
            if passed == len(crossed):
                return None  # the fit sinks or rises without end
            above[crossed[:passed]] ^= True
            above[basis[leaves]] = goes_up
            basis[leaves] = crossed[passed]
        raise RuntimeError("The quantile regression did not end. Please report this with the rows.")
