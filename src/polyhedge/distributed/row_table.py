"""A table of rows -> a table of decisions, in which every row keeps its place; also for Dask data frames."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from polyhedge._support.frames import listed, names_of, select_columns
from polyhedge._support.validation import Array
from polyhedge.calibration import Calibrator, Marginal, OneRadius, score_tolerance
from polyhedge.calibration.radii import rows_without_features
from polyhedge.data import digest_rows
from polyhedge.decisions import no_decisions
from polyhedge.model import Model
from polyhedge.predictors.columns import as_table, features_of
from polyhedge.problems import DecisionProblem
from polyhedge.problems.checks import check_outcomes
from polyhedge.problems.layout import column_names, from_columns, order_outcomes, parameter_rows, with_columns
from polyhedge.regions import Work
from polyhedge.rows import Rows, as_values, takes_labels
from polyhedge.solvers.options import Solver, solver_in_force
from polyhedge.solvers.program import Status

_STATUSES = tuple(dict.fromkeys(str(status).partition(":")[0] for status in Status))

Parameters = Mapping[Any, Any]


def model_of(decider: Any) -> Model:
    """The model of a fitted `RobustDecider`."""
    if not hasattr(decider, "model_"):
        raise NotFittedError("This RobustDecider is not fitted yet. Call fit(X, Y) first.")
    model: Model = decider.model_
    return model


def check_parameters(problem: DecisionProblem, parameters: Parameters | None, columns: Any) -> dict[str, Any]:
    """The parameters by name; an error unless each has one value or names columns.

    A scalar parameter that is not given is read from the column of its name, if there is one.
    """
    given = with_columns(problem.parameters, parameters, columns)
    for parameter in problem.parameters:
        value: Any = given.get(parameter.name)
        n, is_flat = len(column_names(value)), len(parameter.shape) < 2
        is_fine = is_flat and n == parameter.leaf.size if n else np.shape(value) == parameter.shape
        if value is None or not is_fine:
            raise ValueError(
                f"The parameter {parameter.name} must be given as {parameter.leaf.size} name(s) of columns or as "
                f"one value of shape {parameter.shape}, because rows of tables come in parts; got {value!r}."
            )
    return given


def parameter_columns(parameters: Parameters | None) -> list[str]:
    """Columns that hold values of parameters."""
    return list(dict.fromkeys(name for value in (parameters or {}).values() for name in column_names(value)))


def without_roles(model: Model, rows: Any, parameters: Parameters | None, labels: str | None = None) -> Any:
    """A data frame for a model: its columns where they have names, else an array without columns of other roles."""
    if model.schema is not None:
        features_of(as_table(rows.iloc[:0], model.schema.source_names), model.schema)  # an error if one is not there
        return rows
    if model.names is not None:
        return select_columns(rows, model.names, "The table")
    names_of(rows)  # numbers that are out of order are no names, and no order either
    given = with_columns(model.problem.parameters, parameters, rows.columns)
    return rows.drop(columns=[*parameter_columns(given), *([] if labels is None else [labels])]).to_numpy()


def require(extra: str, packages: Sequence[str]) -> None:
    """Raise an error that names the extra to install where one of the packages is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"This needs {' and '.join(missing)}. Get it with: pip install 'polyhedge[{extra}]'")


def check_column(model: Model, labels: Any, columns: Any) -> None:
    """Raise unless the labels or weights that calibration reads are a column of the table."""
    if labels is None and not takes_labels(model.radii):
        return
    if not takes_labels(model.radii):
        raise ValueError(f"No labels are read, and labels={str(labels)[:40]!r} is given. Leave it out.")
    if not isinstance(labels, str) or labels not in columns:
        raise ValueError(
            "The model was calibrated by labels or weights of the rows, and rows of tables come in parts: labels must "
            f"name the column that holds them, one of {listed(list(columns))}, got {str(labels)[:40]!r}."
        )


def decide_rows(
    model: Model,
    rows: Any,
    parameters: Parameters | None = None,
    *,
    labels: str | None = None,
    n_jobs: int | None = None,
) -> Any:
    """One row of results for each row of a data frame, in the same order and with the same index.

    Rows with values that are missing or cannot be used keep their place: their decision is NaN, their status "not
    decided", and `note` says why.

    Parameters
    ----------
    model : Model
        `RobustDecider.model_`.
    rows : pandas.DataFrame
    parameters : dict, optional
        Values of the problem's parameters, by name: a column of the table (a list of columns where the parameter has
        several entries), or one value for all rows; by default the column of its name.
    labels : str, optional
        Column with the labels or weights that calibration reads.
    n_jobs : int, optional
        Number of threads, by default one a core.

    Returns
    -------
    pandas.DataFrame
        The columns of `Decisions.to_frame`: the decision by the problem's own names, `cost_bound`, `expected_cost`
        (with guarantee="outcome" the worst outcome, as `worst_u_1` ..., instead), `status` and `note`. The note is
        missing where there is nothing to say; that of a solve that stopped early has its gap.

    Examples
    --------
    >>> import pandas as pd, polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(400, rng=np.random.default_rng(0))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), random_state=0).fit(X, Y)
    >>> rows = pd.DataFrame(X[:2])
    >>> rows.iloc[1, 0] = float("nan")
    >>> decide_rows(decider.model_, rows)["status"].tolist()
    ['optimal', 'not decided']
    """
    import pandas as pd

    given = check_parameters(model.problem, parameters, rows.columns)
    check_column(model, labels, rows.columns)
    X, decisions = (
        without_roles(model, rows, given, labels),
        no_decisions(model.problem, is_planned=model.guarantee == "cost"),
    )
    if len(rows):
        values = from_columns(model.problem.parameters, given, rows)
        own = None if labels is None else as_values(rows[labels].to_list())
        decisions, notes = model.decide_with_notes(X, values, Work(n_jobs), own)
        decisions = decisions.noted(notes)
    frame = replace(decisions, labels=model.labels(rows)).to_frame("pandas")
    notes = [note or None for note in frame.iloc[:, -1]]
    is_arrow = importlib.util.find_spec("pyarrow") is not None
    return frame.assign(
        status=pd.Categorical(frame.iloc[:, -2], categories=list(_STATUSES)),
        note=pd.array(notes, dtype=pd.StringDtype("pyarrow" if is_arrow else "python")),
    )


def empty_result(model: Model) -> Any:
    """A table of decisions without rows: the types of the columns."""
    import pandas as pd

    columns = model.names if model.schema is None else model.schema.source_names
    values = {parameter.name: np.zeros(parameter.shape) for parameter in model.problem.parameters}
    labels = "labels" if takes_labels(model.radii) else None
    names = [*(columns or ()), *([] if labels is None else [labels])]
    return decide_rows(model, pd.DataFrame({name: [] for name in names}), values, labels=labels)


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
    features = model.features(without_roles(model, X, parameters))
    values = None
    if parameters is not None or model.family.scores_need_parameters:
        values = parameter_rows(model.problem.parameters, parameters, len(X), X)
    with solver.in_force():
        scores = model.scores(Rows(features, check_outcomes(model.problem, Y), values))
    return scores, digest_rows(X, Y)
