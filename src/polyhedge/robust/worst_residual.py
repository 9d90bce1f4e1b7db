"""Worst-case residuals of many contexts, read from the multipliers of their counterparts."""

from __future__ import annotations

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.robust.counterpart import Counterpart


class WorstResidual:
    """The worst-case residual from the multipliers: of the one piece, or of the heaviest of fixed pieces."""

    def __init__(self, counterpart: Counterpart) -> None:
        blocks = [block for block in counterpart.blocks if block.row == 0]
        self.points: Array | None = None
        if blocks[0].certificate is None:
            self.rows = blocks[0].equation_rows[: counterpart.problem.n_outcomes]
            return
        self.rows = np.array([block.inequality_row for block in blocks])
        self.points = np.vstack([block.certificate.points for block in blocks if block.certificate is not None])

    @staticmethod
    def applies(counterpart: Counterpart) -> bool:
        """One piece whose direction depends on the decision, or several whose directions are fixed."""
        blocks = [block for block in counterpart.blocks if block.row == 0]
        is_fixed = [block.certificate is not None for block in blocks]
        return (len(blocks) == 1 and not is_fixed[0]) or (len(blocks) > 1 and all(is_fixed))

    def at(self, y: Array) -> Array:
        """Residuals (N, d) for multipliers (N, n_rows)."""
        if self.points is None:
            return -y[:, self.rows]
        return self.points[y[:, self.rows].argmax(axis=1)]

    def affine(self, Y: Array) -> Array | None:
        """The residual as a map of [1; f] in a region; None where the heaviest piece may change within it."""
        if self.points is None:
            return -Y[self.rows]
        weights = Y[self.rows]
        # Any piece with weight attains the bound, and the heaviest has at least its share of 1: what rounding adds to
        # a weight that is constant cannot take that away.
        if np.abs(weights[:, 1:]).max(initial=0.0) > 1e-12 * (1 + np.abs(weights[:, 0]).max()):
            return None
        constant = np.zeros((self.points.shape[1], Y.shape[1]))
        constant[:, 0] = self.points[weights[:, 0].argmax()]
        return constant

    def heaviest(self, weights: Array) -> Array:
        """Residuals (N, d) of the heaviest of fixed pieces, for weights (N, n_pieces)."""
        assert self.points is not None
        return self.points[weights.argmax(axis=1)]
