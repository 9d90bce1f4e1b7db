r"""Monitoring: outcomes become known, coverage since calibration is counted, radii follow, an alarm watches.

An alarm that may be looked at after every row: whether bounds fail more often than exchangeable rows can explain.

The coverage of one model is itself random, Beta(k, m + 1 - k), so that a test of "coverage is 1 - alpha" raises false
alarms however well a model was calibrated. What is certain is less: if the m calibration rows and the n rows since are
exchangeable and scores are continuous, the next row is a miss with probability (m + 1 - k + misses) / (m + 1 + n),
whatever happened before. The alarm bets against this: it multiplies its wealth by q / p at each row, q being the
chance of what happened if bounds fail more often from some row on. On exchangeable rows wealth is a martingale that
starts at 1, so by Ville's inequality it ever reaches 1 / rate with probability at most `rate`. It is a conformal test
martingale on whether each row is covered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from html import escape
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.frames import check_same_rows, row_keys
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, Mask, check_count
from polyhedge.calibration import conformal_rank
from polyhedge.data import GroupSplit, TimeSplit, digest_rows
from polyhedge.decisions import Decisions
from polyhedge.diagnostics import Diagnostic, coverage_since_diagnostic
from polyhedge.evaluation import Proportion, proportion
from polyhedge.io import ModelFileError
from polyhedge.model import Model
from polyhedge.rows import Rows, n_rows_of, one_row

_MULTIPLES = np.array([1.5, 2.0, 3.0, 5.0])
"""How many times more often bounds may fail after a change: from what hundreds of rows show to what ten do."""
_EVERY = 50
"""Rows between the moments at which a change is suspected to begin."""


@stored("alarm")
@dataclass(frozen=True, eq=False)
class Alarm:
    """Wealth of bets that bounds have begun to fail.

    Attributes
    ----------
    n_calibrate, rank : m and k of the radius.
    rate : chance that exchangeable rows ever raise the alarm, at most.
    n, n_missed : rows since, and those that were not covered.
    wealth : (J,) of the bets on each share of misses, summed over all moments at which the change may have begun. After
        these moments bets on one share pay the same, so that the sum suffices.
    n_moments : moments on which bets were placed so far.
    highest : the most that all bets together were worth so far.
    raised_at : number of the row at which the alarm was raised; None if it was not.

    Examples
    --------
    >>> alarm = Alarm.of(500, 451, rate=0.01)
    >>> alarm.updated([False] * 90 + [True] * 10).is_raised, alarm.updated([True] * 30).raised_at
    (False, 5)
    """

    n_calibrate: int
    rank: int
    rate: float
    wealth: Array
    n_moments: int = 0
    n: int = 0
    n_missed: int = 0
    highest: float = 1.0
    raised_at: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must lie strictly between 0 and 1, got {self.rate!r}: the chance of a false alarm.")
        has_counts = 0 <= self.n_missed <= self.n and self.n_moments == -(-self.n // _EVERY)
        if not has_counts or not (self.raised_at is None or 1 <= self.raised_at <= self.n):
            raise ValueError("An alarm must count misses, moments and the row that raised it among its rows.")
        if self.wealth.shape != _MULTIPLES.shape or not (self.wealth >= 0).all() or not self.highest >= 1:
            raise ValueError("An alarm must have a wealth of at least 0 for each bet, and 1 at its highest.")
        if self.is_raised != (self.highest >= 1 / self.rate):
            raise ValueError("An alarm is raised if its wealth has reached the inverse of its rate, and only then.")

    @classmethod
    def of(cls, n_calibrate: int, rank: int, rate: float = 0.01) -> Self:
        """Before any row."""
        return cls(n_calibrate, rank, rate, np.zeros(len(_MULTIPLES)))

    @property
    def is_raised(self) -> bool:
        """Whether wealth has ever reached 1 / rate."""
        return self.raised_at is not None

    def updated(self, missed: ArrayLike) -> Self:
        """After more rows, in order; `missed` (N,) says which were not covered."""
        n, n_missed, wealth, highest, raised = self.n, self.n_missed, self.wealth, self.highest, self.raised_at
        n_moments, size, planned = self.n_moments, self.n_calibrate + 1, self.n_calibrate + 1 - self.rank
        for miss in np.asarray(missed, dtype=bool).tolist():
            if n % _EVERY == 0:
                n_moments += 1
                # All bets on a change at the c-th moment start with 1 / (c (c + 1)) together, which adds up to 1.
                wealth = wealth + 1 / (n_moments * (n_moments + 1) * len(_MULTIPLES))
            chance, share = (planned + n_missed) / (size + n), planned / size
            # Never a bet that bounds fail less often: with tied scores they do, and that is no reason for an alarm.
            suspected = np.maximum(np.minimum(_MULTIPLES * share, (1 + share) / 2), chance)
            wealth = wealth * (suspected / chance if miss else (1 - suspected) / (1 - chance))
            n, n_missed = n + 1, n_missed + miss
            highest = max(highest, float(wealth.sum()) + 1 / (n_moments + 1))  # with the stakes of moments to come
            raised = n if raised is None and highest >= 1 / self.rate else raised
        return replace(
            self, wealth=wealth, n_moments=n_moments, n=n, n_missed=n_missed, highest=highest, raised_at=raised
        )

    def __str__(self) -> str:
        """What was seen, how unlikely it is, and what to do."""
        seen = f"{self.n_missed} of {self.n} rows were not covered"
        if not self.is_raised:
            return f"no alarm: {seen}"
        return (
            f"alarm at row {self.raised_at}: {seen}; rows like the calibration rows would ever look so bad with "
            f"probability {min(1 / self.highest, self.rate):.1g} at most. Refresh the decider on newer rows, "
            "recalibrate on recent ones, or take calibration=Online()"
        )


def alarm_for(radii: Any, rate: float = 0.01) -> Alarm | None:
    """An alarm for radii whose coverage has an exact distribution, Beta(k, m + 1 - k); None for others."""
    law = radii.law()
    return None if law is None else Alarm.of(radii.n, round(law.args[0]), rate)


@stored("monitoring", unbounded=("radii", "excess"))
@dataclass(frozen=True, eq=False)
class Monitoring:
    """Coverage since `fit`, `recalibrate` or `refresh`.

    Attributes
    ----------
    missed : (n,) whether each row's outcome lay outside what its bound was for, in the order in which rows were fed;
        False for rows without a bound, which cannot be missed.
    radii : (n,) the radii that the rows were held to, infinite if a row had no bound.
    promised : 1 - alpha.
    alarm : whether this is more than chance; None if the coverage has no exact distribution, such as by category.
    was_recomputed : whether some rows came without the bounds that were issued, so that radii were computed again.
    blocks : n texts, the block of each row, empty where a log does not know it; None where nothing is promised for
        blocks.
    excess : (n,) by how much the score of a row lies above the radius of sums; None if all rows of a block must hold.
    """

    missed: Mask
    radii: Array
    promised: float
    alarm: Alarm | None
    was_recomputed: bool = False
    blocks: tuple[str, ...] | None = None
    excess: Array | None = None

    def __post_init__(self) -> None:
        if self.missed.ndim != 1 or self.missed.shape != self.radii.shape or np.isnan(self.radii).any():
            raise ValueError("Rows that were monitored must each have a radius.")
        bounded = self.missed[self.has_bound]
        if self.alarm is not None and (self.alarm.n, self.alarm.n_missed) != (len(bounded), int(bounded.sum())):
            raise ValueError("An alarm must have seen the rows that were monitored.")

    @classmethod
    def of(cls, model: Model) -> Monitoring:
        """Before any outcome is known."""
        none, alarm = np.zeros(0), alarm_for(model.radii)
        blocks, excess = () if model.radii.of_blocks else None, None if model.radii.total_radius is None else none
        return cls(none > 0, none, 1 - model.radii.alpha, alarm, blocks=blocks, excess=excess)

    @property
    def has_bound(self) -> Mask:
        """Which rows (n,) had a finite bound."""
        return np.isfinite(self.radii)

    @property
    def coverage(self) -> Proportion | None:
        """Share of the rows with a bound that were covered; None before any such row.

        Its interval holds at a moment chosen beforehand.
        """
        held_to = ~self.missed[self.has_bound]
        return proportion(held_to) if len(held_to) else None

    @property
    def without_bound(self) -> Proportion | None:
        """Share of all rows that had no finite bound; None before any row."""
        return proportion(~self.has_bound) if len(self.missed) else None

    @property
    def not_missed(self) -> Proportion | None:
        """Share of all rows that were not missed, where those without a bound count as held; None before any row.

        The promises of `Online` and `Weighted` are about this share.
        """
        return proportion(~self.missed) if len(self.missed) else None

    @property
    def blocks_held(self) -> Proportion | None:
        """Share of blocks that kept what is promised for them, by the rows of them so far; None before any block."""
        is_known = np.array(self.blocks or (), dtype=str) != ""
        if not is_known.any():
            return None
        block_of = np.unique(np.array(self.blocks)[is_known], return_inverse=True)[1]
        over = self.missed if self.excess is None else self.excess
        return proportion(np.bincount(block_of, over[is_known]) <= 0)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """That notably more rows were covered than promised, if the promise asks for no more; valid at any row."""
        alarm, alpha = self.alarm, 1 - self.promised
        if alarm is None or not alarm.n or alarm.rank != conformal_rank(alarm.n_calibrate, alpha):
            return ()
        return tuple(coverage_since_diagnostic(alarm.n, alarm.n_missed, alpha))

    def __str__(self) -> str:
        how = "; bounds were not given for all rows and were computed again" if self.was_recomputed else ""
        alarm = [] if self.alarm is None else [str(self.alarm)]
        return "\n".join([f"{self.in_words()}{how}", *alarm, *self.diagnostics])

    def __repr__(self) -> str:
        raised = "; alarm raised" if self.alarm is not None and self.alarm.is_raised else ""
        return f"<Monitoring: {self.in_words()}{raised}>"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())

    def in_words(self) -> str:
        """How many rows were covered, and how many had no bound."""
        n, n_bounded, kept = len(self.missed), int(self.has_bound.sum()), self.blocks_held
        is_of_blocks = self.blocks is not None and self.excess is None
        promised = f"(promised {self.promised:.3g}{' of blocks' * is_of_blocks})"
        if kept is not None:
            promised += f"; {kept} of {kept.n} blocks kept their promise, by their rows so far"
        if not n:
            return f"no outcome is known yet {promised}"
        if n == n_bounded:
            return f"covered {self.coverage} of {n} rows {promised}"
        covered = f"covered {self.coverage} of {n_bounded} rows with a bound" if n_bounded else "no row had a bound"
        return (
            f"{covered} {promised}; {n - n_bounded} of {n} rows had no bound, and where these count as held "
            f"{self.not_missed} of all rows did"
        )


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Rows whose outcomes are known, read for `update`; `raw` are X and Y as they came, which a log reads.

    `issued` are the radii (N,) of the bounds that were issued; None if they are to be computed again.
    """

    rows: Rows
    raw: tuple[Any, Any]
    keys: list[str] | None
    issued: Array | None


