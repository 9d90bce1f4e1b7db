"""Shapes to start from: boxes along the axes, along principal components, along harmful directions."""

from __future__ import annotations

import numpy as np

from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.exact.hull import HullOracle
from polyhedge.learners.exact.segment import select_on_segment
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


def trimmed(samples: Samples, W: Array, contexts: Indices, rng: np.random.Generator, n_rounds: int = 12) -> Polyhedron:
    """Offsets for given facets by greedy trimming, then by restoring and trimming again.

    Facet k lies at the largest kept residual along it. Dropping its m outermost residuals lowers its
    offset; the saving is the cost's gradient in the offset times the step, for each residual dropped.
    Each further round restores the residuals beyond one facet and a random fifth of the others dropped,
    trims again with randomly tilted savings and keeps the better.
    """
    heights = samples.residuals @ W.T
    best = _trim(samples, W, heights, np.ones(samples.n, dtype=bool), contexts, np.ones(len(W)))
    best_value = samples.facet_gradient(W, heights[best].max(axis=0), contexts).value
    for facet in np.arange(n_rounds) % len(W):
        dropped = np.flatnonzero(~best)
        beyond = heights[dropped, facet] > heights[best, facet].max()
        kept = best.copy()
        kept[dropped[beyond | (rng.random(len(dropped)) < 0.2)]] = True
        tilt = np.exp(0.5 * rng.normal(size=len(W)))
        kept = _trim(samples, W, heights, kept, contexts, tilt)
        value = samples.facet_gradient(W, heights[kept].max(axis=0), contexts).value
        if value < best_value - TIE:
            best, best_value = kept, value
    return Polyhedron(W, -heights[best].max(axis=0))


def _trim(samples: Samples, W: Array, heights: Array, kept: Mask, contexts: Indices, tilt: Array) -> Mask:
    """Drop residuals until the rank is left: up to 8 outermost ones along a facet at a time, at the largest saving."""
    kept = kept.copy()
    while (left := int(kept.sum()) - samples.rank) > 0:
        q, rows = heights[kept].max(axis=0), np.flatnonzero(kept)
        gradient = samples.facet_gradient(W, q, contexts)
        if not np.isfinite(gradient.value) or gradient.q.max() <= 0:
            break
        most = min(left, 8, len(rows) - 1)
        order = np.argsort(-heights[rows], axis=0, kind="stable")[: most + 1]
        steps = q - np.take_along_axis(heights[rows], order, axis=0)[1:]
        saving = tilt * coarse(gradient.q, gradient.q.max()) * steps / np.arange(1, most + 1)[:, None]
        m, facet = np.unravel_index(int(np.argmax(saving)), saving.shape)
        kept[rows[order[: m + 1, facet]]] = False
    return kept


def coarse(values: Array, size: Array | float) -> Array:
    """Values to 16 bits of their size: what a search may see of data and slopes.

    A descent follows order statistics and vertices, and small differences grow a thousandfold to a billionfold on the
    way. Samples of a few hundred rows say nothing of a set beyond the third digit. A search that sees five sees the
    same numbers in all units and wherever outcomes are counted from.
    """
    step = 2.0**-16 * np.exp2(np.round(np.log2(np.where(size > 0, size, 1.0))))
    return np.asarray(np.round(values / step) * step)


def turned_to_decisions(samples: Samples, kept: Mask, W: Array, n_facets: int) -> Array:
    """Facets for a selection of residuals: the directions of the best decisions against their hull.

    These are the facets of the exact learner for that selection; the most used come first, and the
    facets W fill up the rest.
    """
    z = HullOracle(samples.problem, samples.residuals, samples.centers).evaluate(kept).z
    directions = _unit(samples.problem.structure.pieces.directions(z).reshape(-1, samples.problem.n_outcomes))
    if not len(directions):  # no outcome matters to these decisions
        return W
    _, first, count = np.unique(directions.round(4), axis=0, return_index=True, return_counts=True)
    used = directions[first[np.argsort(-count, kind="stable")]]
    others = W[(W @ used.T).max(axis=1) < 1 - 1e-4]
    return np.vstack([used, others])[:n_facets]


def selection_on_segment(samples: Samples) -> Mask | None:
    """The exactly best residuals to keep, where decisions lie on a segment; else None."""
    segment = samples.problem.structure.segment if samples.has_closed_form else None
    if segment is None:
        return None
    selection = select_on_segment(segment, samples.residuals, samples.centers, samples.rank)
    return None if selection is None else selection[0]


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
