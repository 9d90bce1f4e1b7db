r"""A level for each promise: the bound may fail in one row of ten, and a constraint in one of a hundred.

On a margin path let $S_{ij}$ be the first step from which promise j of row i is kept at every later step: j is the
bound on the cost, or an uncertain constraint. With $r_j$ the conformal rank of $S_{1j}, \dots, S_{nj}$ at the level
$\alpha_j$, rows are decided at the step $\max_j r_j$. There promise j fails with probability at most $\alpha_j$: it is
kept wherever $S_j \le r_j \le \max_j r_j$. So all of them together fail with probability at most $\sum_j \alpha_j$.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.frames import listed
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, check_alpha
from polyhedge.calibration.marginal import attained_rank, conformal_radius, exact
from polyhedge.calibration.radii import Calibrator, Radii, kept_scores, refuse_groups, rows_without_features
from polyhedge.rows import Rows


@dataclass(frozen=True)
class ByConstraint(Calibrator):
    """A level for the bound on the cost, and one for each uncertain constraint.

    `RobustDecider(problem, alpha={"cost": 0.1, "load is met": 0.01})` writes it shorter.

    Parameters
    ----------
    levels : dict of str to float
        For "cost" and for each of the problem's `constraint_names` the share of rows in which it may fail.

    Examples
    --------
    >>> steps = np.column_stack([np.arange(100.0), np.arange(100.0) // 2])
    >>> levels = ByConstraint({"cost": 0.1, "load is met": 0.01})
    >>> radii = levels.calibrate(steps, rows_without_features(100), 0.1)
    >>> radii.radii, radii.radius
    ((90.0, 49.0), 90.0)
    """

    levels: Any

    def __post_init__(self) -> None:
        levels = dict(self.levels)
        object.__setattr__(self, "levels", tuple((str(name), check_alpha(alpha)) for name, alpha in levels.items()))
        joint_level(self.levels)

    def columns(self, promises: Sequence[str]) -> list[int]:
        """Where the promise of each level stands among `promises`; an error unless there is a level for each."""
        if set(promises) == {"cost"}:
            raise ValueError(
                'Levels by constraint need uncertain constraints, guarantee="cost" and no learner or policy of your '
                "own: a path of policies then keeps each of them. Give one alpha, or such a problem."
            )
        named = [name for name, _ in self.levels]
        if sorted(named) != sorted(promises):
            raise ValueError(
                f"alpha must have a level for each of {', '.join(map(repr, promises))}, got levels for "
                f"{listed(list(map(repr, named)))}. Name constraints by constraint_names of the problem."
            )
        return [promises.index(name) for name in named]

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> ConstraintRadii:
        """The largest of the conformal ranks of all promises; `scores` (n, J) are steps in the order of the levels."""
        refuse_groups(self, rows)
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != len(self.levels):
            raise ValueError(f"There must be a score for each of {len(self.levels)} promises, got {scores.shape}.")
        radii = []
        for (name, level), own in zip(self.levels, scores.T, strict=True):
            try:
                radii.append(conformal_radius(own, level))
            except ValueError as error:
                raise ValueError(f"The level of {name!r}: {error}") from error
        return ConstraintRadii(self.levels, tuple(radii), len(scores), scores)


def joint_level(levels: tuple[tuple[str, float], ...]) -> float:
    """The share of rows in which at least one promise may fail: the sum of their levels."""
    total = sum((exact(alpha) for _, alpha in levels), Fraction(0))
    if not 0 < total < 1:
        text = f"must sum to less than 1, got {float(total):g} of {len(levels)} level(s)"
        raise ValueError(f"The levels of all promises {text}: the rest is how often all of them hold together.")
    return float(total)


def with_levels(settings: Any) -> Any:
    """Settings whose alpha is one number: levels by constraint are what calibrates then."""
    if not isinstance(settings.alpha, Mapping):
        return settings
    if settings.calibration is not None:
        raise ValueError(
            f"alpha has a level for each constraint, and calibration={settings.calibration!r} calibrates something "
            "else. Give one of them."
        )
    settings = copy(settings)
    settings.calibration = ByConstraint(settings.alpha)
    settings.alpha = joint_level(settings.calibration.levels)
    return settings


@stored("radii by constraint", transient=("kept",))
@dataclass(frozen=True)
class ConstraintRadii(Radii):
    """The step at which rows are decided, with the level and the step of each promise.

    Attributes
    ----------
    levels, radii : the level and the conformal radius of each promise, in one order.
    n : number of calibration rows.
    kept : (n, J) scores of the calibration rows, for radii at other levels; files do not keep them.
    """

    levels: tuple[tuple[str, float], ...]
    radii: tuple[float, ...]
    n: int
    kept: Array | None = field(default=None, repr=False, compare=False)
    kind: ClassVar[str] = "by constraint"

    def __post_init__(self) -> None:
        joint_level(self.levels)
        for _, alpha in self.levels:
            attained_rank(self.n, alpha)
        if len(self.radii) != len(self.levels) or not np.isfinite(self.radii).all():
            raise ValueError("There must be a finite radius for each level.")

    @property
    def alpha(self) -> float:
        """The share of rows in which at least one promise may fail."""
        return joint_level(self.levels)

    @property
    def radius(self) -> float:
        """The step at which all promises are kept."""
        return max(self.radii)

    @property
    def level_of(self) -> Mapping[str, float]:
        """The levels by name."""
        return dict(self.levels)

    @property
    def calibrator(self) -> ByConstraint:
        """At the same levels."""
        return ByConstraint(self.levels)

    def at_level(self, alpha: Any) -> ConstraintRadii:
        """The radii for other levels, a dictionary as in `ByConstraint`."""
        if not isinstance(alpha, Mapping) or sorted(alpha) != sorted(name for name, _ in self.levels):
            raise ValueError(f"alpha must have a level for each promise, such as {dict(self.levels)}, got {alpha!r}.")
        levels = ByConstraint({name: alpha[name] for name, _ in self.levels})
        return levels.calibrate(kept_scores(self.kept), rows_without_features(self.n), 0.0)

    def promise(self) -> str:
        """What holds, in words."""
        each = ", ".join(f"{name!r} with at least {float(1 - exact(alpha)):g}" for name, alpha in self.levels)
        all_of_them = f"with probability at least {float(1 - exact(self.alpha)):g}; each by itself, {each};"
        return f"holds for a new row {all_of_them} if it is exchangeable with the calibration rows"
