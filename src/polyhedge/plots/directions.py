"""Which way outcomes hurt: the slope of the cost at the worst outcomes of the decisions taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhedge._support.tolerances import OPTIMAL
from polyhedge._support.validation import Array
from polyhedge.data.splits import evenly_chosen
from polyhedge.estimator import RobustDecider
from polyhedge.problems import DecisionProblem, Pieces
from polyhedge.problems.layout import by_row, parameter_rows
from polyhedge.robust import decide
from polyhedge.sets import Shape

_MOST_ROWS = 300
"""Rows whose decisions are looked at: their directions are few, and a picture must not take minutes."""
_MOST_DIRECTIONS = 6
"""More arrows could not be distinguished."""
# Directions closer than this angle are one to the eye.
_ANGLE = np.deg2rad(6.0)
_STEP = 1e-6
"""Of differences, relative to the outcome: between what rounding and what curvature would spoil."""
# Worst cases that are computed for the directions, each a small program, and pieces beyond which none are.
_MOST_WORST_CASES, _MOST_PIECES = 600, 64


def cost_directions(decider: RobustDecider, X: Any, parameters: Mapping[Any, Any] | None = None) -> tuple[Array, Array]:
    """Unit directions (k, d) in which a rising outcome raises the cost of the decisions at X, most frequent first.

    A decision may balance several: all that its bound rests on are given. Neighbours within a few degrees are merged
    and at most six are given, with the share (k,) of the decisions for which each matters.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X, parameters : as in `RobustDecider.decide`.
    """
    model = decider.model_
    rows = model.read(X, parameters=parameters)
    at = model.sets.at(rows.features)
    return directions_around(model.problem, at.shape, model.set_radius, at.centers, at.scales, rows.parameters)


def directions_around(
    problem: DecisionProblem,
    shape: Shape,
    radius: float,
    centers: Array,
    scales: Array | None = None,
    values: Array | None = None,
) -> tuple[Array, Array]:
    """The same for the decisions that a set gives around predictions (N, d); at most 300 of them are looked at.

    `values` (N, t) are those of the problem's parameters, flat and row by row, where it has any.
    """
    values = parameter_rows(problem.parameters, None, len(centers)) if values is None else values
    scales = np.ones(len(centers)) if scales is None else scales
    chosen = evenly_chosen(len(centers), _MOST_ROWS)
    centers, scales, values = centers[chosen], scales[chosen], values[chosen]
    given = by_row(problem.parameters, values)
    decisions = decide(problem, shape, radius, centers, scales=scales, parameters=given)
    decided = np.isfinite(decisions.worst_outcome).all(axis=1)
    z, placed = decisions.flat[decided], [part[decided] for part in (centers, scales, values)]
    pieces = problem.structure.maxima.pieces() if problem.structure.has_maxima else None
    if pieces is not None and 1 < len(pieces) <= _MOST_PIECES and not problem.structure.has_known_support:
        step = max(len(z) * len(pieces) // _MOST_WORST_CASES, 1)
        z = z[::step]
        slopes = _binding_slopes(pieces, shape, radius, z, *(part[::step] for part in placed))
    else:
        slopes = cost_slopes(problem, z, decisions.worst_outcome[decided], placed[2])
    lengths = np.linalg.norm(slopes, axis=1)
    return _merged(slopes[lengths > 0] / lengths[lengths > 0, None], len(z))


def _binding_slopes(
    pieces: Pieces, shape: Shape, radius: float, z: Array, centers: Array, scales: Array, values: Array
) -> Array:
    """Slopes of all pieces whose worst case is the bound: a decision balances them, and each of them hurts."""
    slopes = pieces.directions(z)[:, :, : centers.shape[1]]
    reach = np.asarray(shape.support(slopes.reshape(-1, slopes.shape[2]), radius)).reshape(slopes.shape[:2])
    worst = pieces.values(z, np.hstack([centers, values])) + scales[:, None] * reach
    binds = worst >= worst.max(axis=1, keepdims=True) - OPTIMAL * (1 + np.abs(worst).max(axis=1, keepdims=True))
    return np.asarray(slopes[binds])


def cost_slopes(problem: DecisionProblem, z: Array, outcomes: Array, values: Array | None = None) -> Array:
    r"""Slopes (N, d) of $g(z, u)$ in u at matching decisions (N, p) and outcomes (N, d), by central differences.

    Parameters
    ----------
    problem : what is decided.
    z, outcomes : decisions (N, p) and the outcomes (N, d) at which their costs rise.
    values : (N, t) of the problem's parameters, flat and row by row, where it has any.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> cost_slopes(simplex_linear([0.0, 0.0]), np.array([[0.25, 0.75]]), np.zeros((1, 2))).round(6)
    array([[0.25, 0.75]])
    """
    values = parameter_rows(problem.parameters, None, len(z)) if values is None else values
    steps = _STEP * (1 + np.abs(outcomes))
    slopes = np.zeros(outcomes.shape)
    for j in range(problem.n_outcomes):
        shift = steps * np.eye(problem.n_outcomes)[j]
        rise = problem.evaluate(z, outcomes + shift, values) - problem.evaluate(z, outcomes - shift, values)
        slopes[:, j] = rise / (2 * steps[:, j])
    return np.where(np.isfinite(slopes), slopes, 0.0)


def _merged(units: Array, n: int) -> tuple[Array, Array]:
    """Greedy: each direction joins the first kept one within the angle, the most frequent are kept first."""
    if not len(units):
        return units, np.zeros(0)
    distinct, counts = np.unique(units.round(3), axis=0, return_counts=True)
    kept: list[Array] = []
    shares: list[float] = []
    for k in np.argsort(-counts, kind="stable"):
        unit = distinct[k] / np.linalg.norm(distinct[k])
        near = [m for m, other in enumerate(kept) if unit @ other >= np.cos(_ANGLE)]
        if near:
            shares[near[0]] = min(shares[near[0]] + counts[k] / n, 1.0)
        elif len(kept) < _MOST_DIRECTIONS:
            kept.append(unit)
            shares.append(min(counts[k] / n, 1.0))
    return np.array(kept), np.array(shares)
