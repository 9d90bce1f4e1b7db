r"""The certified bound, and the exact learner that attains it.

$$V^\star = \min_{|S| = c_n} \frac1n \sum_i v_i(S), \qquad v_i(S) = \min_z \max_{j \in S} g(z, \hat f_i + e_j)$$

(Step 1 of the paper without its bilinear terms.) A set that covers c_n residuals contains the residuals of some such S,
so it costs at least V*. Let z_i be the decisions at the best S. Any polyhedron that contains S and whose support equals
that of S along the cost directions of the z_i attains V*, so these directions are the facets. So V* is the optimum over
*all* convex sets and every number of facets. In this form a facet's score is the excess over a planned worst-case cost,
and recalibration moves all worst-case costs alike.

The way to V* depends on the directions in which the cost can rise: a segment (`segment.py`, a dynamic program),
finitely many or any (`selection.py`, cutting planes).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Mask
from polyhedge.learners.exact.bound import WORK, Budget, CertifiedBound, below, status_between
from polyhedge.learners.exact.segment import select_on_segment
from polyhedge.learners.exact.selection import FixedDirectionSearch, HullOracle, SelectionSearch
from polyhedge.learners.samples import Learner, LearnResult, Samples, SampleScaling, standardised
from polyhedge.learners.starts import check_n_facets, closed, one_sided, simplex, without_noise
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status

_NOTHING = 1e-9
"""Slopes below this share of the largest are rounding: the decision does not depend on the outcome."""


def lower_bound(
    samples: Samples,
    time_limit: float | None = None,
    *,
    tolerance: float = 1e-6,
    max_work: float = WORK,
    start: Mask | None = None,
) -> CertifiedBound:
    """Certify how cheap any set can be on these residuals and contexts.

    Parameters
    ----------
    samples : those of the learning split, to which the bound refers, with a problem that has a piece list. The set must
        cover c_n = ceil((n + 1)(1 - alpha)) residuals.
    time_limit, max_work : as in `Learner`
    tolerance : gap at which the search ends, as a share of the spread of costs: how much the residuals differ in
        cost, or what dropping them can save.
    start : residuals that a known good set keeps.

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> bound = lower_bound(Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1))
    >>> bound.gap < 1e-6
    True
    """
    if samples.rank > samples.n:
        raise ValueError(
            f"alpha={samples.alpha!r} needs more than {samples.n} residuals. Raise alpha or bring more rows."
        )
    structure = samples.problem.structure
    obstacles = {
        "a cost that is neither affine nor a maximum of affine functions of the outcome": not structure.has_pieces,
        "uncertain_constraints": samples.problem.uncertain_constraints is not None,
        "outcome_support": samples.problem.outcome_support is not None,
        "integer decisions": not structure.is_continuous,
    }
    in_the_way = [name for name, present in obstacles.items() if present]
    if in_the_way:
        raise ValueError(
            f"No certificate is available for {' and '.join(in_the_way)}. The learner Descent works there, without one."
        )
    began, budget = time.perf_counter(), Budget.of(max_work, time_limit)
    scaling = SampleScaling.of(samples, each_outcome=True)
    samples = scaling.apply(samples)
    segment, selection = samples.problem.structure.segment, None
    if segment is not None:
        selection = select_on_segment(segment, samples.residuals, samples.centers, samples.rank)
    if segment is not None and selection is not None:
        kept, value = selection
        unit = float(np.ptp(samples.residuals @ np.stack([segment.v0, segment.v1]).T, axis=0).max())
        detail, seconds = "exact dynamic program over envelopes", time.perf_counter() - began
        bound = CertifiedBound(value, value, kept, Status.OPTIMAL, seconds, detail, unit)
    else:
        search = FixedDirectionSearch if samples.problem.structure.has_fixed_directions else SelectionSearch
        bound = search(samples, tolerance, budget).run(start)
    return scaling.invert_bound(bound)


@dataclass(frozen=True)
class Scenario(Learner):
    """Find the optimal set over all polyhedra, or the best proven so far.

    Parameters
    ----------
    n_facets : int or None
        Largest number of facets; None for as many as the optimum needs. The lower bound holds for any.
    tolerance : float
        Gap at which the search ends, as a share of the spread of costs; see `lower_bound`.
    max_work, time_limit : as in `Learner`

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = Scenario().learn(samples)
    >>> str(result.status), bool(result.lower_bound <= result.objective + 1e-9)
    ('optimal', True)
    """

    n_facets: int | None = None
    tolerance: float = 1e-6
    max_work: float = WORK
    time_limit: float | None = None

    @standardised(each_outcome=True)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        if self.n_facets is not None:
            check_n_facets(self.n_facets, samples.problem.n_outcomes)
        start = None
        if samples.problem.structure.has_pieces:
            box = one_sided(samples, 2 * samples.problem.n_outcomes)
            start = np.asarray(box.contains(samples.residuals, samples.radius(box)))
        bound = lower_bound(samples, self.time_limit, tolerance=self.tolerance, max_work=self.max_work, start=start)
        shape = facets_of_selection(samples, bound, self.n_facets, self.tolerance)
        shape = closed(samples, shape)
        value = samples.value(shape)
        lower, complaint = below(bound.lower, value, bound.unit)
        # The selection and its facets may each be off by the tolerance. Few facets may cost more than was possible.
        is_reached = status_between(lower, value, bound.unit, 2 * self.tolerance) is Status.OPTIMAL
        status = Status.FINISHED if bound.status is Status.OPTIMAL and not is_reached else bound.status
        return LearnResult(
            set=shape,
            objective=value,
            lower_bound=lower,
            status=Status.FAILED if complaint else status,
            detail=f"{shape.n_facets} facets from the decisions; {complaint or bound.detail}",
            scores_in="costs",
        )


def facets_of_selection(samples: Samples, bound: CertifiedBound, n_facets: int | None, tolerance: float) -> Polyhedron:
    """Add the facets that save most, from the decisions against the kept residuals, until none is needed."""
    problem, kept = samples.problem, bound.kept
    values = HullOracle(problem, samples.residuals, samples.centers).evaluate(kept)
    directions, users = _cost_directions(samples, values.z)
    if not len(directions):  # no outcome matters to these decisions: every set that covers the rank costs the same
        box = simplex(samples, 2 * problem.n_outcomes if n_facets is None else n_facets)
        return _supporting(samples, box.W, kept)
    limit = np.inf if n_facets is None else n_facets
    chosen = [int(np.argmax(users.sum(axis=1)))]
    while True:
        shape = _supporting(samples, directions[chosen], kept)
        costs = decide(problem, closed(samples, shape), 0.0, samples.centers).cost_bound
        excess = np.maximum(costs - values.values, 0.0)
        gains = users @ excess
        gains[chosen] = -1.0
        enough = excess.mean() <= tolerance * bound.unit
        if enough or len(chosen) >= limit or gains.max() <= 0:
            return shape
        chosen.append(int(np.argmax(gains)))


def _cost_directions(samples: Samples, z: Array) -> tuple[Array, Array]:
    """Distinct directions (k, d) of all pieces at the decisions, and which contexts use each (k, n).

    Pieces that do not bind against the kept residuals count too: without a facet they could bind.
    """
    slopes = samples.problem.structure.pieces.directions(z)
    sizes = np.abs(slopes).max(axis=2)
    context, piece = np.nonzero(sizes > _NOTHING * sizes.max())
    directions = without_noise(slopes[context, piece])
    alike = (directions / (sizes.max() or 1.0)).round(6)
    _, first, group = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    users = np.zeros((len(first), len(z)))
    users[group.ravel(), context] = 1.0
    return directions[first], users


def _supporting(samples: Samples, directions: Array, kept: Mask) -> Polyhedron:
    """Half-spaces with these normals that touch the kept residuals; radius 0 covers the rank."""
    offsets = (samples.residuals[kept] @ directions.T).max(axis=0)
    shape = Polyhedron(directions, -offsets)
    return Polyhedron(directions, -offsets - min(samples.radius(shape), 0.0))
