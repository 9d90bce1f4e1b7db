"""Shapes to start from: boxes along the axes, along principal components, along harmful directions."""

from __future__ import annotations

import numpy as np

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.exact.envelope import select_on_segment
from polyhedge.learners.exact.hull import HullOracle
from polyhedge.learners.samples import Samples
from polyhedge.learners.scales import standard_deviations
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron

_FAR = 2.0
"""How many times as far as the largest residual closing facets stand: they hardly ever decide a score."""
# Residuals that may be dropped together, where the first of them alone would gain nothing.
_LOOK_AHEAD = 8
_RESTORED = 0.2
"""Share of the dropped residuals that a round takes back at random: most of the last trim stays."""
_TILT = 0.5
"""Standard deviation of the logarithm by which costs of facets vary, so that trims differ from each other."""


def check_n_facets(n_facets: int, n_outcomes: int) -> None:
    """Raise unless a polyhedron with so many facets can be bounded."""
    if n_facets < n_outcomes + 1:
        raise ValueError(
            f"n_facets must be at least n_outcomes + 1 = {n_outcomes + 1} for a bounded polyhedron, got "
            f"{n_facets}. Raise n_facets or leave it out."
        )


def axis_box(samples: Samples) -> Polyhedron:
    """Symmetric box scaled by the residuals' standard deviations: 2 d facets."""
    d = samples.problem.n_outcomes
    scale = standard_deviations(samples.residuals)
    W = np.vstack([np.diag(1 / scale), -np.diag(1 / scale)])
    return Polyhedron(W, np.zeros(2 * d))


def pca_box(samples: Samples) -> Polyhedron:
    """Box along the principal components, scaled by their standard deviations: 2 d facets."""
    center = samples.residuals.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(samples.residuals.T).reshape(len(center), -1))
    scale = standard_deviations(samples.residuals @ vectors)
    W = np.vstack([vectors.T / scale[:, None], -vectors.T / scale[:, None]])
    return Polyhedron(W, -W @ center)


def simplex(samples: Samples, n_facets: int) -> Polyhedron:
    """A simplex in standardised residuals, cut by axis facets if there are more than d + 1."""
    d = samples.problem.n_outcomes
    scale = standard_deviations(samples.residuals)
    W = np.vstack([np.eye(d), -np.ones((1, d)) / np.sqrt(d)]) / scale
    W = np.vstack([W, axis_box(samples).W])[:n_facets]
    center = samples.residuals.mean(axis=0)
    return Polyhedron(W, -W @ center)


def harmful_directions(samples: Samples, n_contexts: int = 50) -> Array:
    """Directions Q_l z + q_l of the cost (and constraints) at robust decisions, as unit rows."""
    problem = samples.problem
    m = samples.n_contexts
    contexts = evenly_chosen(m, n_contexts)
    z = _decisions(samples, contexts)
    rows = [
        pieces.directions(z).reshape(-1, problem.n_outcomes)
        for pieces in (problem.structure.pieces, *problem.uncertain_rows)
    ]
    return _unit(np.vstack(rows))


def _decisions(samples: Samples, contexts: Indices) -> Array:
    shape = axis_box(samples)
    decisions = decide(samples.problem, shape, samples.radius(shape), samples.centers[contexts])
    z = decisions.flat
    return z[np.isfinite(z).all(axis=1)]


def one_sided(samples: Samples, n_facets: int) -> Polyhedron:
    """Facets along the axes' harmful sides and the cost directions furthest from them.

    A side is harmful if some decision's cost rises along it. Offsets lie at a common quantile of the
    residuals along each facet. The set may be unbounded on its harmless sides; see `closed`.
    """
    directions = harmful_directions(samples)
    sides = _harmful_sides(samples.problem, directions)
    distinct = np.unique(directions.round(6), axis=0)
    if samples.problem.structure.has_pieces and samples.problem.structure.pieces.directions_are_fixed:
        sides = distinct if 0 < len(distinct) <= n_facets else sides
    W = np.vstack([sides, _far_apart(directions, sides, max(n_facets - len(sides), 0))])[:n_facets]
    level = min(samples.rank / samples.n, 1.0)
    return Polyhedron(W, -np.quantile(samples.residuals @ W.T, level, axis=0))


def trimmed(samples: Samples, W: Array, contexts: Indices, rng: np.random.Generator, n_rounds: int = 12) -> Polyhedron:
    """Offsets for given facets by greedy trimming, then by restoring and trimming again.

    Facet k lies at the largest kept residual along it. Dropping its m outermost residuals lowers its
    offset; the saving is the cost's gradient in the offset times the step, for each residual dropped.
    Each further round restores the residuals beyond one facet and a random share of the others dropped,
    trims again with randomly tilted savings and keeps the better.
    """
    heights = samples.residuals @ W.T
    best = _trim(samples, W, heights, np.ones(samples.n, dtype=bool), contexts, np.ones(len(W)))
    best_value = samples.facet_gradient(W, heights[best].max(axis=0), contexts).value
    for round_number in range(n_rounds):
        dropped = np.flatnonzero(~best)
        facet = round_number % len(W)
        beyond = heights[dropped, facet] > heights[best, facet].max()
        restored = dropped[beyond | (rng.random(len(dropped)) < _RESTORED)]
        kept = best.copy()
        kept[restored] = True
        tilt = np.exp(_TILT * rng.normal(size=len(W)))
        kept = _trim(samples, W, heights, kept, contexts, tilt)
        value = samples.facet_gradient(W, heights[kept].max(axis=0), contexts).value
        if value < best_value - samples.tie:
            best, best_value = kept, value
    return Polyhedron(W, -heights[best].max(axis=0))


