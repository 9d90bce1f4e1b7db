r"""What a learner learns from, with the learning objective that all learners share (Step 1 of the paper).

$$\frac1n \sum_{i=1}^n \min_{z \in Z} \max_{u \in \hat f(X_i) + P} g(z, u), \qquad
P = \{e : W e + b \le R(D_n; W, b)\}$$
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from polyhedge._validation import Array, Indices, as_rows, check_alpha
from polyhedge.calibration import conformal_radius, conformal_rank
from polyhedge.learners.beside_support import cut_gradient
from polyhedge.learners.exact.fixed_directions import ReachCost, reach_cost
from polyhedge.learners.exact.plane import FacetGradient, segment_gradient
from polyhedge.problems import DecisionProblem
from polyhedge.problems.segment import Segment
from polyhedge.robust import Counterpart, decide, decide_knowing
from polyhedge.robust.batch import batch_engine
from polyhedge.robust.sharp_programs import SharpPrograms, sharp_programs
from polyhedge.robust.sharp_vertices import SharpVertices
from polyhedge.sets import Polyhedron, UncertaintySet, facets_of

_WORTH_A_BATCH = 8
"""Contexts from which it is quicker to solve them together than one after the other."""


@dataclass(frozen=True)
class Samples:
    """Learning samples, and what a set costs on them: its mean worst-case cost at their conformal radius.

    Parameters
    ----------
    residuals : (n, d) residuals of the learning rows.
    centers : (m, d) predictions for which decisions are planned: one for each residual, or a single context.
    problem : what is decided.
    alpha : miscoverage level; a set must cover c_n = ceil((n + 1)(1 - alpha)) residuals.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> from polyhedge.sets import Ball
    >>> samples = Samples([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]], np.zeros((3, 2)), simplex_linear([0.0, 0.0]), 0.25)
    >>> samples.rank, samples.radius(Ball(2, norm=np.inf)), samples.value(Ball(2, norm=np.inf))
    (3, 2.0, 2.0)
    """

    residuals: Array
    centers: Array
    problem: DecisionProblem
    alpha: float

    def __post_init__(self) -> None:
        for name in ("residuals", "centers"):
            object.__setattr__(self, name, as_rows(getattr(self, name), name, self.problem.n_outcomes))
        check_alpha(self.alpha)

    @property
    def n(self) -> int:
        """Number of learning samples."""
        return len(self.residuals)

    @property
    def n_contexts(self) -> int:
        """Number of predictions that decisions are planned for: n, or 1 for a single context."""
        return len(self.centers)

    @property
    def rank(self) -> int:
        """How many residuals a set must cover: c_n."""
        return conformal_rank(self.n, self.alpha)

    def radius(self, shape: UncertaintySet) -> float:
        """Conformal radius of the shape on the learning split."""
        return conformal_radius(shape.scores(self.residuals), self.alpha)

    def value(self, shape: UncertaintySet, contexts: Indices | None = None) -> float:
        """The objective (over some contexts); inf where a context has no finite worst case."""
        return self.cost_at(shape, self.radius(shape), contexts)

    def cost_at(self, shape: UncertaintySet, radius: float, contexts: Indices | None = None) -> float:
        """Mean worst-case cost over the contexts at a given radius."""
        facets = facets_of(shape) if self.has_closed_form else None
        if facets is not None:
            chosen = np.arange(len(self.centers)) if contexts is None else contexts
            return self.facet_gradient(facets.W, radius - facets.b, chosen).value
        centers = self.centers if contexts is None else self.centers[contexts]
        bounds = decide(self.problem, shape, radius, centers).cost_bound
        return float(bounds.mean()) if np.isfinite(bounds).all() else np.inf

    def facet_gradient(self, W: Array, q: Array, contexts: Indices) -> FacetGradient:
        r"""Mean robust cost of {e : W e <= q} and its gradient, by the envelope theorem.

        Each context contributes $\sum_l \pi_l\lambda_l$ in q and $-\sum_l \pi_l\lambda_l e_l^\top$ in W.
        Here pi are the multipliers of the cost's pieces, lambda those of the facets and e the worst-case
        residuals (at a mixed decision a convex combination of vertices, which is what the duals are).
        """
        if self._plane_segment is not None:
            return segment_gradient(self._plane_segment, W, q, self.centers[contexts])
        if self._reach_cost is not None:
            if self.problem.structure.has_known_support:
                return cut_gradient(self.problem, self._reach_cost, self._supports, W, q, self.centers, contexts)
            return self._fixed_direction_gradient(self._reach_cost, W, q, contexts)
        total, left, sharp = _Total(W, q), self.centers[contexts], self._sharp_programs
        if sharp is not None:
            left = total.add_sharp(sharp, left)
        if not len(left):
            return total.mean(len(contexts))
        counterpart = Counterpart(self.problem, Polyhedron.from_halfspaces(W, q), 0.0)
        if sharp is None:
            left = total.add_batch(counterpart, left)
        while len(left):
            solution, left = counterpart.solve(left[0]), left[1:]
            if not solution.status.has_solution:
                return FacetGradient(np.inf, np.zeros_like(W), np.zeros_like(q))
            facets = solution.facet_multipliers[:, : len(q)]
            total.add(solution.value, solution.weights @ facets, facets.T @ solution.weighted_points)
            if sharp is not None and sharp.remember(solution.z, facets[0]):
                left = total.add_sharp(sharp, left)
        return total.mean(len(contexts))

    @cached_property
    def nominal_cost(self) -> float:
        """Mean cost of deciding as if the predictions were true: the zero of the premium."""
        return float(np.nanmean(decide_knowing(self.problem, self.centers)[1]))

    @property
    def has_closed_form(self) -> bool:
        """Whether all contexts are evaluated at once, without a solver for each."""
        if self._plane_segment is not None:
            return True
        if self._reach_cost is None or not self._reach_cost.is_closed_form:
            return False
        return self.problem.n_outcomes == 1 or not self.problem.structure.has_known_support

    def _fixed_direction_gradient(self, cost: ReachCost, W: Array, q: Array, contexts: Indices) -> FacetGradient:
        """The set matters only through its support along the cost's few directions."""
        certificate = self._supports(W, q)
        if not np.isfinite(certificate.values).all():
            return FacetGradient(np.inf, np.zeros_like(W), np.zeros_like(q))
        value, tangent = cost.tangent(self.apart(certificate.values), contexts)
        weighted = tangent.slopes[:, None] * certificate.multipliers
        return FacetGradient(value, -weighted.T @ certificate.points, weighted.sum(axis=0))

    @cached_property
    def _reach_cost(self) -> ReachCost | None:
        problem = self.problem
        is_fixed = problem.structure.has_pieces and problem.structure.pieces.directions_are_fixed
        if not is_fixed or problem.uncertain_rows or not problem.structure.is_continuous:
            return None
        return reach_cost(problem, self.centers)

    @cached_property
    def _supports(self) -> SharpVertices:
        """Supports along the cost's fixed directions."""
        return SharpVertices(self.problem.structure.pieces.q)

    @cached_property
    def _sharp_programs(self) -> SharpPrograms | None:
        """Programs of a cost that is affine in outcome and decision."""
        return sharp_programs(self.problem)

    @cached_property
    def _plane_segment(self) -> Segment | None:
        """Decisions on a segment with two outcomes have closed forms."""
        return self.problem.structure.segment if self.problem.n_outcomes == 2 else None

    @property
    def is_on_straight_segment(self) -> bool:
        """Whether closed forms for two outcomes and a segment of decisions apply, on which costs do not bend."""
        return self._plane_segment is not None and not self._plane_segment.base[2]

    tie: ClassVar[float] = 0.0
    """By how much a set must be cheaper than another to be better; see `steady.py`."""

    def apart(self, reach: Array) -> Array:
        """How far a set reaches along the cost's fixed directions, as a search sees it; see `steady.py`."""
        return reach

    def told(self, slopes: Array) -> Array:
        """Slopes of the objective as a search sees them; see `steady.py`."""
        return slopes

    def normalised(self, shape: Polyhedron) -> Polyhedron:
        """The same learning set with unit facet normals and learning radius 0."""
        size = np.linalg.norm(shape.W, axis=1)
        q = (self.radius(shape) - shape.b) / size
        return Polyhedron(shape.W / size[:, None], -q)


