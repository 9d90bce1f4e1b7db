r"""Promises for blocks of rows, such as the days of a week: `Total` for their sum, `AllOf` for all of them at once.

Blocks are exchangeable with one another; rows of one block may depend on each other in any way. `Total` calibrates the
mean score $T_b = \sum_{i \in b} S_i / |b|$ of a block: with R its conformal rank the rows of a new block cost together
at most $\sum_i v(x_i) + |b| R$. `AllOf` calibrates the largest score. A block counts once; its size is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np

from polyhedge._support.frames import is_missing
from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, check_alpha
from polyhedge.calibration.by_category import as_label
from polyhedge.calibration.marginal import attained_rank, conformal_radius, grouped_radius, minimum_samples
from polyhedge.calibration.radii import Calibrator, Radii, kept_scores, rows_without_features
from polyhedge.data.splits import as_span, as_times, months_in
from polyhedge.rows import ROW_LABELS, RowLabels, Rows, source_of, takes_labels, values_of


@dataclass(frozen=True)
class Blocks(Calibrator):
    """What `Total` and `AllOf` share: where blocks come from.

    Parameters
    ----------
    by : column of X, by name or position, or (n,) values of the rows of fit: equal values are one block.
    every : length of a block in time, such as "7D", or "1M" and "1Y" for months and years: the values are then times.
    """

    by: Any
    every: Any = None

    counts_groups = True  # a block is a group
    of_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", source_of(self.by, "by"))
        if isinstance(self.every, (timedelta, np.timedelta64)):  # files hold texts
            object.__setattr__(self, "every", str(np.timedelta64(self.every, "s")))

    @property
    def source(self) -> Any:
        """Where the values come from."""
        return self.by

    @property
    def reads_times(self) -> bool:
        """Whether a block has a length in time."""
        return self.every is not None

    def blocks(self, rows: Rows) -> Any:
        """The block of each row (n,), as texts; an error where a row has none."""
        blocks = blocks_of(rows, self.by, self.every)
        if (missing := np.flatnonzero(blocks == "")).size:
            none = f"{missing.size} row(s) have none, the first is row {missing[0]}"
            raise ValueError(
                f"Each row must have a block, and {none}. Leave these rows out, or give each its own block."
            )
        return blocks

    def groups(self, rows: Rows) -> Any:
        """The blocks as groups; an error if rows come in other groups, which would cut blocks or link them."""
        blocks, own = self.blocks(rows), rows.groups
        if own is not None and not len(set(zip(blocks, own, strict=True))) == len(set(blocks)) == len(set(own)):
            raise ValueError(
                f"The groups of {type(self).__name__} are its blocks, and other groups of rows are given, which would "
                "cut blocks or link them. Leave out groups= or the GroupSplit; for equal rows give --copies "
                "independent."
            )
        return blocks

    def calibrate(self, scores: Array, rows: Rows, alpha: float) -> BlockRadii:
        """The conformal rank of the mean score of each block, or of the largest; calibration rows only."""
        blocks, alpha = self.blocks(rows), check_alpha(alpha)
        _, block_of, sizes = np.unique(blocks, return_inverse=True, return_counts=True)
        if len(sizes) < minimum_samples(alpha):
            got = f"got {len(sizes)}: a block counts once. Raise alpha or the calibration share, or bring more blocks"
            raise ValueError(f"alpha={alpha} needs at least {minimum_samples(alpha)} calibration blocks, {got}.")
        if self.needs_costs:
            means = np.bincount(block_of, weights=scores) / sizes
            radius, total = grouped_radius(scores, blocks, alpha), conformal_radius(means, alpha)
        else:
            largest = np.full(len(sizes), -np.inf)
            np.maximum.at(largest, block_of, scores)
            radius, total = conformal_radius(largest, alpha), None
        by = ROW_LABELS if takes_labels(self) else self.by
        return BlockRadii(radius, alpha, len(scores), len(sizes), by, self.every, total, (scores, blocks))


def blocks_of(rows: Rows, by: Any, every: Any) -> Any:
    """The block of each row (n,), as texts: a value, or the first time of a period; empty where a row has no value."""
    values = values_of(rows, by, "blocks")
    is_known = np.array([not is_missing(value) for value in values], dtype=bool)
    blocks, known = np.full(len(values), "", dtype=object), [value for value in values if not is_missing(value)]
    blocks[is_known] = [as_label(value) for value in known] if every is None else _periods(known, every)
    return blocks.astype(str)


def _periods(values: list[Any], every: Any) -> Any:
    """The first time of the period of each of these times, by the clock of their own time zone."""
    is_number = isinstance(every, (int, float, np.number)) and not isinstance(every, np.timedelta64)
    try:
        times = as_times([_on_the_wall(value) for value in values], np.float64 if is_number else None)
    except ValueError as error:
        raise ValueError(
            f"every must be a number for numbers, and such as '7D' for dates: {every!r}. {error}"
        ) from error
    if times.dtype.kind == "M" and (months := months_in(every)):
        count = times.astype("datetime64[M]").astype(np.int64)
        return (count // months * months).astype("datetime64[M]").astype(str)
    span, zero = as_span(every, times, "every"), _MONDAY if times.dtype.kind == "M" else 0.0
    if not span > span * 0:
        raise ValueError(f"every must be above zero, got {every!r}.")
    starts = zero + (times - zero) // span * span
    is_in_days = times.dtype.kind == "M" and span % np.timedelta64(1, "D") == np.timedelta64(0)
    return (starts.astype("datetime64[D]") if is_in_days else starts).astype(str)


def _on_the_wall(time: Any) -> Any:
    """A time without its zone: days, weeks and months begin by the clock on the wall."""
    if isinstance(time, str):
        return _ZONE.sub(r"\1", time)
    return time.replace(tzinfo=None) if getattr(time, "tzinfo", None) is not None else time


_ZONE = re.compile(r"(\d:\d\d[\d:.]*) *(?:Z|[+-]\d\d(?::?\d\d)?)$")
_MONDAY = np.datetime64("1970-01-05")
"""Periods of whole weeks begin on Mondays."""


@dataclass(frozen=True)
class AllOf(Blocks):
    """The bounds of all rows of a new block hold together with probability at least 1 - alpha.

    Parameters
    ----------
    by, every : what a block is, see `Blocks`.

    Examples
    --------
    >>> rows = rows_without_features(6, labels=np.repeat(["mon", "tue", "wed"], 2))
    >>> AllOf(["?"]).calibrate(np.array([1.0, 5.0, 2.0, 3.0, 4.0, 0.0]), rows, alpha=0.5).radius
    4.0
    """


@dataclass(frozen=True)
class Total(Blocks):
    """The rows of a new block cost together at most the bound of the block with probability at least 1 - alpha.

    `Decisions.totals` has the bounds of blocks. The bounds of single rows hold for a row of a new block, as ever.

    Parameters
    ----------
    by, every : what a block is, see `Blocks`.

    Examples
    --------
    >>> rows = rows_without_features(6, labels=np.repeat(["mon", "tue", "wed"], 2))
    >>> Total(["?"]).calibrate(np.array([1.0, 5.0, 2.0, 3.0, 4.0, 0.0]), rows, alpha=0.5).total_radius
    2.5
    """

    needs_costs: ClassVar[bool] = True


@stored("radii of blocks", transient=("kept",))
@dataclass(frozen=True, eq=False)
class BlockRadii(Radii):
    """A radius for the rows of a block, and with `Total` one for their sum.

    Attributes
    ----------
    radius, alpha, n, n_blocks : radius of single rows, level, and numbers of calibration rows and blocks.
    by, every : what a block is.
    total_radius : how much more than planned a row of a block costs at most, in the mean of the block; None of `AllOf`.
    kept : scores and blocks of the calibration rows, for radii at other levels; files do not keep them.
    is_grouped : True, because blocks are counted instead of rows.
    """

    radius: float
    alpha: float
    n: int
    n_blocks: int
    by: Any
    every: Any = None
    total_radius: float | None = None
    kept: tuple[Array, Any] | None = field(default=None, repr=False, compare=False)
    is_grouped: bool = True
    of_blocks: ClassVar[bool] = True
    counted_as: ClassVar[str] = "blocks"

    def __post_init__(self) -> None:
        attained_rank(self.n_blocks, check_alpha(self.alpha))
        if not np.isfinite(self.radius) or not isinstance(self.by, (str, int, RowLabels)):
            raise ValueError("Radii of blocks must be finite, with blocks in a column by name or position.")

    @property
    def n_units(self) -> int:
        """The blocks."""
        return self.n_blocks

    @property
    def kind(self) -> str:
        """What errors call them."""
        return "all of a block" if self.total_radius is None else "total"

    @property
    def source(self) -> Any:
        """Where blocks come from."""
        return self.by

    @property
    def calibrator(self) -> Blocks:
        """By the same blocks."""
        return (AllOf if self.total_radius is None else Total)(self.by, self.every)

    def at_level(self, alpha: float) -> BlockRadii:
        """The radii for another level, from the same calibration rows."""
        scores, blocks = (None, None) if self.kept is None else self.kept
        rows = rows_without_features(0 if blocks is None else len(blocks), labels=blocks)
        again = type(self.calibrator)(ROW_LABELS).calibrate(kept_scores(scores), rows, alpha)
        return replace(again, by=self.by, every=self.every)

    def blocks(self, rows: Rows) -> Any:
        """The block of each row (N,); empty where a row has none."""
        return blocks_of(rows, self.by, self.every)

    def promise(self) -> str:
        """What holds, in words."""
        level = f"with probability at least {1 - self.alpha:g}, if it is exchangeable with the calibration blocks"
        if self.total_radius is None:
            return f"holds for all rows of a new block together {level}"
        return f"holds for a row of a new block, and the bound of the block for the sum of its rows, each {level}"
