r"""The certified bound: no polyhedron that covers c_n learning residuals costs less than this.

$$V^\star = \min_{|S| = c_n} \frac1n \sum_i v_i(S), \qquad v_i(S) = \min_z \max_{j \in S} g(z, \hat f_i + e_j)$$

A set that covers c_n residuals contains the residuals of some such S, so it costs at least V*; and the
polyhedron whose facets are the robust decisions of the best S attains it (`scenario.py`). So V* is the
optimum over *all* convex sets and every number of facets.

Three ways to it, by the directions in which the cost can rise: a segment (`envelope.py`, a dynamic
program), finitely many (`fixed_directions.py`), any (`selection.py`). A single context has shorter ones: a sweep
along the segment (`sweep.py`), a value-at-risk program (`value_at_risk.py`).
"""

from __future__ import annotations

import time

import numpy as np

from polyhedge._support.validation import Mask
from polyhedge.learners.budget import WORK, Budget
from polyhedge.learners.exact.bound import CertifiedBound
from polyhedge.learners.exact.envelope import select_on_segment
from polyhedge.learners.exact.fixed_directions import FixedDirectionSearch
from polyhedge.learners.exact.hull import HullOracle
from polyhedge.learners.exact.selection import SelectionSearch
from polyhedge.learners.exact.sweep import sweep_segment
from polyhedge.learners.exact.value_at_risk import minimise_value_at_risk
from polyhedge.learners.samples import Samples
from polyhedge.learners.scaling import OwnUnits
from polyhedge.problems import DecisionProblem
from polyhedge.solvers.program import Status


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
    time_limit : seconds after which the best bound so far is returned; None, so that the result never depends on
        the clock.
    tolerance : gap at which the search ends, as a share of the spread of costs: how much the residuals differ in
        cost, or what dropping them can save.
    max_work : work after which the best bound so far is returned, in rows of programs solved: about a minute for
        every six million.
    start : residuals that a known good set keeps.

    Examples
    --------
    >>> import numpy as np, polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> bound = lower_bound(Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1))
    >>> bound.gap < 1e-6
    True
    """
    if samples.rank > samples.n:
        raise ValueError(
            f"alpha={samples.alpha!r} needs more than {samples.n} residuals. Raise alpha or bring more rows."
        )
    _check_applies(samples.problem)
    budget = Budget.of(max_work, time_limit)
    own = OwnUnits.of(samples, of_each=True)
    return own.bound(_certify(own.samples, tolerance, budget, start))


def _certify(samples: Samples, tolerance: float, budget: Budget, start: Mask | None) -> CertifiedBound:
    began, rank = time.perf_counter(), samples.rank
    residuals, centers, problem = samples.residuals, samples.centers, samples.problem
    segment = problem.structure.segment
    if segment is not None:
        single = len(centers) == 1
        selection = (
            sweep_segment(segment, residuals, centers[0], rank)
            if single
            else select_on_segment(segment, residuals, centers, rank)
        )
        if selection is not None:
            seconds = time.perf_counter() - began
            detail = "exact sweep over one context" if single else "exact dynamic program over envelopes"
            unit = float(np.ptp(residuals @ np.stack([segment.v0, segment.v1]).T, axis=0).max())
            value = selection.value
            return CertifiedBound(value, value, selection.kept, Status.OPTIMAL, seconds, detail, unit)
    if problem.structure.has_fixed_directions:
        return FixedDirectionSearch(problem, residuals, centers, rank, tolerance, budget).run(start, began)
    if len(centers) == 1 and problem.structure.has_pieces and len(problem.structure.pieces) == 1:
        bound = minimise_value_at_risk(samples, tolerance, budget)
        if bound is not None:
            return bound
    oracle = HullOracle(problem, residuals, centers)
    return SelectionSearch(oracle, rank, tolerance, budget).run(start, began)


def _check_applies(problem: DecisionProblem) -> None:
    """Raise where mixtures of residuals prove nothing, and name what works instead."""
    structure = problem.structure
    obstacles = {
        "a cost that is neither affine nor a maximum of affine functions of the outcome": not structure.has_pieces,
        "uncertain_constraints": problem.uncertain_constraints is not None,
        "outcome_support": problem.outcome_support is not None,
        "integer decisions": not structure.is_continuous,
    }
    in_the_way = [name for name, present in obstacles.items() if present]
    if in_the_way:
        raise ValueError(
            f"No certificate is available for {' and '.join(in_the_way)}. The learner Descent works there, without one."
        )
