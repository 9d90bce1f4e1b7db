r"""The one-sided box: facets only where an outcome can raise the cost. The simplest alternative to every learner.

$$\{e : s_k^\top e \le r\, \sigma_k\},\qquad s_k \in \{\pm e_1, \dots, \pm e_d\}\ \text{harmful}$$

It optimises nothing. Which sides are harmful follows from the problem alone, exactly; only the scales
$\sigma_k$ of the residuals along the axes come from data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array
from polyhedge.learners.paper.boxes import at_learning_radius, mean_cost
from polyhedge.learners.paper.model import direction_bounds
from polyhedge.learners.samples import Learner, LearnResult, Needs, Samples, standard_deviations, standardised, usable
from polyhedge.learners.starts import both_sides, closed
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status


@dataclass(frozen=True)
class OneSidedBox(Learner):
    """Axis facets on the harmful sides, scaled by the spread of the residuals along each axis.

    Harmless sides are closed by far facets at ten times the largest residual, so that the volume is finite. These
    hardly ever decide a score. They decide no worst case, since the harmful sides cover every direction that a cost can
    have.

    Parameters
    ----------
    scale : {"std", "tail"} or bool
        What the facets are scaled by: "std" (or True) the standard deviations of the residuals; "tail" the mean
        of the largest absolute residuals, a share of 2 alpha of them, which one outlier of a heavy tail hardly
        moves; False for equal scales, which use no data at all.
    max_contexts : as in `Learner`, for the reported objective

    Notes
    -----
    The coverage guarantee needs residuals that are not used for calibration, even for the scales alone. Those
    of the training split will do: `RobustDecider` takes the scales from them, because this learner does not
    learn from decisions, and calibrates on the learning and calibration rows together. Residuals that the
    predictor was trained on are smaller than fresh ones, but what counts here is their ratio between the axes.

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> OneSidedBox().learn(samples).set.W[:2]
    array([[1.02685849, 0.        ],
           [0.        , 1.05247853]])
    """

    scale: str | bool = "std"
    max_contexts: int = 300

    @property
    def needs(self) -> Needs:
        """Training rows will do."""
        return Needs(learning_rows=False)

    @standardised(each_outcome=False)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Take the scales from the given residuals and the sides from the problem; see `Learner`."""
        sides = harmful_sides(samples.problem)
        n_harmful = len(sides)
        if not n_harmful:
            sides = both_sides(samples.problem.n_outcomes)
        scales = axis_scales(samples.residuals, self.scale, samples.alpha)
        shape = at_learning_radius(samples, Polyhedron(sides / scales, np.zeros(len(sides))))
        # Ten times: residuals of rows that a flexible predictor was trained on are a third of fresh ones, or less.
        shape = closed(samples, shape, distance=10.0)
        return LearnResult(
            set=shape,
            objective=mean_cost(samples, shape, self.max_contexts),
            status=Status.OPTIMAL,
            detail=f"{n_harmful} of {2 * samples.problem.n_outcomes} axis sides can raise the cost",
            scores_in="outcomes" if self.scale is False else "spreads",
        )


def axis_scales(residuals: Array, scale: str | bool, alpha: float) -> Array:
    """Scale of the residuals along each axis; see `OneSidedBox`."""
    if scale is False:
        return np.ones(residuals.shape[1])
    if scale is True or scale == "std":
        return standard_deviations(residuals)
    if scale == "tail":
        n_largest = max(int(np.ceil(min(2 * alpha, 1.0) * len(residuals))), 1)
        return usable(np.sort(np.abs(residuals), axis=0)[-n_largest:].mean(axis=0), residuals)
    raise ValueError(f'scale must be "std", "tail", True or False, got {scale!r}.')


def harmful_sides(problem: DecisionProblem) -> Array:
    r"""Signed unit rows (k, d): the axis directions along which some feasible decision's cost can rise.

    Side $+e_j$ is harmful if $\max_{z \in Z} (Q_l z + q_l)_j > 0$ for some piece l of the cost or of an uncertain
    constraint, $-e_j$ if the minimum is negative; each is one program over Z. Costs without a piece list count
    as harmful on all sides.
    """
    sides = both_sides(problem.n_outcomes)
    if not problem.structure.has_pieces:
        return sides
    is_harmful = np.zeros(len(sides), dtype=bool)
    for pieces in (problem.structure.pieces, *problem.uncertain_rows):
        low, high = direction_bounds(problem, pieces)
        # Beyond what a solver's tolerance explains. A side that was wrongly left open would make costs infinite.
        noise = SOLVED * np.maximum(np.abs(pieces.Q).max(axis=2, initial=0.0), np.abs(pieces.q))
        is_harmful |= np.concatenate([(high > noise).any(axis=0), (low < -noise).any(axis=0)])
    return sides[is_harmful]
