r"""The default learner: choose how much to trust the learning split by cross-fitting inside it.

The exact optimum on the learning split overfits it; what counts is the cost after recalibration on fresh
data. Candidates of growing complexity, from the one-sided box that learns only scales to descents that
trust single residuals more and more, and the means between them and the box, are fitted on all folds but
one and judged on the fold left out: their scores there are pooled over the folds to one conformal radius,
and the mean worst-case cost of the left-out contexts at that radius estimates what recalibration will give.
The calibration split is never seen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyhedge._progress import tell
from polyhedge._validation import Array, Indices
from polyhedge.calibration import conformal_radius, minimum_samples
from polyhedge.learners.certificate import lower_bound
from polyhedge.learners.descent import Descent
from polyhedge.learners.objective import LearningObjective
from polyhedge.learners.one_sided_box import OneSidedBox, harmful_sides
from polyhedge.learners.result import Learner, LearnResult
from polyhedge.learners.starts import check_n_facets
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Polyhedron, UncertaintySet
from polyhedge.solvers.program import Status

_log = logging.getLogger(__name__)

_SIMPLEST = "one-sided box"
_FEW_SAMPLES = 800
_CERTIFICATE_SECONDS = 10.0


@dataclass(frozen=True)
class Auto:
    """Choose among learners by cross-fitting on the learning split, then learn from all of it.

    Parameters
    ----------
    n_facets : int or None
        Facets of the candidates that have a choice.
    n_folds : int
        Parts of the learning split that are left out in turn.
    handicap : float
        A candidate must beat the best simpler one by this share of the one-sided box's premium, over the
        square root of the number of learning samples: smaller differences are noise.
    time_limit : float or None
        Seconds after which the candidates judged so far decide and the status says so; None, so that the
        result never depends on the clock.

    Notes
    -----
    Integer decisions are learned with their integrality relaxed: shapes that suit the relaxation suit them
    too, coverage does not depend on it, and a mixed-integer program at every step would take too long.
    """

    n_facets: int | None = None
    n_folds: int = 3
    handicap: float = 0.7
    time_limit: float | None = None

    def learn(
        self,
        residuals: Array,
        centers: Array,
        problem: DecisionProblem,
        alpha: float,
        random_state: Any = None,
    ) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        began = time.perf_counter()
        if self.n_facets is not None:
            check_n_facets(self.n_facets, problem.n_outcomes)
        problem = problem.relaxed()
        objective = LearningObjective(problem, residuals, centers, alpha)
        if problem.pieces is None:
            return Descent(self.n_facets).learn(residuals, centers, problem, alpha, random_state)
        seed = int(np.random.default_rng(random_state).integers(2**31))
        candidates = self._candidates(objective)
        deadline = np.inf if self.time_limit is None else began + self.time_limit
        judged = _cross_fit(objective, candidates, self.n_folds, seed, deadline)
        chosen, reason = self._choose(objective, judged)
        fitted = {
            name: candidates[name].learn(residuals, centers, problem, alpha, seed) for name in chosen.split(" + ")
        }
        result = next(iter(fitted.values())) if len(fitted) == 1 else _blended_result(objective, fitted)
        bound = self._certificate(objective, result)
        seconds = time.perf_counter() - began
        status = Status.STOPPED_EARLY if seconds > deadline - began else result.status
        detail = f"chose {chosen}: {reason}"
        return replace(result, lower_bound=bound, seconds=seconds, status=status, detail=detail)

    def _candidates(self, objective: LearningObjective) -> dict[str, Learner]:
        """From few parameters to many; every one keeps the guarantee, they differ in cost."""
        problem = objective.problem
        assert problem.pieces is not None
        n_steps = 200 if objective.has_closed_form else int(np.clip(1600 // len(problem.pieces), 20, 100))
        smooth = Descent(self.n_facets, n_steps=n_steps, starts=("one-sided",), final_width=0.08)
        few = max(problem.n_outcomes + 1, 3)
        candidates: dict[str, Learner] = {_SIMPLEST: OneSidedBox()}
        if not len(harmful_sides(problem)):
            return candidates
        candidates["smooth descent"] = smooth
        if objective.has_closed_form:
            candidates["sharp descent"] = Descent(self.n_facets, n_steps=60, starts=("trimmed",))
        elif self.n_facets is None and few > len(harmful_sides(problem)):
            candidates["few facets"] = replace(smooth, n_facets=few)
        return candidates

    def _choose(self, objective: LearningObjective, judged: dict[str, float]) -> tuple[str, str]:
        if not judged:
            return _SIMPLEST, "too few learning samples or too little time to compare"
        nominal = objective.nominal_cost
        chosen, simplest = _SIMPLEST, judged[_SIMPLEST]
        margin = self.handicap / np.sqrt(objective.n) * max(simplest - nominal, 0.0) if np.isfinite(simplest) else 0.0
        for name, cost in judged.items():
            if cost < judged[chosen] - margin:
                chosen = name
        premiums = ", ".join(f"{name} {cost - nominal:.4g}" for name, cost in judged.items())
        return chosen, f"cross-fitted premiums: {premiums}"

    def _certificate(self, objective: LearningObjective, result: LearnResult) -> float:
        if np.isfinite(result.lower_bound) or not _is_quick_to_certify(objective):
            return result.lower_bound
        bound = lower_bound(
            objective.residuals, objective.centers, objective.problem, objective.alpha, _CERTIFICATE_SECONDS
        )
        return min(bound.lower, result.objective)


def _is_quick_to_certify(objective: LearningObjective) -> bool:
    """Closed forms exclude integers, uncertain constraints and known supports, so a certificate applies."""
    return objective.has_closed_form and objective.n <= _FEW_SAMPLES


def _cross_fit(
    objective: LearningObjective, candidates: dict[str, Learner], n_folds: int, seed: int, deadline: float
) -> dict[str, float]:
    """Estimated cost after recalibration of each candidate and of its blend with the simplest, by complexity."""
    folds = _folds(objective.n, n_folds, seed)
    if objective.n - max(len(fold) for fold in folds) < minimum_samples(objective.alpha):
        return {}
    judged: dict[str, float] = {}
    simplest: list[UncertaintySet] = []
    for name, learner in candidates.items():
        shapes: list[UncertaintySet] = []
        for fold in folds:
            if time.perf_counter() > deadline:
                return judged
            shapes.append(_learn_without(objective, learner, fold, seed))
            # After all candidates, the chosen one is fitted on all rows, which takes about as long as its folds.
            before = list(candidates).index(name) * len(folds)
            tell(_log, "learning", before + len(shapes), (len(candidates) + 1) * len(folds))
        if name == _SIMPLEST:
            simplest = shapes
        else:
            blends = [blended(a, b) for a, b in zip(shapes, simplest, strict=True)]
            judged[f"{name} + {_SIMPLEST}"] = _cost_left_out(objective, blends, folds)
        judged[name] = _cost_left_out(objective, shapes, folds)
    return judged


def _folds(n: int, n_folds: int, seed: int) -> list[Indices]:
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, n_folds)]


def _learn_without(objective: LearningObjective, learner: Learner, fold: Indices, seed: int) -> UncertaintySet:
    rest = np.setdiff1d(np.arange(objective.n), fold)
    result = learner.learn(objective.residuals[rest], objective.centers[rest], objective.problem, objective.alpha, seed)
    return result.set


def _cost_left_out(objective: LearningObjective, shapes: Sequence[UncertaintySet], folds: list[Indices]) -> float:
    scores = [shape.scores(objective.residuals[fold]) for shape, fold in zip(shapes, folds, strict=True)]
    radius = conformal_radius(np.concatenate(scores), objective.alpha)
    costs = [objective.cost_at(shape, radius, fold) for shape, fold in zip(shapes, folds, strict=True)]
    return float(np.average(costs, weights=[len(fold) for fold in folds]))


def blended(first: UncertaintySet, second: UncertaintySet) -> Polyhedron:
    """Half-way between two bounded polyhedra: the facets of both at the mean of their support functions."""
    assert isinstance(first, Polyhedron)
    assert isinstance(second, Polyhedron)
    W = np.vstack([first.W, second.W])
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    W = W[np.sort(np.unique(W.round(9), axis=0, return_index=True)[1])]
    return Polyhedron(W, -0.5 * (first.support(W, 0.0) + second.support(W, 0.0)))


def _blended_result(objective: LearningObjective, fitted: dict[str, LearnResult]) -> LearnResult:
    first, second = fitted.values()
    shape = objective.normalised(blended(first.set, second.set))
    return replace(first, set=shape, objective=objective.value(shape), lower_bound=-np.inf)