def read_outcomes(
    model: Model,
    X: Any,
    Y: Any,
    bounds: Decisions | ArrayLike | None = None,
    radii: ArrayLike | None = None,
    keys: Sequence[Any] | None = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
) -> Outcomes:
    """The arguments of `RobustDecider.update`, checked; one row may come by itself."""
    rows = model.as_rows(X)
    if rows is not X and len(rows) == 1:
        X, keys = rows, [keys] if keys is not None and np.ndim(keys) == 0 else keys
        if hasattr(Y, "to_frame"):  # a row of outcomes by name
            Y = one_row(Y).set_axis(getattr(rows, "index", [0]))
        elif not hasattr(Y, "columns"):
            Y = np.reshape(Y, (1, -1))
    check_same_rows({"X": rows, "keys": keys})
    names = None if keys is None else row_keys(keys, n_rows_of(rows))
    read = model.read(rows, Y, parameters, labels, to_score=True)
    return Outcomes(read, (rows, Y), names, issued_radii(model, rows, read, bounds, radii))


def issued_radii(
    model: Model, X: Any, rows: Rows, bounds: Decisions | ArrayLike | None, radii: ArrayLike | None = None
) -> Array | None:
    """The radii (N,) of bounds that were issued; None if they are to be computed again."""
    if bounds is not None and radii is not None:
        raise ValueError("Give bounds or radii, not both: they say the same.")
    check_same_rows({"X": X, "bounds": bounds, "radii": radii})
    if isinstance(bounds, Decisions):
        if bounds.radii is None:
            raise ValueError("These decisions do not know their radii. Give those that decide returned, as they are.")
        return _one_a_row(bounds.radii, len(rows), "bounds must be the decisions")
    if bounds is None:
        return None if radii is None else _one_a_row(radii, len(rows), "radii must be those")
    costs = _one_a_row(bounds, len(rows), "bounds must be the decisions, or the bounds on the costs,", has_nan=True)
    placed = model.place(rows)
    return placed.regions.radii_of(costs, placed.radii)


