"""A table of rows -> a table of decisions, in which every row keeps its place."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from polyhedge._support.frames import listed, names_of, select_columns
from polyhedge.calibration.labels import as_values, takes_labels
from polyhedge.decisions import no_decisions
from polyhedge.model import Model
from polyhedge.predictors.columns import as_table, features_of
from polyhedge.problems import DecisionProblem
from polyhedge.problems.layout import column_names, from_columns, with_columns
from polyhedge.regions import Work
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
    """The parameters by name; an error unless all can be taken along with rows that come in parts.

    Those of one entry that are not given are the columns of their names, where there are such.
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


def table_features(model: Model, rows: Any, parameters: Parameters | None, labels: str | None = None) -> Any:
    """The columns of a data frame as the predictor knows them: by name, or as an array without those of other roles."""
    if model.schema is not None:
        return features_of(as_table(rows, model.schema.source_names), model.schema)[0]
    if model.names is None:
        names_of(rows)  # numbers that are out of order are no names, and no order either
        given = with_columns(model.problem.parameters, parameters, rows.columns)
        return rows.drop(columns=[*parameter_columns(given), *([] if labels is None else [labels])]).to_numpy()
    return select_columns(rows, model.names, "The table")


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
        (with guarantee="outcome" the worst outcome, as `worst_u_1` ..., instead), `status` and `note`, which is missing
        where there is nothing to say and tells the gap of a solve that stopped early.

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
    features = table_features(model, rows, given, labels)
    decisions = no_decisions(model.problem, is_planned=model.guarantee == "cost")
    if len(rows):
        X = features if model.schema is None else rows
        values = from_columns(model.problem.parameters, given, rows)
        own = None if labels is None else as_values(rows[labels].to_list())
        decisions = model.decide(X, values, Work(n_jobs), own).noted(model.oddities(X))
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