def _trim(samples: Samples, W: Array, heights: Array, kept: Mask, contexts: Indices, tilt: Array) -> Mask:
    kept = kept.copy()
    left = int(kept.sum()) - samples.rank
    while left > 0:
        q = heights[kept].max(axis=0)
        gradient = samples.facet_gradient(W, q, contexts)
        if not np.isfinite(gradient.value) or gradient.q.max() <= 0:
            break
        dropped = _best_trim(heights, np.flatnonzero(kept), q, tilt * samples.told(gradient.q), min(left, _LOOK_AHEAD))
        kept[dropped] = False
        left -= len(dropped)
    return kept


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
    return None if selection is None else selection.kept


def without_noise(W: Array) -> Array:
    """Facet normals whose entries at rounding level are zeros: parallel facets are parallel, and noise is no unit."""
    return np.where(np.abs(W) < 1e-9 * np.abs(W).max(axis=1, keepdims=True), 0.0, W)


def _unit(directions: Array) -> Array:
    size = np.linalg.norm(directions, axis=1)
    return directions[size > 1e-9] / size[size > 1e-9, None]


def _best_trim(heights: Array, kept: Indices, q: Array, gradient: Array, most: int) -> Indices:
    """The outermost residuals along one facet with the largest saving each."""
    most = min(most, len(kept) - 1)
    order = np.argsort(-heights[kept], axis=0, kind="stable")[: most + 1]
    steps = q - np.take_along_axis(heights[kept], order, axis=0)[1:]
    saving = gradient * steps / np.arange(1, most + 1)[:, None]
    m, facet = np.unravel_index(int(np.argmax(saving)), saving.shape)
    return kept[order[: m + 1, facet]]


def with_n_facets(samples: Samples, shape: Polyhedron, n_facets: int) -> Polyhedron:
    """The shape with further facets that just touch it, or with those that bind least often removed."""
    if n_facets <= shape.n_facets:
        active = (samples.residuals @ shape.W.T + shape.b).argmax(axis=1)
        harm = harmful_directions(samples) @ shape.W.T
        use = np.bincount(active, minlength=shape.n_facets) / samples.n + np.maximum(harm, 0.0).mean(axis=0)
        return samples.normalised(_taken(shape, np.sort(np.argsort(-use, kind="stable")[:n_facets])))
    W = np.vstack([shape.W, _far_apart(harmful_directions(samples), shape.W, n_facets - shape.n_facets)])
    offsets = shape.support(W, 0.0)
    return samples.normalised(Polyhedron(W, -offsets))


def _taken(shape: Polyhedron, facets: Indices) -> Polyhedron:
    return Polyhedron(shape.W[facets], shape.b[facets])


def closed(samples: Samples, shape: Polyhedron) -> Polyhedron:
    """The shape with far facets along the axes where it is unbounded.

    They stand at twice the largest learning residual from the middle, so they hardly ever decide a score.
    """
    axes = np.eye(shape.n_outcomes)
    both = np.vstack([axes, -axes])
    open_sides = both[np.isposinf(shape.support(both, 0.0))]
    if not len(open_sides):
        return shape
    along = samples.residuals @ open_sides.T
    middle = np.median(along, axis=0)
    reach = along.max(axis=0) - middle
    far = middle + _FAR * np.maximum(reach, 1e-9 * (1.0 if not reach.max() else reach.max()))
    return Polyhedron(np.vstack([shape.W, open_sides]), np.concatenate([shape.b, -far]))


def _harmful_sides(problem: DecisionProblem, directions: Array) -> Array:
    axes = np.eye(problem.n_outcomes)
    both = np.vstack([axes, -axes])
    reach = (directions @ both.T).max(axis=0) if len(directions) else np.ones(len(both))
    harmful = both[reach > 1e-6]
    missing = axes[~np.abs(harmful).sum(axis=0).astype(bool)] if len(harmful) else axes
    return np.vstack([harmful, missing])


def _far_apart(candidates: Array, chosen: Array, count: int) -> Array:
    """Greedily take the candidates that point furthest away from all facets taken so far.

    Where the candidates are few, means of those taken are candidates too: costs that mix outcomes
    need facets between the pure directions.
    """
    picked = np.zeros((0, chosen.shape[1]))
    for _ in range(count):
        taken = np.vstack([chosen, picked])
        pool = np.vstack([candidates, _between(taken, candidates)])
        if not len(pool) or not len(taken):
            break
        nearest = (pool @ taken.T).max(axis=1)
        best = int(np.argmin(nearest))
        if nearest[best] > 1 - 1e-6:
            break
        picked = np.vstack([picked, pool[best]])
    return picked


def _between(taken: Array, candidates: Array) -> Array:
    """Unit means of pairs of facets that lie in the cone of harmful directions' signs."""
    first, second = np.triu_indices(len(taken), k=1)
    means = taken[first] + taken[second]
    size = np.linalg.norm(means, axis=1)
    means = means[size > 1e-6] / size[size > 1e-6, None]
    if not len(candidates):
        return means
    harmful_up, harmful_down = candidates.max(axis=0) > 1e-6, candidates.min(axis=0) < -1e-6
    allowed = ((means <= 1e-9) | harmful_up).all(axis=1) & ((means >= -1e-9) | harmful_down).all(axis=1)
    return means[allowed]