def _one_a_row(values: ArrayLike, n: int, must: str, *, has_nan: bool = False) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n,) or (np.isnan(array).any() and not has_nan):
        missing = int(np.isnan(array).sum())
        raise ValueError(f"{must} of these {n} rows, got shape {array.shape} with {missing} NaN.")
    return array


@stored("monitoring state")
@dataclass(frozen=True, eq=False)
class MonitoringState:
    """The record of outcomes since calibration.

    Attributes
    ----------
    monitoring : coverage so far; None before any `update`.
    keys : names of the rows that were fed.
    is_unlogged : whether outcomes were fed that no log knows.
    """

    monitoring: Monitoring | None = None
    keys: frozenset[str] = frozenset()
    is_unlogged: bool = False


def updated(model: Model, state: MonitoringState, outcomes: Outcomes) -> tuple[Model, MonitoringState]:
    """The model and its monitoring after outcomes that no log keeps; rows whose keys were fed before are left out."""
    rows, issued = outcomes.rows, outcomes.issued
    if outcomes.keys is not None:
        fresh = np.array([i for i, key in enumerate(outcomes.keys) if key not in state.keys], dtype=np.int64)
        rows, issued = rows.take(fresh), None if issued is None else issued[fresh]
        state = replace(state, keys=state.keys.union(outcomes.keys))
    so_far = state.monitoring or Monitoring.of(model)
    if len(rows):
        at = issued
        if issued is None and not model.radii.follows_outcomes:
            at = model.radii.at(rows)
        digest, blocks = digest_rows(rows.features, rows.outcomes), model.radii.blocks(rows)
        model, later = after_scores(model, so_far, model.scores(rows), at, digest, blocks)
        so_far = replace(later, was_recomputed=so_far.was_recomputed or issued is None)
    return model, replace(state, monitoring=so_far, is_unlogged=state.is_unlogged or len(rows) > 0)


