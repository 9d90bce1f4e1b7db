"""Outcomes that a problem never looks at: where the worst case leaves them is nobody's business, so they stay put.

A solver returns some corner of the set, with values for these outcomes that mean nothing. They are brought back to the
prediction, or as near to it as the set allows where the others are at their worst; the cost there is the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.decisions import Decisions, tight_facets
from polyhedge.problems import DecisionProblem
from polyhedge.sets import UncertaintySet, facets_of


def as_predicted(
    problem: DecisionProblem, shape: UncertaintySet, radius: float, centers: Array, decisions: Decisions
) -> Decisions:
    """The decisions with outcomes that are ignored as near to the prediction as a polyhedral set allows."""
    if not problem.structure.ignored_outcomes.any() or facets_of(shape) is None or not len(centers):
        return decisions
    worst = brought_back(problem, shape, radius, centers, decisions.worst_outcome)
    return replace(decisions, worst_outcome=worst, active_facets=tight_facets(shape, radius, worst, centers))


def brought_back(
    problem: DecisionProblem, shape: UncertaintySet, radius: float, centers: Array, outcomes: Array
) -> Array:
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
    ignored, facets = np.flatnonzero(problem.structure.ignored_outcomes), facets_of(shape)
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
