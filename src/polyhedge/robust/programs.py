"""Contexts of one set by programs: the counterpart in batch and one by one, or column-and-constraint generation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.decisions import Decisions, all_optimal, tight_facets
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import may_be_infeasible
from polyhedge.problems.lifted import Lifted
from polyhedge.robust.adversary import Adversary, ResidualSet
from polyhedge.robust.counterpart import Counterpart, CounterpartSolution
from polyhedge.robust.engine.batch import BatchDecisions, Progress, decide_in_batch
from polyhedge.robust.engine.parametric import ContextSolver
from polyhedge.robust.scenarios import decide_by_scenarios
from polyhedge.robust.support import form_at, is_empty, maximise
from polyhedge.robust.threads import in_order
from polyhedge.sets import Shape
from polyhedge.solvers.options import solver_in_force
from polyhedge.solvers.program import SolverError, Status
from polyhedge.solvers.scaling import power_of_two

_MOST = 32
"""Entries of a cache: each level of a spread is one, and a program may take megabytes."""


class Cache:
    """Compiled programs for further calls; the least recently used one is dropped first.

    A caller takes an entry out and puts it back at the end. A second caller makes another one meanwhile, so that
    threads share nothing. Copies and pickles are empty.

    Examples
    --------
    >>> cache = Cache()
    >>> for _ in range(2):
    ...     with cache.entry("list", list) as numbers:
    ...         numbers.append(len(numbers))
    >>> numbers
    [0, 1]
    """

    def __init__(self) -> None:
        self._lock, self._things = Lock(), OrderedDict[Hashable, Any]()

    @contextmanager
    def entry(self, key: Hashable, make: Callable[[], Any]) -> Iterator[Any]:
        """The entry of this key, made if there is none; after an error it is dropped."""
        key = key, solver_in_force()  # programs are set up with the options in force
        with self._lock:
            thing = self._things.pop(key, None)
        thing = make() if thing is None else thing
        yield thing
        with self._lock:
            self._things[key] = thing
            while len(self._things) > _MOST:
                self._things.popitem(last=False)

    def __len__(self) -> int:
        return len(self._things)

    def __reduce__(self) -> tuple[type[Cache], tuple[()]]:
        return Cache, ()


_PART = 32
"""Contexts that one solver takes from warm start to warm start: fixed, so that workers do not change results."""
_FEW = 16
"""Contexts of a call up to which compiled programs are taken from the last one: fewer than make a part."""
_NO_BOUND = {Status.UNBOUNDED_SET: np.inf, Status.UNBOUNDED: -np.inf}


@dataclass(frozen=True, eq=False)
class Job:
    """What contexts of one set share."""

    problem: DecisionProblem
    shape: Shape
    radius: float
    n_jobs: int | None
    return_ties: bool = False
    cache: Cache | None = None
    """Programs of this problem and shape for further calls."""
    scale: float = 1.0
    """The factor that the shape was scaled by."""
    progress: Progress | None = None

    @contextmanager
    def cached(self, contexts: Array, kind: str, make: Callable[[Array | None], Any]) -> Iterator[Any]:
        """The entry of an earlier call with few contexts, or a new one: `make` takes a reference context.

        The reference of a cached entry is a power of two near the contexts, so that no answer depends on earlier calls.
        """
        if self.cache is None or not 0 < len(contexts) <= _FEW:
            yield make(contexts.mean(axis=0) if len(contexts) else None)
            return
        usual = np.full(contexts.shape[1], np.copysign(power_of_two(float(np.abs(contexts).mean())), contexts.mean()))
        key = kind, self.radius, self.scale, float(usual[0])
        with self.cache.entry(key, lambda: make(usual)) as thing:
            yield thing

    @contextmanager
    def residuals(self) -> Iterator[ResidualSet]:
        """The set with the vertices that earlier calls found."""
        if self.cache is None:
            yield ResidualSet(self.shape, self.radius)
            return
        key = "residuals", self.radius, self.scale
        with self.cache.entry(key, lambda: ResidualSet(self.shape, self.radius)) as thing:
            yield thing


@dataclass(frozen=True)
class _Row:
    z: Array
    value: float
    outcome: Array
    status: Status
    gap: float
    detail: str
    may_tie: bool = False


def by_counterpart(
    job: Job, compiled: DecisionProblem | Lifted, contexts: Array, support_rows: tuple[Array, Array] | None = None
) -> Decisions:
    """Contexts [prediction, parameters] in batch as far as that goes, the others one by one."""

    def make(reference: Array | None) -> Counterpart:
        return Counterpart(compiled, job.shape, job.radius, support_rows=support_rows, reference=reference)

    kind = "counterpart" if support_rows is None else "counterpart without support"
    with job.cached(contexts, kind, make) as counterpart:
        decided = decide_in_batch(counterpart, contexts, n_jobs=job.n_jobs, progress=job.progress)
        rows = _one_by_one(job, counterpart, contexts[decided.is_open])
        return _collect(job, contexts[:, : job.problem.n_outcomes], decided, rows)


def _one_by_one(job: Job, counterpart: Counterpart, contexts: Array) -> Iterator[_Row]:
    """One solve for each context on all cores, in order."""
    own = counterpart.solver if job.cache is not None and len(contexts) <= _FEW else None

    def solve_part(part: Array) -> list[CounterpartSolution]:
        solver = ContextSolver(counterpart.parametric, counterpart.solver.scaling) if own is None else own
        solver.forget()
        return [counterpart.solve(context, solver) for context in part]

    parts = [contexts[k : k + _PART] for k in range(0, len(contexts), _PART)]
    for part, solutions in zip(parts, in_order(solve_part, parts, n_jobs=job.n_jobs), strict=True):
        for context, solution in zip(part, solutions, strict=True):
            yield _or_failed(_from_counterpart, job, counterpart, context, solution)


def _or_failed(row: Callable[..., _Row], job: Job, *rest: Any) -> _Row:
    """The row, or one that says that a solver had no answer that could be proven."""
    try:
        return row(job, *rest)
    except SolverError as error:
        p, d = job.problem.n_decisions, job.problem.n_outcomes
        return _Row(np.full(p, np.nan), np.nan, np.full(d, np.nan), Status.FAILED, np.inf, str(error))


def _from_counterpart(job: Job, counterpart: Counterpart, context: Array, solution: CounterpartSolution) -> _Row:
    d = job.problem.n_outcomes
    problem, center = job.problem.at_values(context[d:]), context[:d]
    nothing = np.full(d, np.nan)
    if not solution.status.has_solution:
        status, detail = diagnose(problem, job.shape, job.radius, center, solution)
        return _Row(solution.z, _NO_BOUND.get(status, np.nan), nothing, status, np.inf, detail)
    residual = counterpart.worst_residual(solution)
    if np.isfinite(residual).all():
        return _Row(solution.z, solution.value, center + residual, solution.status, solution.gap, "", solution.may_tie)
    worst = Adversary(problem, job.shape, job.radius, center).worst_case(solution.z)
    gap = max(worst.value - solution.value, 0.0) + solution.gap
    return _Row(solution.z, worst.value, worst.outcome, solution.status, gap, "", solution.may_tie)


def diagnose(
    problem: DecisionProblem,
    shape: Shape,
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
        if not may_be_infeasible(problem):
            return Status.FAILED, f"{solution.detail} is the solver's answer, but there are feasible decisions"
        return Status.INFEASIBLE, "No decision satisfies uncertain_constraints for all outcomes of the set"
    direction = np.vstack([axes, -axes])[int(np.argmax(reach))].tolist()
    facets = shape.facets()
    if facets is not None and not problem.structure.has_known_support:
        recession = facets.unbounded_direction()
        direction = direction if recession is None else recession.round(4).tolist()
    return Status.UNBOUNDED_SET, (
        f"The set is unbounded along {direction}, so the worst-case cost is infinite. "
        "Add facets (n_facets >= n_outcomes + 1) or a bounding box"
    )


def by_scenarios(job: Job, centers: Array) -> Decisions:
    """Contexts one by one, against ever more outcomes."""
    decided = BatchDecisions.undecided(len(centers), job.problem.n_decisions, job.problem.n_outcomes)
    with job.residuals() as residuals:
        return _collect(job, centers, decided, _scenario_rows(job, residuals, centers))


def _scenario_rows(job: Job, residuals: ResidualSet, centers: Array) -> Iterator[_Row]:
    # One after the other: these masters are written in CVXPY, which is not made for threads.
    for center in centers:
        yield _or_failed(_from_scenarios, job, residuals, center)


def _from_scenarios(job: Job, residuals: ResidualSet, center: Array) -> _Row:
    s = decide_by_scenarios(job.problem, job.shape, job.radius, center, residuals=residuals)
    return _Row(s.z, s.value, s.outcome, s.status, s.gap, s.detail)


def _collect(job: Job, centers: Array, decided: BatchDecisions, rows: Iterator[_Row]) -> Decisions:
    """Put the rows that were solved one by one into their places among those decided in batch."""
    status, n = all_optimal(len(centers)), len(centers)
    open_contexts = np.flatnonzero(decided.is_open)
    detail = [""] * n if len(open_contexts) else []
    worst = decided.residual
    worst += centers
    for k, (i, row) in enumerate(zip(open_contexts, rows, strict=True), start=1):
        decided.z[i], decided.cost_bound[i], worst[i] = row.z, row.value, row.outcome
        status[i], decided.gap[i], detail[i] = row.status, row.gap, row.detail
        decided.may_tie[i] = row.may_tie
        if job.progress is not None and (k % _PART == 0 or k == len(open_contexts)):
            job.progress(n - len(open_contexts) + k, n)
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
        may_tie=decided.may_tie,
    )
