"""A fitted decider in words: how a policy decides, and what each facet of a set does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array, Mask
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import Decisions
from polyhedge.estimator import RobustDecider
from polyhedge.model import Model
from polyhedge.rows import Rows
from polyhedge.sets import Polyhedron

# A term that moves the facet by less than this share of the largest one is not worth a reader's time.
_NEGLIGIBLE = 0.01
# Terms of a facet that a sentence can hold, and facets that a list can.
_MOST_TERMS, _MOST_FACETS = 6, 3
# How often facets are tight is counted over at most so many rows, spread evenly.
_MOST_ROWS = 500
_NO_OTHER = (
    'Other decisions have bounds too (decider.bound), which may be infinite; a set, guarantee="outcome", is made for '
    "all decisions."
)


def facets_in_words(
    decider: RobustDecider, X: Any, *, parameters: Mapping[Any, Any] | None = None, labels: Any = None
) -> tuple[str, ...]:
    """The facets that are tight at worst outcomes most often, one sentence each; for a round set, its reach.

    Parameters
    ----------
    decider : RobustDecider, fitted with guarantee="outcome".
    X : rows to decide.
    parameters, labels : as in `RobustDecider.decide`.

    Examples
    --------
    >>> import polyhedge as ph
    >>> problem = ph.problems.simplex_linear([0.0, 0.0])
    >>> rng = np.random.default_rng(0)
    >>> centers = rng.normal(size=(400, 2))
    >>> decider = ph.RobustDecider(problem, "precomputed", learner=ph.learners.OneSidedBox(), random_state=0)
    >>> decider = decider.fit(centers, centers + rng.uniform(-1.0, 1.0, (400, 2)))
    >>> for sentence in facets_in_words(decider, centers):
    ...     print(sentence)
    facet 1 limits u_1 to at most 0.8... above its prediction; tight in 5... % of decisions
    facet 2 limits u_2 to at most 0.9... above its prediction; tight in 4... % of decisions
    2 more facets close the set where outcomes do not hurt
    """
    model, names, shape = decider.model_, decider.problem_.outcome_names, decider.set_
    rows = model.read(X, None, parameters, labels)
    rows = rows.take(evenly_chosen(len(rows), _MOST_ROWS))
    placed = model.place(rows)
    radii = np.array([model.family.set_radius(radius) for radius in placed.radii.tolist()])
    finite = radii[np.isfinite(radii)]
    ends = (finite.min(), finite.max()) if len(finite) else (model.set_radius, model.set_radius)
    polyhedron, axes = shape.facets(), np.eye(shape.n_outcomes)
    high, low = np.asarray(shape.support(axes, ends[1])), -np.asarray(shape.support(-axes, ends[1]))
    if polyhedron is None:
        size = f"{ends[1]:.3g}" if ends[0] == ends[1] else f"{ends[0]:.3g} to {ends[1]:.3g}, here the largest"
        return (
            f"the set has no facets: it is a {type(shape).__name__} of radius {size}",
            *(
                f"{name} lies between {a:+.3g} and {b:+.3g} of its prediction"
                for name, a, b in zip(names, low, high, strict=True)
            ),
        )
    shares = _binding(polyhedron, model, rows, radii, placed.decide()).mean(axis=0)
    size = np.abs(polyhedron.W).sum(axis=1)
    least, most = ((radius - polyhedron.b) / size for radius in ends)
    width = high - low  # outcomes of different units are compared by half of it
    reach = np.where(np.isfinite(width) & (width > 0), width / 2, 1.0)
    order = np.argsort(-shares, kind="stable")
    order = order[shares[order] > 0]
    sentences = [
        f"facet {k + 1} {_limit_in_words(polyhedron.W[k] / size[k], least[k], most[k], reach, names)}; "
        f"tight in {100 * shares[k]:.0f} % of decisions"
        for k in order[:_MOST_FACETS]
    ]
    if len(order) > _MOST_FACETS:
        others = 100 * shares[order[_MOST_FACETS]]
        sentences.append(
            f"{len(order) - _MOST_FACETS} more facets are tight, each in at most {others:.0f} % of decisions"
        )
    if decider.spread_ is not None:
        low, middle, high = np.percentile(model.sets.at(rows.features).scales, [5, 50, 95])
        sentences.append(
            f"the set is scaled by a predicted spread: {low:.2g} to {high:.2g} times these limits in nine rows of ten, "
            f"the median is {middle:.2g}"
        )
    if len(order) < len(shares):
        sentences.append(f"{len(shares) - len(order)} more facets close the set where outcomes do not hurt")
    return tuple(sentences)


def _binding(polyhedron: Polyhedron, model: Model, rows: Rows, radii: Array, decided: Decisions) -> Mask:
    """Which facets are tight at the worst outcomes and limit the cost there; rows with a decision only.

    Many facets may meet at a worst outcome. Those that limit the cost span its slope in the outcome with positive
    multipliers. For a cost without pieces, or with parameters, every tight facet counts.
    """
    own = np.flatnonzero(np.isfinite(decided.worst_outcome).all(axis=1))
    if not len(own):
        return np.zeros((1, len(polyhedron.b)), dtype=bool)
    z, worst = decided.flat[own], decided.worst_outcome[own]
    residuals = model.sets.at(take_rows(rows.features, own)).residuals(worst)
    limits, norms = radii[own, None] - polyhedron.b, np.linalg.norm(polyhedron.W, axis=1)
    binds = np.asarray(limits - residuals @ polyhedron.W.T <= SOLVED * (np.abs(limits) + norms), dtype=bool)
    if model.problem.parameters or not model.problem.structure.has_pieces:
        return binds
    pieces = model.problem.structure.pieces
    slopes = pieces.directions(z)[np.arange(len(z)), pieces.values(z, worst).argmax(axis=1)]
    for is_tight, slope in zip(binds, slopes, strict=True):
        tight = np.flatnonzero(is_tight)
        forces = nnls(polyhedron.W[tight].T, slope)[0] * norms[tight]
        is_tight[tight] = forces > SOLVED * np.linalg.norm(slope)
    return binds


def _limit_in_words(weights: Array, least: float, limit: float, reach: Array, names: Sequence[str]) -> str:
    moved = np.abs(weights) * reach
    kept = np.flatnonzero(moved >= _NEGLIGIBLE * moved.max())
    # "At most 2 below" is easier to read than "minus heating at most 2 above".
    flipped = bool((weights[kept] < 0).all())
    side = "below" if flipped != (limit < 0) else "above"
    size = f"to at {'most' if limit >= 0 else 'least'} {abs(limit):.3g} {side}"
    if f"{least:.3g}" != f"{limit:.3g}":  # rows have radii of their own
        size = f"to at most {least:.3g} to {limit:.3g}, by the row's radius, {'below' if flipped else 'above'}"
    if len(kept) == 1:
        return f"limits {names[int(kept[0])]} {size} its prediction"
    signed = -weights if flipped else weights
    largest = kept[np.argsort(-moved[kept], kind="stable")][:_MOST_TERMS]
    # Positive terms first, so that a sentence does not begin with a minus.
    ordered = sorted(largest, key=lambda j: (signed[j] < 0, j))
    terms = " ".join(f"{'-' if signed[j] < 0 else '+'} {abs(signed[j]):.2g} {names[j]}" for j in ordered)
    more = f" and {len(kept) - len(largest)} smaller terms" if len(kept) > len(largest) else ""
    return f"limits {terms.removeprefix('+ ')}{more} {size} the prediction"


def policy_in_words(decider: RobustDecider) -> tuple[str, ...]:
    """How a policy decides and what its bound is made of; an AttributeError where a set was learned."""
    policy, radii = decider.policy_, decider.model_.radii
    is_one = radii.smallest == radii.radius
    if decider.problem_.constraint_names and decider.model_.family.scores_are_steps:
        step = f"step {radii.radius:g}" if is_one else "a step of its own"
        path = (
            f"Each row is decided at {step} of a path of policies, counted from 0: from step to step uncertain "
            "constraints are kept with a larger margin, and more is added to the cost. That step kept bound and "
            "constraints together in the promised share of the calibration rows."
        )
        return policy.why(), path, _NO_OTHER
    margin = f"a margin of {radii.radius:.4g}, the same for all rows" if is_one else "a margin"
    return policy.why(), f"The bound is the planned cost of the decision plus {margin}.", _NO_OTHER
