r"""Worst cases over level sets of convex networks with two outcomes, all contexts together.

With decisions z(s), s in [0, 1], context i asks for

$$\min_{s \in [0, 1]} b_i(s) + \max_{s_i(e) \le r_i} v(s)^\top (f_i + e),\quad v(s) = v_0 + s (v_1 - v_0),$$

and with $v_0 = v_1 = v$ for the support function along v. The worst case runs along the boundary as v(s) turns, so
the search keeps an arc: two boundary points with their tangents, whose normals lie on either side of the v(s) that is
sought. The tangents meet at a point q outside the set; the ray through q meets the boundary between the two points,
and the normal there replaces one end of the arc: its v(s) lies before or after the best s according to the slope of
the cost. The level set is a polygon, so q is a vertex after finitely many steps, and then v(s)'q is the support
function on the whole arc. Every step costs a few evaluations of the networks, no linear program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge_study.inside import Array, Mask
from polyhedge_study.nets.convex_nets import ConvexNets, NetValues

# The search ends by itself after finitely many steps; what it has proven by then stands beside the result.
_MAX_STEPS = 100
# Proven error, relative to the size of the set, at which the search ends.
_ACCURACY = 1e-10
PARALLEL = 1e-12
"""Sine of an angle below which two directions count as parallel: rounding leaves about as much."""


@dataclass(frozen=True)
class Saddle:
    """Best positions, values and worst cases of N contexts, and what proves them.

    Attributes
    ----------
    s : (N,) position of the decision.
    value : (N,) worst-case cost.
    residual : (N, 2) the saddle point's worst-case residual, on the boundary of the set.
    gap : (N,) proven distance of `value` from the optimum.
    weights : (N, 2) multipliers with v(s) = weights[0] n_low + weights[1] n_high.
    low, high : the networks at the two ends of the arc, with the normals n.
    """

    s: Array
    value: Array
    residual: Array
    gap: Array
    weights: Array
    low: NetValues
    high: NetValues


@dataclass(frozen=True)
class Line:
    """Costs b(s) + v(s)'(f + e): `base` (N, 3) are the coefficients of b, v0 and v1 (N, 2) the directions."""

    v0: Array
    v1: Array
    base: Array
    centers: Array

    def __getitem__(self, rows: Mask) -> Line:
        return Line(self.v0[rows], self.v1[rows], self.base[rows], self.centers[rows])

    def slope(self, s: Array, residuals: Array) -> Array:
        """Slope of the cost in s at a fixed residual."""
        turn = _dot(self.v1 - self.v0, self.centers + residuals)
        return np.asarray(self.base[:, 1] + 2 * self.base[:, 2] * s + turn)

    def direction(self, s: Array) -> Array:
        """v(s) of each context."""
        return np.asarray(self.v0 + s[:, None] * (self.v1 - self.v0))

    def value(self, s: Array, residuals: Array) -> Array:
        """Cost at given positions and residuals."""
        linear = _dot(self.direction(s), self.centers + residuals)
        return np.asarray(self.base[:, 0] + (self.base[:, 1] + self.base[:, 2] * s) * s + linear)


def find_saddles(nets: ConvexNets, radii: Array, origins: Array, line: Line) -> Saddle:
    """Solve all contexts; v0 turns counter-clockwise to v1 by less than half a turn, and origins lie inside."""
    arc = _Arc(nets, radii, origins, line)
    for _ in range(_MAX_STEPS):
        if not arc.step():
            break
    return arc.saddle()


def supports(nets: ConvexNets, radii: Array, origins: Array, directions: Array) -> Saddle:
    """Maximisers of v_i'e over the level set of context i, for the rows v_i of `directions` (N, 2)."""
    zero = np.zeros_like(directions)
    return find_saddles(nets, radii, origins, Line(directions, directions, np.zeros((len(zero), 3)), zero))


