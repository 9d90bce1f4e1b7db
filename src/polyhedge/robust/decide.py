"""Exact robust decisions around predictions: the one entry to all routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices, as_rows
from polyhedge.decisions import Decisions, tight_facets
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust.engine.batch import Progress
from polyhedge.robust.programs import Cache, Job
from polyhedge.robust.routes import ROUTES, dispatch, in_groups
from polyhedge.sets import Shape


def decide(
    problem: DecisionProblem,
    shape: Shape,
    radius: float | Array,
    centers: Array,
    *,
    scales: Array | None = None,
    parameters: Mapping[Any, Any] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    return_ties: bool = False,
    cache: Cache | None = None,
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
    return_ties : whether `may_tie` of the decisions is asked for, which costs a little.
    cache : programs of this problem and this shape, for further calls with few contexts.

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
        reuse = None if problem.parameters else cache
        job = Job(problem, shape.scaled(sizes[k][1]), sizes[k][0], n_jobs, return_ties, reuse, sizes[k][1], tell)
        decisions = dispatch(ROUTES, job, contexts[rows])
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


def as_predicted(
    problem: DecisionProblem, shape: Shape, radius: float, centers: Array, decisions: Decisions
) -> Decisions:
    """The decisions with outcomes that are ignored as near to the prediction as a polyhedral set allows."""
    if not problem.structure.ignored_outcomes.any() or shape.facets() is None or not len(centers):
        return decisions
    worst = brought_back(problem, shape, radius, centers, decisions.worst_outcome)
    return replace(decisions, worst_outcome=worst, active_facets=tight_facets(shape, radius, worst, centers))


def brought_back(problem: DecisionProblem, shape: Shape, radius: float, centers: Array, outcomes: Array) -> Array:
    """Outcomes (N, d) of sets around centres, those that are ignored brought back one after the other.

    Examples
    --------
    >>> import cvxpy as cp
    >>> from polyhedge.sets import Box
    >>> z = cp.Variable(1, nonneg=True)
    >>> problem = DecisionProblem(decision=z, cost=lambda z, u: cp.abs(z[0] - u[0]), n_outcomes=2)
    >>> brought_back(problem, Box([1.0, 1.0]), 1.0, np.array([[5.0, 7.0]]), np.array([[6.0, 8.0]]))
    array([[6., 7.]])
    """
    ignored, facets = np.flatnonzero(problem.structure.ignored_outcomes), shape.facets()
    if facets is None or not len(ignored):
        return outcomes
    A, h = problem.support_rows
    W, e = np.vstack([facets.W, A]), outcomes - centers
    room = np.hstack([np.tile(radius - facets.b, (len(centers), 1)), h - centers @ A.T]) - e @ W.T
    worst = outcomes.copy()
    for k in ignored:
        slopes = W[:, k]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.maximum(room, 0.0) / slopes
        up = np.where(slopes > 0, steps, np.inf).min(axis=1)
        down = np.where(slopes < 0, steps, -np.inf).max(axis=1)
        step = np.clip(-e[:, k], down, up)
        room -= step[:, None] * slopes
        worst[:, k] = np.where(step == -e[:, k], centers[:, k], outcomes[:, k] + step)
    return worst
