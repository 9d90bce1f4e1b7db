r"""Membership in cones in closed form: how far a slack lies outside, and multipliers moved into the dual cone.

Distances are those to a nearby point of the cone, at least as large as to the nearest one, and scale with the point.

- rotated: $s_0 s_1 \ge \lVert s_{2:} \rVert^2$ with $s_0, s_1 \ge 0$: a soc of half their sum and difference.
- soc: $s_0 \ge \lVert s_{1:} \rVert$; psd: symmetric matrices without negative eigenvalues. Both are their own duals.
- exp: closure of $s_1 e^{s_0 / s_1} \le s_2$, $s_1 > 0$. Dual: closure of $-y_0 e^{y_1 / y_0 - 1} \le y_2$, $y_0 < 0$.
- pow: $s_0^a s_1^{1-a} \ge |s_2|$ with $s_0, s_1 \ge 0$. Dual: the same of $y_0 / a$, $y_1 / (1 - a)$ and $y_2$.
"""

from __future__ import annotations

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.solvers.program import Cone


def outside(cone: Cone, slack: Array) -> float:
    """How far a slack lies outside its cone; 0 inside.

    Examples
    --------
    >>> outside(Cone("soc", 3), np.array([4.0, 3.0, 4.0])), outside(Cone("exp", 3), np.array([0.0, 1.0, 1.0]))
    (1.0, 0.0)
    """
    if cone.kind == "soc":
        return max(float(np.linalg.norm(slack[1:])) - float(slack[0]), 0.0)
    if cone.kind == "rotated":
        half, apart = (slack[0] + slack[1]) / 2, (slack[0] - slack[1]) / 2
        return max(float(np.linalg.norm(np.append(apart, slack[2:]))) - float(half), 0.0)
    if cone.kind == "psd":
        return max(-float(np.linalg.eigvalsh(_matrix(slack, cone.size)).min()), 0.0)
    if cone.kind == "exp":
        return _outside_exponential(*slack.tolist())
    x, y, z = slack.tolist()
    reach = max(x, 0.0) ** cone.exponent * max(y, 0.0) ** (1 - cone.exponent)
    return max(-x, -y, abs(z) - reach, 0.0)


def _outside_exponential(x: float, y: float, z: float) -> float:
    """The least of what three repairs change: to the face with y = 0, by raising z, by lowering x."""
    repairs = [float(np.linalg.norm([max(x, 0.0), y, min(z, 0.0)]))]
    if y > 0:
        with np.errstate(over="ignore"):
            repairs.append(max(float(y * np.exp(x / y)) - z, 0.0))
        if z > 0:
            repairs.append(max(x - y * float(np.log(z / y)), 0.0))
    return min(repairs)


def in_dual_cone(cone: Cone, y: Array) -> Array:
    """Multipliers of a cone as they are where they lie in the dual cone, else moved into it.

    Examples
    --------
    >>> in_dual_cone(Cone("soc", 3), np.array([1.0, 3.0, 4.0]))
    array([5., 3., 4.])
    """
    if not np.isfinite(y).all():
        return y
    if cone.kind == "soc":
        return np.append(max(float(y[0]), float(np.linalg.norm(y[1:]))), y[1:])
    if cone.kind == "rotated":
        missing = float(np.linalg.norm(np.append(y[0] - y[1], y[2:]))) - float(y[0] + y[1])
        return np.append(y[:2] + missing / 2, y[2:]) if missing > 0 else y
    if cone.kind == "psd":
        values, vectors = np.linalg.eigh(_matrix(y, cone.size))
        return y if values.min() >= 0 else _triangle((vectors * np.maximum(values, 0.0)) @ vectors.T)
    if cone.kind == "exp":
        return _in_dual_of_exponential(y)
    a, (u, v) = cone.exponent, np.maximum(y[:2], 0.0).tolist()
    most = (u / a) ** a * (v / (1 - a)) ** (1 - a)
    return np.array([u, v, np.clip(y[2], -most, most)])


def _in_dual_of_exponential(y: Array) -> Array:
    """Raise the last entry, or go to the face with y_0 = 0 where that changes less."""
    u, v, w = y.tolist()
    face = np.array([0.0, max(v, 0.0), max(w, 0.0)])
    if u >= 0:
        return face
    with np.errstate(over="ignore"):
        least = float(-u * np.exp(v / u - 1))
    return np.array([u, v, max(w, least)]) if least - w <= np.linalg.norm(face - y) else face


def _matrix(triangle: Array, n: int) -> Array:
    """The symmetric matrix of an upper triangle, column by column, with off-diagonal entries times the root of 2."""
    columns, rows = np.tril_indices(n)
    matrix = np.zeros((n, n))
    matrix[rows, columns] = matrix[columns, rows] = triangle / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return matrix


def _triangle(matrix: Array) -> Array:
    columns, rows = np.tril_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0)))
