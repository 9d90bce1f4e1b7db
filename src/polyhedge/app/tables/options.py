"""How a table is to be read and split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LEARNERS", "SHARES", "TableOptions"]

LEARNERS = {
    "auto": "Auto",
    "descent": "Descent",
    "one-sided-box": "OneSidedBox",
    "scenario": "Scenario",
    "pinball": "Pinball",
    "ccg": "CCG",
    "miqcp": "MIQCP",
    "grid": "RotatedBoxGrid",
    "min-volume": "MinVolume",
    "pca-box": "PcaBox",
}
"""Names of learners on the command line, and their classes in `polyhedge.learners`."""

# As `split_indices` deals rows, with a fifth kept to check the promise.
SHARES = (0.4, 0.2, 0.2, 0.2)


@dataclass(frozen=True)
class TableOptions:
    """How a table is to be read and split.

    Attributes
    ----------
    features, categorical : see `choose_columns`.
    predictor : "auto" (the best by cross-validation on the training rows) or one of `polyhedge.predictors.PREDICTORS`.
    time_column : column that orders the rows; the split is then by time instead of at random.
    starts, gap : first times of learning, calibration and held-out rows, instead of shares, and how far before each cut
        rows are left out; see `polyhedge.data.TimeSplit`. Both need a time column.
    group : columns whose combinations of values stay together in one part.
    shares : of train, learn, calibrate and held-out.
    copies : what to do with rows that are equal in all columns: "together" keeps them in one part and counts them
        as one row when the radius is set, "independent" takes them for separate events.
    time_limit : seconds after which the learner stops comparing; None for no limit.
    seed : of the split, the predictor and the learner.
    calibration : what the promise is about, in words such as "by-category:store"; None for all rows together.
    learner : one of `LEARNERS`, which learns a set; the guarantee is then "outcome" by default. None for the default.
    guarantee, caution : see `RobustDecider`.
    parameters : where the values of the problem's parameters come from; by default columns of their names.
    keep_interrupted : whether Ctrl-C while learning settles for the best set so far, instead of ending the fit.
    """

    features: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    predictor: str = "auto"
    time_column: str | None = None
    starts: tuple[Any, ...] | None = None
    gap: Any = 0
    group: tuple[str, ...] = ()
    shares: tuple[float, ...] = SHARES
    copies: str = "together"
    time_limit: float | None = None
    seed: int = 0
    keep_interrupted: bool = False
    learner: str | None = None
    guarantee: str | None = None
    calibration: str | None = None
    caution: float = 0.5
    parameters: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would otherwise be passed over."""
        if self.learner not in (None, *LEARNERS):
            raise ValueError(f"--learner must be one of {', '.join(LEARNERS)}, got {self.learner!r}.")
        if self.time_column is None and (self.starts is not None or self.gap):
            name = "--gap" if self.starts is None else "--starts"
            raise ValueError(f"{name} is about the time of rows, and no column with it was named. Give --time-column.")
        if self.starts is not None and tuple(self.shares) != SHARES:
            raise ValueError("--starts and --shares both say where parts are cut. Give one of them.")
