"""Dask data frames: decisions partition by partition, and the exact radius from scores on many machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, Indices
from polyhedge.calibration import Calibrator, Marginal, OneRadius, attained_rank, score_tolerance
from polyhedge.data import digest_rows
from polyhedge.distributed.row_table import Parameters, decide_rows, require, table_features
from polyhedge.model import Model
from polyhedge.problems.checks import check_outcomes
from polyhedge.problems.layout import order_outcomes
from polyhedge.problems.parameters import parameter_rows
from polyhedge.rows import Rows
from polyhedge.solvers.options import Solver, solver_in_force

# Each pass over a frame narrows the radius 4096-fold, for one small array a part.
_BINS = 4096
_FEW = 1_000_000
"""So many scores may travel to the caller; more are narrowed down by counting where they are."""


def is_dask_frame(X: Any) -> bool:
    """Whether X is a Dask data frame; asks for nothing to be installed."""
    return hasattr(X, "map_partitions") and hasattr(X, "npartitions") and hasattr(X, "columns")


def decide_frame(model: Model, frame: Any, parameters: Parameters | None = None, labels: Any = None) -> Any:
    """Decide partition by partition: a lazy Dask data frame with the same divisions and row order.

    The model is one node of the task graph, so that it travels to each worker once, not with every partition.

    Parameters
    ----------
    model : Model
    frame : dask.dataframe.DataFrame
    parameters, labels : as in `decide_rows`.

    Returns
    -------
    dask.dataframe.DataFrame
        With the columns of `decide_rows`.
    """
    require("dask", ["dask", "pyarrow"])
    # The frame's own example of no rows shows whether its columns fit, before any work is done.
    meta = decide_rows(model, frame._meta, parameters, labels=labels)
    return frame.map_partitions(_decide_partition, _sent_once(model, parameters), labels, meta=meta)


_Sent = tuple[Model, Parameters | None, Solver]


def _decide_partition(rows: Any, sent: _Sent, labels: str | None) -> Any:
    model, parameters, solver = sent
    with solver.in_force():
        return decide_rows(model, rows, parameters, labels=labels, n_jobs=1)  # Dask has a worker for each core already


def _sent_once(model: Model, parameters: Parameters | None) -> Any:
    import dask

    # Not traversed, and under a name of its own: a model is opaque to Dask and need not be hashed.
    return dask.delayed((model, parameters, solver_in_force()), pure=False, traverse=False)


def distributed_radius(
    model: Model,
    frame: Any,
    outcomes: Sequence[str],
    calibrator: Calibrator,
    alpha: float,
    parameters: Parameters | None = None,
) -> tuple[OneRadius, str]:
    """The exact conformal radius of rows in a Dask data frame, and a digest of them.

    The scores are computed where the rows are and stay there. The conformal order statistic is found by
    counting scores in ever narrower intervals; at most a million scores travel to the caller. The rows must
    not have been used for training or learning, otherwise the guarantee is void.

    Parameters
    ----------
    model : Model
    frame : dask.dataframe.DataFrame
        Features and outcomes of the calibration rows. Missing values are an error: leaving rows out is a
        choice that the guarantee does not cover.
    outcomes : names of the outcome columns, in the order of the problem where they are not called like its outcomes.
    calibrator : must be `Marginal`, which needs ranks of scores only.
    alpha : miscoverage level.
    parameters : as in `decide_rows`.
    """
    if calibrator != Marginal():
        raise ValueError(
            f"Only one radius for all rows can be set from a Dask DataFrame, and calibration={calibrator!r} sets "
            "others. Recalibrate on rows in memory."
        )
    require("dask", ["dask", "pyarrow"])
    names = [str(name) for name in outcomes]
    if any(name not in frame.columns for name in names) or len(names) != model.problem.n_outcomes:
        raise ValueError(
            f"Y must name {model.problem.n_outcomes} outcome column(s) of the Dask DataFrame, got "
            f"{', '.join(names) or 'none'}."
        )
    scores = _Scores.of(_sent_once(model, parameters), frame, list(order_outcomes(model.problem.outcome_names, names)))
    radius = scores.of_rank(attained_rank(scores.n, alpha))
    if not np.isfinite(radius):
        raise ValueError(f"The conformal radius would be {radius}. Check the scores or raise alpha.")
    if not model.family.scores_are_steps:
        radius += score_tolerance(np.array([scores.low, scores.high_finite]))
    return OneRadius(radius, alpha, scores.n), scores.digest


@dataclass(frozen=True)
class _Scores:
    """Scores in parts that stay with the workers, how many they are, and between which values."""

    parts: tuple[Any, ...]
    n: int
    low: float
    high: float
    high_finite: float
    digest: str = ""

    @classmethod
    def of(cls, sent: Any, frame: Any, outcomes: list[str]) -> _Scores:
        import dask

        score = dask.delayed(_score_partition)
        scored = dask.persist(*(score(part, sent, outcomes) for part in frame.to_delayed()))
        parts = tuple(pair[0] for pair in scored)
        counts, lows, highs, finite, digests = zip(
            *dask.compute(*(dask.delayed(_summary)(pair) for pair in scored)), strict=True
        )
        return cls(parts, sum(counts), min(lows), max(highs), max(finite), digest_rows(np.array(digests)))

    def of_rank(self, k: int) -> float:
        """The k-th smallest score, exactly."""
        import dask

        below, inside = 0, self.n
        low, high = self.low, self.high
        while inside > _FEW and low < high:
            edges = _edges(low, high)
            counted = dask.compute(*(dask.delayed(_count)(part, edges) for part in self.parts))
            at_most = np.sum(counted, axis=0)  # scores up to each edge; the last edge is `high`
            j = int(np.searchsorted(at_most, k, side="left"))
            before = int(at_most[j - 1]) if j else below
            # The k-th score lies above edge j - 1 and not above edge j.
            low, high = (math.nextafter(edges[j - 1], math.inf) if j else low), float(edges[j])
            below, inside = before, int(at_most[j]) - before
        if low == high:
            return low
        gathered = dask.compute(*(dask.delayed(_between)(part, low, high) for part in self.parts))
        candidates = np.concatenate(gathered)
        return float(np.partition(candidates, k - below - 1)[k - below - 1])


def _score_partition(rows: Any, sent: _Sent, outcomes: list[str]) -> tuple[Array, str]:
    """The scores of a partition, and a digest of its rows."""
    if not len(rows):
        return np.zeros(0), ""
    model, parameters, solver = sent
    X, Y = rows.drop(columns=outcomes), rows[outcomes].to_numpy(dtype=np.float64)
    features = table_features(model, X, parameters) if model.names is None else model.features(X)
    values = None
    if parameters is not None or model.family.scores_need_parameters:
        values = parameter_rows(model.problem.parameters, parameters, len(X), X)
    with solver.in_force():
        scores = model.scores(Rows(features, check_outcomes(model.problem, Y), values))
    return scores, digest_rows(X, Y)


def _summary(scored: tuple[Array, str]) -> tuple[int, float, float, float, str]:
    scores, digest = scored
    if not len(scores):
        return 0, np.inf, -np.inf, -np.inf, digest
    finite = scores.max(initial=-np.inf, where=np.isfinite(scores))
    return len(scores), float(scores.min()), float(scores.max()), float(finite), digest


def _edges(low: float, high: float) -> Array:
    """Rising edges that end at `high`, all at least `low`; infinite ends are cut off first."""
    largest = np.finfo(np.float64).max
    if not (np.isfinite(low) and np.isfinite(high)):
        return np.unique(np.clip([-np.inf, -largest, largest, np.inf], low, high))
    middle = low / 2 + high / 2  # the difference of two finite numbers may overflow, their halves do not
    steps = np.linspace(-1.0, 1.0, _BINS + 1) * (high / 2 - low / 2)
    # Beside the largest number the sum may round to infinity; it is then brought back to `high`.
    with np.errstate(over="ignore"):
        edges = np.clip(middle + steps, low, high)
    return np.unique(np.append(edges, [low, high]))


def _count(scores: Array, edges: Array) -> Indices:
    return np.searchsorted(np.sort(scores), edges, side="right")


def _between(scores: Array, low: float, high: float) -> Array:
    return scores[(scores >= low) & (scores <= high)]
