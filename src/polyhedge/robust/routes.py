"""Exact robust decisions around predictions: the first route that applies decides all contexts of one set.

| route           | applies to                                             | how                                     |
|-----------------|--------------------------------------------------------|-----------------------------------------|
| nothing         | an infinite radius; parameters, and no context         | no decision                             |
| all values      | parameters that are affine, and differ or are few      | counterpart with them as coordinates    |
| value by value  | other parameters                                       | each value by the routes below          |
| along a segment | one piece on a segment of decisions, no round sets     | closed form, all contexts at once       |
| known support   | a known support; one piece, or fixed directions        | without it, then again where it binds   |
| counterpart     | a maximum of listed pieces                             | dual program: in batch, then one by one |
| scenarios       | any other cost, concave or convex in the outcome       | column-and-constraint generation        |

With the outcome known, which is the lower end of every comparison:

| route          | applies to                 | how                                                  |
|----------------|----------------------------|------------------------------------------------------|
| all values     | parameters that are affine | the counterpart of a point, with them as coordinates |
| value by value | other parameters           | each value by the routes below                       |
| counterpart    | a maximum of listed pieces | the counterpart of a point                           |
| both stages    | recourse                   | one program an outcome                               |
| as written     | any other cost             | one program an outcome                               |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices, Mask, as_rows
from polyhedge.decisions import Decisions, all_optimal, joined
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import may_be_infeasible
from polyhedge.problems.layout import parameter_rows
from polyhedge.problems.lifted import Lifted
from polyhedge.robust.adversary import Adversary
from polyhedge.robust.counterpart import Counterpart, CounterpartSolution
from polyhedge.robust.engine.batch import WORTH_A_POOL, BatchDecisions, Progress, decide_in_batch
from polyhedge.robust.engine.parametric import ContextSolver
from polyhedge.robust.recourse import BothStages
from polyhedge.robust.scenarios import best_against, decide_by_scenarios
from polyhedge.robust.segment import decide_along, support_along, ties_along
from polyhedge.robust.support import CutReach, form_at, has_support_to_spare, is_empty, is_proven, maximise
from polyhedge.robust.threads import in_order
from polyhedge.sets import Shape
from polyhedge.solvers.options import solver_in_force
from polyhedge.solvers.program import Cone, ConicForm, SolverError, Status, power_of_two

_SEGMENT_CHUNK = 65_536
"""Contexts of one task: enough to be worth a thread, few enough to tell of progress."""
_PART = 32
"""Contexts that one solver takes from warm start to warm start: fixed, so that workers do not change results."""
_FEW = 16
"""Contexts of a call up to which compiled programs are taken from the last one: fewer than make a part."""
_NO_BOUND = {Status.UNBOUNDED_SET: np.inf, Status.UNBOUNDED: -np.inf}

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


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
        decisions, here = dispatch(ROUTES, job, contexts[rows]), centers[rows]
        if not problem.structure.ignored_outcomes.any() or job.shape.facets() is None or not len(here):
            return decisions
        worst = brought_back(problem, job.shape, job.radius, here, decisions.worst_outcome)
        return replace(decisions, worst_outcome=worst)

    return work(0, slice(None), progress) if len(sizes) == 1 else _in_groups(which, len(sizes), work, progress)


def _distinct_sizes(radius: float | Array, scales: Array | None, n: int) -> tuple[list[tuple[float, float]], Indices]:
    """The distinct pairs (radius, scale) of contexts, and which of them each has."""
    radii, r_of = _distinct(radius, "radius", n)
    factors, f_of = _distinct(1.0 if scales is None else scales, "scales", n)
    if np.isnan(radii).any() or (radii == -np.inf).any() or (np.ndim(radius) == 0 and np.isinf(radius)):
        raise ValueError(f"radius must be finite, got {radius}. Calibrate with more samples or a larger alpha.")
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


def brought_back(problem: DecisionProblem, shape: Shape, radius: float, centers: Array, outcomes: Array) -> Array:
    """Outcomes (N, d) of sets, whose entries that the cost ignores move towards the prediction.

    One by one they go as near to it as set and support allow.

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


def is_closed_form(problem: DecisionProblem, shape: Shape, radius: float) -> bool:
    """Whether decisions have a closed form, so that ties do not depend on the other contexts of a call."""
    job, nobody = Job(problem, shape, radius, 1), np.zeros((0, problem.n_outcomes))
    return not problem.parameters and _along_segment(job, nobody) is not None


