r"""The worst case over a learned set as a risk: $\max_{e \in P}\, g(z, c(x) + s(x)\,e)$, known by cuts like any other.

P is a polyhedron that covers a share of the residuals of a distribution and is learned for the decision, by a short
descent from the one-sided box. A cut is the piece and the residual of P that are worst at some row: of the residuals
only finitely many, the vertices, can be that, so that cuts found at some rows serve all of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.descent import Descent
from polyhedge.learners.samples import Samples
from polyhedge.planning.costs import PlanProblem
from polyhedge.planning.risk import Cuts, JointCost, Risk
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.problems.pieces import SumOfMaxima
from polyhedge.sets import Polyhedron
from polyhedge.solvers.linear import maximise_linear

_LEARNER = Descent(n_steps=25, starts=("one-sided",), final_width=0.08, max_contexts=25)
"""Sets are learned for every fold of a selection, so that it must be short: 0.03 seconds with two outcomes. The width
is that of the default learner: single residuals are not trusted."""
_MOST_SAMPLES = 200
"""Residuals that a set is learned from: more take longer and hardly move so few facets."""
_MOST_PIECES = 8
"""Pieces of a cost whose sets are learned in the time of another rule."""
_VERTICES = 3
"""Outcomes up to which a polyhedron has so few vertices that all of them are looked at."""
_LOG = logging.getLogger(__name__)


def takes_sets(problem: PlanProblem) -> bool:
    """Whether the worst case over a set is a rule of the selection.

    Not where the cost has many pieces or none, falls apart into a term a decision (quantiles of single outcomes decide
    then, without a program), or takes parameters row by row.
    """
    if not problem.has_maxima or problem.is_separable or problem.problem.parameters:
        return False
    return problem.problem.structure.has_pieces and len(problem.problem.structure.pieces) <= _MOST_PIECES


def learned_set(problem: DecisionProblem, points: Array, centers: Array, share: float) -> Polyhedron | None:
    """A set that covers this share of the points (n, d) of a distribution, learned for decisions around centers (m, d).

    None where no set has a finite worst case: the rule has no policy then.
    """
    n = min(len(points), len(centers), _MOST_SAMPLES)
    # Of few residuals all are covered; a level that is rounded down would ask for one more than there are.
    alpha = max(round(1 - share, 12), -(-(10**12) // (n + 1)) / 10**12)
    few = points[evenly_chosen(len(points), n)], centers[evenly_chosen(len(centers), n)]
    relaxed = problem if problem.structure.is_continuous else problem.relaxed()
    try:
        learned = _LEARNER.learn(Samples(*few, relaxed, alpha), random_state=0).set
    except NoSolutionError as error:
        _LOG.info("no set is learned for a policy: %s", error)
        return None
    return learned.facets()


@dataclass(frozen=True, eq=False)
class WorstCost:
    """The part of the cost that mixes decision and outcome, over a polyhedron of residuals at radius 0."""

    distribution: JointCost
    shape: Polyhedron
    points: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", self.distribution.points)

    @cached_property
    def _pieces(self) -> JointCost:
        """The cost as one maximum."""
        pieces = self.distribution.total.expanded()
        return JointCost(SumOfMaxima(np.zeros_like(pieces[0]), (pieces,)), self.points)

    @property
    def matrices(self) -> Array:
        """All pieces (P, 1 + p, 1 + d) of the cost."""
        return self.distribution.matrices

    @property
    def groups(self) -> list[range]:
        """The pieces of each maximum."""
        return self.distribution.groups

    def cuts(self, z: Array, centers: Array, scales: Array, risk: Risk) -> list[tuple[Array, Cuts]]:
        """The worst case (N,) of the joint cost at each row, and the cut that each row gives: one term."""
        return self.cuts_and_deviation(z, centers, scales, risk)[0]

    def cuts_and_deviation(
        self, z: Array, centers: Array, scales: Array, risk: Risk
    ) -> tuple[list[tuple[Array, Cuts]], Array]:
        """The same, and how far costs differ over the distribution's points at each row (N,)."""
        deviation = np.asarray(self.distribution.samples(z, centers, scales).std(axis=1))
        v, w = (part[:, 1:] for part in self._pieces.sides(z, centers))  # the first piece is a base of zeros
        worst, reach = self._supports(v.reshape(-1, v.shape[2]))
        values = w + scales[:, None] * reach.reshape(w.shape)
        high = values.max(axis=1)
        piece = np.argmax(values >= (high - TIE * deviation)[:, None], axis=1)
        e = worst.reshape(*w.shape, -1)[np.arange(len(z)), piece]
        M = self._pieces.matrices[1:][piece]
        cuts = Cuts(M[:, :, 0], np.einsum("kij,kj->ki", M[:, :, 1:], e), M[:, :, 1:], np.zeros(len(z), dtype=np.int64))
        return [(high, cuts)], deviation

    def _supports(self, directions: Array) -> tuple[Array, Array]:
        """For each direction (k, d) the residual of the set (k, d) that is farthest along it, and how far (k,)."""
        if self._vertices is None:
            reach, worst = maximise_linear(self.shape.W, -self.shape.b, directions)
            return worst, reach
        along = directions @ self._vertices.T
        high = along.max(axis=1)
        same = TIE * (high - along.min(axis=1))
        first: Indices = np.argmax(along >= (high - same)[:, None], axis=1)
        return self._vertices[first], along[np.arange(len(first)), first]

    @cached_property
    def _vertices(self) -> Array | None:
        return self.shape.vertices(0.0) if self.shape.n_outcomes <= _VERTICES else None
