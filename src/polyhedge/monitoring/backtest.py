"""Backtest: promised bounds against realised outcomes, period by period over history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from polyhedge._support.files import replace_file
from polyhedge._support.frames import as_frame, as_html, as_pandas
from polyhedge._support.text import with_unit
from polyhedge._support.validation import Array, check_count
from polyhedge.calibration import Radii, fit_labels, takes_labels
from polyhedge.data import GroupSplit, TimeSplit
from polyhedge.data.splits import IndexArray, as_span, as_times, in_order, last_times, months_in
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Proportion, RowMeasures, estimate, proportion
from polyhedge.fitting import labels_of_groups
from polyhedge.monitoring.monitor import one_by_one
from polyhedge.problems.layout import ProblemParameter, by_row, parameter_rows
from polyhedge.rows import Rows, labels_by, n_rows_of, with_values
from polyhedge.solvers.options import solver_of

_BETWEEN = ("none", "refresh", "fit")
_COSTS = ("cost_bound", "realised")


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
    blocks_held : share of blocks that kept what `Total` or `AllOf` promises for them; None with other promises.
    """

    periods: tuple[Period, ...]
    coverage: Proportion
    promised: float
    decider: RobustDecider
    not_missed: Proportion
    blocks_held: Proportion | None = None

    @property
    def evidence(self) -> Proportion:
        """How often held what is promised: for rows with a bound, or for blocks."""
        is_of_rows = self.blocks_held is None or self.decider.model_.radii.total_radius is not None
        return self.coverage if is_of_rows or self.blocks_held is None else self.blocks_held

    @property
    def cost_unit(self) -> str:
        """The unit of the costs, if the problem gives one."""
        return (self.decider.problem_.units or {}).get("cost", "")

    @property
    def worst(self) -> Period:
        """The period with the least coverage."""
        return min(self.periods, key=lambda period: np.nan_to_num(period.coverage, nan=np.inf))

    @property
    def verdict(self) -> str:
        """Whether the promise was kept over this history, in a sentence; rows are taken for independent."""
        coverage, promised = self.evidence, f"the promised {self.promised:.3g}"
        units = "rows" if coverage is self.coverage else "blocks"
        if not coverage.n:
            return "Nothing was promised: no row had a finite bound."
        if coverage.high < self.promised:
            follows = self.decider.model_.radii.follows_outcomes
            advice = "" if follows else " Outcomes change: use Online calibration, or refresh between periods."
            return f"Not kept: the interval lies below {promised}.{advice}"
        if coverage.low > self.promised:
            is_exact = self.decider.model_.radii.is_marginal  # others hold more often by their nature
            return f"Kept: the interval lies above {promised}{', so that bounds could be lower' * is_exact}."
        return f"Kept: the interval holds {promised}, as far as {coverage.n} {units} can tell."

    def __str__(self) -> str:
        bound, realised = (with_unit(head, self.cost_unit) for head in ("bound", "realised"))
        b, r = max(10, len(bound)), max(10, len(realised))
        lines = [f"{'from':>20} {'rows':>6} {'covered':>8} {bound:>{b}} {realised:>{r}} {'no bound':>8}"]
        lines += [
            f"{in_days(p.start):>20} {p.n:>6} {p.coverage:>8.3f} {p.cost_bound:>{b}.4g} {p.realised:>{r}.4g} "
            f"{p.n_without_bound:>8}"
            for p in self.periods
        ]
        worst = f"worst period {self.worst.coverage:.3f} from {in_days(self.worst.start)}"
        covered = f"covered {self.coverage}{self._counted_held()}  (promised {self.promised:.3g})"
        blocks = [] if self.blocks_held is None else [f"blocks held {self.blocks_held} of {self.blocks_held.n}"]
        return "\n".join([*lines, f"{covered}; {worst}", *blocks, self.verdict])

    def __repr__(self) -> str:
        return f"<Backtest: {len(self.periods)} periods, covered {self.coverage}, promised {self.promised:.3g}>"

    def _counted_held(self) -> str:
        """The coverage, in words, if rows without a bound count as held; empty if all rows have one."""
        n, n_none = self.not_missed.n, self.not_missed.n - self.coverage.n
        return f" of rows with a bound, or {self.not_missed} if the {n_none} of {n} without one count" * (n_none > 0)

    def report(self, path: str | Path, title: str = "Promise and reality over history") -> None:
        """Write a page of all periods, one HTML file that works offline."""
        # Pages are made from results, not the other way round: looked up when one is asked for.
        replace_file(Path(path), import_module("polyhedge.app.report").backtest_report(self, title).encode())

    def _repr_html_(self) -> str:
        """The table of the periods, and what was promised and covered over all of them."""
        worst = f"The worst period was covered in {self.worst.coverage:.3f}, from {in_days(self.worst.start)}."
        covered = f"Covered {self.coverage}{self._counted_held()}"
        shown = self.to_frame()
        shown.columns = [with_unit(name, self.cost_unit if name in _COSTS else None) for name in shown.columns]
        return as_html(f"{covered}, promised {self.promised:.3g}. {worst} {self.verdict}", shown)

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
    groups: ArrayLike | None = None,
    parameters: Mapping[Any, Any] | None = None,
) -> Backtest:
    """Fit on the first rows, then decide period by period, with what is known before each.

    A radius that follows outcomes (`calibration=Online()`) follows them row by row, also within a period.

    Rows are split in time, whatever the decider's split: its shares stay, and so do starts and gap of a `TimeSplit`.
    Groups of near-copies (given, or in the column of a `GroupSplit`) stay whole: their rows train, learn and calibrate
    only once the last of them is past, so that a decided row has no near-copy among those.

    Parameters
    ----------
    decider : settings to test; it is left as it is.
    X, Y : history, as in `fit`; in the order of time where there are no `times`.
    every : length of a period: rows, or with `times` a number or a text such as "30D", or "1M" and "1Y" for months and
        years of the calendar.
    times : column of X, or (n,) numbers or dates; by default those of the decider's `TimeSplit`.
    start : number of rows, or time, at which the first period begins; by default after half of the rows, with months
        and years of the calendar at the first of the month after that.
    between : what is done before each period. "none": nothing, outcomes are only fed to `update`. "refresh": the newer
        half of the rows that learned nothing so far recalibrates, and the predictor is fitted on all rows before these.
        "fit": everything is learned again; an online radius then begins again as well.
    groups : (n,) labels of near-copies, as in `fit`.
    parameters : values of the problem's parameters, as in `fit`: one for all rows, one a row, or columns of X.

    Labels and weights of rows, `calibration=ByCategory(labels)` or `Weighted(weights)`, are those of these n rows.

    Examples
    --------
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(400, rng=np.random.default_rng(0))
    >>> decider = ph.RobustDecider(
    ...     ph.problems.simplex_linear([-0.08, 0.0]), learner=ph.learners.OneSidedBox(), random_state=0
    ... )
    >>> tested = backtest(decider, X, Y, every=50)
    >>> len(tested.periods), int(tested.periods[0].start)
    (4, 200)
    """
    if between not in _BETWEEN:
        raise ValueError(f"between must be one of {', '.join(_BETWEEN)}, got {between!r}.")
    history = _History.of(decider, as_pandas(X), as_pandas(Y), times, groups, parameters)
    starts = _starts(np.sort(history.clock), every, start)
    tested = clone(decider)
    learned = history.fit(tested, history.known(starts[0]))
    periods, measured = list[Period](), list[RowMeasures]()
    for begin, end in zip(starts, [*starts[1:], None], strict=True):
        now = history.during(begin, end)
        if not len(now):
            continue
        if periods and between == "fit":
            history.fit(tested, history.known(begin))
        elif periods and between == "refresh":
            history.refresh(tested, history.known(begin), learned)
        period, measures = _period(tested, history, now, begin)
        periods.append(period)
        measured.append(measures)
    whole = RowMeasures.together(measured)
    covered, not_missed = proportion(whole.inside[whole.has_bound]), proportion(whole.inside | ~whole.has_bound)
    tested.set_params(split=decider.split if isinstance(decider.split, TimeSplit) else "time")
    kept = whole.blocks_held
    blocks = None if kept is None else proportion(kept)
    return Backtest(tuple(periods), covered, 1 - tested.alpha_, tested, not_missed, blocks)


