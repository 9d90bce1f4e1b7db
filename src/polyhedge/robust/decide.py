"""Robust decisions for many contexts: set x problem x predictions -> decisions with bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices, as_rows
from polyhedge.decisions import Decisions
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust.engine.batch import Progress
from polyhedge.robust.ignored import as_predicted
from polyhedge.robust.program_store import Kept
from polyhedge.robust.programs import Job
from polyhedge.robust.routes import ROUTES, by_first, in_groups
from polyhedge.sets import UncertaintySet, scaled


def decide(
    problem: DecisionProblem,
    shape: UncertaintySet,
    radius: float | Array,
    centers: Array,
    *,
    scales: Array | None = None,
    parameters: Mapping[Any, Any] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    tell_ties: bool = False,
    kept: Kept | None = None,
) -> Decisions:
    """The exact robust decision around each prediction.

    Parameters
    ----------
    problem : what is decided.
    shape, radius : the set of residuals around each prediction; one radius, or (N,) radii. A row whose radius is
        infinite has no decision.
    centers : (N, n_outcomes) predictions.
    scales : (N,) factors by which the set is scaled around each of them; None for 1. The fewer distinct scales and
        radii, the faster.
    parameters : values of the problem's parameters, by name: one for all contexts, or one for each of them.
    n_jobs : number of threads, None for one a core; the decisions do not depend on it.
    progress : called now and then with the number of contexts decided and the number of all.
    tell_ties : whether `may_tie` of the decisions is asked for, which costs a little.
    kept : where programs for this problem and this shape are kept for further calls with few contexts.

    Examples
    --------
    >>> import numpy as np
    >>> from polyhedge.problems import simplex_linear
    >>> from polyhedge.sets import Box
    >>> decisions = decide(simplex_linear([0.0, 0.0]), Box([1.0, 3.0]), 1.0, np.array([[0.0, 0.0]]))
    >>> decisions.z.round(6), decisions.cost_bound.round(6)
    (array([[1., 0.]]), array([1.]))
    """
    centers = as_rows(centers, "centers", problem.n_outcomes)
    if shape.n_outcomes != problem.n_outcomes:
        raise ValueError(
            f"The set has {shape.n_outcomes} outcome(s) but the problem has {problem.n_outcomes}. They must agree."
        )
    values = parameter_rows(problem.parameters, parameters, len(centers))
    contexts = np.hstack([centers, values]) if problem.parameters else centers
    sizes, which = _distinct_sizes(radius, scales, len(centers))

    def work(k: int, rows: Any, tell: Progress | None) -> Decisions:
        reuse = None if problem.parameters else kept
        job = Job(problem, scaled(shape, sizes[k][1]), sizes[k][0], n_jobs, tell_ties, reuse, sizes[k][1], tell)
        decisions = by_first(ROUTES, job, contexts[rows])
        return as_predicted(problem, job.shape, job.radius, centers[rows], decisions)

    return work(0, slice(None), progress) if len(sizes) == 1 else in_groups(which, len(sizes), work, progress)


def _distinct_sizes(radius: float | Array, scales: Array | None, n: int) -> tuple[list[tuple[float, float]], Indices]:
    """The distinct pairs (radius, scale) of contexts, and which of them each has."""
    if np.ndim(radius) == 0 and not np.isfinite(radius):
        raise ValueError(f"radius must be finite, got {radius}. Calibrate with more samples or a larger alpha.")
    radii, r_of = _distinct(radius, "radius", n)
    factors, f_of = _distinct(1.0 if scales is None else scales, "scales", n)
    if np.isnan(radii).any() or (radii == -np.inf).any():
        raise ValueError("A radius must be a number, or infinite where there is none. Calibrate with more samples.")
    if not n:
        return [(0.0, 1.0)], r_of
    if len(radii) == len(factors) == 1:  # the usual case, with millions of contexts
        return [(float(radii[0]), float(factors[0]))], r_of
    codes, which = np.unique(r_of * len(factors) + f_of, return_inverse=True)
    return [(float(radii[k // len(factors)]), float(factors[k % len(factors)])) for k in codes], which


def _distinct(column: float | Array, name: str, n: int) -> tuple[Array, Indices]:
    if np.shape(column) not in ((), (n,)):
        raise ValueError(f"{name} must have an entry for each of the {n} centers, got {np.shape(column)}.")
    entries = np.asarray(column, dtype=np.float64)
    if not n or (entries == entries.flat[0]).all():
        return entries.ravel()[:1], np.broadcast_to(np.int64(0), (n,))  # takes no memory
    distinct, which = np.unique(entries, return_inverse=True)
    return distinct, which