class _Arc:
    """Two boundary points of each level set between whose normals the sought direction lies."""

    def __init__(self, nets: ConvexNets, radii: Array, origins: Array, line: Line) -> None:
        self.nets, self.radii, self.origins, self.line = nets, radii, origins, line
        self.middle = _unit(_unit(line.v0) + _unit(line.v1))
        self.low_point, self.low = self._meet(_quarter_turn(line.v0, -1.0), None)
        self.high_point, self.high = self._meet(_quarter_turn(line.v1, 1.0), None)
        self.corner = np.array(self.origins)
        self.gap = np.full(len(nets), np.inf)

    def step(self) -> bool:
        """One boundary point more for every context that is not solved; False if there is none."""
        todo = self.gap > _ACCURACY
        if not todo.any():
            return False
        corner, has_corner = self._corners(todo)
        origins = self.origins[todo]
        rays = corner - origins
        if not has_corner.all():
            rays = np.where(has_corner[:, None], rays, self._between(todo))
        length = _length(rays)
        point, values = self._meet(rays / length[:, None], np.where(has_corner, length, 1.0), todo)
        line = self.line[todo]
        beyond = np.maximum(_dot(line.v0, corner - point), _dot(line.v1, corner - point))
        reach = np.maximum(_dot(line.v0, line.v0), _dot(line.v1, line.v1)) ** 0.5
        size = reach * _length(point - origins)
        gap = np.where(has_corner, np.maximum(beyond, 0.0) / np.where(size > 0, size, 1.0), np.inf)
        rows = np.flatnonzero(todo)
        self.corner[rows], self.gap[rows] = corner, gap
        self._replace(rows[gap > _ACCURACY], point[gap > _ACCURACY], _rows(values, gap > _ACCURACY))
        return True

    def saddle(self) -> Saddle:
        """On the last arc v(s)'corner is the support function: the best s and the worst case in closed form."""
        line, corner = self.line, self.corner
        s_low, s_high = self._position(self.low.gradients), self._position(self.high.gradients)
        s = np.clip(_parabola_minimum(line, corner), s_low, s_high)
        direction = line.direction(s)
        weights = _multipliers(self.low.gradients, self.high.gradients, direction)
        residual = self._balance(s)
        size = _length(direction) * _length(corner - self.origins)
        return Saddle(s, line.value(s, corner), residual, _times(self.gap, size), weights, self.low, self.high)

    def _meet(self, rays: Array, start: Array | None, rows: Mask | None = None) -> tuple[Array, NetValues]:
        start = np.ones(len(rays)) if start is None else start
        nets, origins, radii = self.nets, self.origins, self.radii
        if rows is not None and not rows.all():
            nets, origins, radii = nets[rows], origins[rows], radii[rows]
        t, values = nets.boundary(origins, rays, radii, start)
        return origins + t[:, None] * rays, values

    def _corners(self, todo: Mask) -> tuple[Array, Mask]:
        """Where the tangents of the two ends meet, and whether that point lies between their rays."""
        first, second = self.low.gradients[todo], self.high.gradients[todo]
        p, q, origins = self.low_point[todo], self.high_point[todo], self.origins[todo]
        turn = _cross(first, second)
        far = turn <= PARALLEL * _length(first) * _length(second)
        turn = np.where(far, 1.0, turn)
        a, b = _dot(first, p), _dot(second, q)
        corner = np.column_stack([a * second[:, 1] - b * first[:, 1], b * first[:, 0] - a * second[:, 0]])
        corner = corner / turn[:, None]
        first, second, third = p - origins, corner - origins, q - origins
        # A corner that is one of the two points may seem to lie beyond it by a rounding error.
        slack = 1e-12 * _dot(second, second) ** 0.5 * np.maximum(_dot(first, first), _dot(third, third)) ** 0.5
        between = (_cross(first, second) >= -slack) & (_cross(second, third) >= -slack)
        return corner, ~far & between

    def _between(self, todo: Mask) -> Array:
        """A ray between those of the two ends."""
        first = _unit(self.low_point[todo] - self.origins[todo])
        second = _unit(self.high_point[todo] - self.origins[todo])
        half = first + second
        # More than half a turn apart, the bisector points the other way.
        half = np.where(_cross(first, second)[:, None] < 0, -half, half)
        flat = _length(half) < 1e-9
        return np.where(flat[:, None], _quarter_turn(first, 1.0), half)

    def _replace(self, rows: np.ndarray[tuple[int], np.dtype[np.intp]], point: Array, values: NetValues) -> None:
        """The new point ends the arc on the side from which the sought direction lies away."""
        line = self.line[rows]  # type: ignore[index]
        angle = self._angle(rows, point, values.gradients)
        first, last = _angle_between(self.middle[rows], line.v0), _angle_between(self.middle[rows], line.v1)
        s = _position(line, values.gradients)
        falls = line.slope(s, point) < 0
        is_low = (angle < first) | ((angle <= last) & falls)
        for chosen, points, old in ((is_low, self.low_point, self.low), (~is_low, self.high_point, self.high)):
            kept = rows[chosen]
            points[kept] = point[chosen]
            old.scores[kept], old.gradients[kept] = values.scores[chosen], values.gradients[chosen]
            old.first[kept], old.second[kept] = values.first[chosen], values.second[chosen]

    def _angle(self, rows: np.ndarray[tuple[int], np.dtype[np.intp]], point: Array, normals: Array) -> Array:
        """Angle of the normals from the middle direction, counted through the ray, so that it does not wrap."""
        rays = point - self.origins[rows]
        return _angle_between(self.middle[rows], rays) + _angle_between(rays, normals)

    def _position(self, normals: Array) -> Array:
        return _position(self.line, normals)

    def _balance(self, s: Array) -> Array:
        """The corner, or where the best s belongs to an edge, the point of that edge at which the slope is 0."""
        line, residual = self.line, np.array(self.corner)
        at_corner = line.slope(s, self.corner)
        for point, values, sign in ((self.low_point, self.low, 1.0), (self.high_point, self.high, -1.0)):
            at_end = line.slope(s, point)
            on_edge = (np.abs(s - self._position(values.gradients)) <= 1e-12) & (s > 0) & (s < 1)
            on_edge &= (sign * at_corner > 0) & (sign * at_end < 0)
            step = np.where(on_edge, at_end - at_corner, 1.0)
            share = np.where(on_edge, -at_corner / step, 0.0)
            residual += share[:, None] * (point - self.corner)
        return residual


