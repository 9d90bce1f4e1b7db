"""A fitted decider in plain words: what is promised, and what each facet of its set does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from polyhedge._validation import Array, Indices, Mask
from polyhedge.estimator import RobustDecider
from polyhedge.problems.pieces import SumOfMaxima
from polyhedge.robust import Decisions
from polyhedge.sets import Polyhedron, UncertaintySet

__all__ = ["Facet", "facets", "facets_in_words", "name_outcomes", "promise_in_words"]

# A term that moves the facet by less than this share of the largest one is not worth a reader's time.
_NEGLIGIBLE = 0.01
_MOST_TERMS = 6
# Slack, as a share of the facet's size, below which a facet counts as reached.
_TIGHT = 1e-7
# Multipliers of unit normals for a unit slope: below this they are rounding.
_WEIGHTY = 1e-5


@dataclass(frozen=True, eq=False)
class Facet:
    r"""One facet: $\text{weights}^\top e \le \text{limit}$ for the residual e, outcome minus prediction.

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
) -> tuple[Facet, ...]:
    """The facets of a fitted polyhedral set, those that bind most often first; none for round sets.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X : rows to decide; how often a facet binds is counted over them.
    outcome_names : one name for each outcome; "outcome 1", ... if not given.
    decisions : what `decider.decide(X)` gave, where it is known already.
    """
    names = name_outcomes(decider, outcome_names)
    polyhedron = as_polyhedron(decider.set_)
    if polyhedron is None:
        return ()
    found = decider.decide(X) if decisions is None else decisions
    bound = _binding(polyhedron, decider, X, found)
    size = np.abs(polyhedron.W).sum(axis=1)
    W, limits = polyhedron.W / size[:, None], (decider.radius_ - polyhedron.b) / size
    reach = _reach(decider.set_, decider.radius_)
    shares = bound.mean(axis=0) if len(bound) else np.zeros(len(W))
    order = np.argsort(-shares, kind="stable")
    return tuple(
        Facet(int(k) + 1, W[k], float(limits[k]), float(shares[k]), _limit_in_words(W[k], limits[k], reach, names))
        for k in order
    )


def facets_in_words(
    decider: RobustDecider,
    X: Any,
    outcome_names: Sequence[str] | None = None,
    *,
    decisions: Decisions | None = None,
) -> tuple[str, ...]:
    """One sentence for each facet that binds, one for all others; for a round set, its reach in each outcome.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X : rows to decide; how often a facet binds is counted over them.
    outcome_names : one name for each outcome; "outcome 1", ... if not given.
    decisions : what `decider.decide(X)` gave, where it is known already.

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
    found = facets(decider, X, outcome_names, decisions=decisions)
    if not found:
        return _round_in_words(decider.set_, decider.radius_, name_outcomes(decider, outcome_names))
    sentences = [str(facet) for facet in found if facet.share > 0]
    idle = sorted(facet.number for facet in found if facet.share == 0)
    if idle:
        one = len(idle) == 1
        sentences.append(
            f"facet{'' if one else 's'} {_listed(idle)} {'binds' if one else 'bind'} in no decision here: "
            f"{'it closes' if one else 'they close'} the set where outcomes do not hurt"
        )
    return tuple(sentences)


def promise_in_words(decider: RobustDecider) -> tuple[str, ...]:
    """What a fitted decider guarantees, and where the guarantee ends, for readers without statistics."""
    return (
        f"In at least {100 * (1 - decider.alpha):.6g} % of cases like those it was calibrated on, the outcome lies in the set that the "
        "decision guards against, and the cost is at most the bound that comes with the decision.",
        f"This rests on {decider.n_calibrate_} calibration rows that did nothing else, and on one assumption: new "
        "cases come from the same source as these rows. It needs no assumption on how good the predictions are.",
        "It is an average over cases. One particular kind of case may be covered less often.",
        "It is void if the world has changed since, or if calibration rows were used for anything else. "
        "Recalibrating on fresh rows restores it for cases that look like them.",
        "It says nothing about how low the bound is: poor predictions give bounds that hold but are costly.",
    )


def name_outcomes(decider: RobustDecider, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The given names, one for each outcome, or "outcome 1", "outcome 2", ..."""
    d = decider.problem.n_outcomes
    if names is None:
        return tuple(f"outcome {j + 1}" for j in range(d))
    if len(names) != d:
        raise ValueError(f"outcome_names must have {d} names, one for each outcome, got {len(names)}.")
    return tuple(str(name) for name in names)


