"""A fitted decider in words: what is promised, and what each facet of its set does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.calibration import Radii
from polyhedge.calibration.labels import takes_labels
from polyhedge.data.splits import evenly_chosen
from polyhedge.decisions import Decisions
from polyhedge.estimator import RobustDecider
from polyhedge.model import Model, promise_of
from polyhedge.plots.sets import name_outcomes
from polyhedge.robust.counterpart import Counterpart
from polyhedge.rows import n_rows_of
from polyhedge.sets import Polyhedron, Shape

__all__ = ["Facet", "facets", "facets_in_words", "policy_in_words", "promise_in_words"]

# A term that moves the facet by less than this share of the largest one is not worth a reader's time.
_NEGLIGIBLE = 0.01
# Terms of a facet that a sentence can hold.
_MOST_TERMS = 6
# Multipliers below this share of the largest are rounding.
_WEIGHTY = 1e-6
# How often facets bind is counted over at most so many rows, spread evenly.
_MOST_ROWS = 500
# Beyond so many facets that bind, so many are shown: those that bind most often.
_MANY, _SHOWN = 5, 3


@dataclass(frozen=True, eq=False)
class Facet:
    r"""One facet: $\text{weights}^\top e \le \text{limit}$ for the residual e, outcome minus prediction.

    Where the set is scaled by a predicted spread, the limit is that of a spread of 1; where rows have radii of their
    own, that of the largest.

    Attributes
    ----------
    number : position in the set's W, counted from 1.
    weights : (n_outcomes,) the normal, scaled so that its absolute values sum to 1.
    limit : how far the weighted outcomes may lie above their prediction.
    share : share of the decisions whose cost bound this facet holds up.
    text : the facet in words, such as "limits 0.7 heating + 0.3 cooling to at most 1.2 above the prediction".
    """

    number: int
    weights: Array
    limit: float
    share: float
    text: str

    def __str__(self) -> str:
        return f"facet {self.number} {self.text}; binds in {_percent(self.share)} of decisions"


def facets(
    decider: RobustDecider,
    X: Any,
    outcome_names: Sequence[str] | None = None,
    *,
    decisions: Decisions | None = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: Any = None,
) -> tuple[Facet, ...]:
    """The facets of a fitted polyhedral set, those that bind most often first; none for round sets.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X : rows to decide; how often a facet binds is counted over them.
    outcome_names : one name for each outcome; those of the problem if not given.
    decisions : what `decider.decide(X)` gave, where it is known already.
    parameters : values of the problem's parameters, as in `RobustDecider.decide`.
    labels : labels or weights of these rows, as in `RobustDecider.decide`; without them the largest radius is shown.
    """
    names = name_outcomes(decider, outcome_names)
    polyhedron = decider.set_.facets()
    if polyhedron is None:
        return ()
    bound = _binding(polyhedron, decider.model_, X, decisions, parameters, labels)
    ends = _ends(decider.model_, X, labels)
    size = np.abs(polyhedron.W).sum(axis=1)
    W, (least, limits) = polyhedron.W / size[:, None], ((radius - polyhedron.b) / size for radius in ends)
    reach = _reach(decider.set_, ends[1])
    shares = bound.mean(axis=0) if len(bound) else np.zeros(len(W))
    texts = [_limit_in_words(W[k], float(least[k]), float(limits[k]), reach, names) for k in range(len(W))]
    order = np.argsort(-shares, kind="stable")
    return tuple(Facet(int(k) + 1, W[k], float(limits[k]), float(shares[k]), texts[k]) for k in order)


def facets_in_words(
    decider: RobustDecider,
    X: Any,
    outcome_names: Sequence[str] | None = None,
    *,
    decisions: Decisions | None = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: Any = None,
) -> tuple[str, ...]:
    """One sentence for each facet that binds, one for all others; for a round set, its reach in each outcome.

    Where more than five bind, the three that bind most often, and how many more.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X : rows to decide; how often a facet binds is counted over them.
    outcome_names : one name for each outcome; those of the problem if not given.
    decisions : what `decider.decide(X)` gave, where it is known already.
    parameters : values of the problem's parameters, as in `RobustDecider.decide`.
    labels : labels or weights of these rows, as in `RobustDecider.decide`; without them the largest radius is shown.

    Examples
    --------
    >>> import polyhedge as ph
    >>> problem = ph.problems.simplex_linear([0.0, 0.0])
    >>> rng = np.random.default_rng(0)
    >>> centers = rng.normal(size=(400, 2))
    >>> decider = ph.RobustDecider(problem, "precomputed", learner=ph.learners.OneSidedBox(), random_state=0)
    >>> decider = decider.fit(centers, centers + rng.uniform(-1.0, 1.0, (400, 2)))
    >>> for sentence in facets_in_words(decider, centers, ["heating", "cooling"]):
    ...     print(sentence)
    facet 1 limits heating to at most 0.8... above its prediction; binds in 5... % of decisions
    facet 2 limits cooling to at most 0.9... above its prediction; binds in 4... % of decisions
    facets 3 and 4 bind in no decision here: they close the set where outcomes do not hurt
    """
    all_facets = facets(decider, X, outcome_names, decisions=decisions, parameters=parameters, labels=labels)
    if not all_facets:
        return _round_in_words(decider.set_, *_ends(decider.model_, X, labels), name_outcomes(decider, outcome_names))
    binding = [facet for facet in all_facets if facet.share > 0]
    shown = binding if len(binding) <= _MANY else binding[:_SHOWN]
    sentences = [str(facet) for facet in shown]
    if len(shown) < len(binding):
        rest = binding[_SHOWN:]
        sentences.append(f"{len(rest)} more facets bind, each in at most {_percent(rest[0].share)} of decisions")
    if decider.spread_ is not None:
        sentences.append(_spread_in_words(decider.scales(X)))
    idle = sorted(facet.number for facet in all_facets if facet.share == 0)
    if idle:
        one = len(idle) == 1
        sentences.append(
            f"facet{'' if one else 's'} {_listed(idle)} {'binds' if one else 'bind'} in no decision here: "
            f"{'it closes' if one else 'they close'} the set where outcomes do not hurt"
        )
    return tuple(sentences)


_NO_OTHER = (
    "It says nothing of other decisions: for a set of outcomes that serves every decision, fit with "
    'guarantee="outcome".'
)


def policy_in_words(decider: RobustDecider) -> tuple[str, ...]:
    """How a planned decision comes about and what its bound is made of; an AttributeError where a set was learned.

    Examples
    --------
    >>> import polyhedge as ph
    >>> Y = np.random.default_rng(0).normal(size=(100, 2))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "precomputed", random_state=0).fit(Y / 2, Y)
    >>> print(policy_in_words(decider)[1])
    The bound is what the decision is planned to cost plus a margin of ..., the same for all rows.
    """
    policy, radii = decider.policy_, decider.model_.radii
    if decider.problem_.constraint_names and decider.model_.family.scores_are_steps:
        return policy.why(), _path_in_words(radii), _NO_OTHER
    is_one = radii.smallest == radii.radius
    margin = f"a margin of {radii.radius:.4g}, the same for all rows" if is_one else "a margin"
    return (
        policy.why(),
        f"The bound is what the decision is planned to cost plus {margin}.",
        _NO_OTHER,
    )


def _path_in_words(radii: Radii) -> str:
    """How far along its path of policies a decision is taken."""
    step = f"step {radii.radius:g}" if radii.smallest == radii.radius else "a step of its own"
    return (
        f"Each row is decided at {step} of a path of policies, counted from 0: from step to step uncertain constraints "
        "are kept with a larger margin, and more is added to the planned cost. That step kept bound and constraints "
        "together in the promised share of the calibration rows."
    )


def promise_in_words(decider: RobustDecider) -> tuple[str, ...]:
    """What a fitted decider guarantees, and where the guarantee ends, for readers without statistics."""
    return promise_of(decider.model_)


def _radii(model: Model, X: Any, labels: Any) -> Array:
    """The calibrated radius (N,) of each row; the largest where `labels` would tell and is not given."""
    if labels is None and takes_labels(model.radii):
        return np.full(n_rows_of(X), model.radii.radius)
    return model.place(model.read(X, None, None, labels, to_score=True)).radii


def _set_radii(model: Model, radii: Array) -> Array:
    """The radius (N,) at which each row's shape decides."""
    known = {radius: model.family.set_radius(radius) for radius in np.unique(radii).tolist()}
    return np.array([known[radius] for radius in radii.tolist()])


