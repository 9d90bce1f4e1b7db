"""What a decider would have promised and what would have come, period by period over history."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from polyhedge._files import replace_file
from polyhedge._frames import as_frame, as_html, as_pandas
from polyhedge._validation import Array, check_count
from polyhedge.calibration import FollowingRadii, Rows
from polyhedge.data import take_rows
from polyhedge.data.ordered import as_span, as_times
from polyhedge.estimator import RobustDecider
from polyhedge.following import one_by_one
from polyhedge.metrics import Proportion, RowMeasures, estimate, proportion
from polyhedge.model import Model
from polyhedge.rows import labels_by, n_rows_of

_BETWEEN = ("none", "refresh", "fit")


@dataclass(frozen=True)
class Period:
    """One period: the rows from `start` on, what was promised for them before they were known, and what came.

    Attributes
    ----------
    start : time of the first row; its number where there are no times.
    n : rows.
    coverage : share of outcomes that were covered, among rows with a bound; NaN where none has one.
    cost_bound, realised : means of the bounds and of what decisions cost.
    n_without_bound : rows whose bound was infinite, or that had no decision; they are not in the mean of the bounds.
    radius : the radius in force, the largest where rows have different ones.
    """

    start: Any
    n: int
    coverage: float
    cost_bound: float
    realised: float
    n_without_bound: int
    radius: float


@dataclass(frozen=True)
class Backtest:
    """Promise and reality over history.

    Attributes
    ----------
    periods : in the order of time.
    coverage : of all rows with a bound. Its interval takes rows for independent.
    promised : 1 - alpha.
    decider : as it is after the last period.
    not_missed : share of all rows that were not missed, where those without a bound count as held: what the promise of
        `Online` is about.
    """

    periods: tuple[Period, ...]
    coverage: Proportion
    promised: float
    decider: RobustDecider
    not_missed: Proportion

    @property
    def worst(self) -> Period:
        """The period with the least coverage."""
        return min(self.periods, key=lambda period: np.nan_to_num(period.coverage, nan=np.inf))

    def __str__(self) -> str:
        lines = [f"{'from':>20} {'rows':>6} {'covered':>8} {'bound':>10} {'realised':>10} {'no bound':>8}"]
        lines += [
            f"{in_days(p.start):>20} {p.n:>6} {p.coverage:>8.3f} {p.cost_bound:>10.4g} {p.realised:>10.4g} "
            f"{p.n_without_bound:>8}"
            for p in self.periods
        ]
        worst = f"worst period {self.worst.coverage:.3f} from {in_days(self.worst.start)}"
        covered = f"covered {self.coverage}{self._counted_held()}  (promised {self.promised:.3g})"
        return "\n".join([*lines, f"{covered}; {worst}"])

    def _counted_held(self) -> str:
        """What the coverage is where rows without a bound count as held; nothing where all have one."""
        n, n_none = self.not_missed.n, self.not_missed.n - self.coverage.n
        return f" of rows with a bound, or {self.not_missed} if the {n_none} of {n} without one count" * (n_none > 0)

    def report(self, path: str | Path, title: str = "Promise and reality over history") -> None:
        """Write a page of all periods, one HTML file that works offline."""
        # Pages are made from results, not the other way round: looked up when one is asked for.
        replace_file(Path(path), import_module("polyhedge.report").backtest_report(self, title).encode())

    def _repr_html_(self) -> str:
        """The table of the periods, and what was promised and covered over all of them."""
        worst = f"The worst period was covered in {self.worst.coverage:.3f}, from {in_days(self.worst.start)}."
        covered = f"Covered {self.coverage}{self._counted_held()}"
        return as_html(f"{covered}, promised {self.promised:.3g}. {worst}", self.to_frame())

    def to_frame(self) -> Any:
        """One row a period (pandas)."""
        names = [field.name for field in fields(Period)]
        return as_frame({name: np.array([getattr(p, name) for p in self.periods]) for name in names}, "pandas")


def backtest(
    decider: RobustDecider,
    X: Any,
    Y: Any,
    *,
    every: Any,
    times: Any = None,
    start: Any = None,
    between: str = "none",
) -> Backtest:
    """Fit on the first rows, then decide period by period, with what is known before each.

    A radius that follows outcomes (`calibration=Online()`) follows them row by row, also within a period.

    Parameters
    ----------
    decider : settings to test; it is left as it is, and rows are split in time.
    X, Y : history, as in `fit`; in the order of time where there are no `times`.
    every : length of a period: rows, or with `times` a number or a text such as "30D".
    times : column of X, or (n,) numbers or dates.
    start : number of rows, or time, at which the first period begins; by default after half of the rows.
    between : "none" only feeds outcomes to `update`; "refresh" fits the predictor and calibrates anew on the rows so
        far before each period, "fit" learns everything anew; an online radius then begins anew as well.

    Examples
    --------
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(400, rng=np.random.default_rng(0))
    >>> decider = ph.RobustDecider(
    ...     ph.problems.simplex_linear([-0.08, 0.0]), learner=ph.learners.OneSidedBox(), random_state=0
    ... )
    >>> found = backtest(decider, X, Y, every=50)
    >>> len(found.periods), int(found.periods[0].start)
    (4, 200)
    """
    if between not in _BETWEEN:
        raise ValueError(f"between must be one of {', '.join(_BETWEEN)}, got {between!r}.")
    X, Y = as_pandas(X), as_pandas(Y)
    n = n_rows_of(X)
    clock = np.arange(n) if times is None else as_times(labels_by(X, times))
    order = np.argsort(clock, kind="stable")
    starts = _starts(clock[order], every, start)
    tested = clone(decider).set_params(split="time")
    before = order[clock[order] < starts[0]]
    tested.fit(take_rows(X, before), take_rows(Y, before))
    periods, measured = list[Period](), list[RowMeasures]()
    for k, begin in enumerate(starts):
        is_now = (clock[order] >= begin) & (clock[order] < starts[k + 1] if k + 1 < len(starts) else True)
        now, past = order[is_now], order[clock[order] < begin]
        if k and between != "none":
            rows = take_rows(X, past), take_rows(Y, past)
            tested.refresh(*rows) if between == "refresh" else tested.fit(*rows)
        if len(now):
            period, found = _period(tested, take_rows(X, now), take_rows(Y, now), begin)
            periods.append(period)
            measured.append(found)
    inside, has_bound = (np.concatenate([getattr(m, name) for m in measured]) for name in ("inside", "has_bound"))
    covered, not_missed = proportion(inside[has_bound]), proportion(inside | ~has_bound)
    return Backtest(tuple(periods), covered, 1 - tested.alpha_, tested, not_missed)


def _starts(clock: NDArray[Any], every: Any, start: Any) -> NDArray[Any]:
    """First times of the periods; `clock` is in order."""
    first = clock[len(clock) // 2] if start is None else as_times([start], clock.dtype)[0].astype(clock.dtype)
    if clock.dtype.kind == "i":
        check_count(every, "every", minimum=1)
    span = as_span(every, clock, "every")
    if not span > span * 0 or not clock[0] < first <= clock[-1]:
        raise ValueError(
            f"every must be above zero and start lie after the first row, at most at the last one; got {every!r} and "
            f"{start!r} for rows from {clock[0]} to {clock[-1]}."
        )
    return np.asarray(first + np.arange(int((clock[-1] - first) / span) + 1) * span)


def _period(decider: RobustDecider, X: Any, Y: Any, start: Any) -> tuple[Period, RowMeasures]:
    """Decide a period with what is known before it, then learn its outcomes."""
    model, n = decider.model_, n_rows_of(X)
    radii: Any = _InForce(_radii(model, X, Y), model.radii.alpha)
    measured = replace(model, radii=radii).measure(X, Y)
    decider.update(X, Y)
    bounds = measured.cost_bound
    return Period(
        start,
        n,
        float(proportion(measured.inside[measured.has_bound])),
        _mean(bounds),
        _mean(measured.realised),
        int((~np.isfinite(bounds)).sum()),
        float(model.radii.radius),
    ), measured


def _radii(model: Model, X: Any, Y: Any) -> Array:
    """The radius in force at each row; one that follows outcomes knows those of all rows before."""
    radii: Any = model.radii
    if not isinstance(radii, FollowingRadii):
        return radii.at(Rows(model.features(X), n_rows_of(X)))
    return one_by_one(radii, model.scores(X, Y), None)[1]


@dataclass(frozen=True, eq=False)
class _InForce:
    """Radii of these very rows."""

    radii: Array
    alpha: float

    def at(self, rows: Rows) -> Array:
        return self.radii

    def notes(self, rows: Rows) -> dict[int, str]:
        return {}


def _mean(values: Array) -> float:
    return float(estimate(values))


def in_days(start: Any) -> str:
    """A date without the hours that are all zero.

    Examples
    --------
    >>> in_days("2024-05-01T00:00:00.000000"), in_days(12)
    ('2024-05-01', '12')
    """
    return str(start).partition("T00:00")[0].removesuffix(" 00:00:00")