def _position(line: Line, normals: Array) -> Array:
    """The s in [0, 1] whose v(s) is nearest in angle to each normal."""
    at_0, at_1 = _cross(line.v0, normals), _cross(line.v1, normals)
    # v(s) is parallel to the normal where the cross product, affine in s, changes its sign.
    span = at_0 - at_1
    return np.asarray(np.clip(np.where(np.abs(span) > 0, at_0 / np.where(span != 0, span, 1.0), 0.0), 0.0, 1.0))


def _parabola_minimum(line: Line, residuals: Array) -> Array:
    """The s that minimises the cost at a fixed residual over the real line; -inf or inf for a straight line."""
    slope, curvature = line.slope(np.zeros(len(residuals)), residuals), line.base[:, 2]
    straight = np.where(slope > 0, -np.inf, np.inf)
    return np.where(curvature > 0, -slope / np.where(curvature > 0, 2 * curvature, 1.0), straight)


def _multipliers(first: Array, second: Array, direction: Array) -> Array:
    turn = _cross(first, second)
    parallel = np.abs(turn) <= PARALLEL * _length(first) * _length(second)
    safe = np.where(parallel, 1.0, turn)
    weights = np.column_stack([_cross(direction, second) / safe, _cross(first, direction) / safe])
    alone = np.column_stack([np.zeros(len(first)), _length(direction) / _length(second)])
    return np.maximum(np.where(parallel[:, None], alone, weights), 0.0)


def _times(share: Array, size: Array) -> Array:
    return np.where(np.isfinite(share), share, 0.0) * size + np.where(np.isfinite(share), 0.0, np.inf)


def _rows(values: NetValues, rows: Mask) -> NetValues:
    return NetValues(values.scores[rows], values.gradients[rows], values.first[rows], values.second[rows])


def _cross(a: Array, b: Array) -> Array:
    return np.asarray(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])


# Written out for two columns: a search of some dozen contexts spends its time in the calls of NumPy.
def _dot(a: Array, b: Array) -> Array:
    return np.asarray(a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1])


def _length(rows: Array) -> Array:
    return np.asarray(np.sqrt(_dot(rows, rows)))


def _unit(rows: Array) -> Array:
    length = _length(rows)[:, None]
    return np.asarray(rows / np.where(length > 0, length, 1.0))


def _quarter_turn(rows: Array, sign: float) -> Array:
    return _unit(sign * np.column_stack([-rows[:, 1], rows[:, 0]]))


def _angle_between(a: Array, b: Array) -> Array:
    return np.arctan2(_cross(a, b), _dot(a, b))