def _ends(model: Model, X: Any, labels: Any) -> tuple[float, float]:
    """The least and the largest radius at which the shape decides a row."""
    radii = _set_radii(model, _radii(model, X, labels))
    known = radii[np.isfinite(radii)]
    return (float(known.min()), float(known.max())) if len(known) else (model.set_radius, model.set_radius)


def _binding(
    polyhedron: Polyhedron,
    model: Model,
    X: Any,
    decisions: Decisions | None,
    parameters: Mapping[Any, Any] | None,
    labels: Any,
) -> Mask:
    r"""Facets that hold the bound up: moving such a facet inwards would lower it; rows with a decision only.

    Many facets meet at a worst outcome, and not all of them matter. Those that do have a positive multiplier in the
    robust counterpart. Costs without pieces, and with parameters, have no multipliers at hand; there every facet
    through the worst outcome counts.
    """
    features, calibrated = model.features(X), _radii(model, X, labels)
    placed, radii = model.sets.at(features), _set_radii(model, calibrated)
    if model.problem.parameters or not model.problem.structure.has_pieces:
        values = model.read(X, parameters=parameters).parameters
        decisions = model.family.at(features, values).decide(calibrated) if decisions is None else decisions
        decided = np.isfinite(decisions.worst_outcome).all(axis=1)
        return _tight(polyhedron, radii[decided], placed.residuals(decisions.worst_outcome)[decided])
    centers = placed.centers
    chosen = evenly_chosen(len(centers), _MOST_ROWS)
    sizes = np.column_stack([placed.scales, radii])[chosen]
    multipliers = [
        _multipliers(Counterpart(model.problem, polyhedron.scaled(scale), radius), centers[chosen[own]])
        for scale, radius in np.unique(sizes[np.isfinite(sizes).all(axis=1)], axis=0).tolist()
        for own in [(sizes == [scale, radius]).all(axis=1)]
    ]
    # Compared as forces: a multiplier says little before it is weighed with the size of its normal.
    weights = np.linalg.norm(polyhedron.W, axis=1)
    rows = [of_size[:, : polyhedron.n_facets] for of_size in multipliers]
    forces = weights * np.vstack([np.zeros((0, polyhedron.n_facets)), *rows])
    return np.asarray(forces > _WEIGHTY * forces.max(axis=1, keepdims=True, initial=0.0), dtype=bool)


