"""Robust decisions for many contexts: set x problem x predictions -> decisions with bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyhedge._validation import Array, Indices, as_rows
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust.batch import WORTH_A_POOL, Progress
from polyhedge.robust.decisions import Decisions, all_optimal, joined, tight_facets
from polyhedge.robust.ignored import as_predicted
from polyhedge.robust.program_store import Kept
from polyhedge.robust.routes import Job, by_counterpart, decide_by_first
from polyhedge.sets import UncertaintySet, scaled
from polyhedge.solvers.program import Status


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
    >>> found = decide(simplex_linear([0.0, 0.0]), Box([1.0, 3.0]), 1.0, np.array([[0.0, 0.0]]))
    >>> found.z.round(6), found.cost_bound.round(6)
    (array([[1., 0.]]), array([1.]))
    """
    centers = as_rows(centers, "centers", problem.n_outcomes)
    if shape.n_outcomes != problem.n_outcomes:
        raise ValueError(
            f"The set has {shape.n_outcomes} outcome(s) but the problem has {problem.n_outcomes}. They must agree."
        )
    values = parameter_rows(problem.parameters, parameters, len(centers))
    sizes, which = _distinct_sizes(radius, scales, len(centers))

    def work(k: int, rows: Any, tell: Progress | None) -> Decisions:
        reuse = None if problem.parameters else kept
        job = Job(problem, scaled(shape, sizes[k][1]), sizes[k][0], n_jobs, tell_ties, reuse, sizes[k][1])
        found = _decide(job, centers[rows], values[rows], tell)
        return as_predicted(problem, job.shape, job.radius, centers[rows], found)

    return work(0, slice(None), progress) if len(sizes) == 1 else _in_groups(which, len(sizes), work, progress)


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


def _decide(job: Job, centers: Array, values: Array, progress: Progress | None) -> Decisions:
    """Contexts of one set: with parameters through one engine where it knows them, else one value after the other."""
    problem = job.problem
    if np.isinf(job.radius):
        return _without_radius(job, len(centers))
    if not problem.parameters:
        return decide_by_first(job, centers, progress)
    if not len(centers):  # no value to decide with
        return _without_radius(job, 0)
    distinct, which = np.unique(values, axis=0, return_inverse=True)
    is_shared = len(distinct) == 1 and len(centers) >= WORTH_A_POOL
    if problem.lifted is not None and problem.lifted.pieces is not None and not is_shared:
        return by_counterpart(job, problem.lifted, np.hstack([centers, values]), progress)

    def work(k: int, rows: Indices, tell: Progress | None) -> Decisions:
        at_value = replace(job, problem=problem.at_values(distinct[k]))
        return decide_by_first(at_value, centers[rows], tell)

    return _in_groups(which.ravel(), len(distinct), work, progress)


def _without_radius(job: Job, n: int) -> Decisions:
    """No decision for contexts without a radius: nothing bounds their cost."""
    status = all_optimal(n)
    status.fill(Status.UNBOUNDED_SET)
    detail = ("The radius is infinite, so that the set holds every outcome",) * n
    none = np.full((n, job.problem.n_outcomes), np.nan)
    facets = np.zeros_like(tight_facets(job.shape, 0.0, none))
    z = np.full((n, job.problem.n_decisions), np.nan)
    return Decisions(z, np.full(n, np.inf), none, facets, status, np.full(n, np.inf), job.problem.layout, detail)


def _in_groups(
    which: Indices, n_groups: int, work: Callable[[int, Indices, Progress | None], Decisions], progress: Progress | None
) -> Decisions:
    """The decisions of each group of contexts, in the order of the contexts."""
    parts, order, n_done = [], [], 0
    for k in range(n_groups):
        rows = np.flatnonzero(which == k)

        def tell(done: int, _: int, before: int = n_done) -> None:
            if progress is not None:
                progress(before + done, len(which))

        parts.append(work(k, rows, tell))
        order.append(rows)
        n_done += len(rows)
    return joined(parts, order)
