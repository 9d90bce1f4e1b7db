"""Routes to robust decisions: the first that applies decides all contexts of one set.

| route           | applies to                                             | how                                     |
|-----------------|--------------------------------------------------------|-----------------------------------------|
| nothing         | an infinite radius; parameters, and no context         | no decision                             |
| all values      | parameters that are affine, and differ or are few      | counterpart with them as coordinates    |
| value by value  | other parameters                                       | each value by the routes below          |
| along a segment | one piece on a segment of decisions, no round sets     | closed form, all contexts at once       |
| known support   | a known support; one piece, or fixed directions        | without it, then again where it binds   |
| counterpart     | a maximum of listed pieces                             | dual program: in batch, then one by one |
| scenarios       | any other cost, concave or convex in the outcome       | column-and-constraint generation        |

Other questions have lists of their own: `nominal.py` knows the outcome, and
`learners/gradients.py` tells how the mean cost moves with the facets of a set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, ParamSpec, TypeVar

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.decisions import Decisions, all_optimal, joined, numbered_facets, tight_facets
from polyhedge.problems import DecisionProblem
from polyhedge.robust.engine.batch import WORTH_A_POOL, Progress
from polyhedge.robust.known_support import CutReach, has_support_to_spare, is_proven
from polyhedge.robust.programs import Job, by_counterpart, by_scenarios
from polyhedge.robust.segment import decide_along, support_along, ties_along
from polyhedge.robust.threads import in_order
from polyhedge.sets import Shape
from polyhedge.solvers.program import SolverError, Status

_SEGMENT_CHUNK = 65_536
"""Contexts of one task: enough to be worth a thread, few enough to tell of progress."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


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


def is_closed_form(problem: DecisionProblem, shape: Shape, radius: float) -> bool:
    """Whether decisions have a closed form, so that ties do not depend on the other contexts of a call."""
    job, nobody = Job(problem, shape, radius, 1), np.zeros((0, problem.n_outcomes))
    return not problem.parameters and _along_segment(job, nobody) is not None


def _without_radius(job: Job, contexts: Array) -> Decisions:
    """No decision for contexts without a radius: nothing bounds their cost."""
    status, n = all_optimal(len(contexts)), len(contexts)
    status.fill(Status.UNBOUNDED_SET)
    detail = ("The radius is infinite, so that the set holds every outcome",) * n
    none = np.full((n, job.problem.n_outcomes), np.nan)
    facets = np.zeros_like(tight_facets(job.shape, 0.0, none))
    z = np.full((n, job.problem.n_decisions), np.nan)
    return Decisions(z, np.full(n, np.inf), none, facets, status, np.full(n, np.inf), job.problem.layout, detail)


def _at_all_values(job: Job, contexts: Array) -> Decisions:
    return by_counterpart(job, job.problem.structure.lifted, contexts)


def _value_by_value(job: Job, contexts: Array) -> Decisions:
    centers, values = (np.ascontiguousarray(part) for part in np.hsplit(contexts, [job.problem.n_outcomes]))
    distinct, which = np.unique(values, axis=0, return_inverse=True)

    def work(k: int, rows: Indices, tell: Progress | None) -> Decisions:
        at_value = replace(job, problem=job.problem.at_values(distinct[k]), progress=tell)
        return dispatch(ROUTES, at_value, centers[rows])

    return in_groups(which.ravel(), len(distinct), work, job.progress)


def in_groups(
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


def _along_segment(job: Job, centers: Array) -> Decisions | None:
    """All contexts in closed form, where decisions lie on a segment; None where they do not."""
    problem, shape, radius = job.problem, job.shape, job.radius
    segment, form = problem.structure.segment, shape.conic_form(radius)
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
    may_tie = np.zeros(n, dtype=bool)

    def fill(chunk: slice) -> None:
        if job.return_ties:
            may_tie[chunk] = ties_along(segment, support, centers[chunk])
        decisions = decide_along(segment, support, centers[chunk])
        for j, (low, high) in enumerate(zip(segment.z0, segment.z1, strict=True)):
            z[chunk, j] = low + decisions.s * (high - low)
        bound[chunk] = decisions.cost_bound
        tight[chunk] = tight_facets(shape, radius, decisions.worst_residual)
        np.add(decisions.worst_residual, centers[chunk], out=worst[chunk])

    chunks = [slice(k, k + _SEGMENT_CHUNK) for k in range(0, n, _SEGMENT_CHUNK)]
    for chunk, _ in zip(chunks, in_order(fill, chunks, n_jobs=job.n_jobs), strict=True):
        if job.progress is not None:
            job.progress(min(chunk.stop, n), n)
    return Decisions(z, bound, worst, tight, all_optimal(n), np.zeros(n), problem.layout, may_tie=may_tie)


def _by_pieces(job: Job, centers: Array) -> Decisions:
    return by_counterpart(job, job.problem, centers)


def _with_known_support(job: Job, centers: Array) -> Decisions | None:
    """All contexts without the support, then those where it binds with it."""
    problem, pieces = job.problem, job.problem.structure.pieces
    if not pieces.directions_are_fixed:
        return _where_support_binds(job, centers, None)

    def make(_: Array | None) -> CutReach | None:
        return CutReach.of(job.shape, job.radius, pieces.q, problem.support_rows)

    with job.cached(centers, "reach", make) as reach:
        return None if reach is None else _where_support_binds(job, centers, reach)


def _where_support_binds(job: Job, centers: Array, reach: CutReach | None) -> Decisions:
    problem = job.problem
    nothing = np.zeros((0, problem.n_outcomes)), np.zeros(0)
    decisions = by_counterpart(job, problem, centers, nothing)
    is_settled = is_proven(decisions, reach, problem, centers)
    left = np.flatnonzero(~is_settled)
    if not len(left):
        return decisions
    bound = by_counterpart(replace(job, progress=None), problem, centers[left])
    return joined([decisions[is_settled], bound], [np.flatnonzero(is_settled), left])


def _has_nothing(job: Job, contexts: Array) -> bool:
    """Whether nothing bounds the cost, or there is no value to decide with."""
    return bool(np.isinf(job.radius)) or (bool(job.problem.parameters) and not len(contexts))


def _has_all_values(job: Job, contexts: Array) -> bool:
    """Whether one program serves all values, which many contexts of one value do not need."""
    values = contexts[:, job.problem.n_outcomes :]
    is_shared = len(contexts) >= WORTH_A_POOL and (values == values[0]).all()
    return job.problem.structure.has_lifted_pieces and not is_shared


ROUTES: tuple[Route[[Job, Array], Decisions], ...] = (
    Route("nothing", _has_nothing, _without_radius),
    Route("all values", _has_all_values, _at_all_values),
    Route("value by value", lambda job, _: bool(job.problem.parameters), _value_by_value),
    Route("along a segment", lambda job, _: job.problem.structure.segment is not None, _along_segment),
    Route("known support", lambda job, _: has_support_to_spare(job.problem), _with_known_support),
    Route("counterpart", lambda job, _: job.problem.structure.has_pieces, _by_pieces),
    Route("scenarios", lambda job, _: True, by_scenarios),
)
