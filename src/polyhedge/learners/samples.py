r"""What learners learn from and return, and the learning objective that they share (Step 1 of the paper).

$$\frac1n \sum_{i=1}^n \min_{z \in Z} \max_{u \in \hat f(X_i) + P} g(z, u), \qquad
P = \{e : W e + b \le R(D_n; W, b)\}$$

Learners see standardised samples, $u_i = s_i + a_i u_i'$ and $g = t + k g'$: no tolerance depends on the user's units.

Residuals have a mean size of about 1, in each outcome or in all together; outcomes count from the mean prediction,
costs from the cost of the best decision there; costs differ by about 1 over the residuals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array, Indices, as_rows, check_alpha, check_count
from polyhedge.calibration import conformal_radius, conformal_rank
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.exact.bound import CertifiedBound
from polyhedge.learners.objective import FacetCosts, FacetGradient
from polyhedge.problems import DecisionProblem
from polyhedge.problems.units import Units, scaled
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
    """What a learner asks of its caller; `RobustDecider` gives it what it asks for.

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


_NOTHING = 2.0**-20
"""Share of a usual number below which one is a rounding."""
Learn = Callable[..., LearnResult]


def standardised(*, each_outcome: bool) -> Callable[[Learn], Learn]:
    """Let a method `learn` see standardised samples, and report how long it takes; see `Learner`.

    One unit for all outcomes, and one for all decisions, keeps proportions as the paper's methods need them; else each
    has its own.
    """

    def decorator(learn: Learn) -> Learn:
        @wraps(learn)
        def wrapped(self: Any, samples: Samples, random_state: Any = None) -> LearnResult:
            began, scaling = time.perf_counter(), SampleScaling.of(samples, each_outcome=each_outcome)
            result = scaling.invert(learn(self, scaling.apply(samples), random_state))
            return replace(result, seconds=time.perf_counter() - began)

        return wrapped

    return decorator


@dataclass(frozen=True)
class SampleScaling:
    """Units of outcomes and costs."""

    units: Units

    @classmethod
    def of(cls, samples: Samples, *, each_outcome: bool) -> SampleScaling:
        """The units of some learning samples; none for samples that are standardised already."""
        residuals, centers, problem = samples.residuals, samples.centers, samples.problem
        if problem.parameters or problem.decision_units is not None or not len(residuals) or not len(centers):
            return cls(Units())
        outcome = float(np.abs(residuals).mean()) or float(np.abs(centers).mean()) or 1.0
        each: tuple[float, ...] = ()
        if each_outcome and residuals.shape[1] > 1:
            sizes, usual = np.abs(residuals).mean(axis=0), np.abs(centers).mean(axis=0)
            # An outcome that never differs from its prediction is open to a small share of itself.
            known = _NOTHING * np.where(usual > 0, usual, outcome)
            # A mean size of 3/4 stands between powers of two, on which grids of numbers depend.
            each = tuple((np.where(sizes > 1e-12 * usual, sizes, known) / (0.75 * outcome)).tolist())
        middle = centers.mean(axis=0)
        cost, value = _cost_unit(problem.relaxed(), middle, residuals)
        if not problem.structure.has_pieces:  # a formula may rest on the sign of outcomes
            return cls(Units(outcome, cost, each=each, keeps_proportions=not each_outcome))
        return cls(Units(outcome, cost, tuple(middle.tolist()), value, each, not each_outcome))

    def apply(self, samples: Samples) -> Samples:
        """The samples and their problem in these units."""
        if self.units.are_usual:
            return replace(samples)
        residuals = samples.residuals / self.units.outcomes
        centers = (samples.centers - self.units.shift) / self.units.outcomes
        return Samples(residuals, centers, scaled(samples.problem, self.units), samples.alpha)

    def invert(self, learned: LearnResult) -> LearnResult:
        """A learner's result in the user's units; facets keep what their scores are measured in."""
        units, facets = self.units, learned.set.facets()
        if units.are_usual or facets is None:
            return learned
        score = {"outcomes": units.outcome, "costs": units.cost, "spreads": 1.0}[learned.scores_in]
        return replace(
            learned,
            set=Polyhedron(score / units.outcomes * facets.W, score * facets.b),
            objective=self._cost(learned.objective),
            lower_bound=self._cost(learned.lower_bound),
        )

    def invert_bound(self, bound: CertifiedBound) -> CertifiedBound:
        """A certificate in the user's units."""
        lower, upper = self._cost(bound.lower), self._cost(bound.upper)
        return replace(bound, lower=min(lower, upper), upper=upper, unit=self.units.cost * bound.unit)

    def _cost(self, value: float) -> float:
        return self.units.cost_shift + self.units.cost * value


def _cost_unit(problem: DecisionProblem, middle: Array, residuals: Array) -> tuple[float, float]:
    """How far costs differ over the residuals at the best decision for the middle, and its cost there.

    Decisions for the largest residuals count instead where that decision costs the same whatever happens.
    """
    outcomes = middle + residuals[evenly_chosen(len(residuals), 256)]
    largest = np.argsort(-np.abs(outcomes - middle).max(axis=1), kind="stable")[:8]
    decisions, values = decide_knowing(problem, np.vstack([middle[None], outcomes[largest]]))
    deviations = np.zeros(len(decisions))
    for i in np.flatnonzero(np.isfinite(decisions).all(axis=1)):
        costs = problem.evaluate(np.tile(decisions[i], (len(outcomes), 1)), outcomes)
        deviation = float(np.abs(costs - np.median(costs)).mean())
        deviations[i] = deviation if deviation > 1e-12 * np.abs(costs).max() else 0.0
    first, most = float(deviations[0]), float(deviations.max())
    unit = first if first > _NOTHING * most else most
    return unit or 1.0, float(values[0]) if np.isfinite(values[0]) else 0.0
