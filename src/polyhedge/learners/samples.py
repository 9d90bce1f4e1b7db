r"""What learners learn from and return, and the learning objective that they share (Step 1 of the paper).

$$\frac1n \sum_{i=1}^n \min_{z \in Z} \max_{u \in \hat f(X_i) + P} g(z, u), \qquad
P = \{e : W e + b \le R(D_n; W, b)\}$$
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array, Indices, as_rows, check_alpha, check_count
from polyhedge.calibration import conformal_radius, conformal_rank
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.objective import FacetCosts, FacetGradient
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide, decide_knowing
from polyhedge.sets import Polyhedron, Shape
from polyhedge.solvers.program import Status


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

    def take(self, rows: Indices) -> Samples:
        """Some of the samples; a single context stays."""
        centers = self.centers if self.n_contexts == 1 else self.centers[rows]
        return replace(self, residuals=self.residuals[rows], centers=centers)

    def radius(self, shape: Shape) -> float:
        """Conformal radius of the shape on the learning split."""
        return conformal_radius(shape.scores(self.residuals), self.alpha)

    def value(self, shape: Shape, contexts: Indices | None = None) -> float:
        """The objective (over some contexts); inf where a context has no finite worst case."""
        return self.cost_at(shape, self.radius(shape), contexts)

    def cost_at(self, shape: Shape, radius: float, contexts: Indices | None = None) -> float:
        """Mean worst-case cost over the contexts at a given radius."""
        contexts = np.arange(self.n_contexts) if contexts is None else contexts
        facets = shape.facets() if self.has_closed_form else None
        if facets is not None:
            return self._facet_costs.cost(facets.W, radius - facets.b, contexts)
        bounds = decide(self.problem, shape, radius, self.centers[contexts]).cost_bound
        return float(bounds.mean()) if np.isfinite(bounds).all() else np.inf

    def facet_gradient(self, W: Array, q: Array, contexts: Indices) -> FacetGradient:
        """Mean robust cost of {e : W e <= q} and its gradient; see `objective.py`."""
        return self._facet_costs.gradient(W, q, contexts)

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
        return FacetCosts(self.problem, self.centers)

    def normalised(self, shape: Polyhedron) -> Polyhedron:
        """The same learning set with unit facet normals and learning radius 0."""
        size = np.linalg.norm(shape.W, axis=1)
        q = (self.radius(shape) - shape.b) / size
        return Polyhedron(shape.W / size[:, None], -q)

    def scored_contexts(self, most: int | None) -> Indices:
        """An even choice of contexts on which sets are compared; None for all.

        At most 12 where the cost has no list of pieces, because each then takes a conic program for each candidate.
        """
        limit = self.n_contexts if most is None else check_count(most, "max_contexts", minimum=1)
        return evenly_chosen(self.n_contexts, limit if self.problem.structure.has_pieces else min(limit, 12))

    @property
    def max_contexts(self) -> int | None:
        """Contexts that cross-fitting scores: all (None) with a closed form, some where each needs a solver."""
        return None if self.has_closed_form else n_affordable(len(self.problem.structure.pieces))


def n_affordable(n_pieces: int, most: int = 200) -> int:
    """How many contexts, or steps, are taken where each needs a solver: `most`, or fewer for costs of many pieces.

    A program has some rows for each piece. Beyond 32 pieces their total stays the same, down to a tenth of `most`.
    """
    return int(np.clip(32 * most // n_pieces, most // 10, most))


def standard_deviations(values: Array) -> Array:
    """Standard deviations (d,) of the columns, as `usable` scales."""
    return usable(values.std(axis=0), values)


def usable(scales: Array, values: Array) -> Array:
    """The scales (d,) of columns, none of them zero: a column that does not vary takes the largest of the others.

    Where no column varies it is the size of the numbers, and 1 where all are zero.
    """
    varies = scales > CANCELLATION * np.abs(values).max(axis=0)
    other = float(scales[varies].max()) if varies.any() else float(np.abs(values).max()) or 1.0
    return np.where(varies, scales, other)


@stored("learning result")
@dataclass(frozen=True)
class LearnResult:
    """A learned set with the evidence for it.

    Attributes
    ----------
    set : the shape; at radius 0 it covers just the conformal rank of the learning residuals.
    objective : mean worst-case cost over the learning contexts at the learning radius.
    lower_bound : certified bound below which no polyhedron can come (-inf where none was proven). It holds for sets of
        one size; a set scaled by a predicted spread may be below it.
    gap : objective - lower_bound.
    status : OPTIMAL where the gap is within the learner's tolerance, FINISHED where the learner did all its steps and
        proves no such gap, STOPPED_EARLY.
    seconds : wall-clock time.
    detail : what was chosen and why, in words.
    scores_in : what the set's scores, and so its radius, are measured in: "outcomes" (facets have unit normals),
        "spreads" (multiples of the residuals' own) or "costs".

    Examples
    --------
    >>> from polyhedge.sets import Box
    >>> LearnResult(Box([1.0, 1.0]), objective=2.5, status=Status.FINISHED, lower_bound=2.0).gap
    0.5
    """

    set: Shape
    objective: float
    status: Status
    seconds: float = 0.0
    lower_bound: float = -np.inf
    detail: str = ""
    scores_in: str = "outcomes"

    def __repr__(self) -> str:
        gap = f"gap {self.gap:.3g}" if np.isfinite(self.gap) else "not certified"
        detail = f"; {self.detail}" if self.detail else ""
        kind, status = type(self.set).__name__, str(self.status).partition(":")[0]
        return f"<LearnResult: {kind}, objective {self.objective:.4g}, {gap}, {status}{detail}>"

    def __post_init__(self) -> None:
        if self.status is Status.OPTIMAL and not np.isfinite(self.lower_bound):  # nothing is proven
            object.__setattr__(self, "status", Status.FINISHED)

    @property
    def gap(self) -> float:
        """How far the objective may be above the best polyhedron's."""
        return self.objective - self.lower_bound


@dataclass(frozen=True)
class Needs:
    """What a learner asks of who calls it; `RobustDecider` gives it what it asks for.

    Attributes
    ----------
    learning_rows : False where the residuals of the training rows serve as well, because nothing is learned from
        decisions: learning and calibration rows then set the radius together.
    training_folds : folds of the training rows whose out-of-fold residuals join the samples; 0 for none.
    samples_an_outcome : samples for each outcome that are learned from, an even choice where there are more; None for
        all.
    may_scale : whether the set may be scaled by a spread that is predicted from the features, where that pays.
    complexity_penalty : what a more complex choice must save, as a share of the premium times the square root of n.
    """

    learning_rows: bool = True
    training_folds: int = 0
    samples_an_outcome: int | None = None
    may_scale: bool = False
    complexity_penalty: float = 0.0


@runtime_checkable
class Learner(Protocol):
    """Anything that turns learning samples into a set.

    It may see the learning split only; the calibration split sets the radius afterwards.

    Parameters that learners share
    ------------------------------
    n_facets : facets K that are learned; None for max(4, 2 d). Far facets that only keep the set bounded are added
        to them where needed.
    contexts : for which predictions decisions are planned: "mean" for the mean prediction (the paper's Table 1), a
        number of random ones, indices of rows, or None for all.
    max_contexts : contexts on which sets are compared, or on which only the reported objective is computed; None for
        all.
    max_work : rows of programs solved, about a minute for every six million, after which the best set so far, or the
        best bound, is returned.
    time_limit : seconds, likewise; None, so that the result never depends on the clock.
    """

    @property
    def needs(self) -> Needs:
        """What it asks for; by default the learning rows and nothing else."""
        return Needs()

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn the shape from the samples of the learning split."""