def as_polyhedron(shape: UncertaintySet) -> Polyhedron | None:
    """The facets of a polyhedral shape; None for shapes that have none, or too many to list."""
    try:
        return shape.as_polyhedron()  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return None


def _binding(polyhedron: Polyhedron, decider: RobustDecider, X: Any, decisions: Decisions) -> Mask:
    r"""Facets that hold the bound up: moving such a facet inwards would lower it, for rows with a decision.

    Many facets meet at a worst outcome u, and not all of them matter. Those that do have a positive multiplier in
    $\sum_k \lambda_k w_k = v$, v the slope of the cost at u. Costs that are not piecewise affine in u have no such
    slope at hand; there every facet through u counts.
    """
    centers = decider.predictor_.predict(X)
    decided = np.isfinite(decisions.worst_outcome).all(axis=1)
    z = decisions.z.reshape(len(decisions), -1)[decided]
    outcomes, centers = decisions.worst_outcome[decided], centers[decided]
    A, h = decider.problem.support_rows
    limits = decider.radius_ - polyhedron.b
    tight = np.hstack([_tight(polyhedron.W, limits, outcomes - centers), _tight(A, h, outcomes)])
    slopes = _slopes(decider.problem.sum_of_maxima, z, outcomes)
    if slopes is None or not len(slopes):
        return tight[:, : len(limits)]
    # Many rows share few decisions, and with them slopes and facets.
    distinct, where = np.unique(np.hstack([slopes.round(9), tight]), axis=0, return_inverse=True)
    d, rows = slopes.shape[1], np.vstack([polyhedron.W, A])
    found = np.array([_positive_multipliers(rows, row[d:] > 0, row[:d]) for row in distinct])
    return np.asarray(found[where.ravel(), : len(limits)], dtype=bool)


def _tight(W: Array, limits: Array, points: Array) -> Mask:
    scale = np.abs(limits) + np.linalg.norm(W, axis=1)
    return np.asarray(limits - points @ W.T <= _TIGHT * scale, dtype=bool)


def _slopes(cost: SumOfMaxima | None, z: Array, outcomes: Array) -> Array | None:
    """Slopes (N, d) of the cost in the outcome, at matching decisions and outcomes."""
    if cost is None:
        return None
    z1, u1 = (np.hstack([np.ones((len(rows), 1)), rows]) for rows in (z, outcomes))
    total = z1 @ cost.base
    for group in cost.groups:
        pieces = np.einsum("ni,lij->nlj", z1, group)
        active = np.einsum("nlj,nj->nl", pieces, u1).argmax(axis=1)
        total = total + pieces[np.arange(len(z1)), active]
    return np.asarray(total[:, 1:])


def _positive_multipliers(rows: Array, tight: Mask, slope: Array) -> Mask:
    binding = np.zeros(len(rows), dtype=bool)
    length = float(np.linalg.norm(slope))
    if length == 0 or not tight.any():
        return binding
    sizes = np.linalg.norm(rows[tight], axis=1)
    multipliers, misfit = nnls((rows[tight] / sizes[:, None]).T, slope / length)
    # Without multipliers the worst outcome is not exact enough to tell: then all facets through it count.
    binding[tight] = multipliers > _WEIGHTY if misfit < _WEIGHTY else True
    return binding


def _reach(shape: UncertaintySet, radius: float) -> Array:
    """Half the width of the set in each outcome, to compare outcomes of different units."""
    axes = np.eye(shape.n_outcomes)
    width = np.asarray(shape.support(axes, radius)) + np.asarray(shape.support(-axes, radius))
    return np.where(np.isfinite(width) & (width > 0), width / 2, 1.0)


def _limit_in_words(weights: Array, limit: float, reach: Array, names: Sequence[str]) -> str:
    moved = np.abs(weights) * reach
    kept = np.flatnonzero(moved >= _NEGLIGIBLE * moved.max())
    # "At most 2 below" is easier to read than "minus heating at most 2 above".
    flipped = bool((weights[kept] < 0).all())
    side = "below" if flipped != (limit < 0) else "above"
    size = f"to at {'most' if limit >= 0 else 'least'} {abs(limit):.3g} {side}"
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


def _round_in_words(shape: UncertaintySet, radius: float, names: Sequence[str]) -> tuple[str, ...]:
    axes = np.eye(shape.n_outcomes)
    high, low = np.asarray(shape.support(axes, radius)), -np.asarray(shape.support(-axes, radius))
    opening = f"the set has no facets: it is a {type(shape).__name__} of radius {radius:.3g}"
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
