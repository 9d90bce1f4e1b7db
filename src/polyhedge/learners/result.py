"""What a learner is and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhedge.learners.samples import Samples
from polyhedge.sets import Shape
from polyhedge.solvers.program import Status


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
    trace : objective values in the order they were found.
    detail : what was chosen and why, in words.
    interrupted : whether Ctrl-C ended the learning, so that this is the best set so far. Who called the learner decides
        what to do with it: `RobustDecider.fit` sets no radius and raises KeyboardInterrupt.
    scores_in : what the set's scores, and so its radius, are measured in: "outcomes" (facets have unit normals),
        "spreads" (multiples of the residuals' own) or "costs".

    Examples
    --------
    >>> import polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> result = ph.learners.OneSidedBox().learn(samples)
    >>> str(result.status), result.gap
    ('finished: all steps were taken, without a proof that nothing is better', inf)
    """

    set: Shape
    objective: float
    status: Status
    seconds: float
    lower_bound: float = -np.inf
    trace: tuple[float, ...] = field(default=(), repr=False)
    detail: str = ""
    interrupted: bool = False
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


def as_interrupted(result: LearnResult) -> LearnResult:
    """The result of a learner that Ctrl-C stopped."""
    return replace(result, status=Status.STOPPED_EARLY, interrupted=True)


def unless_interrupted(result: LearnResult) -> LearnResult:
    """The result, for callers that have no use for half of it; KeyboardInterrupt where Ctrl-C stopped the learner."""
    if result.interrupted:
        raise KeyboardInterrupt("The learner was interrupted.")
    return result


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
    complexity penalty : what a more complex choice must save, as a share of the premium times the square root of n.
    time_limit : seconds after which nothing more is tried; None for no limit.
    keep_interrupted : whether the best set so far is calibrated where Ctrl-C stopped the learning.
    """

    learning_rows: bool = True
    training_folds: int = 0
    samples_an_outcome: int | None = None
    may_scale: bool = False
    complexity_penalty: float = 0.0
    time_limit: float | None = None
    keep_interrupted: bool = False


@runtime_checkable
class Learner(Protocol):
    """Anything that turns learning samples into a set.

    It may see the learning split only; the calibration split sets the radius afterwards.
    """

    @property
    def needs(self) -> Needs:
        """What it asks for; `Needs()` for the learning rows and nothing else."""

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn the shape from the samples of the learning split."""
