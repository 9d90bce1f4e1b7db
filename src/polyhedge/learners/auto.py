r"""The default learner: choose how much to trust the learning samples by cross-fitting inside them.

The exact optimum on the learning samples overfits them; what counts is the cost after recalibration on fresh
data. The one-sided box that learns only scales, a descent that trusts no single residual, and the set half-way
between the two are fitted on all folds but one and scored on the fold left out (`cross_fit.py`). The calibration
split is never seen.

The box is the candidate to beat: for a linear cost on the simplex it comes close to the best set that infinitely
many samples could find. Costs that mix outcomes (newsvendors) need facets between the axes, many of them.

More samples help more than a finer choice. The default therefore also learns from the training rows:
`RobustDecider` refits the predictor without each of a few folds of them and predicts that fold, so that their
residuals are as honest as those of the learning rows. Calibration rows stay untouched, and so does the guarantee.

Some contexts are harder than others. `RobustDecider`, which knows the features, may scale the learned set by a
predicted spread where cross-fitting says that this pays (`spread_choice.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyhedge._support.validation import check_count
from polyhedge.learners.cross_fit import Selection, half_way, until
from polyhedge.learners.descent import Descent
from polyhedge.learners.exact.bound import below
from polyhedge.learners.exact.certificate import lower_bound
from polyhedge.learners.one_sided_box import OneSidedBox, harmful_sides
from polyhedge.learners.result import Learner, LearnResult, Needs, as_interrupted
from polyhedge.learners.samples import Samples, n_affordable
from polyhedge.learners.scaling import in_own_units
from polyhedge.learners.starts import check_n_facets
from polyhedge.solvers.program import Status

_SIMPLEST = "one-sided box"
_CERTIFICATE_WORK = 1e6
"""Rows of programs that the certificate may solve: about ten seconds, seldom used up."""
# Samples up to which a certificate takes a second or two: by dynamic programming on a segment, else by search.
_FEW_ON_SEGMENT, _FEW = 1600, 400
_SMOOTH = 0.08
"""Share of the samples over which the radius' derivative stays spread: single residuals are not trusted."""
_FEWEST_FACETS, _FACETS_AN_OUTCOME, _PLANE = 4, 8, 2
"""Facets of a set, at least and for each outcome. In the plane few can follow any cost; a cost of several pieces that
mixes more outcomes has a worst case in many directions."""
_BATCH_OF_ONE_PIECE, _STEP_OF_ONE_PIECE = 32, 0.02
"""Steps of a descent on a cost of one piece: programs are small, so that more of them make a steadier, shorter step."""