class Cache:
    """Compiled programs for further calls, at most 32: one may take megabytes. The least recently used is dropped.

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
            while len(self._things) > 32:
                self._things.popitem(last=False)

    def __len__(self) -> int:
        return len(self._things)

    def __reduce__(self) -> tuple[type[Cache], tuple[()]]:
        return Cache, ()


@dataclass(frozen=True, eq=False)
class Job:
    """What contexts of one set share: `scale` is the factor that the shape was scaled by."""

    problem: DecisionProblem
    shape: Shape
    radius: float
    n_jobs: int | None
    return_ties: bool = False
    cache: Cache | None = None
    scale: float = 1.0
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


@dataclass(frozen=True)
class Route(Generic[Asked, Answer]):
    """A method with its condition; `decide` may return None, so that the next route that applies is taken."""

    name: str
    applies: Callable[Asked, bool]
    decide: Callable[Asked, Answer | None]


def dispatch(routes: Sequence[Route[Asked, Answer]], *asked: Asked.args, **named: Asked.kwargs) -> Answer:
    """The answer of the first route that applies and returns one."""
    for route in routes:
        answer = route.decide(*asked, **named) if route.applies(*asked, **named) else None
        if answer is not None:
            return answer
    raise AssertionError("the last route applies to every problem and always has an answer")


def _without_radius(job: Job, contexts: Array) -> Decisions:
    """No decision for contexts without a radius: nothing bounds their cost."""
    status, n = all_optimal(len(contexts)), len(contexts)
    status.fill(Status.UNBOUNDED_SET)
    detail = ("The radius is infinite, so that the set holds every outcome",) * n
    none = np.full((n, job.problem.n_outcomes), np.nan)
    z = np.full((n, job.problem.n_decisions), np.nan)
    return Decisions(z, np.full(n, np.inf), none, status, np.full(n, np.inf), job.problem.layout, detail)


def _value_by_value(job: Job, contexts: Array) -> Decisions:
    centers, values = (np.ascontiguousarray(part) for part in np.hsplit(contexts, [job.problem.n_outcomes]))
    distinct, which = np.unique(values, axis=0, return_inverse=True)

    def work(k: int, rows: Indices, tell: Progress | None) -> Decisions:
        at_value = replace(job, problem=job.problem.at_values(distinct[k]), progress=tell)
        return dispatch(ROUTES, at_value, centers[rows])

    return _in_groups(which.ravel(), len(distinct), work, job.progress)


def _along_segment(job: Job, centers: Array) -> Decisions | None:
    """All contexts in closed form; None where decisions lie on no segment, or where the set is round."""
    problem = job.problem
    segment, form = problem.structure.segment, job.shape.conic_form(job.radius)
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
    may_tie = np.zeros(n, dtype=bool)

    def fill(chunk: slice) -> None:
        if job.return_ties:
            may_tie[chunk] = ties_along(segment, support, centers[chunk])
        s, bound[chunk], residual = decide_along(segment, support, centers[chunk])
        for j, (low, high) in enumerate(zip(segment.z0, segment.z1, strict=True)):
            z[chunk, j] = low + s * (high - low)
        np.add(residual, centers[chunk], out=worst[chunk])

    chunks = [slice(k, k + _SEGMENT_CHUNK) for k in range(0, n, _SEGMENT_CHUNK)]
    for chunk, _ in zip(chunks, in_order(fill, chunks, n_jobs=job.n_jobs), strict=True):
        if job.progress is not None:
            job.progress(min(chunk.stop, n), n)
    return Decisions(z, bound, worst, all_optimal(n), np.zeros(n), problem.layout, may_tie=may_tie)


def _with_known_support(job: Job, centers: Array) -> Decisions | None:
    """All contexts without the support, then those where it binds with it; None where no reach could be found."""
    problem, pieces = job.problem, job.problem.structure.pieces

    def make(_: Array | None) -> CutReach | None:
        is_fixed = pieces.directions_are_fixed
        return CutReach.of(job.shape, job.radius, pieces.q, problem.support_rows) if is_fixed else None

    with job.cached(centers, "reach", make) as reach:
        if reach is None and pieces.directions_are_fixed:
            return None
        decisions = _by_counterpart(job, problem, centers, (np.zeros((0, problem.n_outcomes)), np.zeros(0)))
        is_settled = is_proven(decisions, reach, problem, centers)
    left = np.flatnonzero(~is_settled)
    if not len(left):
        return decisions
    bound = _by_counterpart(replace(job, progress=None), problem, centers[left])
    return joined([decisions[is_settled], bound], [np.flatnonzero(is_settled), left])


def _has_all_values(job: Job, contexts: Array) -> bool:
    """Whether one program serves all values, which many contexts of one value do not need."""
    values = contexts[:, job.problem.n_outcomes :]
    is_shared = len(contexts) >= WORTH_A_POOL and (values == values[0]).all()
    return job.problem.structure.has_lifted_pieces and not is_shared


@dataclass(frozen=True)
class _Row:
    z: Array
    value: float
    outcome: Array
    status: Status
    gap: float
    detail: str
    may_tie: bool = False


def _by_counterpart(
    job: Job, compiled: DecisionProblem | Lifted, contexts: Array, support_rows: tuple[Array, Array] | None = None
) -> Decisions:
    """Contexts [prediction, parameters] in batch as far as that goes, the others one by one on all cores."""

    def make(reference: Array | None) -> Counterpart:
        return Counterpart(compiled, job.shape, job.radius, support_rows=support_rows, reference=reference)

    kind = "counterpart" if support_rows is None else "counterpart without support"
    with job.cached(contexts, kind, make) as counterpart:
        decided = decide_in_batch(counterpart, contexts, n_jobs=job.n_jobs, progress=job.progress)
        left = contexts[decided.is_open]
        own = counterpart.solver if job.cache is not None and len(left) <= _FEW else None

        def solve_part(part: Array) -> list[CounterpartSolution]:
            solver = ContextSolver(counterpart.parametric, counterpart.solver.scaling) if own is None else own
            solver.forget()
            return [counterpart.solve(context, solver) for context in part]

        def rows() -> Iterator[_Row]:
            parts = [left[k : k + _PART] for k in range(0, len(left), _PART)]
            for part, solutions in zip(parts, in_order(solve_part, parts, n_jobs=job.n_jobs), strict=True):
                for context, solution in zip(part, solutions, strict=True):
                    yield _or_failed(_from_counterpart, job, counterpart, context, solution)

        return _collect(job, contexts[:, : job.problem.n_outcomes], decided, rows())


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
    if not solution.status.has_solution:
        status, detail = _why_no_solution(problem, job.shape, job.radius, center, solution)
        return _Row(solution.z, _NO_BOUND.get(status, np.nan), np.full(d, np.nan), status, np.inf, detail)
    residual = counterpart.worst_residual(solution)
    if np.isfinite(residual).all():
        return _Row(solution.z, solution.value, center + residual, solution.status, solution.gap, "", solution.may_tie)
    worst = Adversary(problem, job.shape, job.radius, center).worst_case(solution.z)
    gap = max(worst.value - solution.value, 0.0) + solution.gap
    return _Row(solution.z, worst.value, worst.outcome, solution.status, gap, "", solution.may_tie)


def _why_no_solution(
    problem: DecisionProblem, shape: Shape, radius: float, center: Array, solution: CounterpartSolution
) -> tuple[Status, str]:
    """Tell why a counterpart has no solution: the set, the constraints or the cost."""
    form = form_at(shape, radius, center, problem.support_rows)
    if is_empty(form):
        return Status.EMPTY_SET, "Check the prediction against outcome_support, or recalibrate on more data"
    if solution.status is not Status.INFEASIBLE:
        return solution.status, solution.detail
    axes = np.vstack([np.eye(problem.n_outcomes), -np.eye(problem.n_outcomes)])
    reach = maximise(form, axes).values
    if np.isfinite(reach).all():
        if not may_be_infeasible(problem):
            return Status.FAILED, f"{solution.detail} is the solver's answer, but there are feasible decisions"
        return Status.INFEASIBLE, "No decision satisfies uncertain_constraints for all outcomes of the set"
    direction = axes[int(np.argmax(reach))].tolist()
    facets = shape.facets()
    if facets is not None and not problem.structure.has_known_support:
        recession = facets.unbounded_direction()
        direction = direction if recession is None else recession.round(4).tolist()
    return Status.UNBOUNDED_SET, (
        f"The set is unbounded along {direction}, so the worst-case cost is infinite. "
        "Add facets (n_facets >= n_outcomes + 1) or a bounding box"
    )


def _by_scenarios(job: Job, centers: Array) -> Decisions:
    """Contexts one after the other, against ever more outcomes: CVXPY, which writes the masters, knows no threads."""
    decided = BatchDecisions.undecided(len(centers), job.problem.n_decisions, job.problem.n_outcomes)

    def row(job: Job, center: Array) -> _Row:
        s = decide_by_scenarios(job.problem, job.shape, job.radius, center)
        return _Row(s.z, s.value, s.outcome, s.status, s.gap, s.detail)

    return _collect(job, centers, decided, (_or_failed(row, job, center) for center in centers))


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
        status=status,
        gap=decided.gap,
        layout=job.problem.layout,
        detail=tuple(detail),
        may_tie=decided.may_tie,
    )


ROUTES: tuple[Route[[Job, Array], Decisions], ...] = (
    Route(
        "nothing",
        lambda job, contexts: bool(np.isinf(job.radius)) or (bool(job.problem.parameters) and not len(contexts)),
        _without_radius,
    ),
    Route(
        "all values",
        _has_all_values,
        lambda job, contexts: _by_counterpart(job, job.problem.structure.lifted, contexts),
    ),
    Route("value by value", lambda job, _: bool(job.problem.parameters), _value_by_value),
    Route("along a segment", lambda job, _: job.problem.structure.segment is not None, _along_segment),
    Route("known support", lambda job, _: has_support_to_spare(job.problem), _with_known_support),
    Route(
        "counterpart",
        lambda job, _: job.problem.structure.has_pieces,
        lambda job, centers: _by_counterpart(job, job.problem, centers),
    ),
    Route("scenarios", lambda job, _: True, _by_scenarios),
)

Best = tuple[Array, Array, Mask]
"""Decisions (N, p), their costs (N,), and where it is proven that no decision is better (N,)."""


def decide_knowing(problem: DecisionProblem, outcomes: Array, values: Array | None = None) -> tuple[Array, Array]:
    """Best decisions (N, p) and costs min_z g(z, u) (N,) of a `problem` for known `outcomes` (N, d); NaN if none is.

    `values` (N, t) are those of the problem's parameters, flat and row by row, where it has any.
    """
    return best_knowing(problem, outcomes, values)[:2]


def best_knowing(problem: DecisionProblem, outcomes: Array, values: Array | None = None) -> Best:
    """The same, and whether each decision is proven to be a best one (N,)."""
    if values is None:
        values = parameter_rows(problem.parameters, None, len(outcomes))
    return dispatch(ROUTES_KNOWING, problem, outcomes, values)


def _knowing_value_by_value(problem: DecisionProblem, outcomes: Array, values: Array) -> Best:
    z, costs = np.full((len(outcomes), problem.n_decisions), np.nan), np.full(len(outcomes), np.nan)
    is_best = np.zeros(len(outcomes), dtype=bool)
    distinct, which = np.unique(values, axis=0, return_inverse=True)
    for k, value in enumerate(distinct):
        rows = which.ravel() == k
        z[rows], costs[rows], is_best[rows] = best_knowing(problem.at_values(value), outcomes[rows])
    return z, costs, is_best


def _knowing_as_written(problem: DecisionProblem, outcomes: Array, _: Array) -> Best:
    solved = [best_against(problem, u[None]) for u in outcomes]
    z = [z if solution.status.has_solution else z * np.nan for solution, z in solved]
    values = np.array([solution.value for solution, _ in solved], dtype=float)
    is_best = np.array([solution.status is Status.OPTIMAL for solution, _ in solved], dtype=bool)
    return np.array(z).reshape(-1, problem.n_decisions), values, is_best


def _knowing_both_stages(problem: DecisionProblem, outcomes: Array, _: Array) -> Best:
    return BothStages(problem).knowing(outcomes)


def _knowing_by_counterpart(compiled: DecisionProblem | Lifted, contexts: Array) -> Best:
    d = compiled.n_outcomes
    # What happened need not be what outcome_support held possible.
    everything = np.zeros((0, d)), np.zeros(0)
    counterpart = Counterpart(compiled, _Point(d), 0.0, support_rows=everything)  # type: ignore[arg-type]
    decided = decide_in_batch(counterpart, contexts)
    is_best = ~decided.is_open
    for i in np.flatnonzero(decided.is_open):
        solution = counterpart.solve(contexts[i])
        decided.z[i], decided.cost_bound[i] = solution.z, solution.value
        is_best[i] = solution.status is Status.OPTIMAL
    return decided.z, decided.cost_bound, is_best


@dataclass(frozen=True)
class _Point:
    """The set {0}: no uncertainty."""

    n_outcomes: int

    def conic_form(self, radius: float) -> ConicForm:
        d = self.n_outcomes
        return ConicForm(G=sp.eye_array(d, format="csr"), g=np.zeros(d), cones=(Cone("zero", d),))


ROUTES_KNOWING: tuple[Route[[DecisionProblem, Array, Array], Best], ...] = (
    Route(
        "all values",
        lambda problem, *_: problem.structure.has_lifted_pieces,
        lambda problem, outcomes, values: _knowing_by_counterpart(
            problem.structure.lifted, np.hstack([outcomes, values])
        ),
    ),
    Route("value by value", lambda problem, *_: bool(problem.parameters), _knowing_value_by_value),
    Route(
        "counterpart",
        lambda problem, *_: problem.structure.has_pieces,
        lambda problem, outcomes, _: _knowing_by_counterpart(problem, outcomes),
    ),
    Route("both stages", lambda problem, *_: problem.has_recourse, _knowing_both_stages),
    Route("as written", lambda *_: True, _knowing_as_written),
)