def after_scores(
    model: Model, so_far: Monitoring, scores: Array, radii: Array | None, digest: str, blocks: Any = None
) -> tuple[Model, Monitoring]:
    """The model and its coverage after scores (N,) against radii (N,); None if the radii follow outcomes.

    `blocks` (N,) are those of the rows; None where they are not known.
    """
    was_recomputed = so_far.was_recomputed or radii is None
    if model.radii.follows_outcomes:
        later, radii = one_by_one(model.radii, scores, radii)
        # One entry of the audit trail stands for all rows since calibration; its digest is a chain over these.
        chained = sha256(f"{model.trail[-1].digest}{digest}".encode()).hexdigest()
        entered = model.with_radii(later, chained)
        is_first = model.radii.n_rows == 0
        model = entered if is_first else replace(entered, trail=(*model.trail[:-1], entered.trail[-1]))
    held_to = np.asarray(radii, dtype=np.float64)
    missed, total = scores > held_to, model.radii.total_radius
    names = ("",) * len(missed) if blocks is None else tuple(map(str, blocks))
    return model, replace(
        so_far,
        blocks=None if so_far.blocks is None else so_far.blocks + names,
        excess=None if so_far.excess is None else np.concatenate([so_far.excess, scores - (total or 0.0)]),
        missed=np.concatenate([so_far.missed, missed]),
        radii=np.concatenate([so_far.radii, held_to]),
        alarm=None if so_far.alarm is None else so_far.alarm.updated(missed[np.isfinite(held_to)]),
        was_recomputed=was_recomputed,
    )


def one_by_one(radii: Any, scores: Array, issued: Array | None) -> tuple[Any, Array]:
    """The radii after all scores, and those (N,) that each row was held to."""
    if issued is not None:
        return radii.updated(scores, issued), issued
    in_force, row = np.empty(len(scores)), Rows(np.zeros((1, 0)))
    for i, score in enumerate(scores):
        in_force[i] = radii.at(row)[0]
        radii = radii.updated([score])
    return radii, in_force


