r"""What a learner learns from, with the learning objective that all learners share (Step 1 of the paper).

$$\frac1n \sum_{i=1}^n \min_{z \in Z} \max_{u \in \hat f(X_i) + P} g(z, u), \qquad
P = \{e : W e + b \le R(D_n; W, b)\}$$
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from polyhedge._support.validation import Array, Indices, as_rows, check_alpha
from polyhedge.calibration import conformal_radius, conformal_rank
from polyhedge.learners.exact.plane import FacetGradient
from polyhedge.learners.gradients import GRADIENTS, FacetCosts
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide, decide_knowing
from polyhedge.robust.routes import dispatch
from polyhedge.sets import Polyhedron, Shape

_SHORT_COST = 32
"""Pieces of a cost up to which as many programs are solved as are wanted."""
_LEAST = 10
"""The part of them that is solved at any rate: a choice by fewer would be by chance."""


def n_affordable(n_pieces: int, most: int = 200) -> int:
    """How many contexts, or steps, are taken where each needs a solver: `most`, or fewer for costs of many pieces.

    A program has some rows for each piece. Beyond 32 pieces their total stays the same, down to a tenth of `most`.

    Examples
    --------
    >>> n_affordable(2), n_affordable(64), n_affordable(10_000)
    (200, 100, 20)
    """
    return int(np.clip(_SHORT_COST * most // n_pieces, most // _LEAST, most))


@dataclass(frozen=True)
class Samples:
    """Learning samples, and what a set costs on them: its mean worst-case cost at their conformal radius.

    Parameters
    ----------
    residuals : (n, d) residuals of the learning rows.
    centers : (m, d) predictions for which decisions are planned: one for each residual, or a single context.
    problem : what is decided.
    alpha : miscoverage level; a set must cover c_n = ceil((n + 1)(1 - alpha)) residuals.

    Examples
    --------
    >>> from polyhedge.problems import simplex_linear
    >>> from polyhedge.sets import Ball
    >>> samples = Samples([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]], np.zeros((3, 2)), simplex_linear([0.0, 0.0]), 0.25)
    >>> samples.rank, samples.radius(Ball(2, norm=np.inf)), samples.value(Ball(2, norm=np.inf))
    (3, 2.0, 2.0)
    """

    residuals: Array
    centers: Array
    problem: DecisionProblem
    alpha: float

    def __post_init__(self) -> None:
        for name in ("residuals", "centers"):
            object.__setattr__(self, name, as_rows(getattr(self, name), name, self.problem.n_outcomes))
        check_alpha(self.alpha)

    @property
    def n(self) -> int:
        """Number of learning samples."""
        return len(self.residuals)

    @property
    def n_contexts(self) -> int:
        """Number of predictions that decisions are planned for: n, or 1 for a single context."""
        return len(self.centers)

    @property
    def rank(self) -> int:
        """How many residuals a set must cover: c_n."""
        return conformal_rank(self.n, self.alpha)

    def radius(self, shape: Shape) -> float:
        """Conformal radius of the shape on the learning split."""
        return conformal_radius(shape.scores(self.residuals), self.alpha)

    def value(self, shape: Shape, contexts: Indices | None = None) -> float:
        """The objective (over some contexts); inf where a context has no finite worst case."""
        return self.cost_at(shape, self.radius(shape), contexts)

    def cost_at(self, shape: Shape, radius: float, contexts: Indices | None = None) -> float:
        """Mean worst-case cost over the contexts at a given radius."""
        facets = shape.facets() if self.has_closed_form else None
        if facets is not None:
            chosen = np.arange(len(self.centers)) if contexts is None else contexts
            return self.facet_gradient(facets.W, radius - facets.b, chosen).value
        centers = self.centers if contexts is None else self.centers[contexts]
        bounds = decide(self.problem, shape, radius, centers).cost_bound
        return float(bounds.mean()) if np.isfinite(bounds).all() else np.inf

    def facet_gradient(self, W: Array, q: Array, contexts: Indices) -> FacetGradient:
        r"""Mean robust cost of {e : W e <= q} and its gradient, by the envelope theorem.

        Each context contributes $\sum_l \pi_l\lambda_l$ in q and $-\sum_l \pi_l\lambda_l e_l^\top$ in W.
        Here pi are the multipliers of the cost's pieces, lambda those of the facets and e the worst-case
        residuals (at a mixed decision a convex combination of vertices, which is what the duals are).
        """
        return dispatch(GRADIENTS, self._facet_costs, W, q, contexts)

    @cached_property
    def nominal_cost(self) -> float:
        """Mean cost of deciding as if the predictions were true: the zero of the premium."""
        return float(np.nanmean(decide_knowing(self.problem, self.centers)[1]))

    @property
    def has_closed_form(self) -> bool:
        """Whether all contexts are evaluated at once, without a solver for each."""
        return self._facet_costs.has_closed_form

    @cached_property
    def _facet_costs(self) -> FacetCosts:
        return FacetCosts(self.problem, self.centers, self.apart)

    @property
    def is_on_straight_segment(self) -> bool:
        """Whether closed forms for two outcomes and a segment of decisions apply, on which costs do not bend."""
        return self.problem.n_outcomes == 2 and self.problem.structure.is_on_straight_segment

    tie: ClassVar[float] = 0.0
    """By how much a set must be cheaper than another to be better; see `steady.py`."""

    def apart(self, reach: Array) -> Array:
        """How far a set reaches along the cost's fixed directions, as a search sees it; see `steady.py`."""
        return reach

    def told(self, slopes: Array) -> Array:
        """Slopes of the objective as a search sees them; see `steady.py`."""
        return slopes

    def normalised(self, shape: Polyhedron) -> Polyhedron:
        """The same learning set with unit facet normals and learning radius 0."""
        size = np.linalg.norm(shape.W, axis=1)
        q = (self.radius(shape) - shape.b) / size
        return Polyhedron(shape.W / size[:, None], -q)
