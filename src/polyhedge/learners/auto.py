r"""The default learner, a selection among learners by cross-fitting inside the learning samples; `Certified` learners.

The exact optimum on the learning samples overfits them; what counts is the cost after recalibration on fresh data. The
one-sided box that learns only scales, a descent that trusts no single residual, and the set half-way between the two
are fitted on all folds but one. Scores of the folds left out are pooled to one conformal radius; the mean worst-case
cost of their contexts at that radius estimates the cost after recalibration. The calibration split is never seen.

More samples help more than a finer choice: `RobustDecider` adds out-of-fold residuals of the training rows, and may
scale the set by a predicted spread (`spread.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from polyhedge._support.progress import tell
from polyhedge._support.tolerances import SELECTION_TIE
from polyhedge._support.validation import check_count
from polyhedge.calibration import conformal_radius, minimum_samples
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.descent import Descent
from polyhedge.learners.exact.bound import below
from polyhedge.learners.exact.scenario import lower_bound
from polyhedge.learners.one_sided_box import OneSidedBox, harmful_sides
from polyhedge.learners.samples import Learner, LearnResult, Needs, Samples, n_affordable, standardised
from polyhedge.learners.spread import Selection, cross_validated
from polyhedge.learners.starts import check_n_facets
from polyhedge.robust import decide_knowing
from polyhedge.sets import Polyhedron, Shape
from polyhedge.solvers.program import Status

logger = logging.getLogger(__name__)

_BOX, _DESCENT = "one-sided box", "smooth descent"
_HALF_WAY = f"{_DESCENT} + {_BOX}"
_COMPLEXITY = {_BOX: 0, _HALF_WAY: 1, _DESCENT: 2}
_CLEAR_LEAD = 2.0
"""Times its penalty that a descent must lead by on the first fold to need no others, where these are slow."""


@dataclass(frozen=True)
class Auto(Learner):
    """Choose among learners by cross-fitting on the learning samples, then learn from all of them.

    Parameters
    ----------
    n_facets : int or None
        Facets of the candidates that have a choice; None for 8 d where a cost with several pieces mixes more
        than two outcomes, d + 1 where a cost with one piece does, else for max(4, 2 d).
    n_folds : int
        Parts of the learning samples that are left out in turn.
    complexity_penalty : float
        A candidate must beat a simpler one by this share of the one-sided box's premium, over the square root of the
        number of learning samples: smaller differences are noise.
    training_folds : int
        Folds of the training rows whose out-of-fold residuals `RobustDecider` adds to the learning rows; the
        predictor is fitted that many times more. 0 for the learning rows alone.
    samples_an_outcome : int or None
        Samples for each outcome that `RobustDecider` learns from, since a set has more to learn the more outcomes
        there are. Of more rows it takes an even choice in their order, at
        ``numpy.linspace(0, n - 1, samples_an_outcome * d)`` rounded down. A spread is scored on up to eight times as
        many. Calibration takes all of its rows. None for all.
    spread : bool
        Whether `RobustDecider` may scale the set by a spread that it predicts from the features, where
        cross-fitting on the learning samples says that this lowers the cost; see `Spread`. False for one set
        around all predictions.

    Notes
    -----
    Integer decisions are learned with their integrality relaxed: shapes that suit the relaxation suit them
    too, coverage does not depend on it, and a mixed-integer program at every step would take too long.

    Where every context needs a solver, candidates are compared on some of the left-out contexts, and one that
    leads clearly on the first fold is taken without the others.

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = Auto().learn(samples, random_state=0)
    >>> str(result.status), bool(result.set.scores(residuals).max() > 0)
    ('finished: all steps were taken, without a proof that nothing is better', True)
    """

    n_facets: int | None = None
    n_folds: int = 3
    complexity_penalty: float = 0.7
    training_folds: int = 5
    samples_an_outcome: int | None = 2500
    spread: bool = True

    @property
    def needs(self) -> Needs:
        """Out-of-fold residuals of training rows, and a spread if it lowers the cost."""
        return Needs(
            training_folds=self.training_folds,
            samples_an_outcome=self.samples_an_outcome,
            may_scale=self.spread,
            complexity_penalty=self.complexity_penalty,
        )

    @standardised(each_outcome=True)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the given samples only; see `Learner`."""
        if self.samples_an_outcome is not None:
            check_count(self.samples_an_outcome, "samples_an_outcome", minimum=1)
        if self.n_facets is not None:
            check_n_facets(self.n_facets, samples.problem.n_outcomes)
        samples = replace(samples, problem=samples.problem.relaxed())
        if not samples.problem.structure.has_pieces:
            return Descent(self.n_facets).learn(samples, random_state)
        seed = int(np.random.default_rng(random_state).integers(2**31))
        run = _CrossFit(samples, self._learners(samples), self.n_folds, self.complexity_penalty, seed)
        chosen, reason = run.select()
        return replace(run.learned(chosen), detail=f"chose {chosen}: {reason}")

    def _learners(self, samples: Samples) -> dict[str, Learner]:
        """The learners, from few parameters to many. All keep the guarantee; they differ in cost."""
        problem, n_pieces = samples.problem, len(samples.problem.structure.pieces)
        max_contexts = n_affordable(n_pieces, Descent.max_contexts)
        learners: dict[str, Learner] = {_BOX: OneSidedBox(scale="tail", max_contexts=max_contexts)}
        if not len(harmful_sides(problem)):
            return learners
        smooth = Descent(self.n_facets, final_width=0.08, max_contexts=max_contexts)
        if not samples.has_closed_form:
            # A cost of several pieces that mixes more than two outcomes has a worst case in many directions. Programs
            # of one piece are small, so that more of them make a shorter, less noisy step.
            d, is_single = problem.n_outcomes, n_pieces == 1
            smooth = replace(
                smooth,
                n_facets=self.n_facets or (8 * d if not is_single and d > 2 else max(d + 1, 4)),
                n_steps=n_affordable(n_pieces, Descent.n_steps),
                batch_size=32 if is_single else Descent.batch_size,
                step_size=0.02 if is_single else Descent.step_size,
            )
        return {**learners, _DESCENT: smooth}


