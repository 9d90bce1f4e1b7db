"""Jobs and rows of the scaling experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ScalingJob", "ScalingRow"]


class ScalingJob(NamedTuple):
    """One method on one learning split: the mode, the samples n, the method's name and the seed."""

    mode: str
    n: int
    method: str
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"seed {self.seed}, n = {self.n}, {self.mode}: {self.method}"

    @property
    def kind(self) -> str:
        """Only seeds take about the same time."""
        return f"{self.mode}, {self.n}, {self.method}"


@dataclass(frozen=True)
class ScalingRow:
    """One method on one learning split.

    Attributes
    ----------
    mode, n, method, seed : which run.
    status : how the learner ended; FAILED where it raised an error, which is in `detail`.
    seconds, limit : wall-clock time of `learn`, and its time limit.
    n_contexts, planned_contexts : contexts of the objective, and those that the learner planned for.
    objective : mean worst-case cost over all contexts of the mode at the learning radius.
    lower_bound : the learner's own bound for these contexts (-inf where it proves none).
    gap : objective - lower_bound.
    certified : whether the gap is at most the tolerance times the objective's size (or 1e-7).
    nominal : mean cost over these contexts if the predictions were true; objective - nominal is the premium.
    recalibrated : mean worst-case cost over the same contexts at the calibrated radius.
    test_cost, test_premium, test_coverage : mean worst-case cost, the same less the nominal cost, and the share of
        outcomes inside their sets, on the test split.
    detail : what the learner says about its result.
    """

    mode: str
    n: int
    method: str
    seed: int
    status: str
    seconds: float
    limit: float
    n_contexts: int
    planned_contexts: int
    objective: float
    lower_bound: float
    gap: float
    certified: bool
    nominal: float
    recalibrated: float
    test_cost: float
    test_premium: float
    test_coverage: float
    detail: str

    @property
    def job(self) -> ScalingJob:
        """The job that made it."""
        return ScalingJob(self.mode, self.n, self.method, self.seed)
