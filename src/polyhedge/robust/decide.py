"""Robust decisions for many contexts: set x problem x predictions -> decisions with bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from polyhedge._validation import Array, Indices, as_rows
from polyhedge.problems import DecisionProblem
from polyhedge.problems.lifted import Lifted
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust.adversary import Adversary
from polyhedge.robust.along_segment import decide_along, support_along
from polyhedge.robust.batch import WORTH_A_POOL, BatchDecisions, Progress, decide_in_batch
from polyhedge.robust.counterpart import Counterpart, CounterpartSolution
from polyhedge.robust.decisions import Decisions, all_optimal, joined, numbered_facets, tight_facets
from polyhedge.robust.parametric import ContextSolver
from polyhedge.robust.recheck import bounds_hold
from polyhedge.robust.scenarios import decide_by_scenarios
from polyhedge.robust.support import form_at, is_empty, maximise
from polyhedge.robust.workers import in_order
from polyhedge.sets import UncertaintySet, facets_of, scaled
from polyhedge.solvers.program import SolverError, Status

_SEGMENT_CHUNK = 65_536
_PART = 32
"""Contexts that one solver takes from warm start to warm start: fixed, so that workers do not change results."""
_NO_PROOF = "The solver's value is not the worst-case cost of its decision"
_NO_BOUND = {Status.UNBOUNDED_SET: np.inf, Status.UNBOUNDED: -np.inf}


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
        job = _Job(problem, scaled(shape, sizes[k][1]), sizes[k][0], n_jobs)
        return _decide(job, centers[rows], values[rows], tell)

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
        return entries.ravel()[:1], np.zeros(n, dtype=np.int64)
    distinct, which = np.unique(entries, return_inverse=True)
    return distinct, which


@dataclass(frozen=True, eq=False)
class _Job:
    """What contexts of one set share."""

    problem: DecisionProblem
    shape: UncertaintySet
    radius: float
    n_jobs: int | None


def _decide(job: _Job, centers: Array, values: Array, progress: Progress | None) -> Decisions:
    """Contexts of one set: with parameters through one engine where it knows them, else one value after the other."""
    problem = job.problem
    if np.isinf(job.radius):
        return _without_radius(job, len(centers))
    if not problem.parameters:
        return _decide_plain(job, centers, progress)
    distinct, which = np.unique(values, axis=0, return_inverse=True)
    is_shared = len(distinct) == 1 and len(centers) >= WORTH_A_POOL
    if problem.lifted is not None and problem.lifted.pieces is not None and not is_shared:
        return _by_counterpart(job, problem.lifted, np.hstack([centers, values]), progress)

    def work(k: int, rows: Indices, tell: Progress | None) -> Decisions:
        at_value = replace(job, problem=problem.at_values(distinct[k]))
        return _decide_plain(at_value, centers[rows], tell)

    return _in_groups(which.ravel(), len(distinct), work, progress)


def _decide_plain(job: _Job, centers: Array, progress: Progress | None) -> Decisions:
    found = _along_segment(job, centers, progress)
    if found is not None:
        return found
    if job.problem.pieces is None:
        decided = BatchDecisions.undecided(len(centers), job.problem.n_decisions, job.problem.n_outcomes)
        return _collect(job, centers, decided, _by_scenarios(job, centers), progress)
    return _by_counterpart(job, job.problem, centers, progress)


def _without_radius(job: _Job, n: int) -> Decisions:
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


@dataclass(frozen=True)
class _Row:
    z: Array
    value: float
    outcome: Array
    status: Status
    gap: float
    detail: str


def _along_segment(job: _Job, centers: Array, progress: Progress | None) -> Decisions | None:
    """All contexts in closed form, where decisions lie on a segment; None where they do not."""
    problem, shape, radius = job.problem, job.shape, job.radius
    segment = problem.structure.segment
    form = shape.conic_form(radius)
    if segment is None or any(cone.kind == "soc" for cone in form.cones):
        return None
    try:
        support = support_along(segment, form)
    except SolverError:  # the other routes tell context by context how they ended
        support = None
    if support is None:
        return None
    n = len(centers)
    z, bound = np.empty((n, problem.n_decisions)), np.empty(n)
    worst = np.empty((n, problem.n_outcomes))
    tight = np.empty((n, numbered_facets(shape)), dtype=bool)

    def fill(chunk: slice) -> None:
        found = decide_along(segment, support, centers[chunk])
        for j, (low, high) in enumerate(zip(segment.z0, segment.z1, strict=True)):
            z[chunk, j] = low + found.s * (high - low)
        bound[chunk] = found.cost_bound
        tight[chunk] = tight_facets(shape, radius, found.worst_residual)
        np.add(found.worst_residual, centers[chunk], out=worst[chunk])

    chunks = [slice(k, k + _SEGMENT_CHUNK) for k in range(0, n, _SEGMENT_CHUNK)]
    for chunk, _ in zip(chunks, in_order(fill, chunks, n_jobs=job.n_jobs), strict=True):
        if progress is not None:
            progress(min(chunk.stop, n), n)
    return Decisions(z, bound, worst, tight, all_optimal(n), np.zeros(n), problem.layout)


def _by_counterpart(
    job: _Job, compiled: DecisionProblem | Lifted, contexts: Array, progress: Progress | None
) -> Decisions:
    """Contexts [prediction, parameters] in batch as far as that goes, the others one by one."""
    reference = contexts.mean(axis=0) if len(contexts) else None
    counterpart = Counterpart(compiled, job.shape, job.radius, reference=reference)
    decided = decide_in_batch(counterpart, contexts, n_jobs=job.n_jobs, progress=progress)
    rows = _one_by_one(job, counterpart, contexts[decided.is_open])
    return _collect(job, contexts[:, : job.problem.n_outcomes], decided, rows, progress)


def _one_by_one(job: _Job, counterpart: Counterpart, contexts: Array) -> Iterator[_Row]:
    """One solve for each context on all cores; what a solution means is read here, in order."""
    nothing = _nothing_for_anyone(job, counterpart, contexts)
    if nothing is not None:
        yield from repeat(nothing, len(contexts))
        return

    def solve_part(part: Array) -> list[CounterpartSolution]:
        solver = ContextSolver(counterpart.parametric, counterpart.solver.frame)
        solutions = [counterpart.solve(context, solver) for context in part]
        for i in _doubtful(job, counterpart, part, solutions):
            # Once more, set up for this context alone and seen from its own solution.
            solutions[i] = counterpart.solve(part[i], ContextSolver(counterpart.parametric))
            if len(_doubtful(job, counterpart, part[i : i + 1], solutions[i : i + 1])):
                solutions[i] = replace(solutions[i], status=Status.FAILED, detail=_NO_PROOF)
        return solutions

    parts = [contexts[k : k + _PART] for k in range(0, len(contexts), _PART)]
    for part, solutions in zip(parts, in_order(solve_part, parts, n_jobs=job.n_jobs), strict=True):
        for context, solution in zip(part, solutions, strict=True):
            yield _or_failed(_from_counterpart, job, counterpart, context, solution)


def _doubtful(
    job: _Job, counterpart: Counterpart, contexts: Array, solutions: Sequence[CounterpartSolution]
) -> Indices:
    """Solutions whose value is not the worst-case cost of their decision."""
    rows = np.array([i for i, solution in enumerate(solutions) if solution.status.has_solution], dtype=np.int64)
    if not len(rows):
        return rows
    found = [solutions[i] for i in rows]
    return rows[~bounds_hold(job.problem, counterpart, job.shape, job.radius, contexts[rows], found)]


def _nothing_for_anyone(job: _Job, counterpart: Counterpart, contexts: Array) -> _Row | None:
    """The one answer to all contexts where they move costs only and no decision is feasible."""
    parametric = counterpart.parametric
    if len(contexts) < 2 or parametric.rhs_slope.nnz or parametric.entry_slope.nnz or counterpart.n_support_rows:
        return None
    solution = counterpart.solve(contexts[0])
    if solution.status is not Status.INFEASIBLE:
        return None
    return _or_failed(_from_counterpart, job, counterpart, contexts[0], solution)


def _or_failed(row: Callable[..., _Row], job: _Job, *rest: Any) -> _Row:
    """The row, or one that says that a solver had no answer that could be proven."""
    try:
        return row(job, *rest)
    except SolverError as error:
        p, d = job.problem.n_decisions, job.problem.n_outcomes
        return _Row(np.full(p, np.nan), np.nan, np.full(d, np.nan), Status.FAILED, np.inf, str(error))


def _from_counterpart(job: _Job, counterpart: Counterpart, context: Array, solution: CounterpartSolution) -> _Row:
    d = job.problem.n_outcomes
    problem, center = job.problem.at_values(context[d:]), context[:d]
    nothing = np.full(d, np.nan)
    if not solution.status.has_solution:
        status, detail = diagnose(problem, job.shape, job.radius, center, solution)
        return _Row(solution.z, _NO_BOUND.get(status, np.nan), nothing, status, np.inf, detail)
    residual = counterpart.worst_residual(solution)
    if np.isfinite(residual).all():
        return _Row(solution.z, solution.value, center + residual, solution.status, solution.gap, "")
    worst = Adversary(problem, job.shape, job.radius, center).worst_case(solution.z)
    gap = max(worst.value - solution.value, 0.0) + solution.gap
    return _Row(solution.z, worst.value, worst.outcome, solution.status, gap, "")


def diagnose(
    problem: DecisionProblem,
    shape: UncertaintySet,
    radius: float,
    center: Array,
    solution: CounterpartSolution,
) -> tuple[Status, str]:
    """Tell why a counterpart has no solution: the set, the constraints or the cost."""
    form = form_at(shape, radius, center, problem.support_rows)
    if is_empty(form):
        return Status.EMPTY_SET, "Check the prediction against outcome_support, or recalibrate on more data"
    if solution.status is not Status.INFEASIBLE:
        return solution.status, solution.detail
    axes = np.eye(problem.n_outcomes)
    reach = maximise(form, np.vstack([axes, -axes])).values
    if np.isfinite(reach).all():
        return Status.INFEASIBLE, "No decision satisfies uncertain_constraints for all outcomes of the set"
    direction = np.vstack([axes, -axes])[int(np.argmax(reach))].tolist()
    facets = facets_of(shape)
    if facets is not None and not len(problem.support_rows[0]):
        recession = facets.unbounded_direction()
        direction = direction if recession is None else recession.round(4).tolist()
    return Status.UNBOUNDED_SET, (
        f"The set is unbounded along {direction}, so the worst-case cost is infinite. "
        "Add facets (n_facets >= n_outcomes + 1) or a bounding box"
    )


def _by_scenarios(job: _Job, centers: Array) -> Iterator[_Row]:
    # One after the other: these masters are written in CVXPY, which is not made for threads.
    for center in centers:
        yield _or_failed(_from_scenarios, job, center)


def _from_scenarios(job: _Job, center: Array) -> _Row:
    s = decide_by_scenarios(job.problem, job.shape, job.radius, center)
    return _Row(s.z, s.value, s.outcome, s.status, s.gap, s.detail)


def _collect(
    job: _Job, centers: Array, decided: BatchDecisions, rows: Iterator[_Row], progress: Progress | None
) -> Decisions:
    """Put the rows that were solved one by one into their places among those decided in batch."""
    status, n = all_optimal(len(centers)), len(centers)
    open_contexts = np.flatnonzero(decided.is_open)
    detail = [""] * n if len(open_contexts) else []
    worst = decided.residual
    worst += centers
    for k, (i, row) in enumerate(zip(open_contexts, rows, strict=True), start=1):
        decided.z[i], decided.cost_bound[i], worst[i] = row.z, row.value, row.outcome
        status[i], decided.gap[i], detail[i] = row.status, row.gap, row.detail
        if progress is not None and (k % _PART == 0 or k == len(open_contexts)):
            progress(n - len(open_contexts) + k, n)
    decided.z += 0.0  # no negative zeros
    return Decisions(
        flat=decided.z,
        cost_bound=decided.cost_bound,
        worst_outcome=worst,
        active_facets=tight_facets(job.shape, job.radius, worst, centers),
        status=status,
        gap=decided.gap,
        layout=job.problem.layout,
        detail=tuple(detail),
    )