@dataclass(frozen=True, eq=False)
class _History:
    """Rows with their times, how they are split, and the parameters of the problem.

    Features and outcomes are as they came; the decider reads them.
    """

    rows: Rows
    split: TimeSplit
    parameters: Sequence[ProblemParameter]
    calibrator: Any

    @classmethod
    def of(cls, decider: RobustDecider, X: Any, Y: Any, times: Any, groups: Any, parameters: Any) -> _History:
        split: Any = decider.split
        n, calibrator, known = n_rows_of(X), decider.calibration, decider.problem.parameters
        if not n:
            raise ValueError("X has no rows. Bring a history.")
        how = split
        if not isinstance(split, TimeSplit):
            shares = split.shares if isinstance(split, GroupSplit) else split
            how = TimeSplit() if isinstance(split, str) else TimeSplit(shares=shares)
        clock = how.clock(X, n) if times is None else as_times(labels_by(X, times, "times"))
        if clock.shape != (n,):
            raise ValueError(f"times must have one entry for each of the {n} rows, got shape {clock.shape}.")
        labels = fit_labels(calibrator, n) if takes_labels(calibrator) else None
        rows = Rows(
            X,
            Y,
            parameter_rows(known, parameters, n, X),
            labels_of_groups(decider, groups, X, n, labels),
            labels,
            times=clock,
        )
        return cls(rows, replace(how, column=None, times=None), known, calibrator)

    @property
    def clock(self) -> NDArray[Any]:
        return np.asarray(self.rows.times)

    def values(self, rows: Rows) -> Any:
        """Values of parameters of some rows, by name."""
        return by_row(self.parameters, rows.parameters) if self.parameters and rows.parameters is not None else None

    def known(self, begin: Any) -> IndexArray:
        """The rows that a fit at time `begin` may use: those whose groups have no row from then on."""
        ends = self.clock if self.rows.groups is None else last_times(self.rows.groups, self.clock)
        return in_order(np.flatnonzero(ends < begin), self.clock)

    def during(self, begin: Any, end: Any) -> Rows:
        is_now = (self.clock >= begin) & (True if end is None else self.clock < end)
        return self.rows.take(in_order(np.flatnonzero(is_now), self.clock))

    def fit(self, decider: RobustDecider, numbers: IndexArray) -> IndexArray:
        """Fit on these rows; returns those that do not calibrate: they trained or learned, or lie in a gap."""
        rows = self.rows.take(numbers)
        if rows.labels is not None:
            decider.set_params(calibration=with_values(self.calibrator, rows.labels))
        decider.set_params(split=replace(self.split, times=rows.times))
        decider.fit(rows.features, rows.Y, groups=rows.groups, parameters=self.values(rows))
        return np.delete(numbers, decider.split_.calibrate)

    def refresh(self, decider: RobustDecider, numbers: IndexArray, learned: IndexArray) -> None:
        """Calibrate on the newer half of the rows that learned nothing, train on all before it."""
        fresh, rows = numbers[~np.isin(numbers, learned)], self.rows.take(numbers)
        own = self.rows.take(fresh)
        halved = replace(self.split, times=own.times, gap=0).halves(None, len(fresh), groups=own.groups)
        newer = fresh[halved[1]]
        before = self.split.before(numbers[~np.isin(numbers, newer)], newer, self.clock)
        decider.refresh(
            rows.features,
            rows.outcomes,
            train=np.isin(numbers, before),
            calibrate=np.isin(numbers, newer),
            groups=rows.groups,
            parameters=self.values(rows),
            labels=rows.labels,
        )