class _CrossFit:
    """Learners fitted without each fold of the samples, and their costs on the folds."""

    def __init__(self, samples: Samples, learners: dict[str, Learner], n_folds: int, penalty: float, seed: int) -> None:
        self.samples, self.learners, self.seed = samples, learners, seed
        order = np.random.default_rng(seed).permutation(samples.n)
        self.folds = [np.sort(part) for part in np.array_split(order, n_folds)]
        if samples.n_contexts == 1:
            self.contexts = [np.zeros(1, dtype=np.int64)] * n_folds
        else:
            most = samples.max_contexts or samples.n
            self.contexts = [fold[evenly_chosen(len(fold), most)] for fold in self.folds]
        self.share = max(penalty / np.sqrt(samples.n), SELECTION_TIE)
        self.n_fitted = 0
        self.fitted = cache(self._fitted)

    def select(self) -> tuple[str, str]:
        """What is chosen, and the reason in words."""
        if len(self.learners) == 1:
            return _BOX, "no outcome can raise the cost"
        least = minimum_samples(self.samples.alpha)
        if self.samples.n - max(map(len, self.folds)) < least:
            return _BOX, "too few learning samples to compare"
        selection = None
        if not self.samples.has_closed_form and len(self.folds[0]) >= least:
            selection = self._cross_validated((_BOX, _DESCENT), 1, _CLEAR_LEAD)
        if selection is None or selection.chosen == _BOX:
            selection = self._cross_validated((_BOX, _HALF_WAY, _DESCENT), len(self.folds), 1.0)
        return selection.chosen, self._reason(selection)

    def _cross_validated(self, names: Sequence[str], n_folds: int, n_penalties: float) -> Selection:
        def penalty(name: str, simplest: float) -> float:
            premium = max(simplest - self._nominal, 0.0) if np.isfinite(simplest) else 0.0
            return _COMPLEXITY[name] * n_penalties * self.share * premium

        return cross_validated({name: name for name in names}, self.fitted, self._cost, self.folds[:n_folds], penalty)

    def _fitted(self, name: str, k: int) -> Shape:
        """The set of a learner without fold k."""
        if name == _HALF_WAY:
            return half_way(self.fitted(_DESCENT, k), self.fitted(_BOX, k))
        rest = np.setdiff1d(np.arange(self.samples.n), self.folds[k])
        result = self.learners[name].learn(self.samples.take(rest), self.seed)
        self.n_fitted += 1
        # The winner is fitted once more on all rows, which takes about as long as its folds.
        tell(logger, "learning", self.n_fitted, (len(self.learners) + 1) * len(self.folds))
        return result.set

    def _cost(self, shapes: Sequence[Shape]) -> float:
        """Estimated cost after recalibration: one radius for the left-out residuals of all given folds."""
        samples, folds, contexts = self.samples, self.folds[: len(shapes)], self.contexts[: len(shapes)]
        scores = [shape.scores(samples.residuals[fold]) for shape, fold in zip(shapes, folds, strict=True)]
        radius = conformal_radius(np.concatenate(scores), samples.alpha)
        costs = [samples.cost_at(shape, radius, rows) for shape, rows in zip(shapes, contexts, strict=True)]
        return float(np.average(costs, weights=[len(fold) for fold in folds]))

    @cached_property
    def _nominal(self) -> float:
        rows = np.unique(np.concatenate(self.contexts))
        return float(np.nanmean(decide_knowing(self.samples.problem, self.samples.centers[rows])[1]))

    def _reason(self, selection: Selection) -> str:
        scores, nominal = selection.scores, self._nominal
        least = min(scores, key=lambda name: scores[name])
        words = "cross-validated extra costs: " + ", ".join(
            f"{name} {cost - nominal:.4g}" for name, cost in scores.items()
        )
        if scores[least] < scores[selection.chosen]:
            gap = selection.penalties[least] - selection.penalties[selection.chosen]
            words += f"; {least} would have to be lower by more than {gap:.3g}, "
            words += "which chance gives it, to be worth it"
        return words + (f"; {', '.join(selection.failed)} cannot be learned here" if selection.failed else "")

    def learned(self, name: str) -> LearnResult:
        """The set of a learner from all samples."""
        if name != _HALF_WAY:
            return self.learners[name].learn(self.samples, self.seed)
        shapes = (self.learners[part].learn(self.samples, self.seed).set for part in (_DESCENT, _BOX))
        shape = self.samples.normalised(half_way(*shapes))
        return LearnResult(shape, self.samples.value(shape), Status.FINISHED)


