"""Shapes to start from: boxes along the axes, along principal components, along harmful directions."""

from __future__ import annotations

import numpy as np

from polyhedge._validation import Array, Indices
from polyhedge.learners.objective import LearningObjective
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron

_FAR = 2.0


def check_n_facets(n_facets: int, n_outcomes: int) -> None:
    """Raise unless a polyhedron with so many facets can be bounded."""
    if n_facets < n_outcomes + 1:
        raise ValueError(
            f"n_facets must be at least n_outcomes + 1 = {n_outcomes + 1} for a bounded polyhedron, got "
            f"{n_facets}. Raise n_facets or leave it out."
        )


def axis_box(objective: LearningObjective) -> Polyhedron:
    """Symmetric box scaled by the residuals' standard deviations: 2 d facets."""
    d = objective.problem.n_outcomes
    scale = _spread(objective.residuals)
    W = np.vstack([np.diag(1 / scale), -np.diag(1 / scale)])
    return Polyhedron(W, np.zeros(2 * d))


def pca_box(objective: LearningObjective) -> Polyhedron:
    """Box along the principal components, scaled by their standard deviations: 2 d facets."""
    center = objective.residuals.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(objective.residuals.T).reshape(len(center), -1))
    scale = _spread(objective.residuals @ vectors)
    W = np.vstack([vectors.T / scale[:, None], -vectors.T / scale[:, None]])
    return Polyhedron(W, -W @ center)


def harmful_directions(objective: LearningObjective, n_contexts: int = 50) -> Array:
    """Directions Q_l z + q_l of the cost (and constraints) at robust decisions, as unit rows."""
    problem = objective.problem
    assert problem.pieces is not None
    contexts = np.linspace(0, objective.n - 1, min(objective.n, n_contexts)).astype(int)
    z = _decisions(objective, contexts)
    rows = [
        pieces.directions(z).reshape(-1, problem.n_outcomes)
        for pieces in (problem.pieces, *problem.uncertain_rows)
    ]
    directions = np.vstack(rows)
    size = np.linalg.norm(directions, axis=1)
    return directions[size > 1e-9] / size[size > 1e-9, None]


def _decisions(objective: LearningObjective, contexts: Indices) -> Array:
    shape = axis_box(objective)
    found = decide(objective.problem, shape, objective.radius(shape), objective.centers[contexts])
    z = found.z.reshape(len(found), -1)
    return z[np.isfinite(z).all(axis=1)]


def one_sided(objective: LearningObjective, n_facets: int) -> Polyhedron:
    """Facets along the axes' harmful sides and the cost directions furthest from them.

    A side is harmful if some decision's cost rises along it. Offsets lie at a common quantile of the
    residuals along each facet. The set may be unbounded on its harmless sides; see `closed`.
    """
    directions = harmful_directions(objective)
    sides = _harmful_sides(objective.problem, directions)
    extra = _spread_out(directions, sides, max(n_facets - len(sides), 0))
    W = np.vstack([sides, extra])[:n_facets]
    level = min(objective.rank / objective.n, 1.0)
    return Polyhedron(W, -np.quantile(objective.residuals @ W.T, level, axis=0))


def closed(objective: LearningObjective, shape: Polyhedron) -> Polyhedron:
    """The shape with far facets along the axes where it is unbounded.

    They stand at twice the largest learning residual from the middle, so they hardly ever decide a score.
    """
    axes = np.eye(shape.n_outcomes)
    both = np.vstack([axes, -axes])
    open_sides = both[np.isposinf(shape.support(both, 0.0))]
    if not len(open_sides):
        return shape
    along = objective.residuals @ open_sides.T
    middle = np.median(along, axis=0)
    far = middle + _FAR * (along.max(axis=0) - middle) + 1e-9
    return Polyhedron(np.vstack([shape.W, open_sides]), np.concatenate([shape.b, -far]))


def _harmful_sides(problem: DecisionProblem, directions: Array) -> Array:
    axes = np.eye(problem.n_outcomes)
    both = np.vstack([axes, -axes])
    reach = (directions @ both.T).max(axis=0) if len(directions) else np.ones(len(both))
    harmful = both[reach > 1e-6]
    missing = axes[~np.abs(harmful).sum(axis=0).astype(bool)] if len(harmful) else axes
    return np.vstack([harmful, missing])


def _spread_out(candidates: Array, chosen: Array, count: int) -> Array:
    """Greedily take the candidates that point furthest away from all facets taken so far."""
    picked: list[Array] = []
    for _ in range(count):
        taken = np.vstack([chosen, *[p[None] for p in picked]])
        if not len(candidates):
            break
        nearest = (candidates @ taken.T).max(axis=1)
        best = int(np.argmin(nearest))
        if nearest[best] > 1 - 1e-6:
            break
        picked.append(candidates[best])
    return np.array(picked).reshape(-1, chosen.shape[1])


def _spread(values: Array) -> Array:
    spread = values.std(axis=0)
    return np.where(spread > 0, spread, 1.0)
