"""Recent rows count for more: a radius for data that drift slowly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import INPUT
from polyhedge._support.validation import Array, check_alpha, check_count
from polyhedge.calibration.marginal import minimum_samples
from polyhedge.calibration.radii import Calibrator, Radii, check_radius
from polyhedge.calibration.weighted import WeightedScores
from polyhedge.rows import Rows


@dataclass(frozen=True)
class Recent(Calibrator):
    r"""One radius from calibration rows in time order, each counting half as much as the one `half_life` rows later.

    With the weights $w_i = 2^{-(n-i+1)/\text{half\_life}}$, and 1 for the new row, the bound holds with probability at
    least $1 - \alpha - \sum_i \tilde w_i\, d_{TV}(Z, Z^i)$, where $\tilde w_i = w_i / (1 + \sum_j w_j)$ and $Z^i$ is
    the sequence of rows with the new one and the i-th exchanged. Exchangeable rows lose nothing; rows that drift lose
    what recent rows differ from the new one. The loss is not known: it is a statement of what can go wrong.

    Parameters
    ----------
    half_life : float
        In rows, which must be in time order: `split="time"` or a `TimeSplit`. Shorter follows faster and needs larger
        radii: the weights must add up to (1 - alpha) / alpha.

    References
    ----------
    .. [1] R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani, "Conformal prediction beyond exchangeability",
       Annals of Statistics 51, 2023, theorem 2.

    Examples
    --------
    >>> radii = Recent(half_life=50).calibrate(np.arange(200.0), Rows(np.zeros((200, 0))), 0.1)
    >>> radii.radius
    193.0
    """

    half_life: float
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        is_number = isinstance(self.half_life, (int, float, np.integer, np.floating)) and self.half_life is not True
        if not is_number or not 0 < self.half_life < math.inf:
            raise ValueError(
                f"half_life must be a number of rows above zero, got {self.half_life!r}. Spans of time are not known "
                "here: count the rows that they hold, 30 for 30 days of one row each."
            )

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> RecentRadius:
        """The radius of scores in time order, the newest last; calibration rows only."""
        alpha, n = check_alpha(alpha), len(scores)
        counted = WeightedScores.of(scores, self.weights(n))
        radius = float(counted.radii([1.0], alpha)[0])
        if not math.isfinite(radius):
            raise ValueError(
                f"alpha={alpha} needs calibration rows whose weights add up to {(1 - alpha) / alpha:g}, got "
                f"{counted.weights.sum():.3g} from {n} rows with half_life={self.half_life:g}: the radius would be "
                f"infinite. Take a half-life of at least {-1 / math.log2(1 - alpha):.3g} and at least "
                f"{minimum_samples(alpha)} rows, or raise alpha."
            )
        return RecentRadius(radius, alpha, n, float(self.half_life), counted.n_effective, scores)

    def weights(self, n: int) -> Array:
        """Weights (n,) of rows in time order; the row to come has weight 1."""
        return np.exp2(-np.arange(n, 0, -1) / self.half_life)


@stored("recent radius", transient=("scores",))
@dataclass(frozen=True)
class RecentRadius(Radii):
    """A radius from rows weighted by their age, and their effective number.

    Attributes
    ----------
    radius, alpha, n : the radius, its level and the number of calibration rows.
    half_life : rows after which a row counts half; see `Recent`.
    n_effective : as how many equal rows they count.
    scores : of the calibration rows in time order, for radii at other levels; files do not keep them.
    """

    radius: float
    alpha: float
    n: int
    half_life: float
    n_effective: float
    scores: Array | None = field(default=None, repr=False, compare=False)
    kind: ClassVar[str] = "recent"

    def __post_init__(self) -> None:
        n, alpha = check_count(self.n, "n", minimum=1), check_alpha(self.alpha)
        check_radius(self.radius)
        if not 0 < self.n_effective <= n + 1e-6 * n:
            raise ValueError(f"A recent radius must count as at most {n} rows, got {self.n_effective}.")
        if self.calibrator.weights(n).sum() < (1 - INPUT) * (1 - alpha) / alpha:
            raise ValueError(f"{n} rows with half_life={self.half_life:g} have no finite radius at alpha={alpha}.")

    @property
    def calibrator(self) -> Recent:
        """With the same half-life."""
        return Recent(self.half_life)

    def promise(self) -> str:
        """What holds, in words."""
        return (
            f"holds for the next row with probability at least {1 - self.alpha:g}, less a loss that is not known where "
            "rows drift: how much they differ in total variation from rows in the new one's place, averaged with "
            f"weights that halve every {self.half_life:g} rows (they count as {self.n_effective:.0f} equal rows)"
        )