def half_way(first: Shape, second: Shape) -> Polyhedron:
    """Half-way between two bounded polyhedra: the facets of both at the mean of their support functions."""
    W = np.vstack([shape.as_polyhedron().W for shape in (first, second)])
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    W = W[np.sort(np.unique(W.round(9), axis=0, return_index=True)[1])]
    return Polyhedron(W, -0.5 * (first.support(W, 0.0) + second.support(W, 0.0)))


@dataclass(frozen=True)
class Certified(Learner):
    """Learn with another learner, then prove how much cheaper any set could be on the same samples.

    Parameters
    ----------
    learner : Learner
        What learns the set; the set is not changed.
    max_work, time_limit : as in `Learner`, for the certificate alone
    max_samples : int
        Samples up to which a certificate is tried.

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> problem = ph.problems.simplex_newsvendor(1.0, 2.0, 2)
    >>> plain, certified = (
    ...     learner.learn(ph.learners.Samples(residuals, centers, problem, 0.1))
    ...     for learner in (ph.learners.OneSidedBox(), Certified(ph.learners.OneSidedBox()))
    ... )
    >>> bool(plain.gap == np.inf), bool(0 <= certified.gap < np.inf)
    (True, True)
    """

    learner: Learner = field(default_factory=Auto)
    max_work: float = 5e5
    time_limit: float | None = None
    max_samples: int = 2000

    @property
    def needs(self) -> Needs:
        """As the learner says."""
        return self.learner.needs

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the given samples only; see `Learner`."""
        result = self.learner.learn(samples, random_state)
        if np.isfinite(result.lower_bound) or samples.n > self.max_samples:
            return result
        try:
            bound = lower_bound(samples, self.time_limit, max_work=self.max_work)
        except ValueError:  # for some problems there is no certificate
            return result
        value = samples.value(result.set)  # on all contexts, as the bound
        lower, complaint = below(bound.lower, value, bound.unit)
        detail = f"{result.detail}; {complaint}" if complaint else result.detail
        return replace(result, objective=value, lower_bound=lower, detail=detail)