def _multipliers(counterpart: Counterpart, centers: Array) -> Array:
    """Multipliers of the set's rows, for the contexts that have a decision."""
    solutions = [counterpart.solve(center) for center in centers]
    multipliers = np.array([s.weights @ s.facet_multipliers for s in solutions if s.status.has_solution])
    return multipliers.reshape(-1, len(counterpart.form.g))


def _spread_in_words(scales: Array) -> str:
    low, middle, high = np.percentile(scales, [5, 50, 95])
    return (
        f"the set is scaled by a predicted spread: {low:.2g} to {high:.2g} times these limits in nine rows of ten, the "
        f"median is {middle:.2g}"
    )


def _tight(polyhedron: Polyhedron, radii: Array, residuals: Array) -> Mask:
    limits = radii[:, None] - polyhedron.b
    scale = np.abs(limits) + np.linalg.norm(polyhedron.W, axis=1)
    return np.asarray(limits - residuals @ polyhedron.W.T <= SOLVED * scale, dtype=bool)


def _reach(shape: Shape, radius: float) -> Array:
    """Half the width of the set in each outcome, to compare outcomes of different units."""
    axes = np.eye(shape.n_outcomes)
    width = np.asarray(shape.support(axes, radius)) + np.asarray(shape.support(-axes, radius))
    return np.where(np.isfinite(width) & (width > 0), width / 2, 1.0)


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
    return f"limits {_terms(-weights if flipped else weights, kept, moved, names)} {size} the prediction"


def _terms(weights: Array, kept: Indices, moved: Array, names: Sequence[str]) -> str:
    largest = kept[np.argsort(-moved[kept], kind="stable")][:_MOST_TERMS]
    # Positive terms first, so that a sentence does not begin with a minus.
    ordered = sorted(largest, key=lambda j: (weights[j] < 0, j))
    parts = [f"{'-' if weights[j] < 0 else '+'} {abs(weights[j]):.2g} {names[j]}" for j in ordered]
    more = f" and {len(kept) - len(largest)} smaller terms" if len(kept) > len(largest) else ""
    return " ".join(parts).removeprefix("+ ") + more


def _round_in_words(shape: Shape, least: float, radius: float, names: Sequence[str]) -> tuple[str, ...]:
    axes = np.eye(shape.n_outcomes)
    # At radius 0 a set is a point, whose coordinates may be rounding next to the size that the set can have.
    sizes = np.abs([*shape.support(axes, max(radius, 1.0)), *shape.support(-axes, max(radius, 1.0))])
    rounding = np.finfo(float).eps * sizes[np.isfinite(sizes)].max(initial=0.0)
    ends = np.asarray(shape.support(axes, radius)), -np.asarray(shape.support(-axes, radius))
    high, low = (np.where(np.abs(end) <= rounding, 0.0, end) for end in ends)
    size = f"radius {radius:.3g}" if least == radius else f"radius {least:.3g} to {radius:.3g}, here the largest"
    opening = f"the set has no facets: it is a {type(shape).__name__} of {size}"
    return opening, *(
        f"{name} lies between {_signed(a)} and {_signed(b)} of its prediction"
        for name, a, b in zip(names, low, high, strict=True)
    )


def _signed(value: float) -> str:
    return f"{value:+.3g}"


def _percent(share: float) -> str:
    if 0 < share < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def _listed(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:8]]
    if len(numbers) > 8:
        return f"{', '.join(shown)} and {len(numbers) - 8} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