class _Total:
    """Sums of values and gradients over contexts, which are left for a solver where nothing quicker knows them."""

    def __init__(self, W: Array, q: Array) -> None:
        self.facets, self.value, self.W, self.q = (W, q), 0.0, np.zeros_like(W), np.zeros_like(q)

    def add(self, value: float, multipliers: Array, products: Array) -> None:
        """Values, multipliers of the facets, and products of these with worst residuals."""
        self.value += value
        self.q += multipliers
        self.W -= products

    def mean(self, n: int) -> FacetGradient:
        """Over n contexts."""
        return FacetGradient(self.value / n, self.W / n, self.q / n)

    def add_sharp(self, sharp: SharpPrograms, centers: Array) -> Array:
        """Add the contexts that have one solution alone, as found by pivots from what is known; return the others."""
        found = sharp(*self.facets, centers)
        facets = found.multipliers[found.is_sharp]
        self.add(float(found.values[found.is_sharp].sum()), facets.sum(axis=0), facets.T @ found.points[found.is_sharp])
        return centers[~found.is_sharp]

    def add_batch(self, counterpart: Counterpart, centers: Array) -> Array:
        """Add the contexts that are solved together where the cost bends with the decision; return the others.

        One piece whose direction is the decision's: its multipliers are columns of the program, its worst residual is
        the multiplier of the equations. A cost that does not bend has many worst residuals where facets lie along the
        axes, as they do where learning starts, and which of them makes a better start was not measured.
        """
        (W, q), block = self.facets, counterpart.blocks[0]
        is_bent, is_single = counterpart.parametric.at_zero.P is not None, len(counterpart.blocks) == 1
        if len(centers) < _WORTH_A_BATCH or not (is_bent and is_single) or block.certificate is not None:
            return centers
        middle = centers.mean(axis=0)
        engine = batch_engine(counterpart, middle, np.abs(centers - middle).mean(axis=0))
        if engine is None:
            return centers
        values, x, y, is_proven = engine.with_multipliers(centers)
        facets = x[is_proven][:, block.multiplier_columns[: len(q)]]
        residuals = -y[is_proven][:, block.equation_rows[: W.shape[1]]]
        self.add(float(values[is_proven].sum()), facets.sum(axis=0), facets.T @ residuals)
        return centers[~is_proven]