@dataclass(frozen=True)
class Auto:
    """Choose among learners by cross-fitting on the learning samples, then learn from all of them.

    Parameters
    ----------
    n_facets : int or None
        Facets of the candidates that have a choice; None for 8 d where a cost with several pieces mixes more
        than two outcomes, d + 1 where a cost with one piece does, else for max(4, 2 d).
    n_folds : int
        Parts of the learning samples that are left out in turn.
    complexity penalty : float
        A candidate must beat the best simpler one by this share of the one-sided box's premium, over the
        square root of the number of learning samples: smaller differences are noise.
    time_limit : float or None
        Seconds after which the best set so far is returned and the status says so; None, so that the result
        never depends on the clock.
    training_folds : int
        Folds of the training rows whose out-of-fold residuals `RobustDecider` adds to the learning rows; the
        predictor is fitted that many times more. 0 for the learning rows alone.
    samples_an_outcome : int or None
        Samples for each outcome that `RobustDecider` learns from, since a set has more to learn the more outcomes
        there are. Of more rows it takes an even choice in their order, at
        ``numpy.linspace(0, n - 1, samples_an_outcome * d)`` rounded down. Whether a spread pays is scored on up to
        eight times as many. Calibration takes all of its rows. None for all.
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
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = Auto().learn(samples, random_state=0)
    >>> str(result.status), bool(result.set.scores(residuals).max() > 0)
    ('finished: all steps were taken, without a proof that nothing is better', True)
    """

    n_facets: int | None = None
    n_folds: int = 3
    complexity_penalty: float = 0.7
    time_limit: float | None = None
    training_folds: int = 5
    samples_an_outcome: int | None = 2500
    spread: bool = True

    @property
    def needs(self) -> Needs:
        """Out-of-fold residuals of training rows, and a spread where it pays."""
        return Needs(
            training_folds=self.training_folds,
            samples_an_outcome=self.samples_an_outcome,
            may_scale=self.spread,
            complexity_penalty=self.complexity_penalty,
            time_limit=self.time_limit,
        )

    @in_own_units
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the given samples only; see `Learner`."""
        began = time.perf_counter()
        if self.samples_an_outcome is not None:
            check_count(self.samples_an_outcome, "samples_an_outcome", minimum=1)
        if self.n_facets is not None:
            check_n_facets(self.n_facets, samples.problem.n_outcomes)
        deadline = np.inf if self.time_limit is None else began + self.time_limit
        samples = replace(samples, problem=samples.problem.relaxed())
        if not samples.problem.structure.has_pieces:
            return until(deadline, Descent(self.n_facets)).learn(samples, random_state)
        seed = int(np.random.default_rng(random_state).integers(2**31))
        candidates = self._candidates(samples)
        selection = Selection(samples, self.n_folds, self.complexity_penalty, seed, deadline)
        chosen, reason = selection.choose(candidates)
        result = _best_so_far(selection, chosen) if selection.stopped and chosen != _SIMPLEST else None
        try:
            if result is None:
                parts = [until(deadline, candidates[name]).learn(samples, seed) for name in chosen.split(" + ")]
                result = parts[0] if len(parts) == 1 else _half_way_result(samples, *parts)
            if selection.stopped:
                interrupted = selection.interrupted or result.interrupted
                result = replace(result, status=Status.STOPPED_EARLY, interrupted=interrupted)
            elif result.status is not Status.STOPPED_EARLY:
                result, complaint = _certified(samples, result)
                reason += f"; {complaint}" if complaint else ""
        except KeyboardInterrupt:
            result = result or _best_so_far(selection, chosen)
            if result is None:
                raise
            result = as_interrupted(result)
        return replace(result, seconds=time.perf_counter() - began, detail=f"chose {chosen}: {reason}")

    def _candidates(self, samples: Samples) -> dict[str, Learner]:
        """From few parameters to many; every one keeps the guarantee, they differ in cost."""
        problem = samples.problem
        n_pieces = len(problem.structure.pieces)
        max_contexts = n_affordable(n_pieces, Descent.max_contexts)
        candidates: dict[str, Learner] = {_SIMPLEST: OneSidedBox(scale="tail", max_contexts=max_contexts)}
        if not len(harmful_sides(problem)):
            return candidates
        smooth = Descent(self.n_facets, starts=("one-sided",), final_width=_SMOOTH, max_contexts=max_contexts)
        few, many = max(problem.n_outcomes + 1, _FEWEST_FACETS), _FACETS_AN_OUTCOME * problem.n_outcomes
        candidates["smooth descent"] = (
            smooth
            if samples.has_closed_form
            else replace(
                smooth,
                n_facets=self.n_facets or (many if n_pieces > 1 and problem.n_outcomes > _PLANE else few),
                n_steps=n_affordable(n_pieces, Descent.n_steps),
                batch_size=_BATCH_OF_ONE_PIECE if n_pieces == 1 else Descent.batch_size,
                step_size=_STEP_OF_ONE_PIECE if n_pieces == 1 else Descent.step_size,
            )
        )
        return candidates


def _best_so_far(selection: Selection, chosen: str) -> LearnResult | None:
    """The winner as it was learned without one fold: valid, and there without further work; None if nothing is."""
    if chosen not in selection.shapes:
        return None
    shape = selection.samples.normalised(selection.shapes[chosen])  # type: ignore[arg-type]
    return LearnResult(shape, selection.samples.value(shape, selection.contexts[0]), Status.STOPPED_EARLY, 0.0)


def _half_way_result(samples: Samples, first: LearnResult, second: LearnResult) -> LearnResult:
    shape = samples.normalised(half_way(first.set, second.set))
    half = replace(first, set=shape, objective=samples.value(shape), lower_bound=-np.inf)
    return as_interrupted(half) if second.interrupted else half


def _certified(samples: Samples, result: LearnResult) -> tuple[LearnResult, str]:
    """With a lower bound where it is quickly had, and what is wrong with it.

    Closed forms exclude all problems that have none.
    """
    few = _FEW_ON_SEGMENT if samples.problem.structure.is_on_segment else _FEW
    is_quick = samples.has_closed_form and not samples.problem.structure.has_known_support and samples.n <= few
    if np.isfinite(result.lower_bound) or not is_quick:
        return result, ""
    bound = lower_bound(samples, max_work=_CERTIFICATE_WORK)
    # The set may have been scored on some of the contexts; the bound is for all.
    value = samples.value(result.set)
    lower, complaint = below(bound.lower, value, bound.unit)
    certified = replace(result, objective=value, lower_bound=lower)
    return as_interrupted(certified) if bound.interrupted else certified, complaint
