r"""The ways to the mean robust cost of {e : W e <= q} and its gradient, in one list: the first that applies.

| way          | applies to                                    | how                                             |
|--------------|-----------------------------------------------|-------------------------------------------------|
| segment      | two outcomes, decisions on a segment          | closed form over pairs of facets                |
| interval     | as below, one outcome                         | closed form on both sides                       |
| cut reach    | fixed directions, something known of outcomes | reaches of each context, where the support cuts |
| reach        | fixed directions                              | reaches of the set, which all contexts share    |
| pivots       | one affine piece, linear rows, nothing known  | from bases that are known, else by a solver     |
| counterparts | a maximum of listed pieces                    | together where costs bend, else one by one      |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.learners.exact.fixed_directions import ReachCost, reach_cost
from polyhedge.learners.exact.plane import FacetGradient, segment_gradient
from polyhedge.learners.with_support import cut_gradient, interval_gradient
from polyhedge.problems import DecisionProblem
from polyhedge.problems.structure import Structure
from polyhedge.robust import Counterpart
from polyhedge.robust.counterpart import CounterpartSolution
from polyhedge.robust.engine.batch import batch_engine
from polyhedge.robust.routes import Route
from polyhedge.robust.warm_starts import SharpPrograms, SharpVertices, sharp_programs
from polyhedge.sets import Polyhedron

_WORTH_A_BATCH = 8
"""Contexts from which it is quicker to solve them together than one after the other."""


@dataclass(frozen=True, eq=False)
class FacetCosts:
    """What is kept of a problem and its contexts from one polyhedron to the next.

    `apart` is how far a set reaches along the cost's fixed directions, as a search sees it.
    """

    problem: DecisionProblem
    centers: Array
    apart: Callable[[Array], Array]

    @property
    def structure(self) -> Structure:
        """What the problem is."""
        return self.problem.structure

    @property
    def is_plane_segment(self) -> bool:
        """Whether decisions lie on a segment and outcomes in the plane."""
        return self.problem.n_outcomes == 2 and self.structure.is_on_segment

    @property
    def is_cut(self) -> bool:
        """Whether directions are fixed, and what is known of outcomes cuts the set of each context in its own way."""
        return self.structure.has_known_support and self.structure.has_fixed_directions_in_support

    @property
    def has_closed_form(self) -> bool:
        """Whether all contexts are evaluated at once, without a solver for each."""
        if self.is_plane_segment:
            return True
        is_quick = self.structure.has_fixed_directions or (self.is_cut and self.problem.n_outcomes == 1)
        return is_quick and self.reach_cost.is_closed_form

    @cached_property
    def reach_cost(self) -> ReachCost:
        """The cost as a function of the set's reach along its fixed directions."""
        return reach_cost(self.problem, self.centers)

    @cached_property
    def supports(self) -> SharpVertices:
        """Supports along the cost's fixed directions."""
        return SharpVertices(self.structure.pieces.q)

    @cached_property
    def sharp_programs(self) -> SharpPrograms | None:
        """Programs of a cost that is affine in outcome and decision."""
        return sharp_programs(self.problem)

    def counterpart(self, W: Array, q: Array) -> Counterpart:
        """The program for any context."""
        return Counterpart(self.problem, Polyhedron.from_halfspaces(W, q), 0.0)


def _along_segment(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    segment = costs.structure.segment
    assert segment is not None
    return segment_gradient(segment, W, q, costs.centers[contexts])


def _by_interval(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    return interval_gradient(costs.problem, costs.reach_cost, W, q, costs.centers, contexts)


def _by_cut_reach(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    return cut_gradient(costs.problem, costs.reach_cost, costs.supports, W, q, costs.centers, contexts)


def _by_reach(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    """The set matters only through its support along the cost's few directions."""
    certificate = costs.supports(W, q)
    if not np.isfinite(certificate.values).all():
        return FacetGradient.infinite(W, q)
    value, tangent = costs.reach_cost.tangent(costs.apart(certificate.values), contexts)
    weighted = tangent.slopes[:, None] * certificate.multipliers
    return FacetGradient(value, -weighted.T @ certificate.points, weighted.sum(axis=0))


def _by_pivots(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    total, sharp, counterpart = _Total(W, q), costs.sharp_programs, None
    assert sharp is not None
    left = total.add_sharp(sharp, costs.centers[contexts])
    while len(left):
        counterpart = counterpart or costs.counterpart(W, q)
        solution, left = counterpart.solve(left[0]), left[1:]
        if not total.add_solution(solution):
            return FacetGradient.infinite(W, q)
        if sharp.remember(solution.z, solution.facet_multipliers[0, : len(q)]):
            left = total.add_sharp(sharp, left)
    return total.mean(len(contexts))


def _by_counterparts(costs: FacetCosts, W: Array, q: Array, contexts: Indices) -> FacetGradient:
    total, counterpart = _Total(W, q), costs.counterpart(W, q)
    left = total.add_batch(counterpart, costs.centers[contexts])
    is_finite = all(total.add_solution(counterpart.solve(center)) for center in left)
    return total.mean(len(contexts)) if is_finite else FacetGradient.infinite(W, q)


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

    def add_solution(self, solution: CounterpartSolution) -> bool:
        """Add one context as a solver found it; False where it has no finite worst case."""
        if solution.status.has_solution:
            facets = solution.facet_multipliers[:, : len(self.q)]
            self.add(solution.value, solution.weights @ facets, facets.T @ solution.weighted_points)
        return solution.status.has_solution

    def add_sharp(self, sharp: SharpPrograms, centers: Array) -> Array:
        """Add the contexts that have one solution alone, as found by pivots from what is known; return the others."""
        costs = sharp(*self.facets, centers)
        facets = costs.multipliers[costs.is_sharp]
        self.add(float(costs.values[costs.is_sharp].sum()), facets.sum(axis=0), facets.T @ costs.points[costs.is_sharp])
        return centers[~costs.is_sharp]

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


GRADIENTS: tuple[Route[[FacetCosts, Array, Array, Indices], FacetGradient], ...] = (
    Route("segment", lambda costs, *_: costs.is_plane_segment, _along_segment),
    Route("interval", lambda costs, *_: costs.is_cut and costs.problem.n_outcomes == 1, _by_interval),
    Route("cut reach", lambda costs, *_: costs.is_cut, _by_cut_reach),
    Route("reach", lambda costs, *_: costs.structure.has_fixed_directions, _by_reach),
    Route("pivots", lambda costs, *_: costs.sharp_programs is not None, _by_pivots),
    Route("counterparts", lambda *_: True, _by_counterparts),
)
