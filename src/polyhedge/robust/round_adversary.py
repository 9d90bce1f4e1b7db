"""Maximise a convex function over a Euclidean ball or an ellipsoid, to a proven gap.

The maximum lies on the boundary. The unit sphere is split into simplicial cones; where v_i are the
unit generators of a cone and t = max{sum(a) : |sum a_i v_i| <= 1}, every point of the cone on the
sphere is a mean of points on the segments [v_i, t v_i], so by convexity the cost there is at most its
maximum over the end points. The cone with the highest bound is split until the bounds meet.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count, product

import numpy as np

from polyhedge._support.tolerances import OPTIMAL, ROUNDING
from polyhedge._support.validation import Array
from polyhedge.sets import UncertaintySet
from polyhedge.sets.shape import Round

# What is not proven by then is reported with its gap.
_MAX_CONES = 20_000


def maximise_convex_over_round_set(
    cost: Callable[[Array], Array],
    shape: UncertaintySet,
    radius: float,
    center: Array,
    *,
    tolerance: float = 0.1 * OPTIMAL,
    max_cones: int = _MAX_CONES,
) -> tuple[float, Array, float]:
    """Return an upper bound of the maximum, the best point found and the gap between them.

    `tolerance` is a share of how far the cost differs over the ends of the axes and the centre.
    """
    if not isinstance(shape, Round):
        raise TypeError(
            f"The worst case of this convex cost over a {type(shape).__name__} cannot be computed: its conic form is "
            "not polyhedral, and it has no from_unit_ball. Use a Polyhedron, a Box, a Ball or an Ellipsoid."
        )

    def to_outcome(points: Array) -> Array:
        return shape.from_unit_ball(points, radius, center)

    d = len(center)
    best_value, best_point = -np.inf, center
    order = count()
    heap: list[tuple[float, int, Array]] = []

    def costs(outcomes: Array) -> Array:
        # A bound may look outside the domain of the cost, where nothing is known.
        values = cost(outcomes)
        return np.where(np.isnan(values), np.inf, values)

    def bound(generators: Array) -> float:
        nonlocal best_value, best_point
        on_sphere = to_outcome(generators)
        values = costs(on_sphere)
        k = int(np.argmax(values))
        if values[k] > best_value:
            best_value, best_point = float(values[k]), on_sphere[k]
        reach = np.sqrt(np.linalg.inv(generators @ generators.T).sum())
        return float(max(values.max(), costs(to_outcome(reach * generators)).max()))

    def push(generators: Array) -> None:
        heapq.heappush(heap, (-bound(generators), next(order), generators))

    for signs in product((-1.0, 1.0), repeat=d):
        push(np.diag(signs))
    ends = costs(to_outcome(np.vstack([np.eye(d), -np.eye(d), np.zeros((1, d))])))
    allowed = tolerance * float(best_value - ends.min()) + ROUNDING * abs(best_value)
    for _ in range(max_cones):
        upper = -heap[0][0]
        if upper - best_value <= allowed:
            break
        generators = heapq.heappop(heap)[2]
        if d == 1:
            heapq.heappush(heap, (-best_value, next(order), generators))
            break
        for half in _bisect(generators):
            push(half)
    upper = max(-heap[0][0], best_value)
    return upper, best_point, upper - best_value


def _bisect(generators: Array) -> list[Array]:
    """Split the cone across its widest pair of generators."""
    cosines = generators @ generators.T
    i, j = np.unravel_index(int(np.argmin(cosines)), cosines.shape)
    middle = generators[i] + generators[j]
    middle = middle / np.linalg.norm(middle)
    halves = []
    for replaced in (i, j):
        half = generators.copy()
        half[replaced] = middle
        halves.append(half)
    return halves