def check_log(log: Any, model: Model, state: MonitoringState | None = None, outcomes: Outcomes | None = None) -> None:
    """Raise if a log belongs to another calibration, or if it cannot take these outcomes."""
    if outcomes is not None and outcomes.keys is None:
        raise ValueError("A log needs keys, one for each row: they find what was decided. Give keys=.")
    has_outcomes = model.radii.n_rows > 0  # then the last entry stands for the outcomes since
    if log.model.trail != (model.trail[:-1] if has_outcomes else model.trail):
        raise ValueError(
            "This log belongs to another calibration of the decider: its scores are not this one's. Begin a new "
            "one, OutcomeLog(path, decider), after each fit, recalibrate and refresh."
        )
    if state is not None and state.is_unlogged:
        raise ValueError(
            "Outcomes were fed to this decider without a log, which does not know them: they would be forgotten. Feed "
            "all through the log, or drop them with follow(log) first."
        )


# In files


def check_stored(model: Model, calibrator: Any) -> None:
    """Raise if a loaded decider would recalibrate by another calibrator."""
    is_ours = type(calibrator).__module__.startswith("polyhedge.")
    if type(calibrator) is not type(model.radii.calibrator) and not is_ours:
        raise ValueError(
            f"A loaded decider recalibrates by the calibrator of its radii, {model.radii.calibrator!r}, and not by "
            f"{calibrator!r}. Let the calibrator return radii of a class that names it as `calibrator` and is "
            "registered with polyhedge.io.stored, or keep the decider by pickle."
        )


@stored("continuation")
@dataclass(frozen=True, eq=False)
class Continuation:
    """What a loaded decider needs, besides its model, to go on.

    Attributes
    ----------
    split : how `refresh` splits rows; shares for a split that is not one of this library.
    seed : of `refresh`; None for a generator, which has none.
    state : coverage since calibration.
    """

    split: TimeSplit | GroupSplit | tuple[float, ...] | str
    seed: int | None
    state: MonitoringState

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_count(self.seed, "The seed", minimum=0)
        if isinstance(self.split, str):
            if self.split != "time":
                raise ValueError(f"A split must be 'time', shares or an object, got {self.split[:40]!r}.")
        else:
            shares = self.split if isinstance(self.split, tuple) else self.split.shares
            if len(shares) not in (3, 4) or not np.isfinite(shares).all():
                raise ValueError("A split must have three or four finite shares.")
        if isinstance(self.split, TimeSplit):
            if not all(type(start) in (str, int, float) for start in self.split.starts or ()):
                raise ValueError("The starts of a split must be texts or numbers.")
            if self.split.times is not None and len(self.split.times):
                raise ValueError("A file must not hold the times of rows.")


def continuation(split: Any, random_state: Any, state: MonitoringState) -> Continuation:
    """What a file holds for a decider. Times of rows are left out: `refresh` asks for those of its own rows."""
    is_seed = isinstance(random_state, Integral) and not isinstance(random_state, bool)
    if isinstance(split, TimeSplit):
        starts = None if split.starts is None else tuple(map(_plain, split.starts))
        times = () if split.times is not None and split.column is None else None
        split = replace(split, column=_plain(split.column), times=times, starts=starts, gap=_plain(split.gap))
    elif isinstance(split, GroupSplit):
        split = replace(split, column=_plain(split.column))
    elif not isinstance(split, str):
        is_shares = isinstance(split, (tuple, list, np.ndarray))
        split = tuple(map(float, split if is_shares else GroupSplit.shares))
    return Continuation(split, int(random_state) if is_seed else None, state)


def check_continuation(life: Any, model: Model) -> None:
    """Raise unless a file holds a monitoring state that its model can have."""
    if not isinstance(life, Continuation):
        raise ModelFileError("The file must hold what its decider goes on with: split, seed and monitoring state.")
    monitoring, begun = life.state.monitoring, Monitoring.of(model)
    if monitoring is None:
        return
    alarms = [None if one is None else (one.n_calibrate, one.rank, one.rate) for one in (monitoring.alarm, begun.alarm)]
    if monitoring.promised != begun.promised or alarms[0] != alarms[1]:
        raise ModelFileError("The monitoring state must belong to the model: its level and its alarm do not.")


def _plain(value: Any) -> Any:
    """A column, a time or a length of time as a number or a text."""
    if isinstance(value, (timedelta, np.timedelta64)):
        return f"{np.timedelta64(value).astype('timedelta64[us]').astype(np.int64)}us"
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    return value if value is None or isinstance(value, (int, float, str)) else str(np.datetime64(value, "us"))