def _starts(clock: NDArray[Any], every: Any, start: Any) -> NDArray[Any]:
    """First times of the periods; `clock` is in order."""
    months = months_in(every) if clock.dtype.kind == "M" else None
    first = clock[len(clock) // 2]
    if start is not None:
        first = as_times([start], clock.dtype)[0].astype(clock.dtype)
    elif months is not None and (month := first.astype("datetime64[M]")) != first:
        first = (month + 1).astype(first.dtype)  # the first of the next month
    if clock.dtype.kind == "i":
        check_count(every, "every", minimum=1)
    span = as_span(every, clock, "every") if months is None else months
    if not span > span * 0 or not clock[0] < first <= clock[-1]:
        raise ValueError(
            f"every must be above zero and start lie after the first row, at most at the last one; got {every!r} and "
            f"{start!r} for rows from {clock[0]} to {clock[-1]}."
        )
    if months is not None:
        month = first.astype("datetime64[M]")
        into = first - month.astype(first.dtype)
        if into >= np.timedelta64(28, "D"):
            raise ValueError(
                f"With months or years, start must lie on one of the first 28 days of a month, which every month has, "
                f"got {first}. Begin earlier or on the first of the next month."
            )
        starts = np.arange(month, clock[-1].astype("datetime64[M]") + 1, months).astype(first.dtype) + into
        return np.asarray(starts[starts <= clock[-1]])
    n_periods = int((clock[-1] - first) / span) + 1
    return np.asarray(first + np.arange(n_periods) * span)


def _period(decider: RobustDecider, history: _History, now: Rows, start: Any) -> tuple[Period, RowMeasures]:
    """Decide a period with what is known before it, then learn its outcomes."""
    model, X, Y, values = decider.model_, now.features, now.outcomes, history.values(now)
    with solver_of(decider):
        rows, kept, reasons = model.read_usable(X, Y, values, now.labels)
        if rows is None:
            raise ValueError(f"No row from {start} on can be decided. The first: {reasons[0]}.")
        radii: Any = model.radii
        if radii.follows_outcomes:  # each row knows the outcomes of all rows before
            radii = _InForce(one_by_one(radii, model.scores(rows), None)[1], radii.alpha)
        measured = replace(model, radii=radii).measured(rows)
        measured = measured if len(kept) == len(reasons) else measured.among(kept, len(reasons))
    decider.update(X, Y, parameters=values, labels=now.labels)
    bounds = measured.cost_bound
    return Period(
        start,
        len(now),
        float(proportion(measured.inside[measured.has_bound])),
        float(estimate(bounds)),
        float(estimate(measured.realised)),
        int((~np.isfinite(bounds)).sum()),
        float(model.radii.radius),
    ), measured


@dataclass(frozen=True, eq=False)
class _InForce(Radii):
    """Radii of these very rows."""

    radii: Array
    alpha: float

    def at(self, rows: Rows) -> Array:
        return self.radii


def in_days(start: Any) -> str:
    """A date without the hours that are all zero."""
    return str(start).partition("T00:00")[0].removesuffix(" 00:00:00")
