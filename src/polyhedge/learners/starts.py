"""Shapes to start from: boxes along the axes, along principal components, along harmful directions."""

from __future__ import annotations

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.samples import Samples, standard_deviations
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron


def check_n_facets(n_facets: int, n_outcomes: int) -> None:
    """Raise unless a polyhedron with so many facets can be bounded."""
    if n_facets < n_outcomes + 1:
        raise ValueError(
            f"n_facets must be at least n_outcomes + 1 = {n_outcomes + 1} for a bounded polyhedron, got "
            f"{n_facets}. Raise n_facets or leave it out."
        )


def both_sides(d: int) -> Array:
    """All axis sides (2 d, d): the unit vectors, then their negatives."""
    return np.vstack([np.eye(d), -np.eye(d)])


def axis_box(samples: Samples) -> Polyhedron:
    """Symmetric box scaled by the residuals' standard deviations: 2 d facets."""
    W = both_sides(samples.problem.n_outcomes) / standard_deviations(samples.residuals)
    return Polyhedron(W, np.zeros(len(W)))


def pca_box(samples: Samples) -> Polyhedron:
    """Box along the principal components, scaled by their standard deviations: 2 d facets."""
    frame = principal_frame(samples.residuals)
    W = frame / standard_deviations(samples.residuals @ frame.T)[:, None]
    W = np.vstack([W, -W])
    return Polyhedron(W, -W @ samples.residuals.mean(axis=0))


def principal_frame(residuals: Array) -> Array:
    """Principal components (d, d) of the residuals as rows."""
    d = residuals.shape[1]
    return np.linalg.eigh(np.cov(residuals.T).reshape(d, d))[1].T


def simplex(samples: Samples, n_facets: int) -> Polyhedron:
    """A simplex in standardised residuals, cut by axis facets if there are more than d + 1."""
    d = samples.problem.n_outcomes
    W = np.vstack([np.eye(d), -np.ones((1, d)) / np.sqrt(d)]) / standard_deviations(samples.residuals)
    W = np.vstack([W, axis_box(samples).W])[:n_facets]
    return Polyhedron(W, -W @ samples.residuals.mean(axis=0))


def one_sided(samples: Samples, n_facets: int) -> Polyhedron:
    """Facets along the axes' harmful sides and the cost directions furthest from them.

    A side is harmful if the cost of a robust decision rises along it. Offsets lie at a common quantile of the
    residuals along each facet. The set may be unbounded on its harmless sides; see `closed`.
    """
    structure = samples.problem.structure
    directions = _harmful_directions(samples)
    sides, axes = both_sides(samples.problem.n_outcomes), np.eye(samples.problem.n_outcomes)
    sides = sides[(directions @ sides.T).max(axis=0) > 1e-6] if len(directions) else sides
    sides = np.vstack([sides, axes[~sides.any(axis=0)]])
    distinct = np.unique(directions.round(6), axis=0)
    if structure.has_pieces and structure.pieces.directions_are_fixed and 0 < len(distinct) <= n_facets:
        sides = distinct
    W = np.vstack([sides, _far_apart(directions, sides, max(n_facets - len(sides), 0))])[:n_facets]
    level = min(samples.rank / samples.n, 1.0)
    return Polyhedron(W, -np.quantile(samples.residuals @ W.T, level, axis=0))


def _harmful_directions(samples: Samples) -> Array:
    """Directions Q_l z + q_l of the cost (and constraints) at decisions against the axis box, as unit rows."""
    problem, shape = samples.problem, axis_box(samples)
    contexts = evenly_chosen(samples.n_contexts, 50)
    z = decide(problem, shape, samples.radius(shape), samples.centers[contexts]).flat
    z = z[np.isfinite(z).all(axis=1)]
    lists = (problem.structure.pieces, *problem.uncertain_rows)
    return _unit(np.vstack([pieces.directions(z).reshape(-1, problem.n_outcomes) for pieces in lists]))


def _unit(directions: Array) -> Array:
    size = np.linalg.norm(directions, axis=1)
    return directions[size > 1e-9] / size[size > 1e-9, None]


def _far_apart(candidates: Array, chosen: Array, count: int) -> Array:
    """Greedily take the candidates that point furthest away from all facets taken so far.

    Means of pairs of those taken are candidates too, in the cone of harmful directions' signs: costs that mix outcomes
    need facets between the pure directions.
    """
    picked = np.zeros((0, chosen.shape[1]))
    for _ in range(count):
        taken = np.vstack([chosen, picked])
        first, second = np.triu_indices(len(taken), k=1)
        between = _unit(taken[first] + taken[second])
        if len(candidates):
            is_up, is_down = candidates.max(axis=0) > 1e-6, candidates.min(axis=0) < -1e-6
            between = between[((between <= 1e-9) | is_up).all(axis=1) & ((between >= -1e-9) | is_down).all(axis=1)]
        pool = np.vstack([candidates, between])
        if not len(pool) or not len(taken):
            break
        nearest = (pool @ taken.T).max(axis=1)
        best = int(np.argmin(nearest))
        if nearest[best] > 1 - 1e-6:
            break
        picked = np.vstack([picked, pool[best]])
    return picked


def coarse(values: Array, size: Array | float) -> Array:
    """Values to 16 bits of their size: what a search may see of data and slopes.

    A descent follows order statistics and vertices, and small differences grow a thousandfold to a billionfold on the
    way. Samples of a few hundred rows say nothing of a set beyond the third digit. A search that sees five sees the
    same numbers in all units and wherever outcomes are counted from.
    """
    step = 2.0**-16 * np.exp2(np.round(np.log2(np.where(size > 0, size, 1.0))))
    return np.asarray(np.round(values / step) * step)


def without_noise(W: Array) -> Array:
    """Facet normals whose entries at rounding level are zeros: parallel facets are parallel, and noise is no unit."""
    return np.where(np.abs(W) < 1e-9 * np.abs(W).max(axis=1, keepdims=True), 0.0, W)


def closed(samples: Samples, shape: Polyhedron, distance: float = 2.0) -> Polyhedron:
    """The shape with far facets along the axes where it is unbounded.

    They stand at `distance` times the largest learning residual from the median, so that they hardly ever decide a
    score.
    """
    sides = both_sides(shape.n_outcomes)
    open_sides = sides[np.isposinf(shape.support(sides, 0.0))]
    if not len(open_sides):
        return shape
    along = samples.residuals @ open_sides.T
    middle = np.median(along, axis=0)
    reach = along.max(axis=0) - middle
    far = middle + distance * np.maximum(reach, 1e-9 * (reach.max() or 1.0))
    return Polyhedron(np.vstack([shape.W, open_sides]), np.concatenate([shape.b, -far]))
