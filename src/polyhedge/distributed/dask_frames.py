"""Dask data frames: decisions partition by partition, and the exact radius from scores on many machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.calibration import Calibrator, Marginal, OneRadius, score_tolerance
from polyhedge.calibration.radii import rows_without_features
from polyhedge.data import digest_rows
from polyhedge.distributed.row_table import Parameters, decide_rows, require, table_features
from polyhedge.model import Model
from polyhedge.problems.checks import check_outcomes
from polyhedge.problems.layout import order_outcomes, parameter_rows
from polyhedge.rows import Rows
from polyhedge.solvers.options import Solver, solver_in_force


def decide_frame(model: Model, frame: Any, parameters: Parameters | None = None, labels: Any = None) -> Any:
    """Decide partition by partition: a lazy Dask data frame with the same divisions and row order.

    The model is one node of the task graph, so that it travels to each worker once, not with every partition.

    Parameters
    ----------
    model : `RobustDecider.model_`.
    frame : dask.dataframe.DataFrame
    parameters, labels : as in `decide_rows`, whose columns the result has.
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

    The scores are computed where the rows are; they travel to the caller, eight bytes a row. The rows must not have
    been used for training or learning, otherwise the guarantee is void.

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
    import dask

    sent, ordered = _sent_once(model, parameters), list(order_outcomes(model.problem.outcome_names, names))
    parts = dask.compute(*(dask.delayed(_score_partition)(part, sent, ordered) for part in frame.to_delayed()))
    scores = np.concatenate([own for own, _ in parts])
    if not model.family.scores_are_steps:
        scores = scores + score_tolerance(scores)
    radius = Marginal().calibrate(scores, rows_without_features(len(scores)), alpha)
    return radius, digest_rows(np.array([digest for _, digest in parts]))


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
